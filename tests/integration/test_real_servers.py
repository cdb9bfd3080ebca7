"""Two real MCP servers: ``mcp-server-time`` from PyPI and ``server-everything`` from npm.

They are found by ``CALLBOARD_TEST_TIME_SERVER`` (a command) and ``CALLBOARD_TEST_EVERYTHING`` (a script for node).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

import pytest

from callboard.actors.events import ToolProgress
from callboard.api import System
from callboard.testing.turns import call, finished_calls, texts

TIME = os.environ.get("CALLBOARD_TEST_TIME_SERVER", "")
EVERYTHING = os.environ.get("CALLBOARD_TEST_EVERYTHING", "")
needs_time = pytest.mark.skipif(not TIME, reason="CALLBOARD_TEST_TIME_SERVER names no mcp-server-time")
needs_everything = pytest.mark.skipif(
    not EVERYTHING or shutil.which("node") is None,
    reason="CALLBOARD_TEST_EVERYTHING names no server-everything, or there is no node",
)


@needs_time
def test_the_time_server_speaks_the_newest_revision_and_answers(start: Callable[..., System]) -> None:
    system = start(mcpServers={"time": {"command": TIME, "args": ["--local-timezone", "UTC"]}})
    conversation = system.conversation()
    events = list(conversation.ask(call("time__get_current_time", timezone="Asia/Tokyo")))
    assert json.loads(texts(events)[0])["timezone"] == "Asia/Tokyo"
    server = system.servers()[0]
    assert (server.state, server.protocol, server.tools) == ("ready", "2026-07-28", 2)
    bad = list(conversation.ask(call("time__get_current_time", timezone="Mars/Olympus")))
    assert [e.is_error for e in finished_calls(bad)] == [True]
    assert bad[-1].type == "turn_answered"


@needs_everything
def test_the_everything_server_answers_beside_a_local_tool(start: Callable[..., System]) -> None:
    everything = {"command": "node", "args": [EVERYTHING, "stdio"]}
    system = start(mcpServers={"everything": everything})
    conversation = system.conversation()
    question = "\n".join([call("everything__echo", message="hi"), call("say", text="both")])
    events = list(conversation.ask(question))
    assert sorted(texts(events)) == ["Echo: hi", "said both"]
    image = list(conversation.ask(call("everything__get-tiny-image")))
    kinds = [type(block).__name__ for block in finished_calls(image)[0].content]
    assert "ImageBlock" in kinds
    assert system.servers()[0].protocol == "2025-11-25"


@needs_everything
def test_the_everything_servers_long_operation_tells_its_progress(start: Callable[..., System]) -> None:
    everything = {"command": "node", "args": [EVERYTHING, "stdio"]}
    conversation = start(mcpServers={"everything": everything}).conversation()
    events = list(conversation.ask(call("everything__trigger-long-running-operation", duration=1, steps=4)))
    told = [(event.text, event.fraction) for event in events if isinstance(event, ToolProgress)]
    assert told == [("1/4", 0.25), ("2/4", 0.5), ("3/4", 0.75), ("4/4", 1.0)]
    assert [e.outcome for e in finished_calls(events)] == ["ok"]


@needs_time
@needs_everything
def test_both_at_once_under_names_of_their_own(start: Callable[..., System]) -> None:
    servers = {
        "time": {"command": TIME},
        "everything": {"command": "node", "args": [EVERYTHING, "stdio"]},
        "nowhere": {"command": "/no/such/command"},
    }
    system = start(mcpServers=servers)
    question = "\n".join(
        [call("time__get_current_time", timezone="UTC"), call("everything__echo", message="x")]
    )
    events = list(system.conversation().ask(question))
    assert [e.outcome for e in finished_calls(events)] == ["ok", "ok"]
    states = {server.name: server for server in system.servers()}
    assert states["nowhere"].state in ("failed", "restarting", "parked")
    assert "/no/such/command" in (states["nowhere"].last_error or "")
