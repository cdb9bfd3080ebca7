"""How an end of the mail is opened: by a process outside, or by a forked actor with what its parent prepared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thespian.system.transport import TransportInit__Base

from callboard.transports.unix_address import UnixAddress

Identified = tuple[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Outside:
    """A thread of a process outside the actor system opens its end: in this folder, under a new name."""

    folder: str
    admin: Any


class Endpoint(TransportInit__Base):  # type: ignore[misc]
    """What a parent gives its child to open its end with, and keeps to know it by.

    ``inherited`` are the parent's descriptors, each with what it refers to: a forked child closes them.
    """

    def __init__(
        self, instance: int | None, address: UnixAddress, admin: Any, inherited: Sequence[Identified]
    ) -> None:
        self.instance = instance
        self.address = address
        self.admin = admin
        self.inherited = inherited

    @property
    def addrInst(self) -> int | None:  # noqa: N802
        """The number under which the parent created the child, in Thespian's name for it."""
        return self.instance


def identified(fds: Sequence[int]) -> list[Identified]:
    """Give the descriptors, each with what it refers to."""
    return [(fd, _identity(fd)) for fd in fds]


def close_inherited(inherited: Sequence[Identified]) -> None:
    """Close the parent's descriptors, where they were inherited and nobody has closed them before."""
    for fd, identity in inherited:
        with contextlib.suppress(OSError):
            if _identity(fd) == identity:
                os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
