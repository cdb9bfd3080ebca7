"""The adversarial MCP server, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from callboard.testing import mcp_server


def talk(*messages: dict[str, Any], mode: str = "") -> list[Any]:
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    argv = [sys.executable, "-m", "callboard.testing.mcp_server", "--mode", mode]
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, timeout=20, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_runs_as_a_module_and_echoes() -> None:
    params = {"name": "echo", "arguments": {"text": "hi"}}
    initialize, call = talk(
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"id": "two", "method": "tools/call", "params": params},
    )
    assert initialize["result"]["protocolVersion"] == "2025-06-18"
    assert call == {"jsonrpc": "2.0", "id": "two", "result": {"content": [{"type": "text", "text": "hi"}]}}


def test_every_mode_is_documented_and_an_unknown_one_is_refused_by_name() -> None:
    documentation = str(mcp_server.__doc__)
    assert [mode for mode in mcp_server.MODES if mode not in documentation] == []
    argv = mcp_server.command("legacy", "nonsense")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "unknown modes nonsense" in done.stderr
