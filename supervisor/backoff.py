"""How long to wait before a child is started again, by the number of its failures in a row.

Pure: the random part is handed in. The cap comes last, so a delay never exceeds ``max_s``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """``min_s`` doubled per failure in a row, plus up to ``jitter`` of it, never over ``max_s``.

    ``reset_after_s`` of uninterrupted life puts the count back to zero.
    """

    min_s: float = 0.05
    max_s: float = 30.0
    jitter: float = 0.2
    reset_after_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_s <= self.max_s:
            raise ValueError(f"backoff needs 0 <= min_s <= max_s, got {self.min_s} and {self.max_s}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff jitter must lie between 0 and 1, got {self.jitter}")

    def delay_s(self, failures: int, random: float) -> float:
        """Give the wait in seconds after ``failures`` (1 or more) in a row; ``random`` lies in [0, 1)."""
        if failures < 1:
            raise ValueError(f"failures must be 1 or more, got {failures}")
        exponent = min(failures - 1, 64)
        return float(min(self.max_s, self.min_s * 2**exponent * (1 + random * self.jitter)))
