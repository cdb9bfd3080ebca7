"""The daemon's secrets, in its environment and its configuration, come up nowhere else: each place is searched."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import callboard
from callboard.api import System
from callboard.cli.app import app
from callboard.config import Config, load_config
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, texts

TOOLS = Path(__file__).parent / "secret_tools.py"
CANARY = "canary-"
SAYS_IT = "import os, sys; print('no access with', os.environ['SERVER_TOKEN'], file=sys.stderr); sys.exit(3)"
ANSWERS_IT = """
import json, os, sys
request = json.loads(sys.stdin.readline())
error = {"code": -32000, "message": "no access with " + os.environ["SERVER_TOKEN"]}
while request:
    print(json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": error}), flush=True)
    line = sys.stdin.readline()
    request = json.loads(line) if line else None
"""


def server(code: str) -> dict[str, object]:
    return {
        "command": sys.executable,
        "args": ["-c", code],
        "env": {"SERVER_TOKEN": f"{CANARY}server-0123456789"},
    }


@pytest.fixture
def configuration(model: ScriptedModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Secrets in the environment, alone and referred to, and in the configuration itself."""
    monkeypatch.setenv("SOME_API_KEY", f"{CANARY}environment-0123456789")
    monkeypatch.setenv("MODEL_KEY", f"{CANARY}referenced-0123456789")
    fallback = {"base_url": model.base_url, "name": "spare", "api_key": f"{CANARY}fallback-0123456789"}
    form = {
        "model": {
            "base_url": model.base_url,
            "name": "scripted",
            "api_key": "${MODEL_KEY}",
            "fallback": fallback,
        },
        "tools": {"modules": [str(TOOLS)]},
        "approval": {"never": ["*"]},
        "mcpServers": {"dies": server(SAYS_IT), "refuses": server(ANSWERS_IT)},
    }
    file = tmp_path / "callboard.json"
    file.write_text(json.dumps(form), encoding="utf-8")
    return load_config(file)


@pytest.fixture
def guarded(configuration: Config) -> Iterator[System]:
    with callboard.connect(config=configuration, private=True) as system:
        yield system


@pytest.mark.parametrize("tool", ["search_confined", "search_isolated", "environment_plain"])
def test_a_tool_finds_no_secret_in_its_environment_or_behind_a_profile_in_its_memory(
    guarded: System, tool: str
) -> None:
    assert texts(list(guarded.conversation().ask(call(tool)))) == ["{}"]


def test_no_secret_is_in_a_file_a_list_a_log_or_a_models_message(
    guarded: System, model: ScriptedModelServer, own_folders: Path
) -> None:
    conversation = guarded.conversation()
    list(conversation.ask(call("environment_plain")))
    failed = eventually(
        lambda: [s for s in guarded.servers() if s.last_error and "no access" in s.last_error][1:],
        30,
        "both failed",
    )
    assert failed
    runtime = Path(guarded.status().runtime_dir)
    places = {
        "servers": repr(guarded.servers()),
        "tools": repr(guarded.tools()),
        "tree": repr(guarded.tree()),
    }
    places |= {"status": repr(guarded.status()), "history": repr(conversation.history())}
    for number, request in enumerate(model.requests):
        places[f"request {number}"] = json.dumps(request.body)
    for path in [*runtime.rglob("*"), *own_folders.rglob("*")]:
        if path.is_file():
            places[str(path)] = path.read_bytes().decode("utf-8", "replace")
    assert "[SERVER_TOKEN]" in places["servers"]
    assert any("[SERVER_TOKEN]" in text for place, text in places.items() if place.endswith("log.jsonl"))
    assert [place for place, text in places.items() if CANARY in text] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "sandbox"],
        ["servers", "--json"],
        ["tools", "--json"],
        ["tree", "--json"],
        ["history", "list"],
    ],
)
def test_no_command_prints_a_secret(configuration: Config, tmp_path: Path, arguments: list[str]) -> None:
    takes_config = arguments[0] not in ("doctor", "tree")
    config = ["--config", str(tmp_path / "callboard.json")] if takes_config else []
    done = CliRunner().invoke(app, [*arguments, *config])
    assert done.exit_code in (0, 1, 3), done.output
    assert CANARY not in done.output + done.stderr


def test_a_configuration_that_is_shown_hides_what_is_secret_in_it(configuration: Config) -> None:
    assert os.environ["MODEL_KEY"].startswith(CANARY)
    assert CANARY not in repr(configuration)
