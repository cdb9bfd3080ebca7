"""The turn machine as a state machine: every input at every point, with losses of the process in between.

The model beside it is a world with a disk (batches that are durable, batches that are not yet), a person who decides,
and what runs now. Whatever happens, a turn has one ending, and a call that must not be repeated starts once.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.actors.chat_model import ModelReply
from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    ToolPinned,
    TurnStarted,
)
from callboard.actors.history import items_of, unfinished_turn
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.actors.turn import (
    OPEN_PHASES,
    TRANSITIONS,
    Append,
    AskModel,
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Decided,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    Interrupt,
    KillCall,
    Left,
    ModelFailed,
    ModelReplied,
    Phase,
    Resume,
    RetryAfter,
    RetryDue,
    SetTimer,
    StartCall,
    StepTimedOut,
    StopModel,
    StorageFailed,
    Suspended,
    Turn,
    TurnLimits,
)
from callboard.actors.turn_inputs import ToolVersion
from callboard.tools.content import TextBlock, ToolResult, error_result

HISTORY: tuple[Item, ...] = (
    FunctionCall(call_id="a", tool="once", arguments="{}"),
    FunctionCallOutput(call_id="a", content=()),
)
CALL_IDS = st.sampled_from(["a", "b", "c", "", "a_2"])
TOOLS = st.sampled_from(
    ["once", "again", "asks", "asks"]
)  # not repeatable; repeatable; needs a person each time
CALLS = st.lists(
    st.builds(
        FunctionCall,
        call_id=CALL_IDS,
        tool=TOOLS,
        arguments=st.sampled_from(["{}", "", '{"n": 1}', "{", "[]"]),
    ),
    max_size=4,
)
GOOD_CALLS = st.lists(
    st.builds(FunctionCall, call_id=CALL_IDS, tool=TOOLS, arguments=st.just("{}")), min_size=1, max_size=3
)
TEXTS = st.sampled_from(["", " ", "words"])
VERSIONS = {"asks": ToolVersion("v1", ToolPinned(tool="asks", version="v1"))}
SELDOM = st.integers(0, 5).map(lambda n: n == 5)  # else most turns would be over before anything happened
CUTS: list[Input] = [Cancel(), Cancel(reason="closed"), DeadlinePassed()]
OPENING = ("turn_started", "turn_continued")
CLOSING = ("turn_answered", "turn_failed", "turn_cancelled", "turn_suspended")
MANY = 1000


def _is_of_asks(event: Event) -> bool:
    return isinstance(event, ToolPinned | ToolCallStarted) and event.tool == "asks"


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
        limits=st.builds(
            TurnLimits,
            max_steps=st.integers(1, 3),
            on_cap=st.sampled_from(["answer", "return"]),
            deadline_s=st.sampled_from([None, 1000.0]),
            step_deadline_s=st.sampled_from([None, 5.0]),
            model_attempts=st.integers(1, 3),
            max_calls=st.integers(1, 4),
            max_turn_calls=st.integers(2, 8),
            max_resumes=st.integers(1, 3),
        ),
        is_quick=st.booleans(),
        is_cancelled_at_last=st.booleans(),
    )
    def begin(self, limits: TurnLimits, is_quick: bool, is_cancelled_at_last: bool) -> None:
        self.limits = limits
        self.is_quick = is_quick  # the disk writes at once: turns come further
        self.is_cancelled_at_last = is_cancelled_at_last
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
        self.is_asking = self.is_waiting_to_retry = False
        self.clock_runs = self.step_clock_runs = False
        self.ended: list[Event] = []
        self.cut_off = self.has_left = self.disk_is_full = False

    # what the machine wants done

    def give(self, given: Input) -> None:
        self.now += 0.5
        is_over = bool(self.ended) or self.has_left
        before = self.turn.phase
        effects = self.turn.handle(given, self.now)
        assert not (is_over and effects)
        may_follow = TRANSITIONS.get((before, type(given)))
        if may_follow is None:
            assert (self.turn.phase, effects) == (before, [])
        else:
            assert self.turn.phase in may_follow
        for effect in effects:
            self.perform(effect)
        if self.is_quick and self.unwritten:
            self.the_disk_writes(MANY)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Append(token=token):
                assert token == self.acknowledged + len(self.unwritten) + 1
                assert effect.events
                self.unwritten.append(effect)
            case AskModel(items=items, step=step):
                assert not self.is_asking
                assert not self.running
                assert not self.cut_off
                assert any(isinstance(event, TurnStarted) for event in self.disk)
                assert step <= self.limits.max_steps + 1
                assert effect.tools_open == (step <= self.limits.max_steps)
                assert isinstance(items[effect.turn_at], ChatMessage)
                assert_valid(items)
                self.is_asking, self.is_waiting_to_retry = True, False
            case StopModel():
                assert self.is_asking
                self.is_asking = False
            case StartCall():
                self.start(effect)
            case KillCall(call_id=call_id):
                self.running.remove(call_id)
            case RetryAfter(delay_s=delay_s):
                assert 0 <= delay_s <= 31
                self.is_waiting_to_retry = True
            case SetTimer(due=due, after_s=after_s):
                self.set_timer(due, after_s)
            case Discard():
                assert not self.is_asking
            case Suspended():
                self.assert_at_rest("turn_suspended")
                assert not self.clock_runs
                assert not self.step_clock_runs
            case Left():
                self.has_left = True
                assert not self.running
                assert not self.is_asking
            case Ended(event=event):
                assert event in self.disk
                assert not self.running
                assert not self.is_asking
                self.ended.append(event)

    def set_timer(self, due: DeadlinePassed | StepTimedOut, after_s: float | None) -> None:
        if isinstance(due, DeadlinePassed):
            assert self.limits.deadline_s is not None
            assert after_s is None or 0 <= after_s <= self.limits.deadline_s
            self.clock_runs = after_s is not None
        else:
            assert after_s in (None, self.limits.step_deadline_s)
            self.step_clock_runs = after_s is not None

    def assert_at_rest(self, last: str) -> None:
        marks = [event.type for event in self.disk if event.type in (*OPENING, *CLOSING)]
        assert marks[-1] == last
        assert not self.running
        assert not self.is_asking
        assert self.turn.awaiting

    def start(self, start: StartCall) -> None:
        call = start.call
        assert not self.cut_off
        assert any(isinstance(e, StepFinished) and call in e.calls for e in self.disk)
        begun = [e for e in self.disk if isinstance(e, ToolCallStarted) and e.call_id == call.call_id]
        assert begun[-1].arguments == start.arguments
        assert not any(isinstance(e, ToolCallFinished) and e.call_id == call.call_id for e in self.disk)
        if call.tool == "asks":
            self.assert_approved(start)
        self.running.add(call.call_id)
        self.tools[call.call_id] = call.tool
        self.starts[call.call_id] = self.starts.get(call.call_id, 0) + 1
        assert call.tool == "again" or self.starts[call.call_id] == 1

    def assert_approved(self, start: StartCall) -> None:
        call_id = start.call.call_id
        (request,) = [e for e in self.disk if isinstance(e, ApprovalRequested) and e.call_id == call_id]
        (decided,) = [e for e in self.disk if isinstance(e, ApprovalDecided) and e.call_id == call_id]
        assert decided.approved
        assert start.approval == request.digest
        edited = decided.arguments
        assert start.arguments == (request.arguments if edited is None else edited)

    # the world's inputs, at any point

    @rule(count=st.integers(1, 3))
    def the_disk_writes(self, count: int) -> None:
        if self.disk_is_full:
            return
        for append in self.unwritten[:count]:
            self.disk.extend(append.events)
            self.acknowledged = append.token
        del self.unwritten[:count]
        self.give(Durable(self.acknowledged))

    @precondition(lambda self: not self.disk_is_full)
    @rule(fails=SELDOM)
    def the_disk_is_full_for_long(self, fails: bool) -> None:
        if fails:
            self.disk_is_full = self.cut_off = True
            self.give(StorageFailed(kind="storage_full", message="no room"))

    @precondition(lambda self: self.disk_is_full)
    @rule()
    def there_is_room_again(self) -> None:
        self.disk_is_full = False
        if self.is_quick:
            self.the_disk_writes(MANY)

    def replied(self, text: str, calls: list[FunctionCall], refused: set[str]) -> None:
        self.is_asking = False
        reply = self.turn.with_unique_ids(ModelReply(text=text, calls=tuple(calls)))
        given = ModelReplied(
            reply=reply,
            refusals={i: error_result("no", "denied") for i in refused},
            approvals={call.call_id: "destructive" for call in reply.calls if call.tool == "asks"},
            tool_versions=VERSIONS,
        )
        self.give(given)

    @precondition(lambda self: self.is_asking)
    @rule(calls=GOOD_CALLS)
    def the_model_asks_for_calls(self, calls: list[FunctionCall]) -> None:
        self.replied("", calls, set())

    @precondition(lambda self: self.is_asking)
    @rule(text=TEXTS, calls=CALLS, refused=st.sets(CALL_IDS))
    def the_model_replies(self, text: str, calls: list[FunctionCall], refused: set[str]) -> None:
        self.replied(text, calls, refused)

    @precondition(lambda self: self.is_asking)
    @rule(retryable=st.booleans(), wish=st.none() | st.floats(-1, 100), chance=st.floats(0, 0.99))
    def the_model_fails(self, retryable: bool, wish: float | None, chance: float) -> None:
        self.is_asking = False
        failed = ModelFailed(
            kind="timeout", message="m", retryable=retryable, retry_after_s=wish, chance=chance
        )
        self.give(failed)

    @precondition(lambda self: self.is_waiting_to_retry)
    @rule()
    def a_retry_is_due(self) -> None:
        self.give(RetryDue())

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data(), is_error=st.booleans())
    def a_call_finishes(self, data: st.DataObject, is_error: bool) -> None:
        call_id = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(call_id)
        result = error_result("e") if is_error else ToolResult(content=(TextBlock("r"),))
        self.give(CallFinished(call_id=call_id, result=result))

    @precondition(lambda self: bool(self.turn.awaiting))
    @rule(data=st.data(), approved=st.booleans(), edited=st.none() | st.just({"n": 2}))
    def a_person_decides(self, data: st.DataObject, approved: bool, edited: dict[str, int] | None) -> None:
        request = data.draw(st.sampled_from(self.turn.awaiting))
        decided = Decided(call_id=request.call_id, approved=approved, arguments=edited, digest=request.digest)
        self.give(decided)
        assert request not in self.turn.awaiting

    @precondition(lambda self: self.is_asking or bool(self.running))
    @rule(now=SELDOM)
    def the_step_times_out(self, now: bool) -> None:
        if now:
            done = {event.step for event in self.turn_log() if isinstance(event, StepFinished)}
            self.give(StepTimedOut(len(done) + (1 if self.is_asking else 0)))

    @rule(data=st.data())
    def something_comes_late_or_twice(self, data: st.DataObject) -> None:
        """Nothing of this is waited for; where it is by chance, it is what the world did."""
        asked = [event.call_id for event in self.disk if isinstance(event, ApprovalRequested)]
        decided = st.sampled_from([i for i in asked if i not in self.awaited()] + ["none"])
        finished = st.sampled_from([i for i in sorted(self.tools) if i not in self.running] + ["none"])
        strays: list[st.SearchStrategy[Input]] = [
            st.just(Durable(self.acknowledged)),
            st.builds(Decided, call_id=decided, approved=st.booleans()),
            st.builds(CallFinished, call_id=finished, result=st.just(ToolResult())),
            st.builds(StepTimedOut, step=st.just(9)),
        ]
        if self.turn.phase is not Phase.NEW:
            strays.append(st.just(Begin(turn_id="u", text="again")))
        if self.turn.awaiting:
            other = st.just(self.turn.awaiting[0].call_id)
            strays.append(st.builds(Decided, call_id=other, approved=st.booleans(), digest=st.just("other")))
        if not self.is_asking:
            late = FunctionCall(call_id="late", tool="once", arguments="{}")
            strays.append(st.just(ModelReplied(reply=ModelReply(calls=(late,)))))
            strays.append(st.just(ModelFailed(kind="timeout", message="late", retryable=True)))
        if not self.is_waiting_to_retry:
            strays.append(st.just(RetryDue()))
        log, phase = self.turn_log(), self.turn.phase
        self.give(data.draw(st.one_of(strays)))
        assert (self.turn_log(), self.turn.phase) == (log, phase)

    def awaited(self) -> set[str]:
        return {request.call_id for request in self.turn.awaiting}

    @rule(now=SELDOM, given=st.sampled_from(CUTS))
    def the_turn_is_cut_off(self, now: bool, given: Input) -> None:
        if now and not (isinstance(given, DeadlinePassed) and self.turn.phase is Phase.SUSPENDED):
            self.cut_off = True
            self.give(given)

    @rule(now=SELDOM, written=st.integers(0, 3), refused=st.booleans(), policy=st.booleans())
    def the_process_is_lost(self, now: bool, written: int, refused: bool, policy: bool) -> None:
        if not now:
            return
        for append in self.unwritten[: 0 if self.disk_is_full else written]:
            self.disk.extend(append.events)
        self.take_up(refused, policy)

    @rule(now=SELDOM, refused=st.booleans(), is_in_time=st.booleans())
    def the_system_is_stopped_and_started_again(self, now: bool, refused: bool, is_in_time: bool) -> None:
        if not now:
            return
        self.give(Interrupt())
        if is_in_time and not self.disk_is_full:
            self.the_disk_writes(MANY)
            assert self.has_left or self.turn.phase in (Phase.NEW, Phase.ENDED)
        self.take_up(refused, policy=False)

    def take_up(self, refused: bool, policy: bool) -> None:
        unfinished = unfinished_turn(self.disk)
        self.new_life()
        if unfinished is None and self.disk:
            return  # it had ended: nobody takes it up
        if unfinished is None:
            self.give(Begin(turn_id="t", text="hi"))
            return
        calls = (*unfinished.open_calls, *unfinished.pending_calls)
        resume = Resume(
            unfinished=unfinished,
            repeatable=frozenset(call.call_id for call in unfinished.open_calls if call.tool == "again"),
            refusals={c.call_id: error_result("off", "denied") for c in unfinished.pending_calls if refused},
            approvals={c.call_id: "policy" for c in calls if policy or c.tool == "asks"},
            tool_versions=VERSIONS,
        )
        length = len(self.disk)
        self.give(resume)
        if unfinished.suspended:
            assert self.turn.state == "suspended"
            assert (self.unwritten, len(self.disk)) == ([], length)
        elif unfinished.losses > self.limits.max_resumes:
            assert getattr(self.turn_log()[-1], "reason", "") == "poison"

    def turn_log(self) -> list[Event]:
        return self.disk + [event for append in self.unwritten for event in append.events]

    # what must hold

    @invariant()
    def the_history_is_always_valid(self) -> None:
        if hasattr(self, "turn"):
            assert_valid(self.turn.items)
            assert_valid(items_of(self.disk, ""))

    @invariant()
    def there_is_one_ending_and_nothing_behind_it(self) -> None:
        if hasattr(self, "turn"):
            assert not any(event.terminal for event in self.turn_log()[:-1])
            assert len(self.ended) <= 1

    @invariant()
    def openings_and_closings_tell_whether_the_turn_is_to_be_revived(self) -> None:
        if not hasattr(self, "turn"):
            return
        for log in (self.disk, self.turn_log()):
            opened = sum(event.type in OPENING for event in log)
            closed = sum(event.type in CLOSING for event in log)
            unfinished = unfinished_turn(log)
            assert opened - closed == (unfinished is not None and not unfinished.suspended)

    @invariant()
    def each_call_has_one_result_and_one_decision_at_most(self) -> None:
        if hasattr(self, "turn"):
            log = self.turn_log()
            for kind in (ToolCallFinished, ApprovalRequested, ApprovalDecided):
                ids = [event.call_id for event in log if isinstance(event, kind)]
                assert len(ids) == len(set(ids))

    @invariant()
    def a_tool_is_pinned_before_its_first_call_starts(self) -> None:
        if hasattr(self, "turn"):
            at = {type(event): n for n, event in reversed(list(enumerate(self.disk))) if _is_of_asks(event)}
            if ToolCallStarted in at:
                assert at[ToolPinned] < at[ToolCallStarted]

    @invariant()
    def the_clock_runs_while_the_turn_is_open_and_stands_while_it_is_suspended(self) -> None:
        if hasattr(self, "turn") and self.limits.deadline_s is not None and self.turn.phase in OPEN_PHASES:
            assert self.clock_runs == (self.turn.phase is not Phase.SUSPENDED)

    def teardown(self) -> None:
        if not hasattr(self, "turn"):
            return
        self.disk_is_full = False
        if self.turn.phase in (Phase.LEAVING, Phase.LEFT):
            self.the_disk_writes(MANY)
            self.take_up(refused=False, policy=False)
        if self.is_cancelled_at_last:
            self.give(Cancel())
        for _ in range(60):
            self.the_world_goes_on()
        assert sum(event.terminal for event in self.disk) == 1
        assert self.turn.phase in (Phase.ENDED, Phase.NEW)
        asked = {call.call_id for e in self.disk if isinstance(e, StepFinished) for call in e.calls}
        answered = {event.call_id for event in self.disk if isinstance(event, ToolCallFinished)}
        assert asked == answered

    def the_world_goes_on(self) -> None:
        """Whatever the turn waits for comes: it must not wait for anything else."""
        self.the_disk_writes(MANY)
        if self.is_waiting_to_retry:
            self.a_retry_is_due()
        if self.is_asking:
            self.replied("words", [], set())
        for call_id in sorted(self.running):
            self.running.discard(call_id)
            self.give(CallFinished(call_id=call_id, result=ToolResult()))
        for request in self.turn.awaiting:
            self.give(Decided(call_id=request.call_id, approved=True, digest=request.digest))


TestTurn = TurnMachine.TestCase
TestTurn.settings = settings(max_examples=250, stateful_step_count=30, deadline=None)
