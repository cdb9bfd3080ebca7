"""Child specs and supervisor flags: what is to live, and by which policy. Values, checked before any effect.

A spec is checked where it is made, so in the caller; whether specs fit their supervisor, ``check_fit`` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.figures import Limits
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec_errors import (
    BadCombination,
    DuplicateId,
    InvalidAutoShutdown,
    InvalidBackoff,
    InvalidExhaustion,
    InvalidId,
    InvalidIntensity,
    InvalidMaxChildren,
    InvalidRestart,
    InvalidShutdown,
    InvalidSignificant,
    InvalidStart,
    InvalidStrategy,
    InvalidType,
    MissingId,
    MissingStart,
    SpecError,
    UnknownKey,
)

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
ChildType: TypeAlias = Literal["worker", "supervisor"]
Exhausted: TypeAlias = Literal["escalate", "park", "drop"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

WORKER_SHUTDOWN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One child of a supervisor.

    ``actor`` is a dotted class path; ``args`` must pickle. ``shutdown_s`` 0 kills at once, infinity waits for ever,
    None is the type's own: 5 s for a worker, for ever for a supervisor. After ``max_consecutive`` failures in a row
    ``on_exhausted`` decides: ``escalate`` (the supervisor ends), ``park`` (kept, and tried again every
    ``backoff.max_s``) or ``drop`` (removed, and said); who parks or drops never spends the supervisor's budget.
    Raises a child of SpecError.
    """

    id: str
    actor: str
    kind: str = "actor"
    args: Mapping[str, Any] = field(default_factory=dict)
    restart: Restart = "permanent"
    type: ChildType = "worker"
    significant: bool = False
    shutdown_s: float | None = None
    start_s: float = 20.0
    backoff: Backoff | None = None
    max_consecutive: int | None = None
    on_exhausted: Exhausted = "escalate"
    limits: Limits | None = None

    def __post_init__(self) -> None:
        _check_start(self)
        _check_policy(self)
        if self.restart == "permanent" and self.significant:
            raise BadCombination(
                f"child {self.id}: a permanent child cannot be significant: it never ends by itself"
            )
        if self.on_exhausted != "escalate" and self.restart == "temporary":
            raise BadCombination(
                f"child {self.id}: a temporary child is not tried again, so on_exhausted says nothing"
            )
        if self.on_exhausted != "escalate" and (self.backoff is None or self.max_consecutive is None):
            raise BadCombination(
                f"child {self.id}: on_exhausted {self.on_exhausted} needs a backoff and max_consecutive"
            )

    @property
    def stop_limit_s(self) -> float:
        """How long the child has to end by itself before it is killed, in seconds; may be infinity."""
        if self.shutdown_s is not None:
            return self.shutdown_s
        return math.inf if self.type == "supervisor" else WORKER_SHUTDOWN_S

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ChildSpec:
        """Make a spec of a mapping with the fields' names; ``backoff`` may be a mapping too.

        Raises UnknownKey, MissingId, MissingStart or what the fields' values deserve.
        """
        _refuse_unknown(mapping, cls, "a child spec")
        if "id" not in mapping:
            raise MissingId(f"a child spec needs an id, got only {sorted(mapping)}")
        if "actor" not in mapping:
            raise MissingStart(f"child {mapping['id']}: a child spec needs an actor, the class to start")
        values = dict(mapping)
        if isinstance(values.get("backoff"), Mapping):
            _refuse_unknown(values["backoff"], Backoff, f"child {mapping['id']}: backoff")
            values["backoff"] = Backoff(**values["backoff"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorFlags:
    """A supervisor's own policy. Raises a child of SpecError.

    ``dynamic``: children come by request, in no order, up to ``max_children``, and are stopped all at once;
    ``extra_args`` are then given to each, beneath its own. ``auto_shutdown`` ends the supervisor when one, or the
    last, significant child has ended by itself.
    """

    intensity: Intensity = Intensity()
    strategy: Strategy = "one_for_one"
    auto_shutdown: AutoShutdown = "never"
    dynamic: bool = False
    max_children: int | None = None
    extra_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.intensity, Intensity):
            raise InvalidIntensity(f"intensity must be an Intensity, got {self.intensity!r}")
        if not _is_one_of(self.strategy, Strategy):
            raise InvalidStrategy(f"strategy must be one of {get_args(Strategy)}, got {self.strategy!r}")
        if not _is_one_of(self.auto_shutdown, AutoShutdown):
            raise InvalidAutoShutdown(
                f"auto_shutdown must be one of {get_args(AutoShutdown)}, got {self.auto_shutdown!r}"
            )
        if self.max_children is not None and not _is_count(self.max_children):
            raise InvalidMaxChildren(f"max_children must be 0 or more, got {self.max_children!r}")
        if self.dynamic and self.strategy != "one_for_one":
            raise BadCombination(f"a dynamic supervisor is one_for_one, not {self.strategy}")
        if not self.dynamic and (self.max_children is not None or self.extra_args):
            raise BadCombination("max_children and extra_args are for dynamic supervisors only")


def check_fit(flags: SupervisorFlags, spec: ChildSpec) -> None:
    """Check that a child may live under a supervisor with these flags. Raises InvalidSignificant or BadCombination."""
    if spec.significant and flags.auto_shutdown == "never":
        raise InvalidSignificant(
            f"child {spec.id}: significant needs a supervisor that may shut down by itself"
        )
    if spec.on_exhausted != "escalate" and flags.strategy != "one_for_one":
        raise BadCombination(
            f"child {spec.id}: only a one_for_one supervisor can {spec.on_exhausted} a child"
        )


def check_children(flags: SupervisorFlags, specs: tuple[ChildSpec, ...]) -> None:
    """Check a supervisor's static children together. Raises DuplicateId, BadCombination or InvalidSignificant."""
    if flags.dynamic and specs:
        raise BadCombination("a dynamic supervisor starts empty: its children come by request")
    seen: set[str] = set()
    for spec in specs:
        if spec.id in seen:
            raise DuplicateId(f"two children have the id {spec.id}")
        seen.add(spec.id)
        check_fit(flags, spec)


def _check_start(spec: ChildSpec) -> None:
    if not isinstance(spec.id, str) or not spec.id or "/" in spec.id:
        raise InvalidId(f"child id must be a non-empty name without '/', got {spec.id!r}")
    if not isinstance(spec.actor, str) or not all(spec.actor.split(".")) or "." not in spec.actor:
        raise InvalidStart(f"child {spec.id}: actor must be a dotted class path, got {spec.actor!r}")
    if not isinstance(spec.kind, str) or not isinstance(spec.args, Mapping):
        raise InvalidStart(f"child {spec.id}: kind must be a word and args a mapping, got {spec.kind!r}")
    if not _is_seconds(spec.start_s) or spec.start_s == 0:
        raise InvalidStart(
            f"child {spec.id}: start_s must be a positive number of seconds, got {spec.start_s!r}"
        )


def _check_policy(spec: ChildSpec) -> None:
    if not _is_one_of(spec.restart, Restart):
        raise InvalidRestart(
            f"child {spec.id}: restart must be one of {get_args(Restart)}, got {spec.restart!r}"
        )
    if not _is_one_of(spec.type, ChildType):
        raise InvalidType(f"child {spec.id}: type must be worker or supervisor, got {spec.type!r}")
    if type(spec.significant) is not bool:
        raise InvalidSignificant(f"child {spec.id}: significant must be a bool, got {spec.significant!r}")
    if spec.shutdown_s is not None and spec.shutdown_s != math.inf and not _is_seconds(spec.shutdown_s):
        raise InvalidShutdown(
            f"child {spec.id}: shutdown_s must be 0 or more seconds, got {spec.shutdown_s!r}"
        )
    if spec.backoff is not None and not isinstance(spec.backoff, Backoff):
        raise InvalidBackoff(f"child {spec.id}: backoff must be a Backoff, got {spec.backoff!r}")
    if spec.max_consecutive is not None and not _is_count(spec.max_consecutive):
        raise InvalidExhaustion(
            f"child {spec.id}: max_consecutive must be 0 or more, got {spec.max_consecutive!r}"
        )
    if not _is_one_of(spec.on_exhausted, Exhausted):
        raise InvalidExhaustion(
            f"child {spec.id}: on_exhausted must be one of {get_args(Exhausted)}, got {spec.on_exhausted!r}"
        )


def _refuse_unknown(mapping: Mapping[str, Any], shape: Any, what: str) -> None:
    known = {given.name for given in fields(shape)}
    unknown = sorted(str(key) for key in mapping if key not in known)
    if unknown:
        raise UnknownKey(f"{what} knows no {', '.join(unknown)}; it knows {', '.join(sorted(known))}")


def _is_one_of(value: object, words: Any) -> bool:
    return isinstance(value, str) and value in get_args(words)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


__all__ = [
    "WORKER_SHUTDOWN_S",
    "AutoShutdown",
    "ChildSpec",
    "ChildType",
    "Exhausted",
    "Restart",
    "SpecError",
    "Strategy",
    "SupervisorFlags",
    "check_children",
    "check_fit",
]
