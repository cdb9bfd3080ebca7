"""``callboard.run``: whole turns in this process, with real worker processes and threads."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

import callboard
from callboard.actors.chat_model import (
    Capabilities,
    ModelError,
    ModelEvent,
    ModelReply,
    ModelTextDelta,
)
from callboard.actors.events import (
    Event,
    TextDelta,
    TextDiscarded,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
)
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.in_process import RunResult, arun, run
from callboard.run_tools import RunError
from callboard.tools.content import Citation, JsonBlock, TextBlock
from callboard.tools.contract import ToolSpec
from callboard.tools.decorator import tool

pytestmark = pytest.mark.integration

TOOLS = '''
import ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
from callboard.tools.content import Citation, TextBlock, ToolResult
from callboard.tools.contract import ToolContext
from callboard.tools.decorator import Tool, tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool
def whoami(context: ToolContext) -> dict:
    """Say who runs this."""
    return {"pid": os.getpid(), "group": os.getpgid(0), "call": context.call_id, "module": __name__}

@tool
def loud() -> str:
    """Print a lot."""
    print("noise" * 20000)
    sys.stdout.flush()
    os.write(1, b"{}")
    return "quiet"

@tool
def cited() -> ToolResult:
    """Cite."""
    return ToolResult(content=(TextBlock("x"),), citations=(Citation(document="d", page=2),))

@tool
def big(size: int) -> str:
    """Give a lot."""
    return "x" * size

@tool
def fail() -> str:
    """Raise."""
    raise ValueError("no luck")

@tool
def crash(how: str) -> str:
    """End the process."""
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)
    elif how == "sys.exit":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

@tool(deadline_s=3.0)
def hang(mark: str) -> str:
    """Start a child and never end."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(mark).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(0.01)

@tool
def hang_long(mark: str) -> str:
    """Start a child and never end."""
    return hang(mark)

@tool
def lingers() -> str:
    """Leave a thread and a child behind."""
    subprocess.Popen(["sleep", "1000"])
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return "done"

@tool
def meet(folder: str, me: str, other: str) -> str:
    """Wait until the other call runs too."""
    Path(folder, me).touch()
    end = time.monotonic() + 20
    while not Path(folder, other).exists():
        if time.monotonic() > end:
            raise TimeoutError("alone")
        time.sleep(0.01)
    return me

@tool(memory_mb=64)
def greedy() -> int:
    """Take too much."""
    return len(bytearray(512 * 1024 * 1024))

class Shout(Tool):
    name = "shout"
    description = "Shout."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def execute(self, arguments, context):
        return arguments["text"].upper()
'''


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "run_test_tools.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("run_test_tools")
    del sys.modules["run_test_tools"]


class Script:
    """A model that says what it was told to, and keeps what it was shown."""

    capabilities = Capabilities()

    def __init__(self, *steps: ModelReply | ModelError | str | Callable[[], Any]) -> None:
        self.steps = list(steps)
        self.shown: list[tuple[tuple[Item, ...], list[str]]] = []

    async def chat(self, context: Sequence[Item], tools: Sequence[ToolSpec]) -> AsyncIterator[ModelEvent]:
        self.shown.append((tuple(context), [spec.name for spec in tools]))
        step = self.steps.pop(0)
        match step:
            case ModelError():
                yield ModelTextDelta("half an ans")
                raise step
            case str():
                yield ModelTextDelta(step)
                yield ModelReply(text=step)
            case ModelReply():
                yield step
            case _:
                await step()
                yield ModelReply(text="late")


def calls(*asked: tuple[str, str]) -> ModelReply:
    return ModelReply(
        calls=tuple(
            FunctionCall(call_id=f"c{n}", tool=name, arguments=arguments)
            for n, (name, arguments) in enumerate(asked)
        )
    )


def one(name: str, arguments: str = "{}") -> Script:
    return Script(calls((name, arguments)), "done")


def result(of: RunResult, call_id: str = "c0") -> ToolCallFinished:
    (found,) = [e for e in of.events if isinstance(e, ToolCallFinished) and e.call_id == call_id]
    return found


def text(finished: ToolCallFinished) -> str:
    (block,) = finished.content
    assert isinstance(block, TextBlock)
    return block.text


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def marked_pids(mark: Path) -> list[int]:
    wait_until(lambda: mark.exists() and len(mark.read_text().split()) == 2)
    return [int(pid) for pid in mark.read_text().split()]


# the turn


@pytest.mark.parametrize("isolation", ["worker", "thread"])
def test_a_turn_with_a_tool_goes_through(tools: ModuleType, isolation: Any) -> None:
    seen: list[Event] = []
    model = Script(calls(("add", '{"a": 2, "b": 3}')), "five")
    outcome = run(model, "add 2 and 3", [tools.add], isolation=isolation, on_event=seen.append)
    assert outcome.text == "five"
    assert isinstance(outcome.ended, TurnAnswered)
    assert result(outcome).content == (JsonBlock(5),)
    assert [e.seq for e in outcome.events] == list(range(1, len(outcome.events) + 1))
    assert [e for e in seen if e.logged] == list(outcome.events)
    assert [e.text for e in seen if isinstance(e, TextDelta)] == ["five"]
    assert all(e.at for e in outcome.events)
    assert model.shown[1][0] == outcome.items[:-1]


def test_a_history_goes_on_in_the_next_run(tools: ModuleType) -> None:
    first = run(one("add", '{"a": 1, "b": 1}'), "hi", [tools.add])
    again = ChatMessage(role="user", content=(TextBlock("again"),))
    model = Script(calls(("add", '{"a": 2, "b": 2}')), "ok")
    second = run(model, [*first.items, again], [tools.add])
    assert second.items[: len(first.items) + 1] == (*first.items, again)
    ids = [item.call_id for item in second.items if isinstance(item, FunctionCall)]
    assert len(ids) == len(set(ids)) == 2


def test_what_the_model_gets_wrong_comes_back_to_it(tools: ModuleType) -> None:
    asked = calls(("add", '{"a": "x"}'), ("sub", "{}"), ("add", "{"))
    outcome = run(Script(asked, "sorry"), "hi", [tools.add])
    assert "schema" in text(result(outcome, "c0"))
    assert "no tool 'sub'" in text(result(outcome, "c1"))
    assert "not valid JSON" in text(result(outcome, "c2"))
    assert not any(isinstance(e, ToolCallStarted) for e in outcome.events)
    assert outcome.text == "sorry"


def test_at_the_cap_the_model_is_offered_no_tools(tools: ModuleType) -> None:
    model = Script(calls(("add", '{"a": 1, "b": 1}')), "that is all")
    outcome = run(model, "hi", [tools.add], max_steps=1, isolation="thread")
    assert [names for _, names in model.shown] == [["add"], []]
    assert isinstance(outcome.ended, TurnAnswered)
    assert outcome.ended.capped
    again = Script(calls(("add", '{"a": 1, "b": 1}')))
    returned = run(again, "hi", [tools.add], max_steps=1, on_cap="return", isolation="thread")
    assert isinstance(returned.ended, TurnFailed)
    assert (returned.text, returned.ended.reason) == ("", "step_cap")
    assert any(isinstance(item, FunctionCallOutput) for item in returned.items)


def test_a_failing_model_is_asked_again_and_its_text_discarded() -> None:
    seen: list[Event] = []
    fault = ModelError("interrupted", "broke off", retryable=True, retry_after_s=0.0)
    assert run(Script(fault, "whole"), "hi", on_event=seen.append).text == "whole"
    assert [type(e) for e in seen if not e.logged] == [TextDelta, TextDiscarded, TextDelta]
    rejected = run(Script(ModelError("rejected", "wrong key", retryable=False)), "hi")
    assert isinstance(rejected.ended, TurnFailed)
    assert (rejected.ended.reason, rejected.ended.message) == ("model_rejected", "wrong key")


def test_a_model_that_is_over_the_steps_deadline_is_asked_again() -> None:
    outcome = run(Script(lambda: asyncio.sleep(60), "at last"), "hi", step_deadline_s=0.1)
    assert outcome.text == "at last"


def test_a_deadline_ends_the_turn() -> None:
    outcome = run(Script(lambda: asyncio.sleep(60)), "hi", deadline_s=0.1)
    assert isinstance(outcome.ended, TurnFailed)
    assert outcome.ended.reason == "deadline"


# what is refused


def test_tools_that_no_worker_could_import_are_refused_with_the_way_out(tools: ModuleType) -> None:
    @tool
    def local() -> str:
        """Be local."""
        return "here"

    with pytest.raises(RunError, match=r"cannot import the tool 'local'.*isolation=\"thread\""):
        run(Script(), "hi", [local])
    assert text(result(run(one("local"), "hi", [local], isolation="thread"))) == "here"
    main = subprocess.run(
        [
            sys.executable,
            "-c",
            "import callboard\n@callboard.tool\ndef f() -> str:\n 'x'\ncallboard.run(None, 'hi', [f])",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "defined in the main script or a notebook" in main.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tools": [len]}, "len is not a tool"),
        ({"tools": ["add", "add"]}, "two tools are named 'add'"),
        ({"isolation": "fork"}, "isolation must be 'worker' or 'thread'"),
        ({"max_steps": 0}, "max_steps must be 1 or more"),
        ({"context": []}, "the last is a user's ChatMessage"),
        ({"context": [ChatMessage(role="assistant", content=())]}, "the last is a user's ChatMessage"),
    ],
)
def test_bad_input_is_named(tools: ModuleType, change: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"context": "hi", "tools": [], **change}
    given["tools"] = [tools.add if name == "add" else name for name in given["tools"]]
    with pytest.raises(RunError, match=says):
        run(Script("x"), **given)


def test_inside_an_event_loop_the_async_form_is_named_and_works() -> None:
    async def main() -> RunResult:
        with pytest.raises(RunError, match=r"await callboard\.arun"):
            run(Script("x"), "hi")
        return await arun(Script("x"), "hi")

    assert asyncio.run(main()).text == "x"


def test_a_fault_of_the_users_own_code_is_raised_as_it_is(tools: ModuleType) -> None:
    def callback(event: Event) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(Script("x"), "hi", on_event=callback)

    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Script(calls(("add", '{"a": 1, "b": 1}')), broken), "hi", [tools.add])


def test_the_public_name_is_callable_however_it_was_imported() -> None:
    callable_name: Any = callboard.run
    assert callable_name(Script("x"), "hi").text == "x"


# workers


def test_each_call_has_a_process_and_a_group_of_its_own(tools: ModuleType) -> None:
    outcome = run(Script(calls(("whoami", ""), ("whoami", "null")), "done"), "hi", [tools.whoami])
    values = []
    for call_id in ("c0", "c1"):
        (block,) = result(outcome, call_id).content
        assert isinstance(block, JsonBlock)
        values.append(block.value)
        assert block.value["call"] == call_id
        assert block.value["group"] == block.value["pid"] != os.getpid()
    assert values[0]["pid"] != values[1]["pid"]


@pytest.mark.parametrize("isolation", ["worker", "thread"])
def test_calls_of_one_step_run_at_the_same_time_and_answer_in_call_order(
    tools: ModuleType, tmp_path: Path, isolation: Any
) -> None:
    def meet(me: str, other: str) -> tuple[str, str]:
        return "meet", f'{{"folder": "{tmp_path}", "me": "{me}", "other": "{other}"}}'

    model = Script(calls(meet("a", "b"), meet("b", "a")), "met")
    outcome = run(model, "hi", [tools.meet], isolation=isolation)
    outputs = [item.content for item in outcome.items if isinstance(item, FunctionCallOutput)]
    assert outputs == [(TextBlock("a"),), (TextBlock("b"),)]


def test_what_a_tool_prints_does_not_mix_with_its_result_or_our_output(
    tools: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    finished = result(run(one("loud"), "hi", [tools.loud]))
    assert text(finished) == "quiet"
    assert "noise" in finished.output
    assert capfd.readouterr() == ("", "")


def test_citations_come_through_and_large_results_are_kept_whole_beside_what_is_shown(
    tools: ModuleType,
) -> None:
    outcome = run(
        Script(calls(("cited", ""), ("big", '{"size": 3000000}')), "done"), "hi", [tools.cited, tools.big]
    )
    assert isinstance(outcome.ended, TurnAnswered)
    assert outcome.ended.citations == (Citation(document="d", page=2),)
    assert len(text(result(outcome, "c1"))) < 300_000
    (attachment,) = result(outcome, "c1").attachments
    assert len(attachment.content or b"") == 3_000_000


def test_a_tool_class_runs_in_a_worker(tools: ModuleType) -> None:
    outcome = run(one("shout", '{"text": "hey"}'), "hi", [tools.Shout])
    assert text(result(outcome)) == "HEY"


@pytest.mark.parametrize(
    ("how", "outcome", "says"),
    [
        ("segfault", "killed", "killed by SIGSEGV"),
        ("kill", "killed", "killed by SIGKILL"),
        ("exit", "killed", "exited with code 7"),
        ("sys.exit", "error", "exit code 3"),
    ],
)
def test_a_tool_that_ends_its_process_costs_one_result(
    tools: ModuleType, how: str, outcome: str, says: str
) -> None:
    asked = calls(("crash", f'{{"how": "{how}"}}'), ("add", '{"a": 1, "b": 1}'))
    ran = run(Script(asked, "done"), "hi", [tools.crash, tools.add])
    assert result(ran).outcome == outcome
    assert says in text(result(ran))
    assert result(ran, "c1").content == (JsonBlock(2),)
    assert ran.text == "done"


def test_an_exception_and_too_much_memory_are_error_results(tools: ModuleType) -> None:
    ran = run(Script(calls(("fail", ""), ("greedy", "")), "done"), "hi", [tools.fail, tools.greedy])
    assert text(result(ran, "c0")) == "ValueError: no luck"
    assert "memory" in text(result(ran, "c1")).lower()


def test_at_its_deadline_a_tool_is_killed_with_all_its_children(tools: ModuleType, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    ran = run(one("hang", f'{{"mark": "{mark}"}}'), "hi", [tools.hang])
    assert result(ran).outcome == "deadline"
    assert "hang exceeded its deadline of 3 s and was killed" in text(result(ran))
    wait_until(lambda: all(is_gone(pid) for pid in marked_pids(mark)))


def test_what_a_tool_leaves_behind_is_ended_after_its_result(tools: ModuleType) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    assert text(result(run(one("lingers"), "hi", [tools.lingers]))) == "done"
    after = {p.pid for p in psutil.Process().children(recursive=True) if not is_gone(p.pid)}
    assert after <= before


def test_a_module_that_is_gone_gives_an_error_result_that_says_so(tools: ModuleType) -> None:
    assert tools.__file__ is not None
    Path(tools.__file__).unlink()
    ran = run(one("add", '{"a": 1, "b": 1}'), "hi", [tools.add])
    assert result(ran).outcome == "unavailable"
    assert "could not be loaded" in text(result(ran))


def test_a_thread_past_its_deadline_is_reported(tools: ModuleType) -> None:
    @tool(deadline_s=0.1)
    def slow() -> str:
        """Be slow."""
        time.sleep(0.6)
        return "late"

    began = time.monotonic()
    ran = run(one("slow"), "hi", [slow], isolation="thread")
    assert time.monotonic() - began < 0.5
    assert result(ran).outcome == "deadline"
    assert "cannot be killed" in text(result(ran))


# cancelling


def test_cancelling_the_task_ends_the_turn_and_kills_its_workers(tools: ModuleType, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    seen: list[Event] = []

    async def main() -> None:
        model = one("hang_long", f'{{"mark": "{mark}"}}')
        task = asyncio.create_task(arun(model, "hi", [tools.hang_long], on_event=seen.append))
        while not (mark.exists() and len(mark.read_text().split()) == 2):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 30))
    assert isinstance(seen[-1], TurnCancelled)
    assert isinstance(seen[-2], ToolCallFinished)
    assert seen[-2].outcome == "cancelled"
    wait_until(lambda: all(is_gone(pid) for pid in marked_pids(mark)))


CALLER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job of a shell has it ignored.
sys.path.insert(0, {folder!r})
import callboard, run_test_tools
from callboard.actors.chat_model import Capabilities, ModelReply
from callboard.actors.items import FunctionCall

class Model:
    capabilities = Capabilities()
    async def chat(self, context, tools):
        arguments = '{{"mark": "{mark}"}}'
        yield ModelReply(calls=(FunctionCall(call_id="a", tool="hang_long", arguments=arguments),))

callboard.run(Model(), "hi", [run_test_tools.hang_long], on_event=lambda e: print(e.type, flush=True))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_when_the_caller_is_interrupted_or_killed_no_worker_is_left(
    tools: ModuleType, tmp_path: Path, sent: signal.Signals
) -> None:
    mark = tmp_path / "mark"
    script = textwrap.dedent(CALLER.format(folder=str(tmp_path), mark=mark))
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    worker, child = marked_pids(mark)
    try:
        caller.send_signal(sent)
        wait_until(lambda: is_gone(worker))
        if sent is signal.SIGINT:
            wait_until(lambda: is_gone(child))
    finally:
        for pid in (worker, child):  # a killed caller takes its workers along, not what those started
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        out, err = caller.communicate(timeout=20)
    assert caller.returncode != 0
    if sent is signal.SIGINT:
        assert b"KeyboardInterrupt" in err
        assert out.split()[-2:] == [b"tool_call_finished", b"turn_cancelled"]
