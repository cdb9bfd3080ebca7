"""Every check of the kills by position finds the evidence in which it does not hold, and passes the good one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from callboard.actors.events import (
    ConversationClosed,
    ConversationOpened,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.items import FunctionCall
from callboard.testing.chaos.five_steps import ANSWER, RECORDS
from callboard.testing.chaos.gatekeeper import Passed
from callboard.testing.chaos.message_faults import message_faults
from callboard.testing.chaos.position_checks import (
    Evidence,
    faults_of,
    in_order,
    no_double_effect,
    nothing_made_up,
    one_ending,
    one_owner,
    transcript_is_the_log,
)
from callboard.testing.chaos.position_turn import Kill
from callboard.testing.chaos.positions import PLACES, kills_of
from callboard.testing.chaos.victims import KINDS

CALL = FunctionCall(call_id="c1", tool="leave_mark", arguments="{}")


def numbered(*events: Event) -> tuple[Event, ...]:
    return tuple(dataclasses.replace(event, seq=n) for n, event in enumerate(events, start=1))


LOG = numbered(
    ConversationOpened(conversation_id="x", user="ann", team="red"),
    TurnStarted(turn_id="t", text="go"),
    StepFinished(turn_id="t", step=1, calls=(CALL,)),
    ToolCallStarted(turn_id="t", call_id="c1", tool="leave_mark"),
    ToolCallFinished(turn_id="t", call_id="c1", tool="leave_mark", is_error=False, outcome="ok"),
    StepFinished(turn_id="t", step=2, text=ANSWER),
    TurnAnswered(turn_id="t", text=ANSWER),
    ConversationClosed(),
)
SHOWN = (
    {"role": "user", "content": "go"},
    {"role": "assistant", "tool_calls": [{"id": "c1"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "marked"},
)
GOOD = Evidence(
    turn_id="t",
    took_s=1.0,
    log=LOG,
    told=LOG[:-1],
    followed=LOG,
    asked=LOG[1:-1],
    effects=("c1",),
    passed=(
        Passed(side="opened", conversation="x", epoch=1, seqs=()),
        Passed(side="after", conversation="x", epoch=1, seqs=(1, 2)),
        Passed(side="opened", conversation="x", epoch=2, seqs=()),
        Passed(side="after", conversation="x", epoch=1, seqs=(3,), refused="stale_epoch"),
        Passed(side="after", conversation="x", epoch=2, seqs=(3,)),
    ),
    requests=(SHOWN,),
    stale="stale_epoch",
)
STALE = Passed(side="after", conversation="x", epoch=1, seqs=(4,))


def without(position: int) -> tuple[Event, ...]:
    return LOG[:position] + LOG[position + 1 :]


def test_good_evidence_has_no_faults() -> None:
    assert faults_of(GOOD) == []


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        (one_ending, {"log": without(6)}),
        (one_ending, {"log": (*LOG, LOG[6])}),
        (one_ending, {"log": (*LOG, LOG[1])}),
        (one_ending, {"took_s": 31.0}),
        (one_ending, {"log": (*without(6), TurnFailed(turn_id="t", reason="poison", message="x"))}),
        (no_double_effect, {"effects": ("c1", "c1"), "log": without(4)}),
        (no_double_effect, {"effects": ()}),
        (no_double_effect, {"effects": ("c1", "c2")}),
        (transcript_is_the_log, {"followed": without(3)}),
        (transcript_is_the_log, {"followed": (*LOG, LOG[3])}),
        (transcript_is_the_log, {"told": LOG[1:]}),
        (transcript_is_the_log, {"told": ()}),
        (transcript_is_the_log, {"asked": LOG[1:4]}),
        (
            transcript_is_the_log,
            {"log": without(3), "followed": without(3), "told": LOG[:3], "asked": LOG[5:7]},
        ),
        (one_owner, {"stale": "taken"}),
        (one_owner, {"passed": (*GOOD.passed, STALE)}),
        (one_owner, {"passed": (*GOOD.passed, GOOD.passed[0])}),
        (in_order, {"requests": (SHOWN[:2],)}),
        (nothing_made_up, {"log": without(3)}),
        (nothing_made_up, {"log": (*LOG, LOG[4])}),
    ],
)
def test_evidence_in_which_it_does_not_hold_is_found(
    check: Callable[[Evidence], list[str]], changes: dict[str, Any]
) -> None:
    assert len(check(dataclasses.replace(GOOD, **changes))) == 1


def test_a_call_whose_outcome_is_unknown_may_or_may_not_have_had_its_effect() -> None:
    unknown = dataclasses.replace(LOG[4], is_error=True, outcome="unknown")  # type: ignore[call-arg]
    log = (*LOG[:4], unknown, *LOG[5:])
    for effects in ((), ("c1",)):
        assert no_double_effect(dataclasses.replace(GOOD, log=log, effects=effects)) == []


@pytest.mark.parametrize(
    ("messages", "faults"),
    [
        (SHOWN, 0),
        (SHOWN[:2], 1),
        (SHOWN[2:], 1),
        ((*SHOWN, SHOWN[2]), 1),
        ((*SHOWN[:2], SHOWN[0], SHOWN[2]), 2),
        (
            (
                {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
                {"role": "tool", "tool_call_id": "b"},
                {"role": "tool", "tool_call_id": "a"},
            ),
            2,
        ),
    ],
)
def test_a_request_needs_each_calls_result_in_call_order(
    messages: tuple[dict[str, Any], ...], faults: int
) -> None:
    assert len(message_faults(messages)) == faults


def test_twenty_seeds_hit_every_place_and_every_kind_and_a_hundred_and_eight_every_pair() -> None:
    first = [kill for seed in range(20) for kill in kills_of(seed)]
    assert {(kill.seq, kill.side) for kill in first} == set(PLACES)
    assert len(PLACES) == 2 * RECORDS
    assert {kill.kind for kill in first} == set(KINDS)
    between_effect_and_record = {Kill(seq=seq, side="before", kind="client") for seq in (5, 12)}
    assert between_effect_and_record <= set(first)
    more = {(k.seq, k.side, k.kind) for seed in range(108) for k in kills_of(seed)}
    assert len(more) == len(PLACES) * len(KINDS)
    assert kills_of(7) == kills_of(7) != kills_of(8)
