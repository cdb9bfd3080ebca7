"""Tools of external servers have the same rights and duties as local ones: progress, pinned definitions, one call."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.actors.events import (
    Event,
    ToolCallStarted,
    ToolPinned,
    ToolProgress,
)
from callboard.api import System
from callboard.config import load_config
from callboard.errors import Refused
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, last_call, texts, until_asked

SERVER = Path(__file__).parent / "changing_server.py"
ADD: dict[str, Any] = {
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}},
    "annotations": {"destructiveHint": False},
}
HARMLESS: dict[str, Any] = {"annotations": {"destructiveHint": False}}


@dataclass
class Desk:
    """A system with the changing server under the name ``desk``."""

    system: System
    folder: Path

    def define(self, version: str = "1", **tools: Any) -> None:
        """Write what the server's tools are from the next listing on."""
        write_definitions(self.folder, version, **tools)

    def renew(self) -> None:
        """Have the server announce a changed list, and wait until it is known."""
        before = self._digests()
        list(self.system.conversation(user="op").ask(call("desk__renew")))
        eventually(lambda: self._digests() != before, what="the changed tools")

    def restart(self) -> None:
        """Kill the server, and wait for its successor."""
        before = self.system.servers()[0]
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        eventually(
            lambda: (s := self.system.servers()[0]).state == "ready" and s.pid != before.pid,
            within_s=20.0,
            what="the server again",
        )

    def effects(self) -> list[str]:
        """Give the calls that the server carried out."""
        file = self.folder / "effects"
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def _digests(self) -> list[Any]:
        return [(tool.name, tool.description, dict(tool.parameters)) for tool in self.system.tools()]


def write_definitions(folder: Path, version: str = "1", **tools: Any) -> None:
    plain = dict.fromkeys(("renew", "tell", "flood"), HARMLESS)
    form = {"version": version, "tools": {"add": ADD, **plain, **tools}}
    (folder / "definitions.json").write_text(json.dumps(form), encoding="utf-8")


@pytest.fixture
def desk(model: ScriptedModelServer, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Start a private system with the changing server, trusted so."""
    systems: list[System] = []

    def start(trust: str = "annotations", more: str = "") -> Desk:
        write_definitions(tmp_path)
        argv = [sys.executable, str(SERVER), str(tmp_path / "definitions.json"), str(tmp_path / "effects")]
        never = "" if "[approval]" in more else '[approval]\nnever = ["desk__renew"]\n'
        file = tmp_path / "callboard.toml"
        file.write_text(f'[servers.desk]\ncommand = {json.dumps(argv)}\ntrust = "{trust}"\n{more}\n{never}')
        config = load_config(file).with_flags(base_url=model.base_url, model="scripted", api_key="test")
        systems.append(callboard.connect(config=config, private=True))
        return Desk(systems[-1], tmp_path)

    yield start
    for system in systems:
        system.close()


def _shown(model: ScriptedModelServer, tool: str) -> dict[str, Any]:
    """Give a tool's definition in the last request to the model."""
    tools = [entry["function"] for entry in model.requests[-1].body["tools"]]
    return next(entry for entry in tools if entry["name"] == tool)


def _tells(*readings: dict[str, Any], **more: Any) -> str:
    return call("desk__tell", readings=list(readings), **more)


# ------------------------------------------------------------ progress
def test_a_servers_progress_is_live_news_as_a_local_tools_is(desk: Callable[..., Desk]) -> None:
    question = _tells(
        {"progress": 1, "total": 4, "message": "one\u200b of four"},
        {"progress": 2, "total": 4},
        {"progress": 3},
        between_s=0.2,
    )
    events = list(desk().system.conversation().ask(question))
    told = [(event.text, event.fraction) for event in events if isinstance(event, ToolProgress)]
    assert told == [("one of four", 0.25), ("2/4", 0.5), ("3", None)]
    assert all(event.call_id for event in events if isinstance(event, ToolProgress))
    assert last_call(events).outcome == "ok"


def test_progress_is_throttled_and_the_last_of_it_is_told(desk: Callable[..., Desk]) -> None:
    question = _tells(*[{"progress": number, "total": 30} for number in range(1, 31)])
    events = list(desk().system.conversation().ask(question))
    told = [event.text for event in events if isinstance(event, ToolProgress)]
    assert told[-1] == "30/30"
    assert len(told) < 10


def test_progress_of_no_call_or_going_backwards_is_dropped(desk: Callable[..., Desk]) -> None:
    here = desk()
    question = _tells(
        {"progress": 1, "token": 987_654},
        {"progress": 1, "token": "nobody's"},
        {"progress": 5},
        {"progress": 4, "message": "backwards"},
        {"progress": 5, "message": "no further"},
        {"progress": "six"},
        between_s=0.06,
    )
    events = list(here.system.conversation().ask(question))
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["5"]
    assert last_call(events).outcome == "ok"
    here.restart()
    log = (Path(here.system.status().runtime_dir) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    counted = [line for entry in log if (line := json.loads(entry))["event"] == "server_oddities"]
    assert [line["progress_dropped"] for line in counted] == [5]


def test_progress_does_not_move_the_deadline(desk: Callable[..., Desk]) -> None:
    readings = [{"progress": number} for number in range(1, 100)]
    conversation = desk().system.conversation()
    events = list(conversation.ask(_tells(*readings, between_s=0.05), tool_deadline_s=0.6))
    assert last_call(events).outcome == "deadline"
    assert any(isinstance(event, ToolProgress) for event in events)
    assert last_call(events).duration_s < 2.0


def test_a_flood_of_progress_delays_neither_its_call_nor_other_conversations(
    desk: Callable[..., Desk],
) -> None:
    system = desk().system
    list(system.conversation().ask(call("desk__add", a=1)))
    flooding, calm = system.conversation(), system.conversation()
    events: list[Event] = []
    flood = threading.Thread(target=lambda: events.extend(flooding.ask(call("desk__flood", count=100_000))))
    began = time.monotonic()
    flood.start()
    waits: list[float] = []
    while flood.is_alive() and len(waits) < 1000:
        at = time.monotonic()
        assert texts(list(calm.ask(call("calculate", expression="1+1"))))
        waits.append(time.monotonic() - at)
    flood.join(timeout=30)
    took_s = time.monotonic() - began
    assert last_call(events).outcome == "ok"
    told = [event for event in events if isinstance(event, ToolProgress)]
    assert told[-1].text == "reading 100000"
    assert len(told) < 22 * took_s + 5
    assert took_s < 60
    assert max(waits) < 5.0
    print(
        f"flood: {took_s:.2f} s, {len(told)} told; beside it {len(waits)} turns, at most {max(waits):.2f} s"
    )


# ------------------------------------------------------------ pinned definitions
def test_a_changed_tool_is_shown_as_it_was_and_runs_when_a_person_approved_of_the_change(
    desk: Callable[..., Desk], model: ScriptedModelServer
) -> None:
    here = desk()
    conversation = here.system.conversation(user="ann", team="red")
    assert last_call(list(conversation.ask(call("desk__add", a=1)))).outcome == "ok"
    (pin,) = [event for event in conversation.history() if isinstance(event, ToolPinned)]
    assert (pin.tool, pin.description) == ("desk__add", "Add two numbers.")
    here.define(add={**ADD, "description": "Add two numbers!"})
    here.renew()

    row = next(tool for tool in conversation.tools() if tool.name == "desk__add")
    assert row.state == "disabled"
    assert row.reason.startswith("tool_changed: ")
    assert pin.version[:12] in row.reason
    turn = conversation.ask(call("desk__add", a=2))
    asked = until_asked(turn)
    assert asked.reason.startswith("tool_changed: ")
    assert 'numbers.", and is "' in asked.reason
    assert _shown(model, "desk__add")["description"] == "Add two numbers."
    conversation.deny(asked.call_id, "who changed it?")
    denied = last_call(list(turn))
    assert (denied.outcome, "tool_changed" in denied.decision) == ("denied", True)
    assert here.effects().count("add") == 1

    turn = conversation.ask(call("desk__add", a=3))
    conversation.approve(until_asked(turn).call_id)
    assert last_call(list(turn)).outcome == "ok"
    assert last_call(list(conversation.ask(call("desk__add", a=4)))).outcome == "ok"
    assert _shown(model, "desk__add")["description"] == "Add two numbers!"
    pins = [event for event in conversation.history() if isinstance(event, ToolPinned)]
    assert [one.description for one in pins] == ["Add two numbers.", "Add two numbers!"]
    assert pins[1].version[:12] in asked.reason
    assert {tool.name: tool.state for tool in conversation.tools()}["desk__add"] == "enabled"


@pytest.mark.parametrize("trust", ["ask", "annotations"])
def test_a_change_is_seen_after_a_restart_of_the_server_and_of_the_client(
    desk: Callable[..., Desk], trust: str
) -> None:
    here = desk(trust)
    conversation = here.system.conversation()
    turn = conversation.ask(call("desk__add", a=1))
    if trust == "ask":
        conversation.approve(until_asked(turn).call_id)
    assert last_call(list(turn)).outcome == "ok"
    changed = {**ADD["inputSchema"], "required": ["b"]}
    here.define(add={**ADD, "inputSchema": changed})
    here.restart()
    client = next(actor for actor in here.system.tree() if actor.kind == "client")
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    turn = conversation.ask(call("desk__add", a=1))
    asked = until_asked(turn)
    assert "required" in asked.reason
    conversation.approve(asked.call_id)
    misfit = last_call(list(turn))
    assert misfit.is_error
    assert '"b" is required' in texts([misfit])[0]
    assert here.effects() == ["add"]
    assert last_call(list(conversation.ask(call("desk__add", a=1, b=2)))).outcome == "ok"


def test_another_version_of_the_server_is_a_change_and_the_same_one_is_none(
    desk: Callable[..., Desk],
) -> None:
    here = desk()
    conversation = here.system.conversation()
    assert last_call(list(conversation.ask(call("desk__add", a=1)))).outcome == "ok"
    here.restart()
    assert last_call(list(conversation.ask(call("desk__add", a=1)))).outcome == "ok"
    here.define(version="2")
    here.restart()
    turn = conversation.ask(call("desk__add", a=1))
    assert "its server's version" in until_asked(turn).reason
    conversation.cancel()
    list(turn)


def test_a_server_that_is_trusted_whatever_it_does_may_change_its_tools(
    desk: Callable[..., Desk], model: ScriptedModelServer
) -> None:
    here = desk("allow", "[approval]")
    conversation = here.system.conversation()
    list(conversation.ask(call("desk__add", a=1)))
    here.define(add={**ADD, "description": "Add them."})
    here.renew()
    assert last_call(list(conversation.ask(call("desk__add", a=1)))).outcome == "ok"
    assert _shown(model, "desk__add")["description"] == "Add them."
    assert not any(isinstance(event, ToolPinned) for event in conversation.history())


# ------------------------------------------------------------ approvals that expire
def test_an_approval_that_nobody_gives_in_time_is_denied_and_cannot_be_given_late(
    desk: Callable[..., Desk],
) -> None:
    here = desk("ask", "[approval]\nexpires_s = 1")
    conversation = here.system.conversation()
    began = time.monotonic()
    turn = conversation.ask(call("desk__add", a=1))
    asked = until_asked(turn)
    events = list(turn)
    assert time.monotonic() - began > 0.9
    assert events[-1].type == "turn_answered"
    refused = last_call(events)
    assert refused.outcome == "denied"
    assert "expired unanswered after 1 s" in texts([refused])[0]
    with pytest.raises(Refused, match=r"too late.*expired unanswered"):
        conversation.approve(asked.call_id)
    assert here.effects() == []


def test_a_turn_that_waited_too_long_without_a_client_goes_on_with_the_denial(
    desk: Callable[..., Desk],
) -> None:
    here = desk("ask", "[approval]\nexpires_s = 4")
    conversation = here.system.conversation()
    asked = until_asked(conversation.ask(call("desk__add", a=1)))
    eventually(lambda: conversation.history()[-1].type == "turn_suspended")
    client = next(actor for actor in here.system.tree() if actor.kind == "client")
    assert client.pid is not None
    os.kill(client.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    eventually(lambda: time.monotonic() - stopped_at > 4.1, what="the time is over")
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(Refused, match="expired unanswered after 4 s"):
        conversation.approve(asked.call_id)
    eventually(lambda: conversation.history()[-1].type == "turn_answered")
    started = [event for event in conversation.history() if isinstance(event, ToolCallStarted)]
    assert (started, here.effects()) == ([], [])
