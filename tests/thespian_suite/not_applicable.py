"""The tests of Thespian's suite that do not apply to our mail, each with its reason: at present none.

Two tests read a host out of a printed address; the plugin prints addresses as they expect. ``testCommandAbort`` needs
an environment without PYTHONUNBUFFERED, on any base.
"""

from __future__ import annotations

NOT_APPLICABLE: dict[str, str] = {}
