"""What one turn may use, and how long it waits before a model is asked again: policies, as values. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

OnCap: TypeAlias = Literal["answer", "return"]

_FIRST_DELAY_S = 0.25
_MAX_DELAY_S = 8.0
_MAX_WISH_S = 30.0
_WISH_SPREAD_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """What one turn may use.

    ``max_steps`` model calls may ask for tools; ``on_cap`` says what follows. ``deadline_s`` is written down at the
    start; ``step_deadline_s`` bounds one model call together with the tool calls that it asks for.
    ``model_attempts`` counts per step, ``max_calls`` per reply, ``max_turn_calls`` over all replies of the turn.
    After ``max_resumes`` losses of its process the next one fails the turn as poison.
    """

    max_steps: int = 10
    on_cap: OnCap = "answer"
    deadline_s: float | None = None
    step_deadline_s: float | None = None
    model_attempts: int = 3
    max_calls: int = 64
    max_turn_calls: int = 256
    max_resumes: int = 1

    def __post_init__(self) -> None:
        for name in ("max_steps", "model_attempts", "max_calls", "max_turn_calls"):
            if getattr(self, name) < 1:
                raise ValueError(f"turn limit {name} must be 1 or more, got {getattr(self, name)}")
        for name in ("deadline_s", "step_deadline_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"turn limit {name} must be a positive number of seconds, got {value!r}")
        if self.on_cap not in ("answer", "return"):
            raise ValueError(f"turn limit on_cap must be 'answer' or 'return', got {self.on_cap!r}")


def is_too_long_a_wish(retry_after_s: float | None) -> bool:
    """True when the endpoint wants to be left alone for longer than a turn may wait."""
    return retry_after_s is not None and retry_after_s > _MAX_WISH_S


def retry_delay_s(failures: int, retry_after_s: float | None = None, chance: float = 0.0) -> float:
    """Give the seconds to wait after so many failures in a row, from 1.

    The endpoint's wish ``retry_after_s`` is never undercut; without one the delay doubles up to a bound, and a half
    of it is left to ``chance`` (a random number in [0, 1)), so that many turns do not come back at once.
    """
    if retry_after_s is not None and retry_after_s >= 0:
        return retry_after_s + chance * min(_WISH_SPREAD_S, 0.1 * retry_after_s)
    longest = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(failures - 1, 16))
    return longest * (0.5 + 0.5 * chance)
