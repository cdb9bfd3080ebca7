"""Whatever is killed, and however much of it at once: what it left on the disk goes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import callboard
from callboard.api import System
from callboard.paths import runtime_dir, runtime_root
from callboard.private_remains import LOCK, private_name, remove_remains
from callboard.testing.folders import dig
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, is_written
from callboard.transports.mail import FOLDER

TOOLS = Path(__file__).parent / "some_tools.py"
GONE_WITHIN_S = 5.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the systems of this test have their temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def command(name: str, model: ScriptedModelServer, *arguments: str) -> subprocess.Popen[bytes]:
    flags = ["--base-url", model.base_url, "--model", "m", "--api-key", "k", "--tools-from", str(TOOLS)]
    return subprocess.Popen(
        [sys.executable, "-m", "callboard", name, *arguments, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and everything below it at one moment: nobody has the time to clear away."""
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in tree:
            os.kill(each.pid, number)
    process.wait(10)
    psutil.wait_procs(tree[1:], 10)


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


@pytest.mark.parametrize("victim", ["tool_worker", "client"])
def test_the_folder_of_a_call_goes_when_its_process_or_its_keeper_is_killed(
    victim: str, start: Callable[..., System], temporary: Path, tmp_path: Path
) -> None:
    system, file = start(), tmp_path / "pid"
    conversation = system.conversation(user="ann")
    events: list[str] = []
    turn = threading.Thread(
        target=lambda: events.extend(e.type for e in conversation.ask(call("pause", path=str(file))))
    )
    turn.start()
    eventually(lambda: is_written(file), 30, "the tool is running")
    assert len(names(temporary, "callboard-call-*")) == 1
    (pid,) = [row.pid for row in system.tree() if row.kind == victim]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not names(temporary, "callboard-call-*"), GONE_WITHIN_S, "its folder is gone")
    turn.join(30)
    assert events[-1] == "turn_answered"


def test_what_a_whole_daemon_left_goes_at_the_next_start(
    temporary: Path, tmp_path: Path, model: ScriptedModelServer
) -> None:
    file = tmp_path / "pid"
    daemon = command("serve", model)
    eventually(lambda: (runtime_dir("default") / "system.json").exists(), 30, "the daemon is up")
    system = callboard.connect(private=False)
    conversation = system.conversation(linked=False)
    events = conversation.ask(call("pause", path=str(file)))
    assert next(events).type == "turn_started"
    eventually(lambda: is_written(file), 30, "the tool is running")
    kill_all(daemon)
    assert names(temporary, "callboard-call-*")
    again = command("serve", model)
    try:
        eventually(lambda: not names(temporary, "callboard-call-*"), 30, "its folder is gone")
        assert [event.type for event in events][-1] == "turn_answered"
    finally:
        system.close()
        again.terminate()
        again.wait(20)
    assert names(temporary, "callboard-call-*") == []
    assert set(names(runtime_dir("default"), "*")) <= {"lock", "log.jsonl"}


def test_what_a_killed_ask_and_its_system_left_goes_at_the_next_start(
    temporary: Path, tmp_path: Path, model: ScriptedModelServer, start: Callable[..., System]
) -> None:
    file = tmp_path / "pid"
    asking = command("ask", model, call("pause", path=str(file)))
    eventually(lambda: is_written(file), 30, "the tool is running")
    kill_all(asking)
    (left,) = names(runtime_root(), "private-*")
    assert names(temporary, "callboard-call-*")
    beside = start()
    eventually(lambda: left not in names(runtime_root(), "*"), GONE_WITHIN_S, "its folder is gone")
    eventually(lambda: not names(temporary, "callboard-call-*"), GONE_WITHIN_S, "that of its call, too")
    assert remove_remains(runtime_root()) == []
    assert beside.status().name in names(runtime_root(), "private-*"), "one that lives stays"


# ------------------------------------------------------------ what is in use
def remains(root: Path) -> Path:
    """Make the runtime folder of a system whose owner has ended."""
    code = "from callboard.private_remains import private_name; print(private_name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = root / done.stdout.strip()
    (folder / FOLDER).mkdir(parents=True, mode=0o700)
    (folder / "config.json").write_text("secret", encoding="utf-8")
    return folder


def test_the_folder_of_a_dead_owner_is_removed_once(tmp_path: Path) -> None:
    folder = remains(tmp_path)
    assert remove_remains(tmp_path) == [folder.name]
    assert remove_remains(tmp_path) == []


def test_a_folder_goes_that_is_deeper_than_python_climbs(tmp_path: Path) -> None:
    folder = remains(tmp_path)
    dig(folder, 3000)
    assert remove_remains(tmp_path) == [folder.name]


def test_the_folder_of_a_living_owner_stays(tmp_path: Path) -> None:
    mine = tmp_path / private_name()
    mine.mkdir()
    assert remove_remains(tmp_path) == []


def test_a_pid_that_is_given_anew_is_not_the_owner(tmp_path: Path) -> None:
    _, pid, _, number = private_name().split("-")
    (tmp_path / f"private-{pid}-1-{number}").mkdir()
    assert remove_remains(tmp_path) == [f"private-{pid}-1-{number}"]


def test_a_folder_whose_lock_is_held_stays(tmp_path: Path) -> None:
    """Its owner is dead, and the system is starting, or stopping, or another removes it."""
    folder = remains(tmp_path)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert remove_remains(tmp_path) == []
    assert remove_remains(tmp_path) == [folder.name]


def test_a_folder_in_which_an_actor_has_its_socket_open_stays(tmp_path: Path) -> None:
    import socket

    folder = remains(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as actor:
        at = os.open(folder / FOLDER, os.O_PATH)
        actor.bind(f"/proc/self/fd/{at}/a1")
        os.close(at)
        assert remove_remains(tmp_path) == []
    assert remove_remains(tmp_path) == [folder.name]


@pytest.mark.parametrize("name", ["default", "private-1", "private-x-1-abcdef", "private-1-1-abcdef0"])
def test_what_is_not_named_as_a_private_system_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "private-1-1-abcdef").symlink_to(tmp_path)
    (tmp_path / "private-2-1-abcdef").write_text("x")
    assert remove_remains(tmp_path) == []
    assert (tmp_path / name).is_dir()
