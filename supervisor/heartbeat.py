"""Who has not answered for too long: the book of heartbeats that a supervisor keeps of its children. Pure.

A child that hangs (stopped, or in an endless loop) answers no ping; it is told by that alone, since its process lives.
A child that has announced a long operation is not expected to answer until it is over. When the supervisor itself was
held up, nobody is blamed for it: all clocks start anew.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

EVERY_S = 1.5
LIMIT_S = 8.0
_OWN_DELAY_S = 2.0
_CHILDREN_PER_SECOND = 100


@dataclass(slots=True)
class _Pulse:
    """One incarnation: when it was last heard, and until when its silence is excused."""

    incarnation: int
    heard_at: float
    excused_until: float = 0.0


class Heartbeats:
    """``beat`` is called every ``interval_s`` seconds; ids are the children's, numbers are the pings'."""

    def __init__(self, every_s: float = EVERY_S, limit_s: float = LIMIT_S) -> None:
        self._every_s = every_s
        self._limit_s = limit_s
        self._pulses: dict[str, _Pulse] = {}
        self._numbers = itertools.count(1)
        self._sent: dict[int, tuple[str, int]] = {}
        self._beat_at: float | None = None

    @property
    def interval_s(self) -> float:
        """How long to wait for the next beat: longer when there are very many children."""
        return max(self._every_s, len(self._pulses) / _CHILDREN_PER_SECOND)

    def watch(self, id: str, incarnation: int, now: float) -> None:
        """Expect answers of this incarnation from now on."""
        self._pulses[id] = _Pulse(incarnation, now)

    def forget(self, id: str) -> None:
        """Expect nothing more of this child."""
        self._pulses.pop(id, None)

    def heard(self, number: int, now: float) -> str | None:
        """Take the answer to the ping with this number and give whose it is; None for one from a former life."""
        id, incarnation = self._sent.pop(number, ("", 0))
        pulse = self._pulses.get(id)
        if pulse is None or pulse.incarnation != incarnation:
            return None
        pulse.heard_at = now
        return id

    def excuse(self, id: str, incarnation: int, until: float) -> None:
        """The child announced that it will be busy until then."""
        pulse = self._pulses.get(id)
        if pulse is not None and pulse.incarnation == incarnation:
            pulse.excused_until = max(pulse.excused_until, until)

    def beat(self, now: float) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Give the pings to be sent, as (id, number), and the children that hang, as (id, incarnation)."""
        interval = self.interval_s
        held_up = self._beat_at is not None and now - self._beat_at > interval + _OWN_DELAY_S
        self._beat_at = now
        limit = max(self._limit_s, 4 * interval)
        hung = []
        for id, pulse in self._pulses.items():
            if held_up:
                pulse.heard_at = now
            elif now - max(pulse.heard_at, pulse.excused_until) > limit:
                hung.append((id, pulse.incarnation))
        self._sent = {n: to for n, to in self._sent.items() if to[0] in self._pulses and n in self._recent()}
        return [self._ping(id) for id in self._pulses], hung

    def _recent(self) -> range:
        """The numbers of the last rounds; older pings are as good as answered or not at all."""
        last = max(self._sent, default=0)
        return range(max(0, last - 8 * max(1, len(self._pulses))), last + 1)

    def _ping(self, id: str) -> tuple[str, int]:
        number = next(self._numbers)
        self._sent[number] = (id, self._pulses[id].incarnation)
        return id, number
