"""The errors of this folder: one root, few children.

They stay inside the process that raised them; an actor turns them into a reason or a result before anything
travels. Each message names what was wrong, where, and what to do.
"""

from __future__ import annotations


class TransportError(Exception):
    """Root of everything that ``callboard.transports`` raises on purpose."""


class LineTooLong(TransportError):
    """The peer sent a line above the cap; the connection cannot be trusted to be in step any more.

    ``lines_before`` holds the complete lines that came before it in the same chunk: handle them first.
    """

    def __init__(self, cap_bytes: int, lines_before: tuple[bytes, ...] = ()) -> None:
        super().__init__(
            f"a line is longer than the cap of {cap_bytes} bytes; "
            "raise the server's line cap or make it send less"
        )
        self.cap_bytes = cap_bytes
        self.lines_before = lines_before


class NotSerialisable(TransportError):
    """A value of ours has no JSON form (a set, NaN, a cycle, nesting without end)."""


class SpawnFailed(TransportError):
    """The child process could not be started."""


class CommandNotFound(SpawnFailed):
    """The command does not exist, or may not be executed, on the child's PATH."""

    def __init__(self, command: str, problem: str) -> None:
        super().__init__(f"cannot start {command!r}: {problem}")
        self.command = command


class OutboxFull(TransportError):
    """The child does not read its stdin, and what waits for it is at the bound; nothing of it was taken."""


class ChildClosed(TransportError):
    """The child's stdin is closed (it ended, or it is being stopped): nothing more can be sent."""
