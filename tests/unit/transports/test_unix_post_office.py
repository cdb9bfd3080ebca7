"""One process's mail: turns between mail, wakeups, signals and watches; full and dead targets."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from callboard.transports.outbox import Parcel
from callboard.transports.post_office import PostOffice
from callboard.transports.unix_address import UnixAddress, new_name
from callboard.transports.unix_socket import Sending

Done = list[tuple[Any, Sending]]


class Office(PostOffice):
    """A post office that notes what became of its sends."""

    def __init__(self, folder: Path) -> None:
        self.done: Done = []
        own = UnixAddress(f"{folder}/{new_name()}")
        super().__init__(own, lambda i, o: self.done.append((i, o)), create=True, sweeps=False)

    def post(self, to: Office, message: Any, name: Any = None) -> None:
        body = pickle.dumps(message)
        self.send(to.own.path, Parcel((body,), len(body), name or message), urgent=False)

    def take(self, number: int = 1) -> list[Any]:
        found = [self.next(time.monotonic() + 0.2) for _ in range(number)]
        return [None if letter is None else letter.message for letter in found]


@pytest.fixture
def offices(tmp_path: Path) -> Iterator[list[Office]]:
    made = [Office(tmp_path / "mail") for _ in range(3)]
    yield made
    for office in made:
        office.close()
    assert list((tmp_path / "mail").iterdir()) == []


def test_mail_comes_with_its_senders_address_and_the_sender_is_told(offices: list[Office]) -> None:
    one, two, _ = offices
    one.post(two, "hello")
    letter = two.next(time.monotonic() + 1)
    assert letter is not None
    assert (letter.message, letter.sender) == ("hello", one.address)
    assert one.done == [("hello", Sending.SENT)]


def test_a_full_target_gets_its_mail_in_order_once_it_reads_and_others_do_not_wait(
    offices: list[Office],
) -> None:
    one, full, other = offices
    own = len(one.fds)
    for number in range(500):
        one.post(full, number)
    one.post(other, "quick")
    assert other.take() == ["quick"]
    assert one.waiting > 400
    taken: list[Any] = []
    while one.waiting:
        taken += full.take()
        one.wait(0.0, reading=False)
    assert [*taken, *full.take(500 - len(taken))] == list(range(500))
    assert [outcome for _, outcome in one.done] == [Sending.SENT] * 501
    assert len(one.fds) == own, "the socket of the outbox is closed with it"


def test_a_large_message_waits_in_its_turn(offices: list[Office]) -> None:
    one, two, _ = offices
    messages: list[Any] = [*range(20), b"x" * 200_000, "after", b"y" * 70_000]
    for number, message in enumerate(messages):
        one.post(two, message, name=f"m{number}")
    taken: list[Any] = []
    while len(taken) < len(messages):
        taken += two.take()
        one.wait(0.0, reading=False)
    assert taken == messages


def test_a_dead_target_is_told_for_each_message_that_waited(offices: list[Office]) -> None:
    one, two, _ = offices
    for number in range(100):
        one.post(two, number)
    waited = one.waiting
    two.close()
    while one.waiting:
        one.wait(1.0, reading=False)
    assert [o for _, o in one.done].count(Sending.DEAD) == waited
    one.post(two, "late")
    assert one.done[-1] == ("late", Sending.DEAD)


def test_wakeups_without_end_do_not_starve_mail_nor_mail_wakeups(offices: list[Office]) -> None:
    one, two, _ = offices
    for number in range(5):
        one.post(two, number)
        two.wake_after(0.0, None, f"w{number}")
    taken = [getattr(message, "payload", message) for message in two.take(10)]
    assert [x for x in taken if isinstance(x, int)] == list(range(5))
    assert [x for x in taken if isinstance(x, str)] == [f"w{n}" for n in range(5)]
    assert all(isinstance(a, int) != isinstance(b, int) for a, b in pairwise(taken))


def test_a_signal_comes_before_the_mail_and_once(offices: list[Office]) -> None:
    one, two, _ = offices
    one.post(two, "mail")
    two.signal(KeyError("stop"))
    two.signal(KeyError("stop"))
    first, second, third = two.take(3)
    assert (type(first), second, third) == (KeyError, "mail", None)


def test_a_flood_of_own_messages_hides_no_watched_descriptor(offices: list[Office]) -> None:
    one = offices[0]
    readable, writable = os.pipe()
    try:
        one.watch(frozenset([readable]))
        os.write(writable, b"x")
        for number in range(200):
            one.post_to_self(number)
        seen = one.take(201)
        assert next(message.ready for message in seen if not isinstance(message, int)) == [readable]
        one.watch(frozenset())
        assert one.take() == [None]
    finally:
        os.close(readable)
        os.close(writable)


def test_a_watched_descriptor_that_was_closed_is_dropped(offices: list[Office]) -> None:
    one = offices[0]
    readable, writable = os.pipe()
    one.watch(frozenset([readable]))
    os.close(readable)
    os.close(writable)
    assert one.take() == [None]


def test_an_aborted_wait_gives_nothing_at_once(offices: list[Office]) -> None:
    one = offices[0]
    one.aborted = True
    assert one.next(None) is None
