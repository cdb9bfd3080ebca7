"""Which of an actor's children has which address, in the place of Thespian's list, which never shrinks (B21).

Thespian numbers the children that an actor creates and looks their addresses up by number. A dead child's entry is
kept for a while, for notices that arrive late, and then dropped: looked up again, it has nobody's address, and mail
to that is mail to the dead.
"""

from __future__ import annotations

from collections import deque
from typing import Any

DEAD_KEPT = 256


class AddressBook:
    """Behaves as the list that Thespian's ActorAddressManager uses: append, len, read and write by number."""

    def __init__(self, nobody: Any, dead_kept: int = DEAD_KEPT) -> None:
        self._nobody = nobody
        self._entries: dict[int, Any] = {}
        self._numbers: dict[Any, int] = {}
        self._length = 0
        self._dead: deque[int] = deque()
        self._dead_kept = dead_kept

    def append(self, address: Any) -> None:
        """Add the next child; None while its address is not known."""
        self._entries[self._length] = address
        self._length += 1

    def __len__(self) -> int:
        """Give how many children there ever were."""
        return self._length

    def __getitem__(self, number: int) -> Any:
        """Give the child's address, None when not known yet, nobody's when it is long dead."""
        if number >= self._length:
            raise IndexError(number)
        return self._entries.get(number, self._nobody)

    def __setitem__(self, number: int, address: Any) -> None:
        """Note the child's address, once it has reported."""
        if number in self._entries:
            self._entries[number] = address
            self._numbers[address.addressDetails] = number

    def bury(self, number: int) -> None:
        """Note that the child is dead; without an address it never had one."""
        if number not in self._entries or number in self._dead:
            return
        if self._entries[number] is None:
            self._entries[number] = self._nobody
        self._dead.append(number)
        if len(self._dead) > self._dead_kept:
            gone = self._entries.pop(self._dead.popleft())
            self._numbers.pop(gone.addressDetails, None)

    def bury_address(self, details: Any) -> None:
        """Note that the child with this address is dead, if it is one."""
        number = self._numbers.get(details)
        if number is not None:
            self.bury(number)

    @property
    def kept(self) -> int:
        """How many entries it holds."""
        return len(self._entries)
