"""The book of heartbeats, row by row."""

from __future__ import annotations

from callboard.supervisor.heartbeat import EVERY_S, LIMIT_S, Heartbeats


def beats_until(book: Heartbeats, start: float, end: float, answering: set[str]) -> list[tuple[str, int]]:
    """Let the book beat from ``start`` to ``end``, those in ``answering`` answering; gives who hung at the end."""
    now, hung = start, []
    while now <= end:
        pings, hung = book.beat(now)
        for id, number in pings:
            if id in answering:
                book.heard(number, now)
        now += EVERY_S
    return hung


def test_a_child_that_answers_is_never_blamed() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    assert beats_until(book, 0.0, 100.0, {"a"}) == []


def test_a_silent_child_hangs_after_the_limit_and_not_before() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    book.watch("b", 4, 0.0)
    assert beats_until(book, 0.0, LIMIT_S - 0.1, {"b"}) == []
    assert beats_until(book, LIMIT_S, LIMIT_S + EVERY_S, {"b"}) == [("a", 1)]


def test_an_answer_of_a_former_life_does_not_count() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    ((_, number),), _ = book.beat(0.0)
    book.watch("a", 2, 1.0)
    book.heard(number, 50.0)
    _, hung = book.beat(2.0)
    assert hung == []
    assert beats_until(book, 3.0, 14.0, set()) == [("a", 2)]


def test_a_child_with_a_long_operation_is_excused_until_its_end() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    book.excuse("a", 1, 60.0)
    book.excuse("a", 7, 1000.0)
    assert beats_until(book, 0.0, 60.0 + LIMIT_S - 1, set()) == []
    assert beats_until(book, 60.0 + LIMIT_S, 60.0 + LIMIT_S + 2 * EVERY_S, set()) == [("a", 1)]


def test_nobody_is_blamed_when_the_supervisor_itself_was_held_up() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    book.beat(0.0)
    _, hung = book.beat(500.0)
    assert hung == []


def test_a_forgotten_child_is_not_expected_to_answer() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    book.forget("a")
    assert book.beat(100.0) == ([], [])


def test_the_book_stays_small_however_long_nobody_answers() -> None:
    book = Heartbeats()
    book.watch("a", 1, 0.0)
    beats_until(book, 0.0, 3000.0, set())
    assert len(book._sent) < 20


def test_very_many_children_are_pinged_less_often() -> None:
    book = Heartbeats()
    for n in range(1000):
        book.watch(f"c{n}", 1, 0.0)
    assert book.interval_s == 10.0
    assert book.beat(39.0)[1] == []
