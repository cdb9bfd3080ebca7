"""How much of a turn's deadline is used, and the timers that follow from it. Pure: instants come from the shell."""

from __future__ import annotations

from callboard.actors.turn_effects import Effect, SetTimer
from callboard.actors.turn_inputs import DeadlinePassed, StepTimedOut


class TurnClock:
    """A stopwatch for one turn; it stands still until it is started, and while a person is waited for.

    ``elapsed_s`` was used before; ``deadline_s`` is the turn's, ``step_deadline_s`` each step's, None where there is
    none: then no timer is ever set.
    """

    def __init__(
        self, deadline_s: float | None, step_deadline_s: float | None, elapsed_s: float = 0.0
    ) -> None:
        self._deadline_s = deadline_s
        self._step_deadline_s = step_deadline_s
        self._used_s = elapsed_s
        self._since: float | None = None

    def elapsed_s(self, now: float) -> float:
        """Give the seconds that it ran."""
        return self._used_s + (0.0 if self._since is None else now - self._since)

    def is_over(self, now: float) -> bool:
        """True when the turn's deadline is used up."""
        return self._deadline_s is not None and self.elapsed_s(now) >= self._deadline_s

    def start(self, now: float) -> list[Effect]:
        """Run on from ``now``: the turn's timer is set to what is left."""
        self._since = now
        if self._deadline_s is None:
            return []
        return [SetTimer(DeadlinePassed(), max(0.0, self._deadline_s - self._used_s))]

    def stop(self, now: float) -> list[Effect]:
        """Stand still from ``now`` on: both timers are stopped."""
        self._used_s, self._since = self.elapsed_s(now), None
        turn: list[Effect] = [] if self._deadline_s is None else [SetTimer(DeadlinePassed(), None)]
        return turn + self.stop_step()

    def start_step(self, step: int) -> list[Effect]:
        """Set the timer of this step."""
        return [] if self._step_deadline_s is None else [SetTimer(StepTimedOut(step), self._step_deadline_s)]

    def stop_step(self) -> list[Effect]:
        """Stop the timer of whichever step."""
        return [] if self._step_deadline_s is None else [SetTimer(StepTimedOut(0), None)]
