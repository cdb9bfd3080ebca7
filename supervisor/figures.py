"""What a process uses, and how much it may: memory, CPU, descriptors, threads.

Every actor reports its own figures with its heartbeat, so that also a process that nobody else may look into (one that
holds secrets is not dumpable) is counted. The limits are part of a child's spec; what follows is the supervisor's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import psutil

Action: TypeAlias = Literal["warn", "restart", "kill"]
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One sample: resident memory in MiB, CPU in seconds since the start, open descriptors, threads.

    ``descriptors`` is None for another process that is closed to us: it can count its own.
    """

    rss_mb: float
    cpu_s: float
    descriptors: int | None
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a child may use; None: as much as it likes. ``action`` is what its supervisor does beyond that."""

    rss_mb: float | None = None
    descriptors: int | None = None
    threads: int | None = None
    action: Action = "warn"

    def exceeded(self, figures: Figures) -> str | None:
        """Say in words which limit the figures exceed, None when they are within all."""
        for name in ("rss_mb", "descriptors", "threads"):
            limit, used = getattr(self, name), getattr(figures, name)
            if limit is not None and used is not None and used > limit:
                return f"{name} {used:g} exceeds the limit of {limit:g}"
        return None


def figures_of(pid: int | None = None) -> Figures | None:
    """Sample a process, by default the calling one; None when it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return Figures(
                rss_mb=round(process.memory_info().rss / _MIB, 2),
                cpu_s=round(times.user + times.system, 2),
                descriptors=_descriptors(process),
                threads=process.num_threads(),
            )
    except psutil.NoSuchProcess:
        return None


def _descriptors(process: psutil.Process) -> int | None:
    try:
        return process.num_fds()
    except psutil.AccessDenied:
        return None


def total(samples: list[Figures]) -> Figures:
    """Add samples up, for a process with its descendants."""
    return Figures(
        rss_mb=round(sum(s.rss_mb for s in samples), 2),
        cpu_s=round(sum(s.cpu_s for s in samples), 2),
        descriptors=sum(s.descriptors or 0 for s in samples),
        threads=sum(s.threads for s in samples),
    )
