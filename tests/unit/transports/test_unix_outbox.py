"""The outbox of one target, and the order of wakeups."""

from __future__ import annotations

import pytest

from callboard.transports.datagrams import MAX_INLINE
from callboard.transports.mail_errors import TargetFull
from callboard.transports.outbox import Outbox, Parcel
from callboard.transports.wakeups import Wakeups


def parcel(size: int, name: str = "") -> Parcel:
    return Parcel((b"x" * min(size, 8),), size, name)


def test_small_parcels_go_together_in_order_until_a_datagram_is_full() -> None:
    outbox = Outbox()
    for number in range(100):
        outbox.add(parcel(1000, str(number)))
    first = outbox.batch()
    assert [p.intent for p in first] == [str(n) for n in range(len(first))]
    assert sum(p.size for p in first) <= MAX_INLINE < sum(p.size for p in first) + 2 * 1004
    outbox.drop(len(first))
    assert outbox.batch()[0].intent == str(len(first))


def test_a_large_parcel_goes_alone_and_in_its_turn() -> None:
    outbox = Outbox()
    for name, size in (("a", 10), ("b", MAX_INLINE + 1), ("c", 10)):
        outbox.add(parcel(size, name))
    batches = []
    while batch := outbox.batch():
        batches.append([p.intent for p in batch])
        outbox.drop(len(batch))
    assert batches == [["a"], ["b"], ["c"]]


def test_the_largest_parcel_that_is_not_large_is_sent() -> None:
    outbox = Outbox()
    outbox.add(parcel(MAX_INLINE))
    assert len(outbox.batch()) == 1


def test_a_full_outbox_refuses_and_keeps_what_it_has() -> None:
    outbox = Outbox(max_messages=3, max_bytes=100)
    for _ in range(3):
        outbox.add(parcel(10))
    with pytest.raises(TargetFull, match="3 messages"):
        outbox.add(parcel(10))
    assert len(outbox) == 3
    assert outbox.bytes == 30


def test_bytes_are_bounded_too_but_an_empty_outbox_takes_any_parcel() -> None:
    outbox = Outbox(max_messages=10, max_bytes=100)
    outbox.add(parcel(1000))
    with pytest.raises(TargetFull, match="1000 bytes"):
        outbox.add(parcel(1))


def test_the_actor_systems_own_messages_may_use_the_reserve() -> None:
    outbox = Outbox(max_messages=1, max_bytes=100)
    outbox.add(parcel(100))
    outbox.add(parcel(100), urgent=True)
    assert len(outbox) == 2


def test_emptying_gives_all_that_waited() -> None:
    outbox = Outbox()
    outbox.add(parcel(5, "a"))
    outbox.add(parcel(6, "b"))
    assert [p.intent for p in outbox.empty()] == ["a", "b"]
    assert (len(outbox), outbox.bytes, outbox.batch()) == (0, 0, [])


def test_wakeups_come_in_the_order_in_which_they_are_due() -> None:
    wakeups = Wakeups()
    for at, payload in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a2")):
        wakeups.add(at, None, payload)
    assert wakeups.next_at() == 1.0
    assert wakeups.take_due(0.5) is None
    taken = []
    while (wakeup := wakeups.take_due(2.5)) is not None:
        taken.append(wakeup.payload)
    assert taken == ["a", "a2", "b"]
    assert len(wakeups) == 1
