"""The list of an actor's children does not grow for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from callboard.transports.address_book import AddressBook


@dataclass(frozen=True)
class Address:
    addressDetails: str  # noqa: N815


NOBODY = Address("nobody")


def test_it_behaves_as_the_list_that_thespian_had() -> None:
    book = AddressBook(NOBODY)
    book.append(None)
    book.append(None)
    assert len(book) == 2
    assert book[1] is None
    book[1] = Address("child")
    assert book[1] == Address("child")
    with pytest.raises(IndexError):
        book[2]


def test_a_dead_child_is_still_known_for_a_while_and_then_is_nobody() -> None:
    book = AddressBook(NOBODY, dead_kept=1)
    for name in ("a", "b"):
        book.append(None)
        book[len(book) - 1] = Address(name)
    book.bury_address("a")
    assert book[0] == Address("a")
    book.bury_address("b")
    assert (book[0], book[1]) == (NOBODY, Address("b"))


def test_a_child_that_died_before_it_reported_has_nobodys_address_at_once() -> None:
    book = AddressBook(NOBODY)
    book.append(None)
    book.bury(0)
    assert book[0] == NOBODY


def test_a_hundred_thousand_children_leave_a_bounded_book() -> None:
    book = AddressBook(NOBODY)
    for number in range(100_000):
        book.append(None)
        book[number] = Address(str(number))
        book.bury_address(str(number))
        book.bury(number)
    assert len(book) == 100_000
    assert book.kept < 300
