"""ChildProcess with small commands: environment, command look-up, pipes, outbox and endings."""

from __future__ import annotations

import ast
import os
import select
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from callboard.transports.child_process import (
    ChildProcess,
    ExitStatus,
    default_environment,
    resolve_command,
)
from callboard.transports.errors import ChildClosed, CommandNotFound, OutboxFull, SpawnFailed

PATIENCE_S = 10.0
ENV = {"PATH": "/usr/bin:/bin"}


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def ready(descriptor: int, event: int = select.POLLIN) -> None:
    watch = select.poll()
    watch.register(descriptor, event)
    assert watch.poll(int(PATIENCE_S * 1000))


def read_all(child: ChildProcess) -> bytes:
    data = b""
    while True:
        ready(child.stdout_fd)
        chunk = child.read_stdout()
        if chunk is None:
            return data
        data += chunk


def ending(child: ChildProcess) -> ExitStatus:
    ready(child.pidfd)
    status = child.poll()
    assert status is not None
    return status


def test_the_default_environment_is_an_allow_list() -> None:
    base = {
        "HOME": "/h",
        "PATH": "/p",
        "LANG": "C",
        "LC_ALL": "C",
        "TMPDIR": "/t",
        "USER": "u",
        "SECRET_KEY": "s",
        "LD_PRELOAD": "x",
        "SHELL": "() { :; }",
    }
    assert default_environment({"TOKEN": "t", "PATH": "/mine"}, base) == {
        "HOME": "/h",
        "PATH": "/mine",
        "LANG": "C",
        "LC_ALL": "C",
        "TMPDIR": "/t",
        "USER": "u",
        "TOKEN": "t",
    }


def test_the_child_sees_exactly_the_environment_it_is_given() -> None:
    env = {"PATH": "/usr/bin:/bin", "A": "é", "EMPTY": "", "PYTHONPATH": "/nowhere"}
    with ChildProcess(["/usr/bin/env", "-0"], env=env) as child:
        assert read_all(child).decode().strip("\0").split("\0") == [f"{k}={v}" for k, v in env.items()]


def test_the_child_is_restricted_and_its_signals_are_as_new() -> None:
    code = (
        "import os, signal; s = dict(l.split(':', 1) for l in open('/proc/self/status'));"
        "print((os.getsid(0) == os.getpid() == os.getpgrp(), int(s['NoNewPrivs']), int(s['SigBlk'], 16),"
        "sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd'))))"
    )
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        with ChildProcess(python(code), env=ENV) as child:
            seen = ast.literal_eval(read_all(child).decode())
        with ChildProcess(["grep", "SigIgn", "/proc/self/status"], env=ENV) as child:
            ignored = read_all(child)
    finally:
        signal.signal(signal.SIGUSR1, old)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
    assert seen == (True, 1, 0, ["0", "1", "2"], 4)
    assert int(ignored.split()[1], 16) == 0


def test_the_working_folder_is_used_and_relative_commands_start_there(tmp_path: Path) -> None:
    script = tmp_path / "here.sh"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o700)
    with ChildProcess(["./here.sh"], env=ENV, cwd=str(tmp_path)) as child:
        assert read_all(child).decode().strip() == str(tmp_path)


@pytest.mark.parametrize(
    ("command", "env", "words"),
    [
        ("no-such-command", ENV, "not found on the child's PATH (/usr/bin:/bin)"),
        ("no-such-command", {}, "the child has no PATH"),
        ("/no/such/file", ENV, "/no/such/file does not exist"),
        ("/usr", ENV, "/usr is not a file"),
        ("/etc/passwd", ENV, "is not executable"),
        ("", ENV, "not found"),
    ],
)
def test_a_missing_command_is_named_with_where_it_was_looked_for(
    command: str, env: dict[str, str], words: str
) -> None:
    with pytest.raises(CommandNotFound) as caught:
        ChildProcess([command], env=env)
    assert words in str(caught.value) and repr(command) in str(caught.value)


def test_the_command_is_looked_up_on_the_childs_path(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    assert resolve_command("tool", {"PATH": str(tmp_path)}) == str(tool)
    assert resolve_command("tool", {"PATH": "."}, cwd=str(tmp_path)) == str(tool)
    assert resolve_command("./tool", {}, cwd=str(tmp_path)) == str(tool)


@pytest.mark.parametrize(
    ("argv", "cwd", "words"),
    [([], None, "empty"), (["true"], "/no/such", "/no/such"), (["true", "a\0b"], None, "null byte")],
)
def test_what_cannot_be_started_says_why(argv: list[str], cwd: str | None, words: str) -> None:
    with pytest.raises(SpawnFailed, match=words):
        ChildProcess(argv, env=ENV, cwd=cwd)


def test_a_command_that_is_no_program_ends_with_126(tmp_path: Path) -> None:
    script = tmp_path / "binary"
    script.write_bytes(b"\x00\x01\x02")
    script.chmod(0o700)
    with ChildProcess([str(script)], env=ENV) as child:
        assert ending(child) == ExitStatus(code=126)
        assert "Exec format error" in child.describe_end()


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("raise SystemExit(0)", ExitStatus(code=0), "exit code 0"),
        ("raise SystemExit(7)", ExitStatus(code=7), "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", ExitStatus(signal=9), "killed by SIGKILL"),
        ("import os; os.abort()", ExitStatus(signal=6), "killed by SIGABRT"),
    ],
)
def test_the_ending_is_told(code: str, status: ExitStatus, text: str) -> None:
    with ChildProcess(python(code), env=ENV) as child:
        assert ending(child) == status
        assert str(child.poll()) == text


def test_somebody_else_may_reap_it() -> None:
    with ChildProcess(["true"], env=ENV) as child:
        os.waitpid(child.pid, 0)
        assert str(child.poll()) == "exit status unknown"


def test_the_last_words_are_part_of_the_reason() -> None:
    with ChildProcess(python("raise SystemExit('no key in the configuration')"), env=ENV) as child:
        ready(child.pidfd)
        assert child.describe_end() == "exit code 1; stderr ends: no key in the configuration"


def test_the_tail_of_stderr_is_bounded() -> None:
    code = "import os; os.write(2, b'x' * 50000 + b'end')"
    with ChildProcess(python(code), env=ENV, stderr_tail_bytes=1000) as child:
        while child.read_stderr() is not None:
            ready(child.stderr_fd)
        assert child.stderr_tail() == "x" * 997 + "end"


def test_nothing_to_read_is_not_the_end() -> None:
    with ChildProcess(["cat"], env=ENV) as child:
        assert child.read_stdout() == b""
        assert child.read_stderr() == b""
        assert child.poll() is None


def test_messages_go_through_whole_however_the_pipe_takes_them() -> None:
    message = bytes(range(256)) * 4096
    with ChildProcess(["cat"], env=ENV) as child:
        child.send(message)
        child.send(b"")
        child.send(b"end")
        data, limit = b"", time.monotonic() + PATIENCE_S
        while not child.flush() or len(data) < len(message) + 3:
            assert time.monotonic() < limit
            chunk = child.read_stdout()
            assert chunk is not None
            data += chunk
        assert not child.wants_write
        assert data == message + b"end"


def test_a_child_that_does_not_read_fills_a_bounded_outbox() -> None:
    with ChildProcess(["sleep", "600"], env=ENV, outbox_bytes=1_000_000) as child:
        child.send(b"x" * 900_000)
        assert not child.flush() and child.wants_write
        with pytest.raises(OutboxFull, match="does not read its input"):
            child.send(b"x" * 900_000)
        child.send(b"x" * 1000)


def test_a_child_that_closed_its_stdin_takes_no_more() -> None:
    with ChildProcess(python("import os; os.close(0); os.write(1, b'.'); os.read(1, 1)"), env=ENV) as child:
        ready(child.stdout_fd)
        child.send(b"x")
        assert child.flush() and child.stdin_closed and not child.wants_write
        with pytest.raises(ChildClosed):
            child.send(b"x")


def test_stopping_escalates_by_the_clock_it_is_given() -> None:
    code = (
        "import signal, os; signal.signal(15, signal.SIG_IGN); os.write(1, b'.')\nwhile True: signal.pause()"
    )
    with ChildProcess(python(code), env=ENV) as child:
        ready(child.stdout_fd)
        assert child.next_stop_deadline() is None
        child.begin_stop(100.0)
        child.begin_stop(105.0)
        assert child.stdin_closed and child.next_stop_deadline() == 101.0
        assert child.advance_stop(100.9) is None
        assert child.advance_stop(101.0) is None and child.next_stop_deadline() == 102.0
        assert child.advance_stop(101.9) is None
        child.advance_stop(102.0)
        assert ending(child) == ExitStatus(signal=9)
        assert child.advance_stop(103.0) == ExitStatus(signal=9) and child.next_stop_deadline() is None


def test_what_waits_is_still_written_when_stopping() -> None:
    with ChildProcess(["cat"], env=ENV) as child:
        child.send(b"last words")
        child.begin_stop(0.0)
        assert read_all(child) == b"last words"
        assert ending(child) == ExitStatus(code=0)


def test_closing_kills_a_stopped_child_and_its_group_and_may_be_repeated() -> None:
    child = ChildProcess(["/bin/sh", "-c", "sleep 600 & echo $!; wait"], env=ENV)
    ready(child.stdout_fd)
    grandchild = int(child.read_stdout() or b"0")
    os.kill(child.pid, signal.SIGSTOP)
    child.close()
    child.close()
    assert child.poll() == ExitStatus(signal=9)
    limit = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < limit


def test_the_group_is_killed_when_the_leader_ended_by_itself() -> None:
    with ChildProcess(["/bin/sh", "-c", "sleep 600 & echo $!"], env=ENV) as child:
        ready(child.stdout_fd)
        grandchild = int(child.read_stdout() or b"0")
        assert ending(child) == ExitStatus(code=0)
        assert read_all(child) == b""
        limit = time.monotonic() + PATIENCE_S
        while psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < limit
