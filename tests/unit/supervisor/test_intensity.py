"""The restart window, row by row."""

from __future__ import annotations

import pytest

from callboard.supervisor.intensity import Intensity, RestartWindow
from callboard.supervisor.spec_errors import InvalidIntensity


def test_the_present_restart_is_counted() -> None:
    window = RestartWindow(Intensity(2, 5.0))
    assert [window.record(at) for at in (0.0, 1.0, 2.0)] == [True, True, False]


def test_a_restart_exactly_a_period_old_still_counts_and_an_older_one_does_not() -> None:
    assert [RestartWindow(Intensity(1, 5.0)).record(at) for at in (0.0,)] == [True]
    window = RestartWindow(Intensity(1, 5.0))
    window.record(0.0)
    assert not window.record(5.0)
    window = RestartWindow(Intensity(1, 5.0))
    window.record(0.0)
    assert window.record(5.001)


def test_the_period_is_not_rounded_to_whole_seconds() -> None:
    window = RestartWindow(Intensity(1, 0.25))
    assert [window.record(at) for at in (0.0, 0.3, 0.6, 0.8)] == [True, True, True, False]


def test_a_limit_of_nothing_allows_no_restart() -> None:
    assert not RestartWindow(Intensity(0, 5.0)).record(0.0)


def test_the_window_holds_no_more_than_it_needs() -> None:
    window = RestartWindow(Intensity(3, 1e9))
    for at in range(100):
        window.record(float(at))
    assert list(window.restarts) == [96.0, 97.0, 98.0, 99.0]


def test_the_defaults_are_three_in_five_seconds() -> None:
    assert (Intensity().limit, Intensity().period_s) == (3, 5.0)


@pytest.mark.parametrize(("limit", "period_s"), [(-1, 1.0), (1, 0.0), (1, -1.0), (1, float("inf"))])
def test_the_message_names_what_is_wrong(limit: int, period_s: float) -> None:
    with pytest.raises(InvalidIntensity) as raised:
        Intensity(limit, period_s)
    if limit < 0:
        assert str(raised.value) == "intensity limit must be a whole number, 0 or more, got -1"
    else:
        assert str(raised.value) == f"intensity period must be a positive number of seconds, got {period_s!r}"
