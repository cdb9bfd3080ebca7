"""When an idle client asks to leave, and what it makes of the answer."""

from __future__ import annotations

from callboard.actors.client_leaving import Leaving
from callboard.actors.messages import MayLeave, StayHere
from callboard.supervisor.envelope import Failure


def test_it_asks_when_nothing_has_happened_for_long_enough() -> None:
    leaving = Leaving(10.0, now=0.0)
    assert leaving.wait_s(0.0, is_idle=True) == 10.0
    leaving.touch(4.0)
    assert leaving.wait_s(6.0, is_idle=True) == 8.0
    assert leaving.wait_s(14.0, is_idle=True) == 0.0


def test_a_busy_client_looks_again_now_and_then() -> None:
    assert Leaving(600.0, now=0.0).wait_s(1000.0, is_idle=False) == 30.0
    assert Leaving(2.0, now=0.0).wait_s(1000.0, is_idle=False) == 2.0
    assert Leaving(0.0, now=0.0).wait_s(1000.0, is_idle=False) > 0


def test_it_goes_when_it_may() -> None:
    leaving = Leaving(0.0, now=0.0)
    leaving.handed((1, 5))
    assert leaving.ask() == (1, 5)
    assert leaving.answered(MayLeave(), 1.0, is_idle=True)[0]


def test_a_permission_from_before_the_last_letter_does_not_count() -> None:
    leaving = Leaving(0.0, now=0.0)
    leaving.handed((1, 5))
    leaving.ask()
    leaving.handed((2, 1))
    assert not leaving.answered(MayLeave(), 1.0, is_idle=True)[0]


def test_a_busy_client_that_was_let_go_goes_as_soon_as_it_is_idle() -> None:
    leaving = Leaving(600.0, now=0.0)
    leaving.ask()
    goes, again_s = leaving.answered(MayLeave(), 1.0, is_idle=False)
    assert not goes
    assert again_s < 1.0
    assert leaving.wait_s(1.0, is_idle=True) == 0.0
    assert leaving.wait_s(1.0, is_idle=False) < 1.0


def test_who_is_to_stay_asks_again_under_the_mark_that_it_was_told() -> None:
    leaving = Leaving(5.0, now=0.0)
    leaving.ask()
    goes, again_s = leaving.answered(StayHere((3, 2)), 100.0, is_idle=True)
    assert not goes
    assert 0 < again_s < 1.0
    assert leaving.ask() == (3, 2)


def test_without_an_answer_it_asks_again_later() -> None:
    leaving = Leaving(0.0, now=0.0)
    leaving.ask()
    goes, again_s = leaving.answered(Failure(kind="unanswered", message="…"), 1.0, is_idle=True)
    assert not goes
    assert again_s >= 1.0
