"""A person's call of a tool: decided as a model's is, run once at most, and gone with who asked for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from callboard.actors.events import ApprovalRequested
from callboard.actors.messages import CallQueued, RunTool, ToolRan, ToolRuns
from callboard.actors.names import CALLER
from callboard.actors.owner import this_process
from callboard.api import System
from callboard.cli.app import app
from callboard.errors import Refused, Unavailable
from callboard.gateway.terminal.approvals import Choice, ListDecider
from callboard.supervisor.envelope import Failure, Principal
from callboard.supervisor.process import is_running
from callboard.testing.turns import eventually, is_written
from callboard.tool_call import News, call, shown
from callboard.tools.content import Progress

TOOLS = Path(__file__).parent / "called_tools.py"
RED = Principal(user="ann", team="red", roles=("writer",))


def configuration(**more: Any) -> dict[str, Any]:
    return {
        "tools": {"modules": [str(TOOLS)]},
        "approval": {},
        "permissions": {
            "hook": f"{TOOLS}:check",
            "rules": [{"effect": "deny", "tools": ["note"], "teams": ["blue"], "reason": "blue may not"}],
        },
        "templates": {
            "default": {},
            "narrow": {"allowed_tools": ["calculate"]},
            "bare": {"tools": ["calculate"], "tool_deadline_s": 0.5},
        },
        **more,
    }


@pytest.fixture
def tools(start: Callable[..., System]) -> System:
    return start(**configuration())


def refusing(ran: Any) -> tuple[str, str]:
    (layer,) = [layer for layer in ran.layers if layer.verdict == "refused"]
    return layer.name, layer.reason


def test_every_layer_can_refuse_and_says_why(tools: System, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    arguments = json.dumps({"path": str(noted)})
    cases: list[tuple[str, str, Mapping[str, Any], str, str]] = [
        ("nothing", "{}", {}, "registered", "there is no tool 'nothing'"),
        ("young", '{"n": 1}', {}, "feature flag", "its feature 'beta' is off"),
        ("note", arguments, {"principal": Principal(team="blue")}, "permitted", "rule 1: blue may not"),
        (
            "note",
            arguments,
            {"principal": Principal(user="mallory")},
            "permitted",
            "hook says no: not mallory",
        ),
        ("note", arguments, {"template": "narrow"}, "template", "not among those"),
        ("note", arguments, {"template": "bare"}, "enabled", "is not enabled"),
        ("note", '{"path": 3}', {}, "arguments", "at /path"),
        ("note", "[]", {}, "arguments", "must be a JSON object"),
        ("wipe", '{"path": "x"}', {}, "approved", "nobody was asked"),
        ("wipe", '{"path": "x"}', {"decide": ListDecider(["note"]).decide}, "approved", "--approve NAME"),
    ]
    for tool, given, who, layer, reason in cases:
        ran = call(tools, tool, given, **who)
        assert ran.result.is_error
        assert refusing(ran)[0] == layer, (tool, who)
        assert reason in refusing(ran)[1]
        assert ran.duration_s == 0.0
    assert not noted.exists(), "a refused call ran"
    tools.switch_feature("beta", True, team="red")
    ran = call(tools, "young", '{"n": 1}', principal=RED)
    assert (shown(ran.result), {layer.verdict for layer in ran.layers}) == ("1", {"passed"})
    assert call(tools, "young", '{"n": 1}').result.is_error
    with pytest.raises(
        Refused, match="there is no template 'none'; the configuration has: bare, default, narrow"
    ):
        call(tools, "note", arguments, template="none")


def test_a_call_can_be_enabled_but_no_more_than_a_conversation_could(tools: System, tmp_path: Path) -> None:
    given = json.dumps({"path": str(tmp_path / "x"), "seconds": 30})
    ran = call(tools, "note", given, template="bare", enable=True)
    assert ran.result.outcome == "deadline", "the template's deadline holds"
    assert {layer.verdict for layer in ran.layers} == {"passed"}
    assert refusing(call(tools, "note", given, template="narrow", enable=True))[0] == "template"


def test_an_approval_is_bound_to_what_was_asked_for_and_edited_arguments_are_decided_on(
    tools: System,
) -> None:
    asked: list[ApprovalRequested] = []

    def edit(waits: ApprovalRequested) -> Choice:
        asked.append(waits)
        return Choice(approved=True, arguments={"path": "y"})

    ran = call(tools, "wipe", '{"path": "x"}', principal=RED, decide=edit)
    assert shown(ran.result) == "wiped y"
    assert ran.decision == "permitted; approved by ann"
    assert [(waits.tool, waits.arguments, waits.reason) for waits in asked] == [
        ("wipe", {"path": "x"}, "the tool says that it is destructive")
    ]
    bad = call(tools, "wipe", '{"path": "x"}', decide=lambda _: Choice(approved=True, arguments={"path": 1}))
    assert bad.result.is_error
    assert "at /path" in shown(bad.result)
    no = call(tools, "wipe", '{"path": "x"}', decide=lambda _: Choice(approved=False, reason="on no account"))
    assert shown(no.result) == "not run: the user denied this call: on no account"


def test_a_tool_that_changed_while_the_person_thought_has_no_approval(
    start: Callable[..., System], tmp_path: Path
) -> None:
    module = tmp_path / "changing.py"
    module.write_text(TOOLS.read_text(encoding="utf-8"), encoding="utf-8")
    system = start(tools={"modules": [str(module)]}, approval={})

    def slowly(_waits: ApprovalRequested) -> Choice:
        module.write_text(TOOLS.read_text(encoding="utf-8").replace("wiped", "ruined"), encoding="utf-8")
        system.reload()
        return Choice(approved=True)

    ran = call(system, "wipe", '{"path": "x"}', decide=slowly)
    assert ran.result.is_error
    assert "changed since this call was approved" in shown(ran.result)


def test_progress_and_the_decision_are_told_on_the_way(tools: System) -> None:
    heard: list[News] = []
    ran = call(tools, "steps", '{"n": 4}', heard=heard.append)
    assert shown(ran.result) == "4"
    assert not isinstance(heard[0], Progress)
    assert heard[0].layers == ran.layers
    told = [news.text for news in heard[1:] if isinstance(news, Progress)]
    assert len(told) == len(heard) - 1 >= 2
    assert told == sorted(told)


def test_a_call_is_lost_with_its_caller_and_not_repeated(tools: System, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    killed = threading.Thread(target=lambda: (eventually(lambda: is_written(noted)), kill_caller(tools)))
    killed.start()
    with pytest.raises(
        Unavailable, match="was lost; what became of it is not known, and it was not repeated"
    ):
        call(tools, "note", json.dumps({"path": str(noted), "seconds": 60}))
    killed.join()
    (pid,) = noted.read_text(encoding="utf-8").split()
    eventually(lambda: not is_running(int(pid)))
    assert call(tools, "note", json.dumps({"path": str(noted)})).result.outcome == "ok"
    assert len(noted.read_text(encoding="utf-8").split()) == 2


def test_a_request_that_comes_twice_is_one_call_and_one_of_a_process_that_is_gone_is_none(
    tools: System, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    (pid,) = [row.pid for row in tools.tree() if row.id == "caller"]
    command = RunTool(
        call_id="c1",
        tool="note",
        arguments=json.dumps({"path": str(noted)}),
        caller_pid=pid or 0,
        owner=this_process(),
    )
    answers = [asked(tools, command, "r1"), asked(tools, command, "r1")]
    assert [type(answer) for answer in answers] == [ToolRan, ToolRan]
    assert len(noted.read_text(encoding="utf-8").split()) == 1
    gone = asked(tools, replace(command, call_id="c2", owner=replace(this_process(), start_time=1.0)), "r2")
    assert isinstance(gone, Failure)
    assert gone.kind == "stopped"
    for number in range(10):
        asked(tools, replace(command, call_id=f"d{number}", tool="nothing"), f"other {number}")
    late = asked(tools, command, "r1")
    assert isinstance(late, Failure), "its answer is not kept for ever, but it is not run again"
    assert len(noted.read_text(encoding="utf-8").split()) == 1


def test_who_asks_again_hears_that_the_call_waits_behind_its_hook(tools: System, tmp_path: Path) -> None:
    (pid,) = [row.pid for row in tools.tree() if row.id == "caller"]
    arguments = json.dumps({"path": str(tmp_path / "noted")})
    command = RunTool(call_id="c1", tool="note", arguments=arguments, caller_pid=pid or 0)
    heard: list[Any] = []
    slow = Principal(user="slow")
    with tools._mailbox.exchange(lambda: command, principal=slow, to=CALLER) as exchange:
        while not heard or isinstance(heard[-1], CallQueued | ToolRuns):
            heard.append(exchange.next(20.0))
    assert isinstance(heard[0], CallQueued)
    assert isinstance(heard[-1], ToolRan)


def asked(system: System, command: RunTool, request_id: str) -> Any:
    """Give the first answer that is not about a call under way."""
    with system._mailbox.exchange(lambda: command, request_id=request_id, to=CALLER) as exchange:
        while isinstance(answer := exchange.next(10.0), ToolRuns | CallQueued):
            continue
    return answer


def kill_caller(system: System) -> None:
    (pid,) = [row.pid for row in system.tree() if row.id == "caller"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


# ------------------------------------------------------------ the commands
@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "callboard.json"
    model = {"base_url": "http://127.0.0.1:9/v1", "name": "none", "api_key": "k"}
    file.write_text(json.dumps({**configuration(), "model": model}), encoding="utf-8")
    return file


@pytest.fixture
def daemon(config: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with a module that cannot be loaded; what it says is in ``said``."""
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nprint('loud')\nsys.exit(0)\n", encoding="utf-8")
    with (tmp_path / "said").open("wb") as said:
        process = begin("serve", "--config", str(config), "--tools-from", str(broken), stderr=said)
    try:
        eventually(lambda: b"is not loaded" in (tmp_path / "said").read_bytes(), 30, "the daemon is up")
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(20)


def begin(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "callboard", *arguments],
        **{
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            **streams,
        },
    )


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=given)


def test_calls_in_a_daemon_say_how_they_were_decided_and_how_they_went(
    daemon: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    said = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    assert said[-1] == f"callboard: tool module {broken} is not loaded: calls exit (0) when it is imported"
    done = run("tools", "call", "steps", "-", "--verbose", given='{"n": 2}')
    assert (done.exit_code, done.stdout) == (0, "2\n")
    lines = [line.split() for line in done.stderr.splitlines()]
    assert [line[1] for line in lines if line[0] in ("✓", "+")][:2] == ["registered", "feature"]
    assert "at 0" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    refused = run("tools", "call", "note", '{"path": "x"}', "--team", "blue", "--json")
    document = json.loads(refused.stdout)
    assert (refused.exit_code, document["outcome"]) == (1, "denied")
    assert document["decision"].startswith("not_permitted: ")
    assert [layer["name"] for layer in document["layers"] if layer["verdict"] == "refused"] == ["permitted"]
    denied = run("tools", "call", "wipe", '{"path": "x"}')
    assert (denied.exit_code, "--approve NAME" in denied.stdout) == (1, True)
    approved = run("tools", "call", "wipe", '{"path": "x"}', "--approve", "w*", "--user", "ann")
    assert (approved.exit_code, approved.stdout) == (0, "wiped x\n")
    for arguments, says in (
        (("call", "nothing"), "there is no tool 'nothing'"),
        (("call", "steps", "{"), "not valid JSON"),
        (("call", "steps", "[1]"), "must be a JSON object"),
        (("call", "steps", '{"n": "2"}'), "at /n"),
        (("call", "steps", '{"n": 2}', "--template", "none"), "there is no template 'none'"),
        (("--json", "show", "steps"), "put the options after the word 'show'"),
    ):
        wrong = run("tools", *arguments)
        assert (wrong.exit_code, wrong.stdout) == (2, ""), arguments
        assert says in wrong.stderr
        assert "Traceback" not in wrong.stderr


def test_a_call_in_a_daemon_ends_with_who_asked_for_it_however_that_ends(
    daemon: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        noted = tmp_path / number.name
        asking = begin("tools", "call", "note", json.dumps({"path": str(noted), "seconds": 60}))
        eventually(lambda noted=noted: is_written(noted), 20)
        asking.send_signal(number)
        assert asking.wait(10) == (130 if number is signal.SIGINT else -number)
        pid = int(noted.read_text(encoding="utf-8"))
        eventually(lambda pid=pid: not is_running(pid), 5, "the tool is gone")
    reading = begin("tools", "call", "steps", '{"n": 300}', "-v", stderr=subprocess.PIPE)
    assert reading.stderr is not None
    reading.stderr.readline()
    reading.stderr.close()
    assert reading.wait(20) == 141


def test_a_daemon_that_is_killed_in_mid_call_is_said(daemon: subprocess.Popen[bytes], tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    given = json.dumps({"path": str(noted), "seconds": 60})
    asking = begin("tools", "call", "note", given, stderr=subprocess.PIPE)
    eventually(lambda: is_written(noted), 20)
    daemon.kill()
    _, told = asking.communicate(timeout=20)
    assert asking.returncode == 3
    assert b"what became of the call of note is not known" in told


def test_a_module_that_the_command_names_and_that_cannot_be_loaded_ends_it(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import os\nos._exit(0)\n", encoding="utf-8")
    model = ("--config", str(tmp_path / "none.json"))
    (tmp_path / "none.json").write_text(
        '{"model": {"base_url": "http://127.0.0.1:9/v1", "name": "m", "api_key": "k"}, "tools": {}}',
        encoding="utf-8",
    )
    called = run("tools", "call", "calculate", '{"expression": "1"}', "--tools-from", str(broken), *model)
    assert (called.exit_code, called.stdout) == (2, "")
    assert f"tool module {broken} is not loaded: its process exited with code 0" in called.stderr


def test_the_author_tests_tools_without_a_system(tmp_path: Path) -> None:
    module = str(TOOLS)
    done = run("tools", "test", "--module", module)
    assert done.exit_code == 0, done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["note", "steps", "wipe", "young"]
    called = run("tools", "test", "wipe", "--module", module, "--arguments", '{"path": "x"}', "--json")
    document = json.loads(called.stdout)
    assert called.exit_code == 0
    assert [row["tool"] for row in document["tools"]] == ["wipe"]
    assert document["called"]["content"] == [{"type": "text", "text": "wiped x"}]
    wrong = run("tools", "test", "wipe", "--module", module, "--arguments", '{"path": 1}')
    assert (wrong.exit_code, "at /path" in wrong.stdout) == (1, True)
    poor = tmp_path / "poor.py"
    poor.write_text(
        "from callboard import tool\n@tool(description=' ')\ndef poor(a: int) -> int:\n    return a\n",
        encoding="utf-8",
    )
    quits = tmp_path / "quits.py"
    quits.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    found = run("tools", "test", "--module", str(poor), "--module", str(quits), "--json")
    rows = {row["tool"] or row["module"]: row["faults"] for row in json.loads(found.stdout)["tools"]}
    assert found.exit_code == 1
    assert len(rows["poor"]) == 2
    assert rows[str(quits)] == ["calls exit (0) when it is imported"]
    for arguments, says in (
        (("nothing", "--module", module), "there is no tool 'nothing' here"),
        (("--module", module, "--arguments", "{}"), "--arguments is for one tool; 4 are meant"),
        (("--module", str(tmp_path)), "--module: expected an existing '.py' file"),
        (("--module", "./nothing.py"), "--module: expected an existing '.py' file"),
        (("--config", str(tmp_path)), "Is a directory"),
    ):
        done = run("tools", "test", *arguments)
        assert (done.exit_code, done.stdout) == (2, ""), arguments
        assert says in done.stderr
