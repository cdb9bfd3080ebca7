"""A conversation from elsewhere, as the list of chat messages that OpenAI-compatible services share, read as events.

It decides what becomes of each message: a user's opens a turn, an assistant's is a step, the last step without calls is
the answer. What this system keeps elsewhere (system prompts) or cannot hold is left out and said; the rest is for
``repaired`` to make whole. Pure. Called by ``history_forms``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.actors.asked_calls import parse_arguments
from callboard.actors.events import (
    Event,
    EventError,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnStarted,
)
from callboard.actors.items import FunctionCall
from callboard.tools.content import Block, ImageBlock, TextBlock

NO_QUESTION = "(no question)"


def events_from_messages(messages: Sequence[Any]) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Read a list of ``{"role": …}`` objects, and say what was left out or put in.

    The events have neither numbers nor times, and no opening. Raises EventError naming the message (from 1) and what
    was expected.
    """
    reader = _Reader()
    for number, message in enumerate(messages, start=1):
        reader.take(number, message)
    reader.end_turn()
    return tuple(reader.events), tuple(reader.notes)


class _Reader:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notes: list[str] = []
        self._turns = 0
        self._asked: list[str] = []
        self._steps: list[StepFinished] = []
        self._in_question = False

    def take(self, number: int, message: Any) -> None:
        role = message.get("role") if isinstance(message, Mapping) else None
        match role:
            case "system" | "developer":
                self.notes.append(
                    f"message {number}: the {role} prompt was left out; the template has its own"
                )
            case "user":
                self._question(self._text(number, message.get("content")))
            case "assistant":
                self._reply(number, message)
            case "tool":
                self._result(number, message)
            case _:
                found = f"the role {role!r}" if role is not None else "no role"
                raise EventError(
                    f"message {number}: expected the role system, developer, user, assistant or tool, got {found}"
                )

    def end_turn(self) -> None:
        """End the turn, if there is one and its last reply is an answer."""
        last = self._steps[-1] if self._steps else None
        if last is not None and last is self.events[-1] and not last.calls:
            answer = TurnAnswered(turn_id=last.turn_id, text=last.text, steps=len(self._steps))
            self.events.append(answer)
        self._steps = []
        self._in_question = False

    @property
    def _turn_id(self) -> str:
        return f"imported-{self._turns}"

    def _question(self, text: str) -> None:
        if self._in_question:  # the user wrote twice before the answer: one turn
            started = self.events.pop()
            assert isinstance(started, TurnStarted)
            self.events.append(TurnStarted(turn_id=started.turn_id, text=f"{started.text}\n\n{text}"))
            return
        self.end_turn()
        self._turns += 1
        self._in_question = True
        self.events.append(TurnStarted(turn_id=self._turn_id, text=text))

    def _reply(self, number: int, message: Mapping[str, Any]) -> None:
        if not self._turns:
            self._question(NO_QUESTION)
            self.notes.append(f"message {number}: an assistant's message that answers nothing got a question")
        self._in_question = False
        text = self._text(number, message.get("content") or message.get("refusal"))
        calls = _calls(number, message)
        step = StepFinished(turn_id=self._turn_id, step=len(self._steps) + 1, text=text, calls=calls)
        self._steps.append(step)
        self.events.append(step)

    def _result(self, number: int, message: Mapping[str, Any]) -> None:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise EventError(f"message {number}: expected 'tool_call_id', a text, in a tool's message")
        made = [call for step in self._steps for call in step.calls if call.call_id == call_id]
        call = (
            made[-1]
            if made
            else FunctionCall(call_id=call_id, tool=str(message.get("name", "")), arguments="")
        )
        arguments = parse_arguments(call.arguments)
        started = ToolCallStarted(
            turn_id=self._turn_id,
            call_id=call_id,
            tool=call.tool,
            arguments=call.arguments if arguments is None else arguments,
        )
        finished = ToolCallFinished(
            turn_id=self._turn_id,
            call_id=call_id,
            tool=call.tool,
            is_error=False,
            outcome="ok",
            content=self._blocks(number, message.get("content")),
        )
        self.events += [started, finished]

    def _text(self, number: int, content: Any) -> str:
        texts = []
        for block in self._blocks(number, content):
            if isinstance(block, TextBlock):
                texts.append(block.text)
            else:
                texts.append("[an image]")
                self.notes.append(f"message {number}: an image was left out")
        return "\n".join(texts)

    def _blocks(self, number: int, content: Any) -> tuple[Block, ...]:
        match content:
            case None:
                return ()
            case str():
                return (TextBlock(content),)
            case list():
                return tuple(block for part in content if (block := self._block(number, part)) is not None)
        raise EventError(f"message {number}: expected 'content', a text or a list of parts")

    def _block(self, number: int, part: Any) -> Block | None:
        match part:
            case {"type": "text" | "input_text" | "output_text", "text": str(text)} | {"refusal": str(text)}:
                return TextBlock(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                return _image(url)
            case {"type": str(kind)}:
                self.notes.append(f"message {number}: a part of the type {kind[:40]!r} was left out")
                return None
        raise EventError(f"message {number}: expected a part of 'content' to be an object with 'type'")


def _image(url: str) -> Block:
    head, _, data = url.partition(";base64,")
    return (
        ImageBlock(data, head.removeprefix("data:")) if data and head.startswith("data:") else TextBlock(url)
    )


def _calls(number: int, message: Mapping[str, Any]) -> tuple[FunctionCall, ...]:
    if message.get("function_call"):
        raise EventError(f"message {number}: 'function_call' is the former form; expected 'tool_calls'")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise EventError(f"message {number}: expected 'tool_calls' to be a list")
    return tuple(_call(number, call) for call in calls)


def _call(number: int, call: Any) -> FunctionCall:
    match call:
        case {"function": {"name": str(name), **function}}:
            arguments = function.get("arguments") or ""
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            return FunctionCall(call_id=str(call.get("id") or ""), tool=name, arguments=text)
    raise EventError(
        f"message {number}: expected a call such as {{'id': …, 'function': {{'name': …, 'arguments': …}}}}"
    )
