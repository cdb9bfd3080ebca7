"""The restart window: how many restarts within how long are too many (OTP's intensity and period).

Pure. A sliding window over float seconds, the present attempt included; entries exactly ``period_s`` old still
count, as in OTP. OTP rounds to whole seconds; this does not.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from callboard.supervisor.spec_errors import InvalidIntensity


@dataclass(frozen=True, slots=True)
class Intensity:
    """At most ``limit`` restarts in any ``period_s`` seconds; ``limit`` 0 means that the first crash is one too many.

    Raises InvalidIntensity.
    """

    limit: int = 3
    period_s: float = 5.0

    def __post_init__(self) -> None:
        if type(self.limit) is not int or self.limit < 0:
            raise InvalidIntensity(f"intensity limit must be a whole number, 0 or more, got {self.limit!r}")
        if type(self.period_s) not in (int, float) or not 0 < self.period_s < math.inf:
            raise InvalidIntensity(
                f"intensity period must be a positive number of seconds, got {self.period_s!r}"
            )


@dataclass(slots=True)
class RestartWindow:
    """The restarts that still count. Never holds more than ``limit`` + 1 instants."""

    intensity: Intensity
    restarts: deque[float] = field(default_factory=deque)

    def record(self, now: float) -> bool:
        """Count one restart at ``now`` (never earlier than the last); True while the budget holds, else False."""
        self.restarts.append(now)
        oldest = now - self.intensity.period_s
        while self.restarts[0] < oldest or len(self.restarts) > self.intensity.limit + 1:
            self.restarts.popleft()
        return len(self.restarts) <= self.intensity.limit
