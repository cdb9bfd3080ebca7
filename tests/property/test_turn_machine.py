"""The turn machine as a state machine: every input at every point, with losses of the process in between.

The model beside it is a disk (batches that are durable, batches that are not yet) and what runs now.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.actors.chat_model import ModelReply
from callboard.actors.events import Event, StepFinished, ToolCallFinished, ToolCallStarted, TurnStarted
from callboard.actors.history import items_of, unfinished_turn
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.actors.turn import (
    Append,
    AskModel,
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    KillCall,
    ModelFailed,
    ModelReplied,
    Phase,
    Resume,
    RetryAfter,
    RetryDue,
    StartCall,
    StopModel,
    Turn,
    TurnLimits,
)
from callboard.tools.content import TextBlock, ToolResult, error_result

HISTORY: tuple[Item, ...] = (
    FunctionCall(call_id="a", tool="once", arguments="{}"),
    FunctionCallOutput(call_id="a", content=()),
)
CALL_IDS = st.sampled_from(["a", "b", "c", "", "a_2"])
CALLS = st.lists(
    st.builds(
        FunctionCall,
        call_id=CALL_IDS,
        tool=st.sampled_from(["once", "again"]),
        arguments=st.sampled_from(["{}", "", '{"n": 1}', "{", "[]"]),
    ),
    max_size=4,
)
GOOD_CALLS = st.lists(
    st.builds(
        FunctionCall, call_id=CALL_IDS, tool=st.sampled_from(["once", "again"]), arguments=st.just("{}")
    ),
    min_size=1,
    max_size=3,
)
TEXTS = st.sampled_from(["", " ", "words"])
SELDOM = st.integers(0, 7).map(lambda n: n == 7)  # else most turns would be over before anything happened


def assert_valid(items: tuple[Item, ...]) -> None:
    """Each call has one output, behind it and before the next message; no id comes twice."""
    waiting: list[str] = []
    seen: set[str] = set()
    for item in items:
        match item:
            case FunctionCall(call_id=call_id):
                assert call_id
                assert call_id not in seen
                seen.add(call_id)
                waiting.append(call_id)
            case FunctionCallOutput(call_id=call_id):
                assert waiting
                assert waiting.pop(0) == call_id
            case ChatMessage():
                assert not waiting
    assert not waiting


class TurnMachine(RuleBasedStateMachine):
    """One turn through any number of lives."""

    @initialize(
        max_steps=st.integers(1, 3),
        on_cap=st.sampled_from(["answer", "return"]),
        attempts=st.integers(1, 3),
        max_calls=st.integers(1, 4),
    )
    def begin(self, max_steps: int, on_cap: str, attempts: int, max_calls: int) -> None:
        self.limits = TurnLimits(
            max_steps=max_steps,
            on_cap="answer" if on_cap == "answer" else "return",
            model_attempts=attempts,
            max_calls=max_calls,
        )
        self.disk: list[Event] = []
        self.starts: dict[str, int] = {}
        self.tools: dict[str, str] = {}
        self.now = 0.0
        self.new_life()
        self.give(Begin(turn_id="t", text="hi"))

    def new_life(self) -> None:
        self.turn = Turn(self.limits, HISTORY)
        self.unwritten: list[Append] = []
        self.acknowledged = 0
        self.running: set[str] = set()
        self.is_asking = False
        self.is_waiting_to_retry = False
        self.ended: list[Event] = []
        self.cut_off = False

    # what the machine wants done

    def give(self, given: Input) -> None:
        self.now += 0.5
        was_over = bool(self.ended)
        effects = self.turn.handle(given, self.now)
        assert not (was_over and effects)
        for effect in effects:
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Append(token=token):
                assert token == self.acknowledged + len(self.unwritten) + 1
                self.unwritten.append(effect)
            case AskModel(items=items, step=step):
                assert not self.is_asking
                assert not self.running
                assert not self.cut_off
                assert any(isinstance(event, TurnStarted) for event in self.disk)
                assert step <= self.limits.max_steps + 1
                assert effect.tools_open == (step <= self.limits.max_steps)
                assert_valid(items)
                self.is_asking, self.is_waiting_to_retry = True, False
            case StopModel():
                assert self.is_asking
                self.is_asking = False
            case StartCall(call=call):
                self.start(call)
            case KillCall(call_id=call_id):
                self.running.remove(call_id)
            case RetryAfter(delay_s=delay_s):
                assert 0 <= delay_s <= 30
                self.is_waiting_to_retry = True
            case Discard():
                assert not self.is_asking
            case Ended(event=event):
                assert event in self.disk
                assert not self.running
                assert not self.is_asking
                self.ended.append(event)

    def start(self, call: FunctionCall) -> None:
        assert not self.cut_off
        assert any(isinstance(e, StepFinished) and call in e.calls for e in self.disk)
        assert any(isinstance(e, ToolCallStarted) and e.call_id == call.call_id for e in self.disk)
        assert not any(isinstance(e, ToolCallFinished) and e.call_id == call.call_id for e in self.disk)
        self.running.add(call.call_id)
        self.tools[call.call_id] = call.tool
        self.starts[call.call_id] = self.starts.get(call.call_id, 0) + 1
        assert call.tool == "again" or self.starts[call.call_id] == 1

    # the world's inputs, at any point

    @rule(count=st.integers(1, 3))
    def the_disk_writes(self, count: int) -> None:
        for append in self.unwritten[:count]:
            self.disk.extend(append.events)
            self.acknowledged = append.token
        del self.unwritten[:count]
        self.give(Durable(self.acknowledged))

    @precondition(lambda self: self.is_asking)
    @rule(calls=GOOD_CALLS)
    def the_model_asks_for_calls(self, calls: list[FunctionCall]) -> None:
        self.is_asking = False
        self.give(ModelReplied(reply=ModelReply(calls=tuple(calls))))

    @rule(text=TEXTS, calls=CALLS, refused=st.sets(CALL_IDS))
    def the_model_replies(self, text: str, calls: list[FunctionCall], refused: set[str]) -> None:
        self.is_asking = False
        reply = ModelReply(text=text, calls=tuple(calls))
        self.give(ModelReplied(reply=reply, refusals={i: error_result("no", "denied") for i in refused}))

    @rule(retryable=st.booleans(), wish=st.none() | st.floats(-1, 100))
    def the_model_fails(self, retryable: bool, wish: float | None) -> None:
        self.is_asking = False
        self.give(ModelFailed(kind="timeout", message="m", retryable=retryable, retry_after_s=wish))

    @rule()
    def a_retry_is_due(self) -> None:
        self.give(RetryDue())

    @rule(data=st.data(), is_error=st.booleans())
    def a_call_finishes(self, data: st.DataObject, is_error: bool) -> None:
        known = sorted(self.running | set(self.tools)) or ["none"]
        call_id = data.draw(st.sampled_from(known))
        self.running.discard(call_id)
        result = error_result("e") if is_error else ToolResult(content=(TextBlock("r"),))
        self.give(CallFinished(call_id=call_id, result=result))

    @precondition(lambda self: bool(self.running))
    @rule()
    def all_calls_finish(self) -> None:
        for call_id in sorted(self.running):
            self.running.discard(call_id)
            self.give(CallFinished(call_id=call_id, result=ToolResult()))

    @rule(now=SELDOM, given=st.sampled_from([Cancel(), Cancel(reason="closed"), DeadlinePassed()]))
    def the_turn_is_cut_off(self, now: bool, given: Input) -> None:
        if now:
            self.cut_off = True
            self.give(given)

    @rule(written=st.integers(0, 3), refused=st.booleans())
    def the_process_is_lost(self, written: int, refused: bool) -> None:
        for append in self.unwritten[:written]:
            self.disk.extend(append.events)
        self.take_up(refused)

    def take_up(self, refused: bool) -> None:
        unfinished = unfinished_turn(self.disk)
        self.new_life()
        if unfinished is None and self.disk:
            return  # it had ended: nobody takes it up
        if unfinished is None:
            self.give(Begin(turn_id="t", text="hi"))
            return
        repeatable = frozenset(call.call_id for call in unfinished.open_calls if call.tool == "again")
        refusals = {c.call_id: error_result("off", "denied") for c in unfinished.pending_calls if refused}
        self.give(Resume(unfinished=unfinished, repeatable=repeatable, refusals=refusals))

    # what must hold

    @invariant()
    def the_history_is_always_valid(self) -> None:
        if hasattr(self, "turn"):
            assert_valid(self.turn.items)
            assert_valid(items_of(self.disk, ""))

    @invariant()
    def there_is_one_ending_and_nothing_behind_it(self) -> None:
        if hasattr(self, "turn"):
            log = self.disk + [event for append in self.unwritten for event in append.events]
            assert not any(event.terminal for event in log[:-1])
            assert len(self.ended) <= 1

    @invariant()
    def each_call_has_at_most_one_result(self) -> None:
        if hasattr(self, "turn"):
            results = [event.call_id for event in self.disk if isinstance(event, ToolCallFinished)]
            assert len(results) == len(set(results))

    def teardown(self) -> None:
        if not hasattr(self, "turn"):
            return
        self.give(Cancel())
        self.the_disk_writes(len(self.unwritten) or 1)
        assert sum(event.terminal for event in self.disk) == 1
        assert self.turn.phase in (Phase.ENDED, Phase.NEW)
        asked = {call.call_id for e in self.disk if isinstance(e, StepFinished) for call in e.calls}
        answered = {event.call_id for event in self.disk if isinstance(event, ToolCallFinished)}
        assert asked == answered


TestTurn = TurnMachine.TestCase
TestTurn.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
