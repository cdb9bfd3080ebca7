"""The tests of Thespian's suite that do not apply to our mail, each with its reason."""

from __future__ import annotations

NOT_APPLICABLE: dict[str, str] = {}
