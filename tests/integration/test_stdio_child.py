"""ChildProcess, LineFramer and McpSession together, against real processes, in one small epoll loop."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from callboard.testing.mcp_server import command
from callboard.transports.child_process import ChildProcess, default_environment
from callboard.transports.errors import LineTooLong
from callboard.transports.framing import LineFramer
from callboard.transports.mcp_session import (
    CallFailed,
    CallResult,
    Effect,
    Era,
    Failed,
    McpSession,
    NeedsRespawn,
    Note,
    Progress,
    Ready,
    Send,
    SessionLimits,
    ToolsChanged,
)

pytestmark = pytest.mark.integration
E = TypeVar("E")
PATIENCE_S = 15.0


class Owner:
    """What an external-server actor does, in small: one process, one session, one loop."""

    def __init__(self, argv: list[str], *, era: Era = Era.AUTO, limits: SessionLimits | None = None) -> None:
        self.argv = argv
        self.limits = limits or SessionLimits()
        self.effects: list[Effect] = []
        self.spawns = 0
        self._begin(era)

    def _begin(self, era: Era) -> None:
        self.child = ChildProcess(self.argv, env=default_environment({}, os.environ))
        self.spawns += 1
        self.session = McpSession(era=era, limits=self.limits)
        self.framer = LineFramer()
        self.stdout_open = True
        self.perform(self.session.start(time.monotonic()))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case Send(data) if not self.child.stdin_closed:
                    self.child.send(data)
                    self.child.flush()
                case NeedsRespawn(era):
                    self.child.close()
                    self._begin(era)

    def turn(self) -> None:
        watch = select.poll()
        if self.stdout_open:
            watch.register(self.child.stdout_fd, select.POLLIN)
            watch.register(self.child.pidfd, select.POLLIN)
        if self.child.wants_write:
            watch.register(self.child.stdin_fd, select.POLLOUT)
        watch.poll(20)
        self.child.flush()
        self.child.read_stderr()
        ended = self.child.poll() is not None
        while self.stdout_open and self._read(ended) and ended:
            pass
        self.perform(self.session.tick(time.monotonic()))

    def _read(self, ended: bool) -> bool:
        """Read once; when the process had ended before, nothing to read is the end of its stdout."""
        child = self.child
        chunk = child.read_stdout()
        if chunk == b"" and ended:
            chunk = None
        if chunk is None:
            self.stdout_open = False
            last = self.framer.finish()
            lines, reason = ([last] if last else []), self._ending()
        else:
            try:
                lines, reason = self.framer.feed(chunk), ""
            except LineTooLong as fault:
                lines, reason = list(fault.lines_before), str(fault)
        for line in lines:
            self.perform(self.session.received(line, time.monotonic()))
        if reason and self.child is child:
            self.perform(self.session.closed(reason, time.monotonic()))
        return bool(chunk)

    def _ending(self) -> str:
        watch = select.poll()
        watch.register(self.child.pidfd, select.POLLIN)
        watch.poll(500)
        return self.child.describe_end()

    def until(self, what: Callable[[Owner], Any]) -> Any:
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            found = what(self)
            if found:
                return found
            self.turn()
        raise AssertionError(f"not within {PATIENCE_S} s; effects: {self.effects[-10:]}")

    def first(self, kind: type[E]) -> E:
        def look(owner: Owner) -> E | None:
            return next((effect for effect in owner.effects if isinstance(effect, kind)), None)

        found: E = self.until(look)
        return found

    def call(self, name: str, deadline_s: float = 10.0, **arguments: Any) -> CallResult | CallFailed:
        ref = f"{name}-{len(self.effects)}"
        self.perform(self.session.call_tool(ref, name, arguments, time.monotonic(), deadline_s))
        return self.ending(ref)

    def ending(self, ref: str) -> CallResult | CallFailed:
        def look(owner: Owner) -> CallResult | CallFailed | None:
            endings = (e for e in owner.effects if isinstance(e, (CallResult, CallFailed)))
            return next((e for e in endings if e.ref == ref), None)

        ending: CallResult | CallFailed = self.until(look)
        return ending

    def text(self, name: str, **arguments: Any) -> str:
        result = self.call(name, **arguments)
        assert isinstance(result, CallResult) and not result.is_error, result
        return str(result.content[0]["text"])

    def value(self, name: str) -> Any:
        result = self.call(name)
        assert isinstance(result, CallResult), result
        return result.structured["value"]

    def stop(self) -> float:
        began = time.monotonic()
        self.child.begin_stop(began)
        self.until(lambda owner: owner.child.advance_stop(time.monotonic()))
        return time.monotonic() - began


@contextmanager
def serving(*modes: str, era: Era = Era.AUTO, limits: SessionLimits | None = None) -> Iterator[Owner]:
    owner = Owner(command(*modes), era=era, limits=limits)
    try:
        yield owner
    finally:
        owner.child.close()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid: int) -> None:
    limit = time.monotonic() + PATIENCE_S
    while is_alive(pid):
        assert time.monotonic() < limit, f"process {pid} lives on"
        select.select([], [], [], 0.01)


@pytest.mark.parametrize(
    ("modes", "version", "spawns"),
    [
        ((), "2026-07-28", 1),
        (("modern",), "2026-07-28", 1),
        (("legacy",), "2025-11-25", 1),
        (("legacy", "version=2025-06-18"), "2025-06-18", 1),
        (("legacy", "version=2025-03-26", "batch"), "2025-03-26", 1),
        (("legacy", "version=2024-11-05"), "2024-11-05", 1),
        (("exit-on-probe",), "2025-11-25", 2),
        (("silent-on-probe",), "2025-11-25", 1),
        (("slow-start=0.8",), "2026-07-28", 1),
        (("slow-start=0.8", "legacy"), "2025-11-25", 1),
    ],
)
def test_a_session_is_made_with_servers_of_either_era(
    modes: tuple[str, ...], version: str, spawns: int
) -> None:
    with serving(*modes, limits=SessionLimits(probe_s=0.4)) as owner:
        ready = owner.first(Ready)
        assert ready.protocol_version == version
        assert ready.server_info["name"] == "adversary"
        assert ready.instructions == "Be careful."
        assert owner.text("add", a=2, b=3) == "5"
        assert owner.spawns == spawns


@pytest.mark.parametrize(
    "modes",
    [
        ("banner",),
        ("glued-banner",),
        ("garbage",),
        ("invalid-utf8",),
        ("byte-by-byte",),
        ("string-ids",),
        ("twice",),
        ("crlf",),
        ("legacy", "batch"),
        ("legacy", "asks"),
        ("legacy", "byte-by-byte", "garbage", "invalid-utf8", "string-ids", "banner", "twice", "crlf"),
    ],
)
def test_calls_are_answered_through_every_fault_of_the_byte_stream(modes: tuple[str, ...]) -> None:
    with serving(*modes) as owner:
        owner.first(Ready)
        for text in ("plain", "é ☃ 😀", "two\nlines\u2028and\u0085more"):
            assert owner.text("echo", text=text) == text


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 5_000_000])
def test_a_long_line_arrives_whole(size: int) -> None:
    with serving(f"huge-line={size}") as owner:
        owner.first(Ready)
        assert len(owner.text("echo")) == size


def test_a_long_argument_arrives_whole() -> None:
    with serving() as owner:
        owner.first(Ready)
        assert owner.text("echo", text="é" * 1_000_000) == "é" * 1_000_000


def test_a_line_above_the_cap_closes_the_session() -> None:
    with serving("huge-line=100000") as owner:
        owner.first(Ready)
        owner.framer = LineFramer(cap_bytes=50_000)
        failed = owner.call("echo")
        assert isinstance(failed, CallFailed) and failed.kind == "closed"
        assert "cap of 50000 bytes" in failed.message


def test_a_server_that_asks_is_answered() -> None:
    with serving("legacy", "asks") as owner:
        owner.first(Ready)
        owner.text("echo", text="x")
        answers = owner.value("answers")
        assert {"jsonrpc": "2.0", "id": 1, "result": {}} in answers
        assert [a["error"]["code"] for a in answers if a["id"] == "x"] == [-32601]


def test_a_bad_tool_is_left_out_and_all_pages_are_read() -> None:
    with serving("bad-schema", "paginate") as owner:
        names = [tool["name"] for tool in owner.first(Ready).tools]
        assert names[:2] == ["echo", "add"] and "unlock" in names
        assert "bad_null" not in names and "bad_type" not in names
        assert sum("bad_" in e.text for e in owner.effects if isinstance(e, Note)) == 2


def test_endless_pages_end() -> None:
    with serving("endless-pages") as owner:
        assert [tool["name"] for tool in owner.first(Ready).tools] == ["echo"]


def test_a_server_without_tools_is_ready_with_none() -> None:
    with serving("no-tools") as owner:
        assert owner.first(Ready).tools == ()


@pytest.mark.parametrize("mode", ["legacy", "modern"])
def test_a_changed_tool_list_is_fetched_in_either_era(mode: str) -> None:
    with serving(mode) as owner:
        owner.first(Ready)
        owner.text("unlock")
        assert "unlocked" in [tool["name"] for tool in owner.first(ToolsChanged).tools]
        assert owner.text("unlocked") == "open"


def test_progress_is_reported_when_it_was_asked_for() -> None:
    with serving() as owner:
        owner.first(Ready)
        owner.perform(
            owner.session.call_tool("p", "progress", {"steps": 3}, time.monotonic(), 5, progress=True)
        )
        owner.ending("p")
        seen = [effect for effect in owner.effects if isinstance(effect, Progress)]
        assert [(p.ref, p.progress, p.total) for p in seen] == [("p", 1, 3), ("p", 2, 3), ("p", 3, 3)]


@pytest.mark.parametrize("mode", ["legacy", "modern"])
def test_deadline_and_cancel_reach_the_server_and_others_run_on(mode: str) -> None:
    with serving(mode) as owner:
        owner.first(Ready)
        now = time.monotonic()
        for ref, deadline_s in (("late", 0.2), ("unwanted", 30.0), ("fine", 30.0)):
            seconds = 0.5 if ref == "fine" else 60
            owner.perform(owner.session.call_tool(ref, "sleep", {"seconds": seconds}, now, deadline_s))
        owner.perform(owner.session.cancel("unwanted", now))
        kinds = {ref: getattr(owner.ending(ref), "kind", "ok") for ref in ("late", "unwanted", "fine")}
        assert kinds == {"late": "deadline", "unwanted": "cancelled", "fine": "ok"}
        assert len(owner.value("cancelled")) == 2


def test_a_failing_tool_is_an_error_result_and_an_unknown_one_is_rejected() -> None:
    with serving() as owner:
        owner.first(Ready)
        result = owner.call("fail")
        assert isinstance(result, CallResult) and result.is_error
        failed = owner.call("no_such_tool")
        assert isinstance(failed, CallFailed) and failed.kind == "rejected"
        assert "unknown tool no_such_tool" in failed.message


@pytest.mark.parametrize(
    ("tool", "words"), [("kill_self", "killed by SIGKILL"), ("exit", "exit code 0; nothing on stderr")]
)
def test_a_server_that_dies_in_a_call_fails_all_calls_at_once(tool: str, words: str) -> None:
    with serving() as owner:
        owner.first(Ready)
        owner.perform(owner.session.call_tool("other", "sleep", {"seconds": 60}, time.monotonic(), 600))
        began = time.monotonic()
        failed = owner.call(tool, deadline_s=600)
        other = owner.ending("other")
        assert time.monotonic() - began < 2
        for ending in (failed, other):
            assert isinstance(ending, CallFailed) and ending.kind == "closed" and words in ending.message


def test_half_a_line_before_death_is_no_message() -> None:
    with serving("half-line-then-die") as owner:
        owner.first(Ready)
        failed = owner.call("echo", text="x")
        assert isinstance(failed, CallFailed) and failed.kind == "closed"
        assert "exit code 4" in failed.message


def test_a_closed_stdout_ends_the_session_though_the_process_lives() -> None:
    with serving("close-stdout") as owner:
        owner.first(Ready)
        failed = owner.call("echo", text="x")
        assert isinstance(failed, CallFailed) and failed.kind == "closed"
        assert "still running" in failed.message


def test_a_server_that_crashes_at_start_is_tried_twice_and_its_last_words_are_told() -> None:
    with serving("crash-at-start") as owner:
        failed = owner.first(Failed)
        assert owner.spawns == 2
        assert "exit code 3" in failed.reason and "no configuration found" in failed.reason


def test_a_deaf_server_fails_by_our_own_time_limits() -> None:
    with serving("deaf", limits=SessionLimits(probe_s=0.1, startup_s=0.2)) as owner:
        assert "no answer to initialize within 0.2 s" in owner.first(Failed).reason


def test_a_flood_on_stderr_blocks_nothing_and_its_tail_is_kept() -> None:
    with serving() as owner:
        owner.first(Ready)
        owner.text("flood_stderr", bytes=1_000_000)
        owner.until(lambda o: len(o.child.stderr_tail()) == 16 * 1024)


@pytest.mark.parametrize(
    ("modes", "at_least_s", "at_most_s", "ending"),
    [
        ((), 0.0, 1.0, "exit code 0"),
        (("ignore-eof",), 1.0, 1.9, "killed by SIGTERM"),
        (("ignore-eof", "ignore-sigterm"), 2.0, 3.5, "killed by SIGKILL"),
    ],
)
def test_stopping_is_bounded(
    modes: tuple[str, ...], at_least_s: float, at_most_s: float, ending: str
) -> None:
    with serving(*modes) as owner:
        owner.first(Ready)
        assert at_least_s <= owner.stop() <= at_most_s
        assert str(owner.child.poll()) == ending


@pytest.mark.parametrize("way", ["stop", "close", "kill_self"])
def test_a_grandchild_dies_with_the_server_however_it_ends(way: str) -> None:
    with serving("grandchild") as owner:
        owner.first(Ready)
        grandchild = owner.value("pids")["grandchild"]
        assert is_alive(grandchild)
        if way == "kill_self":
            owner.call("kill_self")
        elif way == "stop":
            owner.stop()
        else:
            owner.child.close()
        wait_until_gone(grandchild)


def test_a_server_dies_with_its_owner_even_when_that_is_killed() -> None:
    script = (
        "import os, sys, time; from callboard.transports.child_process import ChildProcess\n"
        "child = ChildProcess(sys.argv[1:], env=dict(os.environ))\n"
        "print(child.pid, flush=True); child.read_stdout(); time.sleep(60)"
    )
    argv = [sys.executable, "-c", script, *command("ignore-eof", "ignore-sigterm")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        limit = time.monotonic() + PATIENCE_S
        while "--mode" not in psutil.Process(server).cmdline()[2:4] and time.monotonic() < limit:
            select.select([], [], [], 0.01)
        owner.send_signal(signal.SIGKILL)
    wait_until_gone(server)


def test_twenty_lives_leave_no_zombie() -> None:
    pids = []
    for _ in range(20):
        with ChildProcess(["/bin/true"], env={}) as child:
            pids.append(child.pid)
            watch = select.poll()
            watch.register(child.pidfd, select.POLLIN)
            watch.poll(int(PATIENCE_S * 1000))
            assert str(child.poll()) == "exit code 0"
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_call_has_its_effect_once(tmp_path: Path) -> None:
    file = tmp_path / "calls"
    with serving("twice") as owner:
        owner.first(Ready)
        owner.text("write_file", path=str(file), text="call\n")
        owner.text("write_file", path=str(file), text="call\n")
    assert file.read_text() == "call\ncall\n"
