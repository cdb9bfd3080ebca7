"""The core's memory: its children in start order, and what follows from it without a decision.

Every step costs the same however many children there are, but for the views and the groups, which name them all.
Used by ``supervisor/core.py`` alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from callboard.supervisor.commands import ChildCounts, ChildStatus, State
from callboard.supervisor.core_terms import Asked, Report, Show
from callboard.supervisor.spec import ChildSpec, Strategy

Why: TypeAlias = Literal["boot", "asked", "manual", "restart"]
_CLEAN = ("normal", "shutdown", "expired")


def is_clean(reason: str) -> bool:
    """True for the reasons after which a transient child is not restarted.

    ``expired`` (an idle child left) and ``shutdown: why`` (OTP's ``{shutdown, Term}``) are among them.
    """
    return reason in _CLEAN or reason.startswith("shutdown:")


def is_restarted(spec: ChildSpec, reason: str) -> bool:
    """OTP's decision on the exit of a child that was running (OTP.md 1.3); a temporary one never is."""
    return spec.restart == "permanent" or (spec.restart == "transient" and not is_clean(reason))


@dataclass(slots=True)
class Child:
    """What is remembered of one child. ``alive``: it has a process, whatever its state."""

    spec: ChildSpec
    incarnation: int
    state: State = "stopped"
    why: Why = "restart"
    restarts: int = 0
    consecutive: int = 0
    alive: bool = False
    verdict: str | None = None
    starters: list[str] = field(default_factory=list)
    stoppers: list[str] = field(default_factory=list)
    later: list[Asked] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The child's name among its siblings."""
        return self.spec.id

    @property
    def active(self) -> bool:
        """True while it runs or is meant to run again (for ``all_significant``)."""
        return self.state not in ("stopped", "stopping")

    @property
    def waiting(self) -> int:
        """How many commands wait for the child's next step."""
        return len(self.starters) + len(self.stoppers) + len(self.later)

    def show(self) -> Show:
        """Give its row for the process table."""
        return Show(self.id, self.spec.kind, self.state, self.incarnation, self.restarts)

    def report(self, fact: str, reason: str = "", delay_s: float | None = None) -> Report:
        """Give a fact of its life for the log."""
        return Report(self.id, fact, self.incarnation, reason, self.consecutive, self.restarts, delay_s)


@dataclass(slots=True)
class Plan:
    """What a supervisor is in the middle of: children to stop, last first, then children to start, in order.

    ``awaited`` is the child whose end or start the next step waits for.
    """

    stop: list[str] = field(default_factory=list)
    start: deque[str] = field(default_factory=deque)
    boot: bool = False
    awaited: str = ""


class Children:
    """The children by id, in start order. No incarnation number is given twice to one id, nor below ``floor``."""

    def __init__(self, floor: int) -> None:
        self._floor = floor
        self._by_id: dict[str, Child] = {}
        self._significant = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._by_id.values())

    def get(self, id: str) -> Child | None:
        """Look a child up."""
        return self._by_id.get(id)

    def living(self, id: str, incarnation: int) -> Child | None:
        """Look a child up whose process is of this incarnation."""
        child = self.current(id, incarnation)
        return child if child is not None and child.alive else None

    def current(self, id: str, incarnation: int) -> Child | None:
        """Look a child up whose latest incarnation is this one."""
        child = self._by_id.get(id)
        return child if child is not None and child.incarnation == incarnation else None

    def add(self, spec: ChildSpec) -> Child:
        """Append a child, stopped."""
        child = self._by_id[spec.id] = Child(spec, self._floor)
        return child

    def remove(self, child: Child) -> None:
        """Forget a child; whoever has its id later counts its incarnations on from there."""
        self.set(child, "stopped")
        self._floor = max(self._floor, child.incarnation)
        del self._by_id[child.id]

    def set(self, child: Child, state: State) -> None:
        """Change a child's state: the only place where it changes."""
        before = child.active
        child.state = state
        if child.spec.significant:
            self._significant += child.active - before

    @property
    def any_significant_active(self) -> bool:
        """True while a significant child runs, or is meant to run again."""
        return self._significant > 0

    def group(self, strategy: Strategy, failed: Child) -> list[Child]:
        """Give who shares the failed child's fate, it included, in start order; not for one_for_one."""
        ids = list(self._by_id)
        first = ids.index(failed.id) if strategy == "rest_for_one" else 0
        return [self._by_id[id] for id in ids[first:]]

    def which(self) -> tuple[ChildStatus, ...]:
        """List them all."""
        return tuple(
            ChildStatus(
                id=child.id,
                state=child.state,
                type=child.spec.type,
                kind=child.spec.kind,
                incarnation=child.incarnation,
                restarts=child.restarts,
            )
            for child in self
        )

    def count(self) -> ChildCounts:
        """Count them."""
        supervisors = sum(child.spec.type == "supervisor" for child in self)
        return ChildCounts(
            specs=len(self),
            active=sum(child.state == "running" and child.alive for child in self),
            supervisors=supervisors,
            workers=len(self) - supervisors,
        )


__all__ = ["Child", "Children", "Plan", "Why", "is_clean", "is_restarted"]
