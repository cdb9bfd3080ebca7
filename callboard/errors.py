"""The errors that the public API raises: one root and few, named children.

They decide nothing. Each carries one message for the person who uses the system: what was wrong, where, and
what to do about it. The API raises them, the command line prints them and picks its exit code by their kind.
"""

from __future__ import annotations


class CallboardError(Exception):
    """Anything that the public API refuses or fails at; ``str()`` of it is a message for the user.

    ``kind`` is one word for a program, where a part of the system gave one: ``storage_full``, ``closed``, …
    """

    kind: str = ""

    @property
    def message(self) -> str:
        """The message for the user."""
        return str(self)


class ConfigError(CallboardError):
    """The configuration cannot be used: names the file, the key, what was expected and what was found."""


class UntrustedConfig(ConfigError):
    """A ``callboard.toml`` was not recorded by ``callboard trust``, or changed since."""


class NoDaemon(CallboardError):
    """No daemon of that name is running for this user."""


class DaemonFailed(CallboardError):
    """The daemon did not start, or ended while starting; the message ends with the last lines of its log."""


class Unavailable(CallboardError):
    """The system is there but did not answer in time, or was lost in mid-request; the request may be
    repeated.
    """


class ConversationNotFound(CallboardError):
    """No conversation of that id exists for this principal."""


class ToolNotFound(CallboardError):
    """The registry has no tool of that name."""


class Refused(CallboardError):
    """The system understood the command and will not carry it out; the message says why."""
