"""When an endpoint may be asked: its circuit breaker, and its own wish to be left alone (FEATURES M2, M4).

Pure: values in, values out, with the monotonic instant ``now``. The limits actor keeps one ``EndpointState`` per
endpoint and model; each model actor holds a copy and asks it (``verdict``) before a call, without any mail.

The breaker: ``failures_to_open`` failures in a row open it; while it is open nobody asks. Then it is half-open: one
call at a time may try (``take_probe``). A success closes it, a failure opens it again for twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

OutcomeKind: TypeAlias = Literal["up", "down", "held"]
WaitReason: TypeAlias = Literal["rate_limited", "unavailable"]

MAX_HELD_S = 60.0
LOOK_AGAIN_S = 0.25
_DOWN = frozenset({"unreachable", "timeout", "overloaded", "server_error", "interrupted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """How many failures in a row open the breaker, for how long at first and at most, and how long a probe may take."""

    failures_to_open: int = 5
    open_s: float = 2.0
    max_open_s: float = 60.0
    probe_s: float = 30.0


DEFAULT_POLICY = BreakerPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """What is known of one endpoint. Instants are monotonic ones of the process that holds the state.

    ``open_until`` is None while the breaker is closed; ``opened`` counts how often it opened in a row.
    """

    failures: int = 0
    opened: int = 0
    open_until: float | None = None
    probe_until: float | None = None
    held_until: float | None = None

    def shifted(self, by_s: float) -> EndpointState:
        """Give the state with its instants moved: to send it as remaining seconds (``-now``), and to receive it."""
        moved = {
            name: at + by_s
            for name in ("open_until", "probe_until", "held_until")
            if (at := getattr(self, name)) is not None
        }
        return replace(self, **moved)


CLEAN = EndpointState()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a call: ``up`` (a reply, or a refusal that shows a living endpoint), ``down``, or ``held``."""

    kind: OutcomeKind
    held_s: float = 0.0


UP = Outcome(kind="up")
DOWN = Outcome(kind="down")


@dataclass(frozen=True, slots=True)
class Go:
    """Ask."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the limits actor first whether this call may be the one that tries."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not before ``for_s`` seconds: the endpoint wishes it, or another call tries it just now."""

    for_s: float
    reason: WaitReason


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not now; the breaker is open for ``for_s`` seconds more."""

    for_s: float


Verdict: TypeAlias = Go | Probe | Wait | Refuse


def outcome_of(fault_kind: str, retry_after_s: float | None) -> Outcome | None:
    """Read a ModelError's kind as an outcome; None for what says nothing about the endpoint."""
    if retry_after_s is not None and retry_after_s > 0:
        return Outcome(kind="held", held_s=min(MAX_HELD_S, retry_after_s))
    if fault_kind in _DOWN:
        return DOWN
    return UP if fault_kind in ("rate_limited", "rejected", "context_window", "bad_reply") else None


def after_outcome(
    state: EndpointState, outcome: Outcome, now: float, policy: BreakerPolicy = DEFAULT_POLICY
) -> EndpointState:
    """Give the state after a call's outcome."""
    match outcome.kind:
        case "up":
            return EndpointState(held_until=_later(state.held_until, None, now))
        case "held":
            return EndpointState(held_until=_later(state.held_until, now + outcome.held_s, now))
        case "down":
            return _after_failure(state, now, policy)


def verdict(state: EndpointState, now: float) -> Verdict:
    """Say whether the endpoint may be asked at ``now``."""
    if state.open_until is not None:
        if now < state.open_until:
            return Refuse(state.open_until - now)
        if state.probe_until is not None and now < state.probe_until:
            return Wait(LOOK_AGAIN_S, "unavailable")
        return Probe()
    if state.held_until is not None and now < state.held_until:
        return Wait(state.held_until - now, "rate_limited")
    return Go()


def take_probe(
    state: EndpointState, now: float, policy: BreakerPolicy = DEFAULT_POLICY
) -> EndpointState | None:
    """Give the state in which the asker tries; None when it may not. With the breaker closed anybody may go."""
    match verdict(state, now):
        case Probe():
            return replace(state, probe_until=now + policy.probe_s)
        case Go():
            return state
        case Wait() | Refuse():
            return None


def _after_failure(state: EndpointState, now: float, policy: BreakerPolicy) -> EndpointState:
    if state.open_until is not None and now < state.open_until:
        return state
    failures = state.failures + 1
    if state.open_until is None and failures < policy.failures_to_open:
        return replace(state, failures=failures)
    open_s = min(policy.max_open_s, policy.open_s * 2.0**state.opened)
    return replace(
        state,
        failures=failures,
        opened=min(state.opened + 1, 32),
        open_until=now + open_s,
        probe_until=None,
    )


def _later(one: float | None, other: float | None, now: float) -> float | None:
    pending = [at for at in (one, other) if at is not None and at > now]
    return max(pending, default=None)
