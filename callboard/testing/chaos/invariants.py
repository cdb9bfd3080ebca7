"""What must hold over a campaign's history, as pure checks. Each gives the sentences that say what did not hold.

History kinds: ``turn`` (id, conversation), ``turn_event`` (id, type), ``turn_end`` (id, conversation, ending, reason,
took_s), ``turn_refused`` (id, reason), ``owners`` (conversation, pids), ``effect`` (id, times), ``fault``, ``heal``,
``probe`` (ok, took_s), ``starts`` (id, per_second), ``left`` (processes, files), ``stopped`` (code, took_s).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from callboard.testing.chaos.history import Entry

Check: TypeAlias = Callable[[Sequence[Entry]], list[str]]
TURN_LIMIT_S = 60.0
PROBE_LIMIT_S = 10.0
STOP_LIMIT_S = 5.0
STARTS_PER_SECOND = 5


def one_ending(history: Sequence[Entry]) -> list[str]:
    """I1: each accepted turn has exactly one ending, within its limit."""
    accepted = {
        e.facts["id"] for e in history if e.kind == "turn_event" and e.facts["type"] == "turn_started"
    }
    endings = Counter(e.facts["id"] for e in history if e.kind == "turn_end")
    wrong = [f"I1: turn {id} has {endings[id]} endings" for id in sorted(accepted) if endings[id] != 1]
    slow = [e for e in history if e.kind == "turn_end" and e.facts["took_s"] > TURN_LIMIT_S]
    return wrong + [f"I1: turn {e.facts['id']} took {e.facts['took_s']:.1f} s" for e in slow]


def no_double_effect(history: Sequence[Entry]) -> list[str]:
    """I2: the side effect of a call that is not idempotent happened at most once."""
    return [
        f"I2: the effect of turn {e.facts['id']} happened {e.facts['times']} times"
        for e in history
        if e.kind == "effect" and e.facts["times"] > 1
    ]


def isolation(history: Sequence[Entry]) -> list[str]:
    """I4: a turn that no fault fell into is answered."""
    faults = [e.at for e in history if e.kind == "fault"]
    wrong = []
    for entry in history:
        if entry.kind != "turn_end" or entry.facts["ending"] == "turn_answered":
            continue
        began = entry.at - entry.facts["took_s"]
        if not any(began - 5.0 <= at <= entry.at for at in faults):
            wrong.append(
                f"I4: turn {entry.facts['id']} ended as {entry.facts['ending']} without a fault near it"
            )
    return wrong


def no_leftovers(history: Sequence[Entry]) -> list[str]:
    """I5: after the end no process and no file of the system is left."""
    return [
        f"I5: left behind: {e.facts}"
        for e in history
        if e.kind == "left" and (e.facts["processes"] or e.facts["files"])
    ]


def restart_discipline(history: Sequence[Entry]) -> list[str]:
    """I7: no child is started more than ``STARTS_PER_SECOND`` times in a second."""
    return [
        f"I7: {e.facts['id']} was started {e.facts['per_second']} times within a second"
        for e in history
        if e.kind == "starts" and e.facts["per_second"] > STARTS_PER_SECOND
    ]


def recovery(history: Sequence[Entry]) -> list[str]:
    """I8: after the heal a probe conversation is answered in time."""
    probes = [e for e in history if e.kind == "probe"]
    if not probes:
        return ["I8: there was no probe"]
    return [
        f"I8: the probe after the heal: {e.facts}"
        for e in probes
        if not e.facts["ok"] or e.facts["took_s"] > PROBE_LIMIT_S
    ]


def single_owner(history: Sequence[Entry]) -> list[str]:
    """I9: never two live clients for one conversation."""
    return [
        f"I9: {e.facts['conversation']} had the clients {e.facts['pids']}"
        for e in history
        if e.kind == "owners" and len(e.facts["pids"]) > 1
    ]


def clean_stop(history: Sequence[Entry]) -> list[str]:
    """I13: the system stops in order, in time, with exit code 0."""
    stops = [e for e in history if e.kind == "stopped"]
    if not stops:
        return ["I13: the system was not stopped"]
    return [
        f"I13: the stop: {e.facts}" for e in stops if e.facts["code"] != 0 or e.facts["took_s"] > STOP_LIMIT_S
    ]


CHECKS: tuple[Check, ...] = (
    one_ending,
    no_double_effect,
    isolation,
    no_leftovers,
    restart_discipline,
    recovery,
    single_owner,
    clean_stop,
)


def violations(history: Sequence[Entry]) -> list[str]:
    """Give everything that did not hold, over all checks."""
    return [sentence for check in CHECKS for sentence in check(history)]
