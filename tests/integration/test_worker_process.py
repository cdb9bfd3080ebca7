"""The processes of a call, driven by hand: what happens in the wrong moment, and what hostile code may try."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.messages import Work
from callboard.actors.worker_folder import make_folder
from callboard.actors.worker_process import WorkProcess, call_of
from callboard.testing.turns import eventually
from callboard.tools.content import TextBlock
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.fork_server import ForkServer
from callboard.tools.removal import remove_folder

TOOLS = '''
import os, time
from callboard import Progress, tool

@tool
def touch(path: str) -> str:
    """Write a file."""
    with open(path, "w") as file:
        file.write("x")
    return "touched"

@tool
def tell_for_ever() -> str:
    """Tell progress without end."""
    while True:
        yield Progress("step")

@tool
def flood() -> str:
    """Write progress without end where the result goes, around the way that is meant for it."""
    line = b'{"progress": ["x", null]}\\n' * 20000
    while True:
        os.write(3, line)

@tool
def nap() -> str:
    """Take a while."""
    time.sleep(60)
    return "slept"

@tool
def crowd(files: int) -> str:
    """Fill the private folder with many empty files, and stay."""
    for number in range(files):
        open(f"{os.environ['TMPDIR']}/{number}", "w").close()
    time.sleep(60)
    return "slept"
'''
GARBLED = '''
import os
from callboard import tool

kept = [os.dup(fd) for fd in range(3, 20) if os.path.exists(f"/proc/self/fd/{fd}")]

@tool
def garble() -> str:
    """Write rubbish wherever that can be written, and leave."""
    for fd in kept:
        for write in (lambda: os.pwrite(fd, b"A" * 64, 0), lambda: os.write(fd, b"A" * 64)):
            try:
                write()
            except OSError:
                pass
    os._exit(7)
'''
HEAVY = '''
import os, time
from callboard import tool

for _ in range(40):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
time.sleep(60)

@tool
def heavy() -> str:
    """Never loaded."""
    return "loaded"
'''


@pytest.fixture
def started() -> Iterator[Callable[..., WorkProcess]]:
    """Start the processes of tools; they are ended with the test."""
    running: list[tuple[WorkProcess, Path]] = []

    def start(spec: ToolSpec, **more: Any) -> WorkProcess:
        folder = make_folder()
        process = WorkProcess(spec, folder, **more)
        process.start()
        running.append((process, folder))
        return process

    yield start
    for process, folder in running:
        if process.pid:
            process.end()
            assert process.reap_within(10.0)
        process.close()
        remove_folder(folder)


def spec_of(tmp_path: Path, source: str, tool: str) -> ToolSpec:
    file = tmp_path / "tried_tools.py"
    file.write_text(source)
    return ToolSpec(name=tool, description="", parameters={}, module=str(file), attribute=tool)


def call(process: WorkProcess, spec: ToolSpec, **arguments: object) -> None:
    work = Work(spec=spec, arguments=arguments, context=ToolContext(), deadline_s=30.0)
    process.hand_over(call_of(work), 30.0)


def is_told_to(process: WorkProcess, within_s: float = 20.0) -> str:
    """Listen until the process has ended or has a result, end it, and give what the model reads."""
    give_up_at = time.monotonic() + within_s
    while not process.is_over and time.monotonic() < give_up_at:
        fds = [process.word_fd, *([process.channel_fd] if process.channel_is_open else [])]
        ready = select.select(fds, [], [], 1.0)[0]
        if process.channel_fd in ready:
            process.read_channel()
        if process.word_fd in ready:
            break
    process.end()
    (block,) = process.result().content
    assert isinstance(block, TextBlock)
    return block.text


def test_a_call_that_is_ended_at_once_does_not_run(
    started: Callable[..., WorkProcess], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, TOOLS, "touch")
    for number in range(5):
        process = started(spec)
        call(process, spec, path=str(tmp_path / f"touched-{number}"))
        process.end()
        assert process.reap_within(10.0)
    assert not list(tmp_path.glob("touched-*"))


def test_a_worker_that_is_ended_before_its_call_is_gone_at_once(
    started: Callable[..., WorkProcess], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, TOOLS, "touch")
    began = time.monotonic()
    for _ in range(3):
        process = started(spec)
        process.end()
        assert process.reap_within(10.0)
    assert time.monotonic() - began < 10.0


def test_progress_without_end_is_thinned_out_and_does_not_end_the_call(
    started: Callable[..., WorkProcess], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, TOOLS, "tell_for_ever")
    process = started(spec)
    call(process, spec)
    heard, until = 0, time.monotonic() + 1.0
    while time.monotonic() < until:
        if select.select([process.channel_fd], [], [], 0.1)[0]:
            heard += len(process.read_channel())
    assert 5 < heard < 1000
    assert not process.is_over


def test_a_flood_around_the_throttle_ends_the_call_and_its_end_does_not_wait(
    started: Callable[..., WorkProcess], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, TOOLS, "flood")
    process = started(spec)
    call(process, spec)
    assert "told its progress faster than it can be heard" in is_told_to(process)
    second = started(spec)
    call(second, spec)
    eventually(lambda: select.select([second.channel_fd], [], [], 0)[0])
    began = time.monotonic()
    second.end()
    assert time.monotonic() - began < 2.0
    assert second.reap_within(10.0)


@pytest.mark.parametrize("sandbox", ["none", "confined"])
def test_what_code_writes_anywhere_is_no_word_of_the_worker(
    started: Callable[..., WorkProcess], tmp_path: Path, sandbox: str
) -> None:
    spec = spec_of(tmp_path, GARBLED, "garble")
    spec = replace(spec, limits=replace(spec.limits, sandbox=sandbox))  # type: ignore[arg-type]
    process = started(spec)
    call(process, spec)
    told = is_told_to(process)
    assert "exited with code 7" in told or "cannot be read" in told


def test_a_module_that_never_ends_loading_is_held_to_its_limits_before_there_is_a_call(
    started: Callable[..., WorkProcess], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, HEAVY, "heavy")
    spec = replace(spec, limits=replace(spec.limits, processes=8))
    process = started(spec)
    eventually(lambda: process.look() or process.is_over)  # type: ignore[func-returns-value]
    process.end()
    (block,) = process.result().content
    assert isinstance(block, TextBlock)
    assert "started more than 8 processes" in block.text


def test_a_look_at_a_folder_of_many_files_takes_no_longer_than_at_one(
    started: Callable[..., WorkProcess], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, TOOLS, "crowd")
    process = started(spec)
    call(process, spec, files=30_000)
    folder = Path(process._folder)
    eventually(lambda: len(os.listdir(folder)) >= 30_000, 30.0)
    spent = time.process_time()
    for _ in range(9):
        process.look()
    assert time.process_time() - spent < 0.5


def test_a_worker_that_cannot_fork_says_that_nothing_ran(
    started: Callable[..., WorkProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, TOOLS, "touch")
    first = os.fork
    forked: list[int] = []

    def fork() -> int:
        if forked:
            raise BlockingIOError(11, "no more processes")
        forked.append(0)
        return first()

    monkeypatch.setattr(os, "fork", fork)
    process = started(spec)
    monkeypatch.setattr(os, "fork", first)
    call(process, spec, path=str(tmp_path / "touched"))
    assert is_told_to(process).startswith("touch was not run: its process could not be set up")
    assert process.result().outcome == "unavailable"


def test_a_fork_that_the_server_is_refused_costs_that_call_alone(tmp_path: Path) -> None:
    server = ForkServer("test (fork server)")
    server.start()
    spec = spec_of(tmp_path, TOOLS, "nap")
    folder = make_folder()
    running = WorkProcess(spec, folder, fork=server.fork)
    running.start()
    call(running, spec)
    try:
        import resource

        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NPROC)
        if os.getuid() == 0:
            pytest.skip("root may always fork")
        resource.prlimit(server.pid, resource.RLIMIT_NPROC, (0, hard))
        other = WorkProcess(spec, folder, fork=server.fork)
        with pytest.raises(BlockingIOError):
            other.start()
        assert not running.has_ended
    finally:
        running.end()
        assert running.reap_within(10.0)
        running.close()
        server.close()
        remove_folder(folder)
