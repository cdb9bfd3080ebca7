"""Figures and their limits."""

from __future__ import annotations

import threading

import pytest

from callboard.supervisor.figures import Figures, Limits, figures_of, total

SAMPLE = Figures(rss_mb=100.0, cpu_s=1.5, descriptors=20, threads=2)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(), None),
        (Limits(rss_mb=100.0, descriptors=20, threads=2), None),
        (Limits(rss_mb=99.5), "rss_mb 100 exceeds the limit of 99.5"),
        (Limits(descriptors=19), "descriptors 20 exceeds the limit of 19"),
        (Limits(threads=1), "threads 2 exceeds the limit of 1"),
    ],
)
def test_the_first_limit_that_is_exceeded_is_named(limits: Limits, says: str | None) -> None:
    assert limits.exceeded(SAMPLE) == says


def test_a_process_can_count_itself() -> None:
    before = figures_of()
    assert before is not None
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(30,))
    thread.start()
    try:
        during = figures_of()
        assert during is not None
        assert during.threads == before.threads + 1
    finally:
        over.set()
        thread.join()
    assert before.rss_mb > 1
    assert before.descriptors is not None
    assert before.descriptors > 2


def test_a_process_that_is_gone_has_no_figures() -> None:
    assert figures_of(2**22 - 1) is None


def test_samples_add_up() -> None:
    assert total([SAMPLE, SAMPLE]) == Figures(rss_mb=200.0, cpu_s=3.0, descriptors=40, threads=4)
    assert total([]) == Figures(rss_mb=0, cpu_s=0, descriptors=0, threads=0)
