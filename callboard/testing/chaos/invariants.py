"""What must hold over a campaign's history, as pure checks. Each gives the sentences that say what did not hold.

History kinds: ``turn`` (id, conversation), ``turn_event`` (id, type), ``turn_end`` (id, conversation, ending, reason,
took_s), ``turn_refused`` (id, reason), ``owners`` (conversation, pids), ``effect`` (id, times), ``fault``, ``heal``,
``probe`` (ok, took_s), ``starts`` (id, per_second), ``left`` (processes, files), ``stopped`` (code, took_s); and, read
from disk when all is over, ``journal`` (complaints), ``log`` (conversation, events) and, from the model's server,
``shown`` (requests, faults).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from callboard.testing.chaos.history import Entry

Check: TypeAlias = Callable[[Sequence[Entry]], list[str]]
TURN_LIMIT_S = 60.0
PROBE_LIMIT_S = 10.0
STOP_LIMIT_S = 5.0
STARTS_PER_SECOND = 5
_ENDINGS = frozenset({"turn_answered", "turn_failed", "turn_cancelled"})


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


def journal_kept(history: Sequence[Entry]) -> list[str]:
    """I3: the journal finds no fault in itself, its numbers have no gap, and all that was told is in it."""
    wrong = [f"I3: the journal: {c}" for e in history if e.kind == "journal" for c in e.facts["complaints"]]
    told_in = {e.facts["id"]: e.facts["conversation"] for e in history if e.kind == "turn"}
    kept = set()
    for conversation, events in _logs(history):
        if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
            wrong.append(f"I3: the numbers of {conversation} have a gap or a repetition")
        kept |= {(conversation, event["seq"], event["type"]) for event in events}
    for entry in history:
        if entry.kind == "turn_event" and entry.facts.get("seq") is not None and kept:
            told = (told_in.get(entry.facts["id"]), entry.facts["seq"], entry.facts["type"])
            if told not in kept:
                wrong.append(f"I3: event {told[1]} of {told[0]} was told as {told[2]} and is not in the log")
    return wrong


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


def turns_in_order(history: Sequence[Entry]) -> list[str]:
    """I10: no turn begins before the last one ended, and the model is shown each call's result, in call order."""
    wrong = [f"I10: the model was shown {f}" for e in history if e.kind == "shown" for f in e.facts["faults"]]
    for conversation, events in _logs(history):
        open_turn = None
        for event in events:
            turn = event.get("turn_id")
            if event["type"] == "turn_started" and open_turn is None:
                open_turn = turn
            elif turn is not None and turn != open_turn:
                wrong.append(f"I10: {event['type']} {event['seq']} of {conversation} is outside its turn")
            elif event["type"] in _ENDINGS:
                open_turn = None
    return wrong


def honesty(history: Sequence[Entry]) -> list[str]:
    """I11: what is logged as done was started and did happen; the caller was told the ending that is logged."""
    wrong = []
    times = {e.facts["id"]: e.facts["times"] for e in history if e.kind == "effect"}
    told = {e.facts["id"]: e.facts["ending"] for e in history if e.kind == "turn_end"}
    for _, events in _logs(history):
        started = {event["call_id"] for event in events if event["type"] == "tool_call_started"}
        for event in events:
            turn = event.get("turn_id")
            done = event["type"] == "tool_call_finished" and event["outcome"] == "ok"
            if done and event["call_id"] not in started:
                wrong.append(f"I11: call {event['call_id']} of turn {turn} is done and was never started")
            if done and event["tool"] == "note_down" and times.get(turn, 1) != 1:
                wrong.append(f"I11: turn {turn} noted down {times[turn]} times what is logged as done")
            if event["type"] in _ENDINGS and told.get(turn, event["type"]) != event["type"]:
                wrong.append(f"I11: turn {turn} was told to have {told[turn]}, logged is {event['type']}")
    return wrong


def _logs(history: Sequence[Entry]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(e.facts["conversation"], e.facts["events"]) for e in history if e.kind == "log"]


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
    journal_kept,
    isolation,
    no_leftovers,
    restart_discipline,
    recovery,
    single_owner,
    turns_in_order,
    honesty,
    clean_stop,
)


def violations(history: Sequence[Entry]) -> list[str]:
    """Give everything that did not hold, over all checks."""
    return [sentence for check in CHECKS for sentence in check(history)]
