"""The turn machine driven by hand: give it inputs, see its effects and its log. Used by tests; decides nothing."""

from __future__ import annotations

from callboard.actors.chat_model import ModelReply, Usage
from callboard.actors.events import Event, ToolCallFinished
from callboard.actors.items import FunctionCall, Item
from callboard.actors.turn import (
    Append,
    AskModel,
    Begin,
    CallFinished,
    Durable,
    Effect,
    Input,
    ModelReplied,
    Turn,
    TurnLimits,
)
from callboard.tools.content import TextBlock, ToolResult

OK = ToolResult(content=(TextBlock("ok"),))


class Stage:
    """A turn and all that came out of it; ``auto`` makes every append durable at once."""

    def __init__(
        self, limits: TurnLimits | None = None, history: tuple[Item, ...] = (), *, auto: bool = True
    ) -> None:
        self.turn = Turn(limits or TurnLimits(), history)
        self.auto = auto
        self.now = 100.0
        self.log: list[Event] = []

    def give(self, given: Input) -> list[Effect]:
        """Give one input, a second after the last; the effects include those of what became durable by it."""
        self.now += 1
        effects = self.turn.handle(given, self.now)
        for effect in list(effects):
            if isinstance(effect, Append):
                self.log.extend(effect.events)
                if self.auto and effect.wait:
                    effects += self.give(Durable(effect.token))
        return effects

    def begin(self) -> list[Effect]:
        """Begin the turn ``t``."""
        return self.give(Begin(turn_id="t", text="hi"))

    def reply(
        self,
        *calls: FunctionCall,
        text: str = "",
        refusals: dict[str, ToolResult] | None = None,
        approvals: dict[str, str] | None = None,
    ) -> list[Effect]:
        """Let the model reply; one input token and two output tokens are used."""
        reply = ModelReply(text=text, calls=calls, usage=Usage(input_tokens=1, output_tokens=2))
        return self.give(ModelReplied(reply=reply, refusals=refusals or {}, approvals=approvals or {}))

    def finish(self, *call_ids: str, result: ToolResult = OK) -> list[Effect]:
        """Let these calls end, one by one."""
        return [effect for i in call_ids for effect in self.give(CallFinished(call_id=i, result=result))]

    def step(self, call_id: str, arguments: str = "{}") -> list[Effect]:
        """Let the model ask for one call, and the call end."""
        self.reply(call(call_id, arguments))
        return self.finish(call_id)


def call(call_id: str, arguments: str = "{}", tool: str = "f") -> FunctionCall:
    """Make a call."""
    return FunctionCall(call_id=call_id, tool=tool, arguments=arguments)


def kinds(effects: list[Effect]) -> list[str]:
    """Name the effects' classes."""
    return [type(effect).__name__ for effect in effects]


def types(events: list[Event]) -> list[str]:
    """Name the events' types."""
    return [event.type for event in events]


def asked(effects: list[Effect]) -> AskModel:
    """Give the one AskModel among the effects."""
    (ask,) = [effect for effect in effects if isinstance(effect, AskModel)]
    return ask


def outcomes(log: list[Event]) -> list[tuple[str, str]]:
    """Give each result's call and outcome, in the order of the log."""
    return [(e.call_id, e.outcome) for e in log if isinstance(e, ToolCallFinished)]
