"""A package with tools is found by its entry point, and its permissions, flag and approval work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import callboard
from callboard.actors.events import ApprovalRequested, Event
from callboard.api import Conversation, System
from callboard.config import load_config
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, finished_calls, texts

EXAMPLE = Path(__file__).parents[2] / "examples" / "tool_package"


def _install(site: Path) -> None:
    """Do what an installer does: the package, and its metadata beside it."""
    shutil.copytree(EXAMPLE / "warehouse_tools", site / "warehouse_tools")
    metadata = site / "warehouse_tools-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: warehouse-tools\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[callboard.tools]\nwarehouse = warehouse_tools.tools\n")


@pytest.fixture
def warehouse(
    model: ScriptedModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[System, Path]]:
    site, stock = tmp_path / "site", tmp_path / "stock.json"
    _install(site)
    stock.write_text(json.dumps({"bolt": 40, "gold": 3}))
    text = (EXAMPLE / "callboard.toml").read_text().replace("/tmp/stock.json", str(stock))
    (tmp_path / "callboard.toml").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(site))
    config = load_config(tmp_path / "callboard.toml").with_flags(
        base_url=model.base_url, model="scripted", api_key="test"
    )
    with callboard.connect(config=config, private=True) as system:
        yield system, stock


def _decisions(events: list[Event]) -> str:
    return finished_calls(events)[-1].decision


def _scrap(conversation: Conversation, article: str, pieces: int) -> list[Event]:
    turn = conversation.ask(call("scrap_article", article=article, pieces=pieces))
    events: list[Event] = []
    for event in turn:
        events.append(event)
        if isinstance(event, ApprovalRequested):
            conversation.approve(event.call_id)
    return events


def test_the_example_package_works_as_its_configuration_says(warehouse: tuple[System, Path]) -> None:
    system, stock = warehouse
    clerk = system.conversation(user="kim", team="stock", roles=["clerk"])
    visitor = system.conversation(user="lee", team="stock")
    assert texts(list(clerk.ask(call("count_stock", article="bolt")))) == ['{"bolt": 40}']
    assert "does not match the pattern" in texts(list(clerk.ask(call("count_stock", article="BOLT"))))[0]
    assert texts(_scrap(clerk, "bolt", 2)) == ["38 pieces of bolt are left"]
    assert "at most 5" in _decisions(_scrap(clerk, "bolt", 6))
    assert _decisions(_scrap(clerk, "gold", 1)).startswith("not_permitted")
    assert _decisions(list(visitor.ask('force scrap_article {"article": "bolt", "pieces": 1}'))).startswith(
        "not_permitted"
    )
    assert _decisions(list(clerk.ask("force forecast {}"))).startswith("feature_off")
    planner = system.conversation(user="pat", team="planning")
    assert "not configured" in texts(list(planner.ask(call("forecast"))))[0]
    assert json.loads(stock.read_text()) == {"bolt": 38, "gold": 3}
