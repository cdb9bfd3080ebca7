"""What an actor's address is on this host: the path of its socket. A name is never used twice.

So an address belongs to one life of one actor: mail for a former life finds no socket, and can never reach a later
one. Pure data; resolving a path to what the kernel takes is ``mail_folder``'s concern.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The absolute path of an actor's socket. Any process of the same user reaches the actor by it alone."""

    path: str

    def __str__(self) -> str:
        """Give the path: it tells any two actors apart, so it can be a key."""
        return self.path

    @property
    def folder(self) -> str:
        """The folder of the socket."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The socket's name in its folder."""
        return self.path.rpartition("/")[2]


def new_name() -> str:
    """Make a socket name that was never used: 64 random bits."""
    return secrets.token_hex(8)
