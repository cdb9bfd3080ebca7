"""Whoever forks a worker, its call ends the same; and nothing depends on the fork server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from callboard.actors.messages import Work
from callboard.run_worker import keep
from callboard.testing.turns import eventually
from callboard.tools.content import TextBlock, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.fork_server import ForkServer, Order
from callboard.tools.loader import specs_of

TOOLS = '''
import os, signal
from callboard import tool

@tool
def parents() -> str:
    """Say who forked the worker."""
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[1]

@tool
def leave(code: int) -> str:
    """Exit."""
    os._exit(code)

@tool
def die(number: int) -> str:
    """End by a signal."""
    signal.signal(number, signal.SIG_DFL) if number != 9 else None
    os.kill(os.getpid(), number)
    return "not reached"

@tool
def kill_parent() -> str:
    """End the worker."""
    os.kill(os.getppid(), 9)
    signal.pause()
    return "not reached"
'''


@pytest.fixture
def specs(tmp_path: Path) -> dict[str, ToolSpec]:
    file = tmp_path / "forked_tools.py"
    file.write_text(TOOLS)
    return {spec.name: spec for spec in specs_of(str(file))}


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    server = ForkServer("test (fork server)")
    server.start()
    yield server
    server.close()


def run(forks: ForkServer, spec: ToolSpec, **arguments: object) -> str:
    never_r, never_w = os.pipe()
    try:
        work = Work(spec=spec, arguments=arguments, context=ToolContext(), deadline_s=20.0)
        result = keep(work, never_r, lambda _progress: None, forks.fork)
    finally:
        os.close(never_r)
        os.close(never_w)
    assert isinstance(result, ToolResult)
    (block,) = result.content
    assert isinstance(block, TextBlock)
    return block.text


def test_the_server_forks_and_nothing_is_left_below_it(forks: ForkServer, specs: dict[str, ToolSpec]) -> None:
    assert run(forks, specs["parents"]) == str(forks.pid)
    eventually(lambda: not psutil.Process(forks.pid).children())


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("leave", {"code": 0}, "exited with code 0"),
        ("leave", {"code": 255}, "exited with code 255"),
        ("die", {"number": 11}, "killed by SIGSEGV"),
        ("die", {"number": 9}, "killed by SIGKILL"),
        ("die", {"number": 13}, "killed by SIGPIPE"),
        ("kill_parent", {}, "killed by SIGKILL"),
    ],
)
def test_how_a_call_ended_is_told_without_being_its_parent(
    forks: ForkServer, specs: dict[str, ToolSpec], tool: str, arguments: dict[str, object], said: str
) -> None:
    assert said in run(forks, specs[tool], **arguments)


def test_a_server_that_was_killed_is_missed_by_no_call(forks: ForkServer, specs: dict[str, ToolSpec]) -> None:
    os.kill(forks.pid, signal.SIGKILL)
    assert run(forks, specs["parents"]) == str(os.getpid())
    assert forks.pid == 0
    forks.start()
    assert run(forks, specs["parents"]) == str(forks.pid)


def test_a_server_that_is_stuck_is_ended(forks: ForkServer, specs: dict[str, ToolSpec]) -> None:
    pid = forks.pid
    os.kill(pid, signal.SIGSTOP)
    assert run(forks, specs["parents"]) == str(os.getpid())
    assert not psutil.pid_exists(pid)


def test_an_order_that_is_too_long_for_it_is_carried_out_here(
    forks: ForkServer, specs: dict[str, ToolSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_LONG", "x" * 100_000)
    monkeypatch.setenv("LC_LONGER", "x" * 100_000)
    monkeypatch.setenv("LC_LONGEST", "x" * 100_000)
    assert run(forks, specs["parents"]) == str(os.getpid())


def test_the_server_ends_when_nobody_can_order_any_more(specs: dict[str, ToolSpec]) -> None:
    server = ForkServer("test (fork server)")
    server.start()
    pid = server.pid
    server.close()
    assert not psutil.pid_exists(pid)
    assert run(server, specs["parents"]) == str(os.getpid())


def test_an_order_survives_its_way() -> None:
    order = Order(title="a (b)", folder="/x", command=("x", "ü"), environment={"A": "ü"}, setup_bytes=7)
    assert Order.from_json(order.to_json()) == order
