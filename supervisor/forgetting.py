"""What an actor still holds in Thespian about a child that is gone, dropped (B21).

Thespian keeps an entry per child that an actor ever created, and for ever the mail to one that died before it had
reported. It is called by whoever buries a child (``Child.forget_child``); it ends no process and decides nothing.
"""

from __future__ import annotations

from typing import Any

from thespian.actors import ActorAddress
from thespian.system.transport import SendStatus

_FORGOTTEN = "a child that was forgotten"


def forget_child(manager: Any, address: Any) -> None:
    """Drop all that ``manager`` (the actor's ``_myRef``) holds about the child; twice is not an error.

    ``address`` is what ``createActor`` gave for the child, which has ended or has been killed: mail to it that waits
    has failed, later mail is mail to the dead, and its exit code is not kept.
    """
    book = manager._addrManager
    number = address.addressDetails.addressInstanceNum
    known = book.exportAddr(address)
    for intent in manager._awaitingAddressUpdate.remove_intents_for_address(address):
        intent.tx_done(SendStatus.Failed)
    for info in getattr(manager, "_child_procs", ()):
        if info.childNum == number:
            info.forgotten = True
    if known is not None:
        details = known.addressDetails
        manager._children = [child for child in manager._children if child.addressDetails != details]
        manager.transport.deadAddress(book, known)
    manager.transport.deadAddress(book, address)
    if isinstance(book._managed, list):
        _bury_in_list(book, number)


def _bury_in_list(book: Any, number: int) -> None:
    """Thespian's own list is looked into by number, and so cannot shrink: all the dead share one address in it."""
    if not book._deadAddrs:
        book.deadAddress(ActorAddress(_FORGOTTEN))
    book._managed[number] = book._deadAddrs[0]
