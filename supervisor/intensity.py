"""The restart window: how many restarts within how long are too many (OTP's intensity and period).

Pure. A sliding window over float seconds, the present attempt included; entries exactly ``period_s`` old still
count, as in OTP. OTP rounds to whole seconds; this does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Intensity:
    """At most ``limit`` restarts in any ``period_s`` seconds; ``limit`` 0 means that the first crash is one too many."""

    limit: int = 3
    period_s: float = 5.0

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"intensity limit must be 0 or more, got {self.limit}")
        if not 0 < self.period_s < float("inf"):
            raise ValueError(f"intensity period must be a positive number of seconds, got {self.period_s}")


@dataclass(slots=True)
class RestartWindow:
    """The restarts that still count. Never holds more than ``limit`` + 1 instants."""

    intensity: Intensity
    restarts: list[float] = field(default_factory=list)

    def record(self, now: float) -> bool:
        """Count one restart at ``now``; True while the budget holds, False when it is spent."""
        oldest = now - self.intensity.period_s
        kept = [at for at in self.restarts if at >= oldest]
        self.restarts = [*kept, now][-(self.intensity.limit + 1) :]
        return len(self.restarts) <= self.intensity.limit
