"""The restart window against the definition of a sliding window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisor.intensity import Intensity, RestartWindow

GAPS = st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 3, allow_nan=False)), max_size=60)


@given(GAPS, st.integers(0, 5), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_budget_holds_as_long_as_the_period_holds_no_more_than_the_limit(
    gaps: list[float], limit: int, period_s: float
) -> None:
    window = RestartWindow(Intensity(limit, period_s))
    past: list[float] = []
    now = 0.0
    for gap in gaps:
        now += gap
        past.append(now)
        in_period = sum(at >= now - period_s for at in past)
        assert window.record(now) == (in_period <= limit)
        assert len(window.restarts) <= limit + 1


@given(st.integers(0, 50))
def test_exactly_the_limit_is_allowed_at_one_instant(limit: int) -> None:
    window = RestartWindow(Intensity(limit, 1.0))
    assert [window.record(7.0) for _ in range(limit + 1)] == [True] * limit + [False]
