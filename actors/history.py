"""What a conversation's events amount to: the items that a model is shown, and the turn that was left open.

Pure folds over the log. They never drop work that was done, and never show a model a call without exactly
one output, whatever the log went through (MCP.md, B71). Called by the client actor when it wakes up, by the
turn machine for its own turn, and by whoever exports a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from callboard.actors.events import (
    ConversationOpened,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    ToolDisabled,
    ToolEnabled,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item, Role
from callboard.tools.content import TextBlock

NO_RESULT = "no result: interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedTurn:
    """A turn without an ending, as the log tells it.

    ``open_calls`` were started and have no result, ``pending_calls`` were asked for and never started; both
    are in the order of the model's asking. ``resumes`` counts the times that it was taken up before.
    """

    started: TurnStarted
    steps: tuple[StepFinished, ...] = ()
    open_calls: tuple[FunctionCall, ...] = ()
    pending_calls: tuple[FunctionCall, ...] = ()
    results: Mapping[str, ToolCallFinished] = field(default_factory=dict)
    resumes: int = 0

    @property
    def turn_id(self) -> str:
        """The turn's id, which is the request id that brought it."""
        return self.started.turn_id

    @property
    def events(self) -> tuple[Event, ...]:
        """Give the turn's facts that make up its history, in an order that ``items_of`` takes."""
        return (self.started, *self.steps, *self.results.values())


@dataclass(slots=True)
class _Turn:
    """One turn while it is being folded."""

    started: TurnStarted
    steps: list[StepFinished] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    results: dict[str, ToolCallFinished] = field(default_factory=dict)
    resumes: int = 0
    ending: Event | None = None


def items_of(
    events: Iterable[Event], system_prompt: str = "", *, without: str | None = None
) -> tuple[Item, ...]:
    """Give the history that a model is shown, in the order in which the turns were accepted.

    Per turn: the user's message; per step the assistant's text, the calls, and one output per call in call
    order (``NO_RESULT`` where the log has none); then the answer, or an interrupted message that names the
    ending.
    An empty ``system_prompt`` gives no system message. The turn with the id ``without`` is left out.
    """
    items: list[Item] = [_message("system", system_prompt)] if system_prompt else []
    for turn_id, turn in _turns(events).items():
        if turn_id != without:
            items.extend(_items_of_turn(turn))
    return tuple(items)


def unfinished_turn(events: Iterable[Event]) -> UnfinishedTurn | None:
    """Give the oldest turn that has no ending, or None."""
    turn = next((t for t in _turns(events).values() if t.ending is None), None)
    if turn is None:
        return None
    unanswered = [call for step in turn.steps for call in step.calls if call.call_id not in turn.results]
    return UnfinishedTurn(
        started=turn.started,
        steps=tuple(turn.steps),
        open_calls=tuple(call for call in unanswered if call.call_id in turn.begun),
        pending_calls=tuple(call for call in unanswered if call.call_id not in turn.begun),
        results=turn.results,
        resumes=turn.resumes,
    )


def enabled_after(events: Iterable[Event]) -> frozenset[str]:
    """Give the names of the tools that the conversation may use after these events."""
    enabled: set[str] = set()
    for event in events:
        match event:
            case ConversationOpened():
                enabled.update(event.enabled)
            case ToolEnabled():
                enabled.add(event.tool)
            case ToolDisabled():
                enabled.discard(event.tool)
            case _:
                pass
    return frozenset(enabled)


def _turns(events: Iterable[Event]) -> dict[str, _Turn]:
    turns: dict[str, _Turn] = {}
    for event in events:
        if isinstance(event, TurnStarted):
            turns.setdefault(event.turn_id, _Turn(event))
        turn = turns.get(getattr(event, "turn_id", ""))
        if turn is not None and turn.ending is None:
            _fold(turn, event)
    return turns


def _fold(turn: _Turn, event: Event) -> None:
    match event:
        case StepFinished():
            turn.steps.append(event)
        case ToolCallStarted():
            turn.begun.add(event.call_id)
        case ToolCallFinished():
            turn.results.setdefault(event.call_id, event)
        case TurnResumed():
            turn.resumes += 1
        case TurnAnswered() | TurnFailed() | TurnCancelled():
            turn.ending = event
        case _:
            pass


def _items_of_turn(turn: _Turn) -> Iterator[Item]:
    yield _message("user", turn.started.text)
    for step in turn.steps:
        if step.text and not _is_the_answer(step, turn):
            yield _message("assistant", step.text)
        yield from step.calls
        yield from (_output(call, turn.results.get(call.call_id)) for call in step.calls)
    match turn.ending:
        case TurnAnswered(text=text) if text:
            yield _message("assistant", text)
        case TurnFailed(reason=reason):
            yield _message("assistant", f"[This turn failed: {reason}.]", interrupted=True)
        case TurnCancelled():
            yield _message("assistant", "[This turn was cancelled.]", interrupted=True)
        case _:
            pass


def _is_the_answer(step: StepFinished, turn: _Turn) -> bool:
    """The last step's text, which the ending says again."""
    ending = turn.ending
    return step is turn.steps[-1] and isinstance(ending, TurnAnswered) and ending.text == step.text


def _output(call: FunctionCall, result: ToolCallFinished | None) -> FunctionCallOutput:
    if result is None:
        return FunctionCallOutput(call_id=call.call_id, content=(TextBlock(NO_RESULT),), is_error=True)
    return FunctionCallOutput(call_id=call.call_id, content=result.content, is_error=result.is_error)


def _message(role: Role, text: str, *, interrupted: bool = False) -> ChatMessage:
    return ChatMessage(role=role, content=(TextBlock(text),), interrupted=interrupted)
