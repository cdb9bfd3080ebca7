"""The command line: help, exit codes, what goes to which stream; on a system that does as it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import callboard.api
import callboard.daemon
import callboard.paths
from callboard.actors.events import (
    ApprovalRequested,
    ConversationOpened,
    Event,
    TextDelta,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
)
from callboard.cli import opening
from callboard.cli.app import app
from callboard.errors import ConversationNotFound, DaemonFailed, Refused, Unavailable
from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing


class FakeConversation:
    id = "c1"

    def __init__(self) -> None:
        self.deadlines: tuple[float | None, float | None] = (None, None)
        self.closed = False
        self.waiting: list[ApprovalRequested] = []
        self.decided: list[tuple[str, bool, str]] = []

    def ask(
        self, text: str, *, deadline_s: float | None = None, tool_deadline_s: float | None = None
    ) -> Iterator[Event]:
        self.deadlines = (deadline_s, tool_deadline_s)
        yield TextDelta(turn_id="t", text=text[:2])
        yield ToolCallStarted(seq=2, turn_id="t", call_id="c", tool="calculate", arguments={"a": "\x9b"})
        match text:
            case "fail":
                yield TurnFailed(seq=3, turn_id="t", reason="model_rejected", message="wrong key")
            case "cancel":
                yield TurnCancelled(seq=3, turn_id="t")
            case "delete":
                self.waiting.append(ApprovalRequested(seq=3, turn_id="t", call_id="d", tool="delete"))
                yield self.waiting[0]
                yield TurnAnswered(seq=4, turn_id="t", text="said" if not self.waiting else "unsaid")
            case "refuse":
                raise Refused("no such template")
            case "lose":
                raise Unavailable("the system\x1b[2J is gone")
            case _:
                yield TurnAnswered(seq=3, turn_id="t", text=text)

    def pending(self) -> tuple[ApprovalRequested, ...]:
        return tuple(self.waiting)

    def approve(
        self, call_id: str, arguments: Any = None, *, for_conversation: bool = False, reason: str = ""
    ) -> None:
        self.waiting.clear()
        self.decided.append((call_id, True, reason))

    def deny(self, call_id: str, reason: str = "") -> None:
        self.waiting.clear()
        self.decided.append((call_id, False, reason))

    def cancel(self) -> None:
        raise AssertionError("nobody asked for it")

    def tools(self) -> list[ToolListing]:
        return []

    def close(self) -> None:
        self.closed = True


class FakeSystem:
    model_name = "fake"
    private = True

    def __init__(self) -> None:
        self.conversations: list[tuple[dict[str, Any], FakeConversation]] = []
        self.faults: dict[str, str] = {}
        self.server = ServerInfo(name="time", state="ready", pid=4, tools=2)
        self.stopped = False
        self.closed = False

    def __enter__(self) -> FakeSystem:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def history(self, conversation_id: str, *, team: str = "") -> list[Event]:
        if conversation_id != "c1":
            raise ConversationNotFound("there is no such conversation")
        return [ConversationOpened(conversation_id="c1", user="ann", team=team, roles=("r",))]

    def conversation(self, **given: Any) -> FakeConversation:
        self.conversations.append((given, FakeConversation()))
        return self.conversations[-1][1]

    def tools(self) -> list[ToolListing]:
        faults = [
            ToolListing(name=module, state="disabled", reason=reason, source=module)
            for module, reason in self.faults.items()
        ]
        return [ToolListing(name="calculate", description="Evaluate.", annotations=("read_only",)), *faults]

    def servers(self) -> list[ServerInfo]:
        return [self.server]

    def tree(self) -> list[ActorInfo]:
        return [
            ActorInfo(id="root", kind="root", pid=1),
            ActorInfo(id="journal", kind="journal", parent="root"),
        ]

    def status(self) -> SystemStatus:
        return SystemStatus(
            name="default",
            pid=1,
            version="0",
            started_at="now",
            uptime_s=1.0,
            config=None,
            runtime_dir="/r",
            conversations=0,
        )

    def stop(self) -> None:
        self.stopped = True


class World:
    """What ``connect`` finds: a daemon or none; and how it was called."""

    def __init__(self) -> None:
        self.daemon = False
        self.fault: Exception | None = None
        self.system = FakeSystem()
        self.calls: list[dict[str, Any]] = []

    def connect(self, **given: Any) -> FakeSystem:
        self.calls.append(given)
        if self.fault is not None:
            raise self.fault
        return self.system


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(callboard.api, "connect", made.connect)
    monkeypatch.setattr(callboard.daemon, "runs", lambda name: made.daemon)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.chdir(tmp_path)
    return made


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.mark.parametrize(
    ("options", "is_approved"),
    [((), False), (("--approve", "delete"), True), (("--approve", "all"), True), (("--approve", "x"), False)],
)
def test_in_a_pipe_a_call_that_waits_is_denied_unless_its_approval_was_given(
    world: World, options: tuple[str, ...], is_approved: bool
) -> None:
    result = run("ask", *options, "delete")
    assert (result.exit_code, result.stdout) == (0, "said\n")
    (call_id, approved, reason) = world.system.conversations[-1][1].decided[0]
    assert (call_id, approved) == ("d", is_approved)
    assert is_approved or "--approve NAME" in reason


def test_the_answer_is_on_stdout_and_the_activity_on_stderr(world: World) -> None:
    result = run("ask", "hello")
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    assert result.stderr.startswith(("▸ calculate", "> calculate"))
    assert [call["private"] for call in world.calls] == [True]
    assert world.calls[0]["config"].model.base_url == "http://127.0.0.1:9/v1"
    assert world.system.closed and world.system.conversations[0][1].closed


@pytest.mark.parametrize(
    ("question", "code", "told"),
    [
        ("fail", 1, "the turn failed (model_rejected): wrong key"),
        ("refuse", 2, "callboard: no such template"),
        ("lose", 3, "callboard: the system is gone"),
        ("cancel", 4, "cancelled"),
    ],
)
def test_the_exit_code_says_how_the_turn_ended(world: World, question: str, code: int, told: str) -> None:
    result = run("ask", question)
    assert (result.exit_code, result.stdout) == (code, "")
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_json_is_one_event_a_line_in_ascii(world: World) -> None:
    result = run("ask", "--json", "hello")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(event["seq"], event["type"]) for event in events] == [
        (None, "text_delta"),
        (2, "tool_call_started"),
        (3, "turn_answered"),
    ]
    assert result.stdout.isascii()
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_a_piped_question_is_read_from_stdin(world: World, arguments: Sequence[str]) -> None:
    assert run("ask", *arguments, stdin="from a pipe").stdout == "from a pipe\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ask", "  "), "expected a question"),
        (("ask", "q", "--tool-deadline", "0"), "a number of seconds greater than 0"),
        (("ask", "q", "--deadline", "soon"), "--deadline"),
        (
            ("ask", "q", "--base-url", "foo"),
            "callboard: command line: [model] base_url: expected an http(s) URL",
        ),
        (("ask", "q", "--config", "none.toml"), "callboard: none.toml: there is no such file"),
        (("ask", "q", "--tools-from", "./none.py"), "--tools-from: expected an existing '.py' file"),
        (("ask", "q", "--name", "a/b"), "--name: expected"),
        (("ask", "q", "--tools", "zzz"), "there is no tool 'zzz'; the nearest is 'calculate'"),
        (("ask", "q", "--tools", "calculate,calculat"), "the nearest is 'calculate'"),
        (("chat", "--conversation", "typo"), "there is no such conversation"),
        (("tools", "show", "calculat"), "did you mean 'calculate'?"),
        (("trust",), "callboard.toml: there is no such file"),
        (("ask", "--nonsense"), "--nonsense"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_usage_is_explained_with_code_2(world: World, arguments: Sequence[str], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_flags_go_where_they_belong(world: World, tmp_path: Path) -> None:
    world.daemon = True
    (tmp_path / "t.py").touch()
    flags = ["--base-url", "http://h/v1", "--model", "m", "--api-key", "k", "--tools-from", "t.py"]
    more = ["--tools", "calculate, time__*", "--template", "clerk", "--tool-deadline", "2", "--deadline", "9"]
    assert run("--name", "work", "ask", "q", *flags, *more).exit_code == 0
    (call,) = world.calls
    assert (call["name"], call["private"]) == ("work", True)
    assert (call["config"].model.name, call["config"].model.key) == ("m", "k")
    assert call["config"].tools.modules == (str(tmp_path / "t.py"),)
    given, conversation = world.system.conversations[0]
    chosen = ["calculate", "time__*"]
    assert given == {"team": "", "user": "", "template": "clerk", "tools": chosen, "linked": True}
    assert conversation.deadlines == (9, 2)


def test_without_flags_the_running_daemon_is_used(world: World) -> None:
    world.daemon = True
    assert run("ask", "q", "--tools", "calculate", "--name", "work").exit_code == 0
    assert world.calls == [{"name": "work", "private": False}]


def test_a_system_that_does_not_start_is_code_3(world: World) -> None:
    world.fault = DaemonFailed("it did not start:\nlast line of the log")
    result = run("ask", "--base-url", "http://h", "q")
    assert result.exit_code == 3
    assert result.stderr == "callboard: it did not start:\nlast line of the log\n"


def test_the_listings_have_a_json_form(world: World) -> None:
    assert json.loads(run("tools", "--json").stdout)[0]["annotations"] == ["read_only"]
    assert json.loads(run("tools", "list", "--json").stdout)[0]["name"] == "calculate"
    assert json.loads(run("tools", "show", "calculate", "--json").stdout)["state"] == "available"
    assert json.loads(run("servers", "--json").stdout)[0]["state"] == "ready"
    tree = json.loads(run("tree", "--json").stdout)
    assert {"id", "kind", "pid", "parent", "state", "restarts", "rss_mb", "threads"} <= set(tree[0])


def test_the_listings_have_a_form_for_people(world: World) -> None:
    assert run("tools").stdout == "available  calculate  Evaluate.\n"
    assert "says of itself  read_only" in run("tools", "show", "calculate").stdout
    assert run("servers").stdout == "ready  time  2 tools, pid 4\n"
    assert run("tree").stdout == "root  pid 1, running\n  journal  no process, running\n"


def test_status_and_stop_are_about_the_daemon_only(world: World) -> None:
    for command in ("status", "stop"):
        result = run(command)
        assert result.exit_code == 3
        assert "no system named default is running" in result.stderr
    world.daemon = True
    assert json.loads(run("status", "--json").stdout)["pid"] == 1
    assert "default is running" in run("status").stdout
    assert run("stop").stdout == "default is stopped\n"
    assert world.system.stopped


def test_a_piped_chat_takes_line_by_line(world: World) -> None:
    result = run("chat", stdin="one\n/servers\nfail\n")
    assert result.exit_code == 1
    assert result.stdout.startswith("on\n")
    assert "ready  time" in result.stdout


@pytest.mark.parametrize("command", ["chat", "ask"])
def test_a_conversation_taken_up_again_is_left_open(world: World, command: str) -> None:
    world.daemon = True
    assert run(command, "--conversation", "c1", "--team", "red", stdin="one\n").exit_code == 0
    given, conversation = world.system.conversations[0]
    assert given["conversation_id"] == "c1" and given["linked"] is False and given["create"] is False
    assert (given["team"], given["user"], given["roles"]) == ("red", "ann", ("r",))
    assert not conversation.closed


def test_a_conversation_taken_up_without_a_daemon_is_found_where_the_daemon_keeps_it(world: World) -> None:
    assert run("ask", "--conversation", "c1", "--name", "own", "one").exit_code == 0
    assert world.calls[0]["config"].storage.path == callboard.paths.state_dir() / "systems" / "own"


def test_beside_a_daemon_a_private_system_has_a_journal_of_its_own(world: World, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[storage]\npath = "j"\nurl = "sqlite:////j.sqlite3"\n', encoding="utf-8")
    for is_running, path in ((False, tmp_path / "j"), (True, None)):
        world.daemon = is_running
        assert run("ask", "--config", str(file), "one").exit_code == 0
        assert world.calls[-1]["config"].storage.path == path
        assert (world.calls[-1]["config"].database_url is None) == is_running
    result = run("ask", "--config", str(file), "--conversation", "c1", "one")
    assert (result.exit_code, "leave the configuration flags out" in result.stderr) == (2, True)


def test_the_tools_of_an_old_conversation_are_not_set_anew(world: World) -> None:
    result = run("ask", "--conversation", "c1", "--tools", "calculate", "one")
    assert (result.exit_code, "--tools is for a new conversation" in result.stderr) == (2, True)


def test_a_new_conversation_is_for_the_user_and_team_that_are_given(world: World) -> None:
    assert run("ask", "--user", "ann", "--team", "red", "one").exit_code == 0
    given, conversation = world.system.conversations[0]
    assert (given["team"], given["user"], conversation.closed) == ("red", "ann", True)


def test_an_untrusted_file_in_the_working_folder_is_not_used(world: World, tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text('[servers.a]\ncommand = "tool --now"\n')
    result = run("ask", "q")
    assert result.exit_code == 2
    assert "'callboard trust'" in result.stderr
    trusted = run("trust")
    assert "it runs, as server a: tool --now" in trusted.stdout
    assert run("ask", "q").exit_code == 0
    assert run("trust", "--forget").exit_code == 0
    assert run("ask", "q").exit_code == 2
    assert run("trust", "--forget").exit_code == 2


def test_the_embedded_model_needs_its_package_and_its_weights(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("CALLBOARD_WEIGHTS", str(tmp_path / "none.gguf"))
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda name: None)
    result = run("ask", "q")
    assert (result.exit_code, "pip install 'callboard[local]'" in result.stderr) == (3, True)
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda name: object())
    for command in ("ask", "chat"):
        result = run(command, stdin="q\n")
        assert (result.exit_code, "callboard model pull" in result.stderr) == (3, True)
    assert run("tools").exit_code == 0
    pulled = run("model", "pull", "--from", str(tmp_path / "nothing.gguf"))
    assert pulled.exit_code == 3
    assert "could not be had" in pulled.stderr
    assert run("model", "path").exit_code == 3
    assert json.loads(run("model", "path", "--json").stdout)["present"] is False
    assert run("model", "remove").stdout == "there were none\n"


COMMANDS = ["chat", "ask", "serve", "stop", "status", "tools", "servers", "tree", "trust", "model", "version"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_help_names_the_exit_codes_and_every_command() -> None:
    text = run("--help").stdout
    assert "3    the system could not be reached or started" in text
    assert all(f"  {command} " in text for command in COMMANDS)
    assert run("--version").stdout == run("version").stdout


def test_the_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from callboard.cli import main; main(['--help']);"
        "heavy = {'openai', 'pydantic', 'thespian', 'rich', 'psutil'} & set(sys.modules);"
        "sys.exit(str(heavy or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""


def test_a_reader_that_goes_away_is_no_drama() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "callboard", "version"], stdout=writer, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_tools_that_may_yet_come_with_a_server_are_taken(world: World) -> None:
    assert run("ask", "q", "--tools", "time__now,time__*,t*").exit_code == 0
    assert run("ask", "q", "--tools", "nothing_*").exit_code == 2


def test_a_module_that_is_not_loaded_is_told_and_ends_it_when_the_flag_named_it(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").touch()
    world.system.faults = {str(tmp_path / "broken.py"): "no module named x", "elsewhere": "it raised"}
    for command in (("ask", "q"), ("chat",)):
        result = run(*command)
        assert result.exit_code == 0
        assert "callboard: tool module elsewhere is not loaded: it raised\n" in result.stderr
        refused = run(*command, "--tools-from", "broken.py")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "broken.py is not loaded: no module named x" in refused.stderr
    assert len(world.system.conversations) == 2


def test_a_server_that_is_away_is_told_with_its_last_error(world: World) -> None:
    world.system.server = ServerInfo(name="time", state="parked", last_error="no such\ncommand")
    for command in (("ask", "q"), ("chat",)):
        result = run(*command)
        assert result.exit_code == 0
        assert result.stderr.endswith("callboard: server time is parked: no such command\n")


def callboard_process(shell: str, *, module: str = "callboard") -> subprocess.CompletedProcess[str]:
    line = f'"{sys.executable}" -m {module} {shell}'
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("version >&-", 0, ""),
        ("version <&- >&- 2>&-", 0, ""),
        ("ask <&-", 2, "callboard: expected a question"),
        ("version >/dev/full", 3, "callboard: the output could not be written: No space left on device\n"),
        ("--help >/dev/full", 3, "callboard: the output could not be written: No space left on device\n"),
        ("--nonsense 2>/dev/full", 3, ""),
        ("status --name nobody 2>/dev/full", 3, ""),
    ],
)
def test_streams_that_are_closed_or_full_make_no_traceback(line: str, code: int, told: str) -> None:
    done = callboard_process(line)
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(told) if told else done.stderr == ""


def test_what_the_system_refuses_is_one_sentence(world: World) -> None:
    world.fault = PermissionError(13, "Permission denied", "/a/place")
    result = run("ask", "q")
    assert (result.exit_code, result.stderr) == (3, "callboard: /a/place: Permission denied\n")


def test_ctrl_c_while_it_is_loaded_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import builtins, sys; load = builtins.__import__\n"
        "def pressed(name, *rest):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = pressed\n"
        "from callboard.cli import main; sys.exit(main(['version']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_looking_for_a_system_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for command in (("status",), ("stop",), ("ask", "q", "--base-url", "foo")):
        assert run("--name", "nobody", *command).exit_code in (2, 3)
    callboard.daemon.check_free("nobody")
    assert list(tmp_path.iterdir()) == []
