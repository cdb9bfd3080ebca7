"""What must hold after a turn in which one process was killed at one position of the log, as pure checks.

Each check takes the evidence of one conversation and gives the sentences that say what did not hold. Called by
``positions``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from callboard.actors.events import (
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnStarted,
)
from callboard.testing.chaos.five_steps import ANSWER, ONCE_TOOLS
from callboard.testing.chaos.gatekeeper import Passed
from callboard.testing.chaos.message_faults import Messages, message_faults

LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one conversation after its turn, from independent places.

    ``log``: the journal's records, read when the system had stopped; ``told``: the history as the system gave it at
    the turn's end; ``followed``: what a subscriber read throughout; ``asked``: the turn's events as its caller saw
    them; ``effects``: the call ids in the file outside, one per effect; ``passed``: what went through the journal's
    gate; ``requests``: what the model was shown; ``stale``: how a former owner's append was answered (None: there
    was no former owner).
    """

    turn_id: str
    took_s: float
    log: tuple[Event, ...]
    told: tuple[Event, ...]
    followed: tuple[Event, ...]
    asked: tuple[Event, ...]
    effects: tuple[str, ...]
    passed: tuple[Passed, ...]
    requests: tuple[Messages, ...]
    stale: str | None


def one_ending(found: Evidence) -> list[str]:
    """I1: the turn was accepted once, has one ending in time, and it is the answer."""
    started = [e for e in found.log if isinstance(e, TurnStarted) and e.turn_id == found.turn_id]
    endings = [e for e in found.log if e.terminal and getattr(e, "turn_id", None) == found.turn_id]
    wrong = []
    if (len(started), len(endings)) != (1, 1):
        wrong.append(f"I1: the turn was accepted {len(started)} times and has {len(endings)} endings")
    for ending in endings:
        if not isinstance(ending, TurnAnswered) or ending.text != ANSWER:
            wrong.append(f"I1: the turn ended as {ending}")
    if found.took_s > LIMIT_S:
        wrong.append(f"I1: the turn took {found.took_s:.1f} s")
    return wrong


def no_double_effect(found: Evidence) -> list[str]:
    """I2: no effect without its record, none twice where it must not be, none missing that the log says happened."""
    started = {e.call_id: e.tool for e in found.log if isinstance(e, ToolCallStarted)}
    finished = {e.call_id: e for e in found.log if isinstance(e, ToolCallFinished)}
    times = Counter(found.effects)
    wrong = [f"I2: the effect of {id} has no record of its start" for id in times if id not in started]
    for id, tool in started.items():
        if tool in ONCE_TOOLS and times[id] > 1:
            wrong.append(f"I2: the effect of {id} happened {times[id]} times")
        if tool in ONCE_TOOLS and id in finished and finished[id].outcome == "ok" and times[id] != 1:
            wrong.append(f"I11: {id} is logged as done, and its effect happened {times[id]} times")
    return wrong


def transcript_is_the_log(found: Evidence) -> list[str]:
    """I3: numbers without gap; the subscriber, the caller and the system all have the very events that are on disk."""
    wrong = []
    if [e.seq for e in found.log] != list(range(1, len(found.log) + 1)):
        wrong.append(f"I3: the log's numbers are {[e.seq for e in found.log]}")
    if found.followed != found.log:
        wrong.append(f"I3: the subscriber saw {_shape(found.followed)}; on disk is {_shape(found.log)}")
    if not found.told or found.told != found.log[: len(found.told)]:
        wrong.append(f"I3: the history is {_shape(found.told)}; on disk is {_shape(found.log)}")
    of_turn = [e for e in found.log if e.seq in {a.seq for a in found.asked}]
    if list(found.asked) != of_turn or not found.asked or not found.asked[-1].terminal:
        wrong.append(f"I3: the caller saw {_shape(found.asked)}; on disk is {_shape(found.log)}")
    return wrong


def one_owner(found: Evidence) -> list[str]:
    """I9: each epoch is higher than the last, and nothing is taken under one that is not the newest."""
    wrong, newest = [], 0
    for passed in found.passed:
        if passed.side == "opened":
            if passed.epoch <= newest:
                wrong.append(f"I9: epoch {passed.epoch} was issued after {newest}")
            newest = max(newest, passed.epoch)
        elif passed.side == "after" and passed.refused is None and passed.epoch < newest:
            wrong.append(f"I9: an append of epoch {passed.epoch} was taken after {newest} was issued")
    if found.stale not in (None, "stale_epoch"):
        wrong.append(f"I9: a former owner's append was answered with {found.stale}")
    return wrong


def in_order(found: Evidence) -> list[str]:
    """I10: what the model is shown has one result for each call, in call order."""
    return [
        f"I10: the model was shown {fault}" for shown in found.requests for fault in message_faults(shown)
    ]


def nothing_made_up(found: Evidence) -> list[str]:
    """I11: a result has its call, a done call its start, and the answer is what the model last said."""
    asked = {c.call_id for e in found.log if isinstance(e, StepFinished) for c in e.calls}
    begun = {e.call_id for e in found.log if isinstance(e, ToolCallStarted)}
    wrong = []
    for event in found.log:
        if isinstance(event, ToolCallFinished) and event.call_id not in asked:
            wrong.append(f"I11: {event.call_id} has a result and was never asked for")
        if isinstance(event, ToolCallFinished) and event.outcome == "ok" and event.call_id not in begun:
            wrong.append(f"I11: {event.call_id} is done and was never started")
    results = Counter(e.call_id for e in found.log if isinstance(e, ToolCallFinished))
    return wrong + [f"I11: {id} has {results[id]} results" for id in sorted(asked) if results[id] != 1]


CHECKS: tuple[Callable[[Evidence], list[str]], ...] = (
    one_ending,
    no_double_effect,
    transcript_is_the_log,
    one_owner,
    in_order,
    nothing_made_up,
)


def faults_of(found: Evidence) -> list[str]:
    """Give everything that did not hold, over all checks."""
    return [sentence for check in CHECKS for sentence in check(found)]


def _shape(events: Sequence[Event]) -> str:
    return " ".join(f"{e.seq}:{e.type}" for e in events)
