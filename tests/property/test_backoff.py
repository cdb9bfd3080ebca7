"""The backoff's bounds, its growth and its end, for every policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisor.backoff import Backoff

RANDOM = st.floats(0, 1, exclude_max=True)


@st.composite
def policies(draw: st.DrawFn) -> Backoff:
    least = draw(st.floats(0, 100))
    return Backoff(
        min_s=least,
        max_s=draw(st.floats(least, 1000)),
        jitter=draw(st.floats(0, 1)),
        reset_after_s=draw(st.floats(0, 100)),
    )


@given(policies(), st.integers(1, 100_000), RANDOM)
def test_a_delay_lies_between_its_undisturbed_value_and_the_cap(
    policy: Backoff, failures: int, random: float
) -> None:
    delay_s = policy.delay_s(failures, random)
    undisturbed = min(policy.max_s, policy.min_s * 2.0 ** min(failures - 1, 64))
    assert undisturbed <= delay_s <= policy.max_s
    assert delay_s <= undisturbed * (1 + policy.jitter) * 1.000001


@given(policies(), st.integers(1, 200), RANDOM)
def test_more_failures_never_wait_shorter(policy: Backoff, failures: int, random: float) -> None:
    assert policy.delay_s(failures + 1, random) >= policy.delay_s(failures, random)


@given(policies(), RANDOM)
def test_it_doubles_until_the_cap(policy: Backoff, random: float) -> None:
    first, second = policy.delay_s(1, random), policy.delay_s(2, random)
    assert second == pytest.approx(min(policy.max_s, 2 * policy.min_s * (1 + random * policy.jitter)))
    assert first == pytest.approx(min(policy.max_s, policy.min_s * (1 + random * policy.jitter)))


@given(st.floats(0.001, 10), st.floats(0.5, 1, exclude_max=True))
def test_jitter_spreads_those_who_failed_together(least: float, random: float) -> None:
    policy = Backoff(min_s=least, max_s=1000.0, jitter=0.5)
    assert policy.delay_s(1, random) > policy.delay_s(1, 0.0) == least


@given(st.integers(max_value=0))
def test_no_failure_has_no_delay(failures: int) -> None:
    with pytest.raises(ValueError, match="failures must be 1 or more"):
        Backoff().delay_s(failures, 0.0)
