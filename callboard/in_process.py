"""``run``: one turn in the caller's own process, without a daemon, for notebooks, scripts and tests.

It drives the same turn machine as a conversation's client actor (``actors/turn.py``), which takes all
decisions; here are only the model's stream, the calls and the caller's callback. Nothing is written to disk.
Called by users, as ``callboard.run`` and ``callboard.arun``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from callboard.actors.chat_model import ChatModel, ModelError, ModelReply, ModelTextDelta
from callboard.actors.events import Event, TextDelta, TextDiscarded, TurnAnswered
from callboard.actors.items import ChatMessage, FunctionCall, Item
from callboard.actors.turn import (
    Append,
    AskModel,
    Begin,
    CallFinished,
    Cancel,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    KillCall,
    Left,
    ModelFailed,
    ModelReplied,
    OnCap,
    RetryAfter,
    RetryDue,
    SetTimer,
    StartCall,
    StopModel,
    Suspended,
    Turn,
    TurnLimits,
)
from callboard.run_tools import Call, Isolation, RunError, registry_of
from callboard.tools.arguments import ArgumentFault, parse_arguments
from callboard.tools.content import TextBlock, ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decision import Refused, Situation, decide

OnEvent: TypeAlias = Callable[[Event], None]
_CALLS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of a run.

    ``text`` is the answer, empty when there is none; ``items`` the whole history, to which a next message may
    be added for a next run; ``events`` all logged events; ``ended`` the last of them, the one ending.
    """

    text: str
    items: tuple[Item, ...]
    events: tuple[Event, ...]
    ended: Event


def run(
    model: ChatModel,
    context: str | Sequence[Item],
    tools: Sequence[Any] = (),
    *,
    max_steps: int = 10,
    on_cap: OnCap = "answer",
    isolation: Isolation = "worker",
    on_event: OnEvent | None = None,
    deadline_s: float | None = None,
    step_deadline_s: float | None = None,
) -> RunResult:
    """Run one turn to its end, as ``arun`` does; not to be called where an event loop runs.

    Ctrl-C cancels the turn, kills its workers and is raised as KeyboardInterrupt.
    """
    if _is_in_a_loop():
        raise RunError(
            "an event loop runs here (a notebook has one): write `await callboard.arun(...)` instead"
        )
    return asyncio.run(
        arun(
            model,
            context,
            tools,
            max_steps=max_steps,
            on_cap=on_cap,
            isolation=isolation,
            on_event=on_event,
            deadline_s=deadline_s,
            step_deadline_s=step_deadline_s,
        )
    )


async def arun(
    model: ChatModel,
    context: str | Sequence[Item],
    tools: Sequence[Any] = (),
    *,
    max_steps: int = 10,
    on_cap: OnCap = "answer",
    isolation: Isolation = "worker",
    on_event: OnEvent | None = None,
    deadline_s: float | None = None,
    step_deadline_s: float | None = None,
) -> RunResult:
    """Run one turn to its end.

    ``context`` is the user's message, or a history whose last item is one. ``tools`` are functions decorated
    with ``@tool``, instances of Tool, or subclasses of it. With ``isolation="worker"`` each call has a
    process, killed at the tool's deadline; with ``"thread"`` it shares this one. ``on_event`` is called with
    every logged and live event as it happens, and must not block. ``deadline_s`` ends the turn as failed;
    ``step_deadline_s`` bounds each model call together with the tool calls that it asks for.

    Raises RunError for a context or tools that cannot be used, and whatever ``model`` raises but ModelError.
    When the task is cancelled, the turn ends as cancelled and the workers are killed before this returns.
    """
    history, text = _split(context)
    registry, calls = registry_of(tools, isolation)
    try:
        limits = TurnLimits(
            max_steps=max_steps, on_cap=on_cap, deadline_s=deadline_s, step_deadline_s=step_deadline_s
        )
    except ValueError as fault:
        raise RunError(str(fault)) from fault
    shell = _Run(model, registry, calls, Turn(limits, history), on_event or _ignore)
    return await shell.drive(text)


class _Run:
    """The shell of one turn: performs effects, feeds inputs, one at a time."""

    def __init__(
        self,
        model: ChatModel,
        registry: Mapping[str, ToolSpec],
        calls: Mapping[str, Call],
        turn: Turn,
        on_event: OnEvent,
    ) -> None:
        self._model = model
        self._registry = registry
        self._calls = calls
        self._turn = turn
        self._on_event = on_event
        self._turn_id = uuid.uuid4().hex
        self._events: list[Event] = []
        self._inputs: asyncio.Queue[Input | BaseException] = asyncio.Queue()
        self._asking: asyncio.Task[None] | None = None
        self._calling: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[type[Input], asyncio.TimerHandle] = {}
        self._places = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._has_ended = False

    async def drive(self, text: str) -> RunResult:
        """Run the turn; whatever happens, no task and no process is left when this returns."""
        try:
            self._feed(Begin(turn_id=self._turn_id, text=text))
            while not self._has_ended:
                self._feed(await self._inputs.get())
        except asyncio.CancelledError:
            self._feed(Cancel(reason="user"))
            raise
        finally:
            for timer in self._timers.values():
                timer.cancel()
            await self._stop_tasks()
        return self._result()

    async def _stop_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _result(self) -> RunResult:
        ended = self._events[-1]
        answer = ended.text if isinstance(ended, TurnAnswered) else ""
        return RunResult(text=answer, items=self._turn.items, events=tuple(self._events), ended=ended)

    def _feed(self, given: Input | BaseException) -> None:
        if isinstance(given, BaseException):
            raise given
        for effect in self._turn.handle(given, time.monotonic()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Append(events=events, token=token):
                self._log(events)
                self._inputs.put_nowait(Durable(token))
            case AskModel():
                self._asking = self._begin_task(self._ask(effect))
            case StopModel():
                if self._asking is not None:
                    self._asking.cancel()
            case StartCall(call=call, arguments=arguments):
                self._calling[call.call_id] = self._begin_task(self._carry_out(call, arguments))
            case KillCall(call_id):
                self._calling[call_id].cancel()
            case RetryAfter(delay_s):
                self._begin_task(self._wait(delay_s))
            case SetTimer(due=due, after_s=after_s):
                self._set_timer(due, after_s)
            case Discard(reason):
                self._on_event(TextDiscarded(turn_id=self._turn_id, reason=reason))
            case Ended():
                self._has_ended = True
            case Suspended() | Left():
                raise AssertionError("nobody is asked, and nobody interrupts, where nothing is written down")

    def _set_timer(self, due: Input, after_s: float | None) -> None:
        former = self._timers.pop(type(due), None)
        if former is not None:
            former.cancel()
        if after_s is not None:
            loop = asyncio.get_running_loop()
            self._timers[type(due)] = loop.call_later(after_s, self._inputs.put_nowait, due)

    def _log(self, events: Sequence[Event]) -> None:
        at = datetime.now(UTC).isoformat()
        for event in events:
            self._events.append(dataclasses.replace(event, seq=len(self._events) + 1, at=at))
            self._on_event(self._events[-1])

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._inputs.put_nowait(fault)

    async def _wait(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._inputs.put_nowait(RetryDue())

    async def _ask(self, ask: AskModel) -> None:
        reply: ModelReply | None = None
        stream = self._model.chat(ask.context, list(self._registry.values()) if ask.tools_open else [])
        try:
            async for event in stream:
                match event:
                    case ModelTextDelta(text):
                        self._on_event(TextDelta(turn_id=self._turn_id, text=text))
                    case ModelReply():
                        reply = event
        except ModelError as error:
            self._inputs.put_nowait(_failed(error))
            return
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if reply is None:
            silent = ModelError("bad_reply", "the model's stream ended without a reply", retryable=True)
            self._inputs.put_nowait(_failed(silent))
            return
        reply = self._turn.with_unique_ids(reply)
        self._inputs.put_nowait(ModelReplied(reply=reply, refusals=self._refusals(reply.calls)))

    def _refusals(self, calls: Sequence[FunctionCall]) -> dict[str, ToolResult]:
        refusals = {}
        here = Situation(registry=self._registry, enabled=frozenset(self._registry))
        for call in calls:
            decision = decide(call.tool, here)
            if isinstance(decision, Refused):
                refusals[call.call_id] = error_result(decision.message, "denied")
                continue
            parsed = parse_arguments(call.arguments, decision.spec.parameters)
            if isinstance(parsed, ArgumentFault):
                refusals[call.call_id] = error_result(parsed.message)
        return refusals

    async def _carry_out(self, call: FunctionCall, arguments: Mapping[str, Any]) -> None:
        began = time.monotonic()
        async with self._places:
            result = await self._calls[call.tool](arguments, ToolContext(call_id=call.call_id))
        duration_s = time.monotonic() - began
        self._inputs.put_nowait(CallFinished(call_id=call.call_id, result=result, duration_s=duration_s))


def _failed(error: ModelError) -> ModelFailed:
    return ModelFailed(
        kind=error.kind,
        message=error.message,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
        chance=random.random(),
    )


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _ignore(event: Event) -> None:
    """Stand in for a callback that was not given."""


def _split(context: str | Sequence[Item]) -> tuple[tuple[Item, ...], str]:
    if isinstance(context, str):
        return (), context
    items = tuple(context)
    match items[-1:]:
        case (ChatMessage(role="user", content=content),) if all(isinstance(b, TextBlock) for b in content):
            return items[:-1], "\n".join(block.text for block in content if isinstance(block, TextBlock))
    raise RunError(
        "the context must be a text, or items of which the last is a user's ChatMessage of TextBlocks"
    )
