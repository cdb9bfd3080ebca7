"""A conversation's events as the items that a model is shown (FEATURES C2).

A pure view of the log. It never shows a model a call without exactly one output, nor one call id twice, whatever
the log went through (MCP.md, B71). Called by the client actor when it wakes up, by the turn machine for its own
turn, and by whoever exports a history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from callboard.actors.asked_calls import with_unique_ids
from callboard.actors.events import (
    ApprovalDecided,
    Event,
    StepFinished,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
)
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item, Role
from callboard.actors.turn_facts import TurnFacts, UnfinishedTurn, turns_of, unfinished_turn
from callboard.tools.content import TextBlock

__all__ = ["NO_RESULT", "UnfinishedTurn", "items_of", "items_of_turn", "unfinished_turn"]

NO_RESULT = "no result: interrupted"


def items_of(
    events: Iterable[Event], system_prompt: str = "", *, without: str | None = None
) -> tuple[Item, ...]:
    """Give the history that a model is shown, in the order in which the turns were accepted.

    An empty ``system_prompt`` gives no system message. The turn with the id ``without`` is left out.
    """
    items: list[Item] = [_message("system", system_prompt)] if system_prompt else []
    taken: set[str] = set()
    for turn_id, turn in turns_of(events).items():
        if turn_id != without:
            items.extend(items_of_turn(turn, taken))
    return tuple(items)


def items_of_turn(turn: TurnFacts, taken: set[str]) -> Iterator[Item]:
    """Give one turn's items; ``taken`` are the call ids of the items before it, to which its own are added.

    The user's message; per step the assistant's text, the calls, and one output per call in call order
    (``NO_RESULT`` where the log has none); then the answer, or an interrupted message that names the ending.
    """
    yield _message("user", turn.started.text)
    for step in turn.steps:
        if step.text and not _is_the_answer(step, turn):
            yield _message("assistant", step.text)
        yield from _calls(turn, step, taken)
    match turn.ending:
        case TurnAnswered(text=text) if text:
            yield _message("assistant", text)
        case TurnFailed(reason=reason):
            yield _message("assistant", f"[This turn failed: {reason}.]", interrupted=True)
        case TurnCancelled():
            yield _message("assistant", "[This turn was cancelled.]", interrupted=True)
        case _:
            pass


def _calls(turn: TurnFacts, step: StepFinished, taken: set[str]) -> Iterator[Item]:
    """An id that came before gets another; the turn machine saw to that already, but the log may be from elsewhere."""
    calls = with_unique_ids(step.calls, taken)
    taken.update(call.call_id for call in calls)
    yield from calls
    for asked, call in zip(step.calls, calls, strict=True):
        yield _output(turn, asked, call.call_id)


def _output(turn: TurnFacts, asked: FunctionCall, call_id: str) -> FunctionCallOutput:
    result = turn.results.get(asked.call_id)
    if result is None:
        return FunctionCallOutput(call_id=call_id, content=(TextBlock(NO_RESULT),), is_error=True)
    content = (*_edited(turn.decisions.get(asked.call_id)), *result.content)
    return FunctionCallOutput(call_id=call_id, content=content, is_error=result.is_error)


def _edited(decided: ApprovalDecided | None) -> tuple[TextBlock, ...]:
    """The model must not take the result for that of its own arguments."""
    if decided is None or not decided.approved or decided.arguments is None:
        return ()
    arguments = json.dumps(decided.arguments, ensure_ascii=False)
    return (TextBlock(f"[The user changed the arguments before this ran, to {arguments}]"),)


def _is_the_answer(step: StepFinished, turn: TurnFacts) -> bool:
    """The last step's text, which the ending says again."""
    ending = turn.ending
    return step is turn.steps[-1] and isinstance(ending, TurnAnswered) and ending.text == step.text


def _message(role: Role, text: str, *, interrupted: bool = False) -> ChatMessage:
    return ChatMessage(role=role, content=(TextBlock(text),), interrupted=interrupted)
