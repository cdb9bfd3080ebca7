"""How long to wait before a child is started again, by the number of its failures in a row.

Pure: the random part is handed in. The cap comes last, so a delay never exceeds ``max_s``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from callboard.supervisor.spec_errors import InvalidBackoff

_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """``min_s`` doubled per failure in a row, plus up to ``jitter`` of it, never over ``max_s``.

    ``reset_after_s`` of uninterrupted life puts the count back to zero. Raises InvalidBackoff.
    """

    min_s: float = 0.05
    max_s: float = 30.0
    jitter: float = 0.2
    reset_after_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("min_s", "max_s", "jitter", "reset_after_s"):
            if type(getattr(self, name)) not in (int, float):
                raise InvalidBackoff(f"backoff {name} must be a number, got {getattr(self, name)!r}")
        if not 0 <= self.min_s <= self.max_s < math.inf:
            raise InvalidBackoff(f"backoff needs 0 <= min_s <= max_s, got {self.min_s} and {self.max_s}")
        if not 0 <= self.jitter <= 1:
            raise InvalidBackoff(f"backoff jitter must lie between 0 and 1, got {self.jitter}")
        if not 0 <= self.reset_after_s < math.inf:
            raise InvalidBackoff(f"backoff reset_after_s must be 0 or more, got {self.reset_after_s}")

    def delay_s(self, failures: int, random: float) -> float:
        """Give the wait in seconds after ``failures`` (1 or more) in a row; ``random`` lies in [0, 1)."""
        if failures < 1:
            raise ValueError(f"failures must be 1 or more, got {failures}")
        doubled = self.min_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        return min(float(self.max_s), doubled * (1 + random * self.jitter))
