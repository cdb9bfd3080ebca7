"""What runs is what was described, on a real daemon: whatever becomes of the file, until a reload takes it up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import callboard
from callboard.actors.events import ApprovalRequested
from callboard.api import Conversation, System
from callboard.config import load_config
from callboard.paths import runtime_dir
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, texts
from callboard.tools.sandbox_host import host, try_isolated
from callboard.tools.sandbox_plan import lacks

TOOLS = '''
from callboard import tool

@tool
def greet() -> str:
    """Greet."""
    return "the old code"

@tool(destructive=True)
def wipe(path: str) -> str:
    """Wipe a path."""
    with open(path, "w") as file:
        file.write("the old code")
    return "wiped"
'''
NEW = TOOLS.replace("the old", "the new")
BROKEN = {
    "def broken(:": "SyntaxError",
    "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)": "killed by SIGSEGV",
    "": "holds no tools",
}


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file of tools."""
    file = tmp_path / "tools.py"
    file.write_text(TOOLS)
    return file


@pytest.fixture
def config(module: Path, tmp_path: Path, model: ScriptedModelServer) -> Path:
    """A configuration with that file, which is by no name on Python's path."""
    file = tmp_path / "callboard.toml"
    file.write_text(
        f'[model]\nbase_url = "{model.base_url}"\nname = "m"\napi_key = "k"\n\n[tools]\nmodules = ["{module}"]\n'
    )
    return file


@pytest.fixture
def open_private(config: Path) -> Iterator[Callable[[], System]]:
    """Start a private system with the configuration as it is."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(callboard.connect(config=load_config(config), private=True))


def _greeting(conversation: Conversation) -> str:
    (text,) = texts(list(conversation.ask(call("greet"))))
    return str(text)


def _pid(system: System, id: str) -> int | None:
    return next((actor.pid for actor in system.tree() if (actor.id, actor.state) == (id, "running")), None)


def _kill(system: System, id: str = "catalogue") -> None:
    """Kill an actor, the catalogue or one above it, and wait for the next catalogue."""
    before = _pid(system, "catalogue")
    killed = _pid(system, id)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: _pid(system, "catalogue") not in (None, before), 30.0, "a new catalogue")


def test_an_edit_runs_when_it_is_reloaded_and_a_module_that_breaks_goes_on_as_it_was(
    open_private: Callable[[], System], module: Path, tmp_path: Path
) -> None:
    system = open_private()
    conversation = system.conversation()
    module.write_text(NEW)
    assert _greeting(conversation) == "the old code"
    for source, words in BROKEN.items():
        module.write_text(source)
        assert _greeting(conversation) == "the old code"
        report = system.reload()
        assert (report.changed, report.removed) == ((), ())
        assert words in report.faults[0][1]
        assert "the tools that it had stay: greet, wipe" in report.faults[0][1]
        assert _greeting(conversation) == "the old code"
    module.unlink()
    assert "no such file" in system.reload().faults[0][1]
    _kill(system)
    assert _greeting(conversation) == "the old code"
    listed = {tool.name: tool.reason for tool in system.tools()}
    assert "no such file" in listed[str(module)]
    module.write_text(NEW)
    _kill(system, "root")
    assert _greeting(conversation) == "the old code"
    report = system.reload()
    assert (report.changed, report.faults) == (("greet", "wipe"), ())
    assert _greeting(conversation) == "the new code"
    _kill(system)
    assert _greeting(conversation) == "the new code"


def test_a_reload_that_is_asked_for_while_one_runs_sees_what_was_edited_before_it(
    open_private: Callable[[], System], module: Path, tmp_path: Path
) -> None:
    system = open_private()
    read, go_on = tmp_path / "read", tmp_path / "go_on"
    module.write_text(
        "import time\nfrom pathlib import Path\n"
        f"Path({str(read)!r}).touch()\n"
        f"while not Path({str(go_on)!r}).exists():\n    time.sleep(0.01)\n" + TOOLS
    )
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(system.reload)
        eventually(read.exists, 20.0, "the first reload has read the module")
        module.write_text(NEW.replace("greet", "welcome"))
        second = threads.submit(system.reload)
        eventually(lambda: second.running(), 5.0)
        for _ in range(5):  # its request is with the catalogue by now
            system.tools()
        go_on.touch()
        assert first.result(20.0).changed == ("greet", "wipe")
        assert second.result(20.0).added == ("welcome",)


def test_an_approval_is_of_the_code_that_then_runs(
    open_private: Callable[[], System], module: Path, tmp_path: Path
) -> None:
    system = open_private()
    conversation = system.conversation()
    target = tmp_path / "effects"
    turn = conversation.ask(call("wipe", path=str(target)))
    asked = next(event for event in turn if isinstance(event, ApprovalRequested))
    module.write_text(NEW)
    conversation.approve(asked.call_id)
    list(turn)
    assert target.read_text() == "the old code"


def _missing(profile: str) -> str | None:
    found = host()
    said = lacks(profile, found)
    if said is None and profile == "isolated" and found.bubblewrap is not None:
        said = try_isolated(found.bubblewrap)
    return said


def test_a_tool_in_a_sandbox_runs_as_it_was_described_too(
    open_private: Callable[[], System], module: Path, config: Path
) -> None:
    profiles = [profile for profile in ("confined", "isolated") if _missing(profile) is None]
    if not profiles:
        pytest.skip(f"{_missing('confined')}; {_missing('isolated')}")
    one = 'from callboard import tool\n\n@tool(sandbox="{0}")\ndef {0}() -> str:\n    return "the old code"\n'
    files = [module.with_name(f"{profile}.py") for profile in profiles]
    for file in files:
        file.write_text(one.format(file.stem))
    config.write_text(config.read_text().replace(f'["{module}"]', str([str(file) for file in files])))
    conversation = open_private().conversation()
    for file in files:
        file.unlink() if file is files[0] else file.write_text("1 / 0")
        assert texts(list(conversation.ask(call(file.stem)))) == ["the old code"]


def test_a_new_daemon_knows_nothing_of_the_old_code(config: Path, module: Path) -> None:
    folder = runtime_dir("default")
    kept = folder / "tools"

    def serve() -> subprocess.Popen[bytes]:
        (folder / "system.json").unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "callboard", "serve", "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: (folder / "system.json").exists(), 30.0, "the daemon is up")
        return process

    first = serve()
    below = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    psutil.wait_procs(below, timeout=10)
    assert len(list(kept.iterdir())) == 2
    module.write_text("def broken(:")
    second = serve()
    try:
        with callboard.connect(private=False) as system:
            listed = {tool.name: tool.reason for tool in system.tools()}
            assert "greet" not in listed
            assert "SyntaxError" in listed[str(module)]
            assert [file.name for file in kept.iterdir()] == ["described.json"]
            module.write_text(NEW)
            assert system.reload().added == ("greet", "wipe")
            assert _greeting(system.conversation()) == "the new code"
    finally:
        second.terminate()
        assert second.wait(20) == 0
    assert not kept.exists()
