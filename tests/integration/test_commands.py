"""The commands, as a user runs them: real processes, a real daemon, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import callboard
from callboard.daemon import is_running
from callboard.paths import runtime_dir, runtime_root
from callboard.supervisor.process import is_running as is_alive
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, is_written, texts

TOOLS = Path(__file__).parent / "some_tools.py"
ROOT = Path(__file__).parents[2]
GONE_WITHIN_S = 5.0


def run(*arguments: str, stdin: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "callboard", *arguments],
        capture_output=True,
        text=True,
        input=stdin or "",
        timeout=timeout,
        check=False,
    )


def flags(model: ScriptedModelServer) -> list[str]:
    return ["--base-url", model.base_url, "--model", "m", "--api-key", "k", "--tools-from", str(TOOLS)]


@pytest.fixture
def config(model: ScriptedModelServer, tmp_path: Path) -> Path:
    file = tmp_path / "callboard.toml"
    file.write_text(
        f'[model]\nbase_url = "{model.base_url}"\nname = "m"\napi_key = "k"\n\n[tools]\nmodules = ["{TOOLS}"]\n',
        encoding="utf-8",
    )
    return file


@pytest.fixture
def daemon(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``callboard serve`` in the foreground of its own session; stopped with the test if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "callboard", "serve", "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        eventually(lambda: (runtime_dir("default") / "system.json").exists(), 30, "the daemon is up")
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


def test_ask_prints_the_answer_and_nothing_else_on_standard_output(model: ScriptedModelServer) -> None:
    done = run("ask", "good morning", *flags(model))
    assert (done.returncode, done.stdout) == (0, "you said: good morning\n")


def test_ask_json_prints_one_event_a_line(model: ScriptedModelServer) -> None:
    done = run("ask", call("boom", text="x"), "--json", *flags(model))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert events[0]["type"] == "turn_started"
    assert events[-1]["type"] == "turn_answered"
    finished = next(e for e in events if e["type"] == "tool_call_finished")
    assert {"call_id", "tool", "is_error", "content", "citations", "duration_s"} <= finished.keys()
    assert finished["is_error"]
    assert all(e["seq"] is None for e in events if e["type"] == "text_delta")
    assert "\x1b" not in done.stdout + done.stderr


def test_ask_limits_the_tools_and_their_time(model: ScriptedModelServer, tmp_path: Path) -> None:
    began = time.monotonic()
    done = run("ask", call("pause", path=str(tmp_path / "pid")), "--tool-deadline", "1", *flags(model))
    assert done.returncode == 0
    assert "deadline of 1 s" in done.stdout
    assert time.monotonic() - began < 15
    done = run("ask", "force say {}", "--tools", "calculate,current_time", *flags(model))
    assert "not enabled" in done.stdout
    assert model.requests[-1].tool_names == ("calculate", "current_time")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["ask", "x", "--base-url", "nonsense"], 2, "http"),
        (["ask", "x", "--config", "/no/such/file.toml"], 2, "/no/such/file.toml"),
        (["ask", "x", "--tools-from", "/no/such/tools.py"], 2, "/no/such/tools.py"),
        (["ask", "x"], 3, "set OPENAI_API_KEY"),
        (["status"], 3, "callboard serve"),
        (["stop"], 3, "running"),
        (["nonsense"], 2, "nonsense"),
        (["--name", "a/b", "status"], 2, "a/b"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_an_exit_code(
    arguments: list[str], code: int, says: str
) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_dead_endpoint_fails_the_turn_with_a_name(model: ScriptedModelServer) -> None:
    done = run("ask", "x", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--api-key", "k")
    assert done.returncode == 1
    assert "unreachable" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_cannot_be_loaded_is_said_and_the_rest_works(
    model: ScriptedModelServer, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_the_kind\n", encoding="utf-8")
    listed = run("tools", "--json", "--tools-from", str(TOOLS), "--tools-from", str(broken))
    assert listed.returncode == 0, listed.stderr
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["say"]["state"] == "enabled"
    fault = next(row for name, row in rows.items() if "broken" in name)
    assert fault["state"] == "disabled"
    assert "nothing_of_the_kind" in fault["reason"]
    asked = run("ask", "x", "--tools-from", str(broken), *flags(model))
    assert (asked.returncode, asked.stdout) == (2, "")
    assert f"tool module {broken} is not loaded" in asked.stderr
    assert not model.requests


def test_a_module_that_kills_its_process_is_said_and_nothing_is_left(
    model: ScriptedModelServer, tmp_path: Path
) -> None:
    deadly = tmp_path / "deadly.py"
    deadly.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", encoding="utf-8")
    done = run("ask", "x", "--tools-from", str(deadly), *flags(model))
    assert done.returncode == 2
    assert "SIGSEGV" in done.stderr
    assert not list(runtime_root().glob("private-*"))


def test_a_conversation_that_does_not_exist_is_not_made(model: ScriptedModelServer) -> None:
    done = run("chat", "--conversation", "typo", *flags(model), stdin="hello\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "typo" in done.stderr


def test_the_commands_attach_to_the_running_daemon(daemon: subprocess.Popen[bytes]) -> None:
    status = json.loads(run("status", "--json").stdout)
    assert status["pid"] == daemon.pid
    rows = json.loads(run("tree", "--json").stdout)
    assert {"id", "kind", "pid", "parent", "state", "restarts"} <= rows[0].keys()
    assert {"root", "directory", "journal", "catalogue", "conversations"} <= {row["id"] for row in rows}
    assert run("ask", "hello").stdout == "you said: hello\n"
    assert "say" in run("tools").stdout
    second = run("serve")
    assert second.returncode == 3
    assert str(daemon.pid) in second.stderr
    assert run("stop").returncode == 0
    assert daemon.wait(GONE_WITHIN_S) == 0
    assert run("status").returncode == 3


@pytest.mark.usefixtures("daemon")
def test_what_was_asked_is_in_the_history_and_can_be_gone_on_with() -> None:
    assert run("ask", "good evening").stdout == "you said: good evening\n"
    [listed] = json.loads(run("history", "list", "--json").stdout)
    went_on = run("ask", "--conversation", listed["conversation_id"], "and good night")
    assert (went_on.returncode, went_on.stdout) == (0, "you said: and good night\n")
    assert [info["turns"] for info in json.loads(run("history", "list", "--json").stdout)] == [2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_with_all_its_processes(
    daemon: subprocess.Popen[bytes], number: signal.Signals, tmp_path: Path
) -> None:
    with callboard.connect(private=False) as system:
        conversation = system.conversation(linked=False)
        events = conversation.ask(call("pause", path=str(tmp_path / "pid")))
        assert next(events).type == "turn_started"
        eventually(lambda: is_written(tmp_path / "pid"), what="a tool is running")
        processes = [daemon.pid, *(p.pid for p in psutil.Process(daemon.pid).children(recursive=True))]
        assert len(processes) > 8
        os.kill(daemon.pid, number)
        assert daemon.wait(GONE_WITHIN_S) == 0
        events.close()
    left = [pid for pid in processes if is_alive(pid)]
    assert not left
    assert not is_running(runtime_dir("default"))


def test_a_turn_is_taken_up_again_by_the_next_daemon(config: Path, tmp_path: Path) -> None:
    """The daemon dies after acceptance; the caller sends its request again to the next one: the same turn."""

    def serve() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "callboard", "serve", "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: (runtime_dir("default") / "system.json").exists(), 30, "the daemon is up")
        return process

    file = tmp_path / "notes"
    question = call("note_down", path=str(file), text="once", seconds=30)
    first = serve()
    children = [p.pid for p in psutil.Process(first.pid).children(recursive=True)]
    with callboard.connect(private=False) as system:
        conversation = system.conversation(conversation_id="lasting", linked=False)
        for event in conversation.ask(question, request_id="the-turn"):
            if event.type == "tool_call_started":
                eventually(lambda: is_written(file), what="the effect")
                break
    first.kill()
    first.wait()
    eventually(lambda: not any(is_alive(p) for p in children), 5, "its processes are gone")
    (runtime_dir("default") / "system.json").unlink(missing_ok=True)
    second = serve()
    try:
        with callboard.connect(private=False) as system:
            conversation = system.conversation(conversation_id="lasting", linked=False)
            events = list(conversation.ask(question, request_id="the-turn"))
            assert events[0].type == "turn_started"
            assert "unknown" in texts(events)[0]
            assert events[-1].type == "turn_answered"
            assert file.read_text().splitlines() == ["once"]
            turns = [e for e in conversation.history() if e.type == "turn_started"]
            assert len(turns) == 1
    finally:
        second.terminate()
        assert second.wait(10) == 0


def test_ctrl_c_ends_an_ask_and_its_private_system(model: ScriptedModelServer, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = subprocess.Popen(
        [sys.executable, "-m", "callboard", "ask", call("pause", path=str(file)), *flags(model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: is_written(file), 30, "the tool is running")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GONE_WITHIN_S + 3)
    assert process.returncode in (4, 130)


def test_a_killed_caller_takes_its_private_system_along(model: ScriptedModelServer, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = subprocess.Popen(
        [sys.executable, "-m", "callboard", "ask", call("pause", path=str(file)), *flags(model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: is_written(file), 30, "the tool is running")
    tool = int(file.read_text())
    process.kill()
    process.communicate(timeout=10)
    eventually(lambda: not is_alive(tool), GONE_WITHIN_S, "the tool is gone")


def test_the_examples_run(config: Path, model: ScriptedModelServer) -> None:
    embed = [
        sys.executable,
        str(ROOT / "examples" / "embed.py"),
        str(config),
        call("calculate", expression="17*23"),
    ]
    done = subprocess.run(embed, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "done: 391\n")
    tools = ROOT / "examples" / "my_tools.py"
    listed = json.loads(run("tools", "--json", "--tools-from", str(tools)).stdout)
    mine = [row for row in listed if row["source"] == str(tools)]
    assert len(mine) == 3
    assert all(row["state"] == "enabled" for row in mine)


def test_run_system_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "run_system.py"), "--version"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.strip().endswith("0.1.0")
