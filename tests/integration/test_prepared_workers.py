"""Workers that stand prepared, in a running system: they take the next call, and nothing that was not decided."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callboard.api import ActorInfo, Conversation, System
from callboard.supervisor.process import kill
from callboard.testing.model_script import RecordedRequest, Reply, obey
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, texts

TOOLS = '''
import os
from callboard import tool

@tool
def who(text: str = "") -> str:
    """Say which process this is, and which is its parent."""
    return f"{os.getppid()}"

@tool
def other() -> str:
    """Be another tool."""
    return "other"
'''


class Thoughtful:
    """A model that thinks until it is let, when it is told to think."""

    def __init__(self) -> None:
        self.thinks = False
        self.let = threading.Event()

    def __call__(self, request: RecordedRequest) -> Reply:
        if self.thinks:
            self.let.wait(20.0)
        return obey(request)

    def turn(self, conversation: Conversation, tool: str) -> Callable[[], list[str]]:
        """Have the tool called, and think; gives what lets the turn go on, and gives its results."""
        self.thinks = True
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.extend(texts(conversation.ask(call(tool)))))
        asking.start()

        def go_on() -> list[str]:
            self.let.set()
            asking.join(20.0)
            return found

        return go_on


@pytest.fixture
def thoughtful() -> Thoughtful:
    return Thoughtful()


@pytest.fixture
def model(thoughtful: Thoughtful) -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer(rule=thoughtful) as server:
        yield server


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "who_tools.py"
    file.write_text(TOOLS)
    return file


@pytest.fixture
def prepared_system(start: Callable[..., System], module: Path) -> System:
    return start(tools={"modules": [str(module)]}, limits={"prepared_workers": 2})


@pytest.fixture
def conversation(prepared_system: System) -> Conversation:
    """A conversation whose last call was of ``who``; the workers of that turn are gone."""
    conversation = prepared_system.conversation()
    assert len(texts(conversation.ask(call("who")))) == 1
    eventually(lambda: not workers(prepared_system))
    return conversation


def workers(system: System) -> list[ActorInfo]:
    return [row for row in system.tree() if row.kind == "tool_worker"]


def waiting(system: System) -> list[ActorInfo]:
    return [row for row in workers(system) if row.state == "prepared"]


def test_a_worker_stands_ready_while_the_model_thinks_and_takes_the_call(
    prepared_system: System, conversation: Conversation, thoughtful: Thoughtful
) -> None:
    turn = thoughtful.turn(conversation, "who")
    (worker,) = eventually(lambda: waiting(prepared_system))
    found = turn()
    assert found == [str(worker.pid)]
    eventually(lambda: not workers(prepared_system))


def test_a_wrong_guess_is_ended_with_its_turn(
    prepared_system: System, conversation: Conversation, thoughtful: Thoughtful
) -> None:
    turn = thoughtful.turn(conversation, "other")
    eventually(lambda: waiting(prepared_system))
    found = turn()
    assert found == ["other"]
    eventually(lambda: not workers(prepared_system))


def test_a_call_that_is_refused_meanwhile_takes_no_worker(
    prepared_system: System, conversation: Conversation, thoughtful: Thoughtful
) -> None:
    turn = thoughtful.turn(conversation, "who")
    (worker,) = eventually(lambda: waiting(prepared_system))
    conversation.disable("who")
    found = turn()
    assert len(found) == 1
    assert str(worker.pid) not in found[0]
    assert "not enabled" in found[0]
    eventually(lambda: not workers(prepared_system))


def test_new_code_is_not_run_by_a_worker_that_loaded_the_old(
    prepared_system: System, conversation: Conversation, thoughtful: Thoughtful, module: Path
) -> None:
    turn = thoughtful.turn(conversation, "who")
    eventually(lambda: waiting(prepared_system))
    module.write_text(TOOLS.replace('f"{os.getppid()}"', '"the new code"'))
    prepared_system.reload()
    found = turn()
    assert found == ["the new code"]


def test_a_worker_that_died_while_it_stood_ready_is_missed_by_nobody(
    prepared_system: System, conversation: Conversation, thoughtful: Thoughtful
) -> None:
    turn = thoughtful.turn(conversation, "who")
    (worker,) = eventually(lambda: waiting(prepared_system))
    assert worker.pid is not None
    kill(worker.pid)
    eventually(lambda: not waiting(prepared_system))
    found = turn()
    assert len(found) == 1
    assert found[0].isdigit()
    assert found != [str(worker.pid)]
