"""Tools in a running system: whatever one does, the others of its step, its neighbours and the daemon go on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from callboard.actors.events import ToolProgress
from callboard.api import System
from callboard.cli.app import app
from callboard.config import load_config
from callboard.errors import ConfigError
from callboard.settings import settings_of
from callboard.supervisor.process import is_running
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.tools import call_tool
from callboard.testing.turns import call, eventually, finished_calls, is_written, texts
from callboard.tool_call import call as call_in
from callboard.tools.content import JsonBlock, TextBlock

DEADLY = Path(__file__).parent / "deadly_tools.py"
CANARY = "sk-canary-5f1d"


@pytest.fixture
def deadly(start: Callable[..., System], monkeypatch: pytest.MonkeyPatch) -> System:
    """A system with the deadly tools, started with a secret in its environment."""
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    limits = {"hang": {"deadline_s": 0.8}, "*": {"memory_mb": 512}}
    return start(tools={"modules": [str(DEADLY)], "limits": limits})


def test_every_death_of_one_step_is_one_result_and_nobody_else_notices(
    deadly: System, model: ScriptedModelServer
) -> None:
    lines = [
        call("die", how="segfault"),
        call("chatter", text="fine"),
        call("die", how="os_exit"),
        call("die", how="close"),
        call("die", how="kill_parent"),
        call("hang", how="deaf"),
        call("big", mib=1),
        call("die", how="exit"),
    ]
    neighbour = deadly.conversation(user="bob", team="blue")
    answers: list[str] = []
    beside = threading.Thread(
        target=lambda: answers.extend(e.type for e in neighbour.ask(call("say", text="hello")))
    )
    conversation = deadly.conversation(user="ann", team="red")
    before = {row.id: row.pid for row in deadly.tree() if row.kind != "tool_worker"}
    beside.start()
    events = list(conversation.ask("\n".join(lines)))
    beside.join(30.0)
    assert answers[-1] == "turn_answered"
    assert events[-1].type == "turn_answered"
    outcomes = {event.call_id: event.outcome for event in finished_calls(events)}
    order = [c.call_id for e in events if e.type == "step_finished" for c in e.calls]  # type: ignore[attr-defined]
    expected = ["killed", "ok", "killed", "killed", "killed", "deadline", "ok", "error"]
    assert [outcomes[call_id] for call_id in order] == expected
    shown = [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"]
    assert [text for text in shown if len(text) > 300] == [shown[6]]
    assert "SIGSEGV" in shown[0]
    assert "exceeded its deadline of 0.8 s" in shown[5]
    large = next(event for event in finished_calls(conversation.history()) if event.tool == "big")
    (attachment,) = large.attachments
    assert attachment.content is None, "no reader is sent it"
    whole = conversation.attachment(attachment.digest)
    assert whole == b"HEAD" + b"x" * (1 << 20) + b"TAIL", "kept whole beside what the model sees"
    assert len(shown[6]) < 300_000
    after = {row.id: row.pid for row in deadly.tree() if row.kind != "tool_worker"}
    assert before.items() <= after.items(), "a death took an actor with it"


def test_what_a_tool_prints_is_in_the_trace_and_never_in_the_model(
    deadly: System, model: ScriptedModelServer
) -> None:
    conversation = deadly.conversation(user="ann", team="red")
    (finished,) = finished_calls(conversation.ask(call("chatter", text="printed-by-a-tool")))
    assert finished.output == "printed-by-a-tool\noops\n"
    (again,) = finished_calls(conversation.history())
    assert again == finished
    tool_messages = [m for r in model.requests for m in r.messages if m["role"] == "tool"]
    assert tool_messages
    assert "oops" not in json.dumps(tool_messages)


def test_progress_is_live_and_in_order(deadly: System) -> None:
    conversation = deadly.conversation(user="ann", team="red")
    events = list(conversation.ask(call("count_up", to=3)))
    told = [event for event in events if isinstance(event, ToolProgress)]
    assert told
    assert told[-1].text == "at 2"
    assert [event.text for event in told] == sorted(event.text for event in told)
    assert {event.call_id for event in told} == {finished_calls(events)[0].call_id}
    assert texts(events) == ["3"]


def test_a_secret_of_the_daemon_reaches_no_tool_no_log_and_no_model(
    deadly: System, model: ScriptedModelServer, own_folders: Path
) -> None:
    conversation = deadly.conversation(user="ann", team="red")
    events = list(conversation.ask(call("look_around")))
    (finished,) = finished_calls(events)
    (block,) = finished.content
    assert isinstance(block, JsonBlock)
    assert CANARY not in json.dumps(block.value)
    assert "test" not in block.value["environment"].values(), "the model's key, from the configuration"
    sinks = [json.dumps(request.body) for request in model.requests]
    runtime = Path(deadly.status().runtime_dir)
    sinks += [p.read_bytes().decode("utf-8", "replace") for p in runtime.rglob("*") if p.is_file()]
    sinks += [p.read_bytes().decode("utf-8", "replace") for p in own_folders.rglob("*") if p.is_file()]
    assert not [sink for sink in sinks if CANARY in sink]


def test_a_cancelled_call_ends_with_all_that_it_started(deadly: System, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    conversation = deadly.conversation(user="ann", team="red")
    events = []
    for event in conversation.ask(
        call("die", how="escape", note=str(note)) + "\n" + call("nap", seconds=600)
    ):
        events.append(event)
        if event.type == "tool_call_finished":
            asked = time.monotonic()
            conversation.cancel()
    assert events[-1].type == "turn_cancelled"
    assert time.monotonic() - asked < 5.0
    pid = int(note.read_text())
    assert not is_running(pid)
    eventually(lambda: not [row for row in deadly.tree() if row.kind == "tool_worker"])


def test_what_a_killed_client_leaves_is_ended(deadly: System, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    conversation = deadly.conversation(user="ann", team="red")
    asking = threading.Thread(target=lambda: list(conversation.ask(call("pause", path=str(note)))))
    asking.start()
    eventually(lambda: is_written(note))
    client = next(row for row in deadly.tree() if row.kind == "client")
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    pid = int(note.read_text().split()[0])
    eventually(lambda: not is_running(pid), what="the tool of the killed client")
    asking.join(60.0)


def test_an_operator_calls_a_tool_on_the_models_path(deadly: System) -> None:
    ran = call_in(deadly, "chatter", '{"text": "by hand"}')
    assert (ran.result.content, ran.result.output) == ((TextBlock("done"),), "by hand\noops\n")
    assert ran.duration_s > 0
    assert call_in(deadly, "die", '{"how": "segfault"}').result.outcome == "killed"
    refused = call_in(deadly, "chatter", '{"words": 3}').result
    assert refused.is_error
    assert "text" in str(refused.content)
    eventually(lambda: not [row for row in deadly.tree() if row.kind == "tool_worker"])


def test_the_command_prints_the_result_and_says_by_its_exit_code_how_it_went(tmp_path: Path) -> None:
    file = tmp_path / "callboard.json"
    form = {
        "tools": {"modules": [str(DEADLY)]},
        "model": {"base_url": "http://127.0.0.1:9/v1", "name": "none"},
    }
    file.write_text(json.dumps(form), encoding="utf-8")
    done = CliRunner().invoke(
        app, ["tools", "call", "chatter", '{"text": "hi"}', "--config", str(file), "--json"]
    )
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert (printed["content"], printed["output"]) == ([{"type": "text", "text": "done"}], "hi\noops\n")
    died = CliRunner().invoke(app, ["tools", "call", "die", '{"how": "abort"}', "--config", str(file)])
    assert died.exit_code == 1
    assert "SIGABRT" in died.stdout


def test_limits_come_from_the_configuration_with_paths_by_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "callboard.json"
    limits = {"look": {"sandbox": "confined", "readable": ["./data"], "env": ["TOKEN"], "cpu_s": 2}}
    file.write_text(json.dumps({"tools": {"limits": limits}}), encoding="utf-8")
    row = settings_of(load_config(file, {}), tmp_path, tmp_path).tool_limits["look"]
    assert (row.sandbox, row.readable, row.env) == ("confined", (str(tmp_path / "data"),), ("TOKEN",))
    assert (row.cpu_s, row.memory_mb) == (2.0, None)
    file.write_text(json.dumps({"tools": {"limits": {"look": {"sandbox": "strong"}}}}), encoding="utf-8")
    with pytest.raises(ConfigError, match="sandbox"):
        load_config(file, {})


def test_an_author_tests_a_tool_in_a_real_worker() -> None:
    called = call_tool(DEADLY, "count_up", {"to": 2})
    assert (called.text, [p.text for p in called.progress]) == ("2", ["at 0", "at 1"])
    assert call_tool(DEADLY, "chatter", {"text": "x"}).output == "x\noops\n"
    assert call_tool(DEADLY, "hang", {"how": "sleep"}, deadline_s=0.3).result.outcome == "deadline"


def test_who_forks_the_workers_is_there_for_calls_alone(deadly: System, model: ScriptedModelServer) -> None:
    def forks() -> list[int | None]:
        return [row.pid for row in deadly.tree() if row.kind == "fork_server"]

    conversation = deadly.conversation(user="ann", team="red")
    list(conversation.ask("hello"))
    assert forks() == []
    list(conversation.ask(call("chatter", text="one")))
    (first,) = forks()
    list(conversation.ask(call("chatter", text="two")))
    assert forks() == [first]
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert len(texts(conversation.ask(call("chatter", text="three")))) == 1
    list(conversation.ask(call("chatter", text="four")))
    (second,) = forks()
    assert second != first
