"""A scripted model over real HTTP, and systems that use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import callboard
from callboard.api import Conversation, System
from callboard.config import Config, default_config, load_config
from callboard.testing.model_server import ScriptedModelServer

TOOLS = Path(__file__).parent / "some_tools.py"


@pytest.fixture
def model() -> Iterator[ScriptedModelServer]:
    """A model that calls what the user's text tells it to, and then answers with the results."""
    with ScriptedModelServer() as server:
        yield server


@pytest.fixture
def configured(model: ScriptedModelServer, tmp_path: Path) -> Callable[..., Config]:
    """Make a configuration for the scripted model and the test tools; ``servers`` in the hosts' form."""

    def make(**extra: object) -> Config:
        if not extra:
            config = default_config({})
        else:
            file = tmp_path / "callboard.json"
            form = {"tools": {}, "approval": {"never": ["*"]}, **extra}
            file.write_text(json.dumps(form), encoding="utf-8")
            config = load_config(file)
        return config.with_flags(
            base_url=model.base_url, model="scripted", api_key="test", tools_from=[TOOLS]
        )

    return make


@pytest.fixture
def start(configured: Callable[..., Config]) -> Iterator[Callable[..., System]]:
    """Start a private system; it is ended with the test."""
    with ExitStack() as stack:
        yield lambda **extra: stack.enter_context(callboard.connect(config=configured(**extra), private=True))


@pytest.fixture
def system(start: Callable[..., System]) -> System:
    """A private system with the test tools."""
    return start()


@pytest.fixture
def conversation(system: System) -> Conversation:
    """A conversation in it."""
    return system.conversation(user="ann", team="red")
