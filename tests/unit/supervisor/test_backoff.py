"""The backoff, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.spec_errors import InvalidBackoff


def test_the_delay_doubles_from_the_least_to_the_most() -> None:
    policy = Backoff(min_s=0.5, max_s=3.0, jitter=0.0)
    assert [policy.delay_s(failures, 0.9) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_is_added_in_proportion_and_the_cap_comes_last() -> None:
    policy = Backoff(min_s=1.0, max_s=4.5, jitter=0.5)
    assert [policy.delay_s(failures, 0.5) for failures in (1, 2, 3)] == [1.25, 2.5, 4.5]
    assert policy.delay_s(1, 0.0) == 1.0


def test_a_huge_count_is_no_overflow() -> None:
    tiny = Backoff(min_s=1e-30, max_s=1e9, jitter=0.0)
    assert tiny.delay_s(10**9, 0.0) == 1e-30 * 2.0**64
    assert tiny.delay_s(65, 0.0) == tiny.delay_s(66, 0.0)
    assert tiny.delay_s(64, 0.0) == tiny.delay_s(65, 0.0) / 2


def test_no_wait_stays_no_wait() -> None:
    assert Backoff(min_s=0.0, max_s=0.0).delay_s(5, 0.5) == 0.0
    assert isinstance(Backoff(min_s=1, max_s=1).delay_s(5, 0.5), float)


def test_the_defaults() -> None:
    policy = Backoff()
    assert (policy.min_s, policy.max_s, policy.jitter, policy.reset_after_s) == (0.05, 30.0, 0.2, 10.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_s": 2, "max_s": 1}, "backoff needs 0 <= min_s <= max_s, got 2 and 1"),
        ({"min_s": -1}, "backoff needs 0 <= min_s <= max_s, got -1 and 30.0"),
        ({"max_s": float("inf")}, "backoff needs 0 <= min_s <= max_s, got 0.05 and inf"),
        ({"jitter": -0.1}, "backoff jitter must lie between 0 and 1, got -0.1"),
        ({"jitter": 1.1}, "backoff jitter must lie between 0 and 1, got 1.1"),
        ({"reset_after_s": -1}, "backoff reset_after_s must be 0 or more, got -1"),
        ({"reset_after_s": float("inf")}, "backoff reset_after_s must be 0 or more, got inf"),
        ({"min_s": "1"}, "backoff min_s must be a number, got '1'"),
        ({"max_s": None}, "backoff max_s must be a number, got None"),
        ({"jitter": True}, "backoff jitter must be a number, got True"),
        ({"reset_after_s": []}, "backoff reset_after_s must be a number, got []"),
    ],
)
def test_numbers_that_contradict_each_other_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidBackoff) as raised:
        Backoff(**fields)
    assert str(raised.value) == message


def test_the_bounds_themselves_are_allowed() -> None:
    Backoff(min_s=0, max_s=0, jitter=0, reset_after_s=0)
    Backoff(min_s=1, max_s=1, jitter=1)


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^failures must be 1 or more, got 0$"):
        Backoff().delay_s(0, 0.0)
