"""What a careless or hostile caller sends costs that caller an error, and nobody else anything."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import callboard
from callboard.api import Conversation, System
from callboard.config import Config
from callboard.errors import ConversationNotFound, Refused, Unavailable
from callboard.supervisor.table import ProcessTable
from callboard.testing.chaos.bomb import Bomb
from callboard.testing.turns import call, eventually, is_written, texts


def restarts(system: System) -> int:
    return sum(row.restarts for row in system.tree())


@pytest.mark.parametrize(
    ("text", "options"),
    [(5, {}), (None, {}), ("x" * (1024 * 1024 + 1), {}), ("x", {"deadline_s": 0}), ("x", {"deadline_s": "5"}),
     ("x", {"tool_deadline_s": float("nan")})],
)  # fmt: skip
def test_a_request_that_cannot_be_taken_is_refused_and_leaves_no_trace(
    conversation: Conversation, system: System, text: object, options: dict[str, object]
) -> None:
    with pytest.raises(Refused):
        list(conversation.ask(text, **options))  # type: ignore[arg-type]
    assert list(conversation.ask("good"))[-1].type == "turn_answered"
    assert [e.type for e in conversation.history()].count("turn_started") == 1
    assert restarts(system) == 0


@pytest.mark.parametrize("bad", [7, "", "a/b", "x" * 65, "ä"])
def test_a_bad_conversation_id_is_refused(system: System, bad: object) -> None:
    for _ in range(3):
        with pytest.raises((Refused, TypeError)):
            system.conversation(conversation_id=bad or "a b")  # type: ignore[arg-type]
    assert list(system.conversation().ask("good"))[-1].type == "turn_answered"
    assert restarts(system) == 0


@pytest.mark.parametrize("to", ["directory", "catalogue", "journal"])
def test_a_command_that_crashes_its_actor_is_answered_and_not_sent_again(system: System, to: str) -> None:
    """Repeated to each successor, one bad command would be an outage for everybody."""
    with pytest.raises(Unavailable, match="a bomb went off"):
        system._request(Bomb("raise"), to=to)
    eventually(lambda: restarts(system) == 1, what="one restart, and no more")
    assert list(system.conversation().ask("good"))[-1].type == "turn_answered"
    assert restarts(system) == 1


def test_a_conversation_that_must_exist_is_not_made_up(system: System) -> None:
    with pytest.raises(ConversationNotFound):
        system.conversation(conversation_id="new", create=False)
    system.conversation(conversation_id="new")
    assert system.conversation(conversation_id="new", create=False).id == "new"


def test_a_start_that_fails_after_the_first_is_tried_again(configured: Callable[..., Config]) -> None:
    """SIGKILL of root, and then of a supervisor of the next tree while it starts."""
    with callboard.connect(config=configured(), private=True) as system:
        folder = Path(system.status().runtime_dir)
        table = ProcessTable(folder)
        root = table.get("root")
        assert root is not None and root.pid is not None
        os.kill(root.pid, signal.SIGKILL)

        def starting() -> bool:
            row = table.get("models")
            if row is None or row.state != "starting" or row.pid is None:
                return False
            os.kill(row.pid, signal.SIGKILL)
            return True

        eventually(starting, 20.0, "the next tree's supervisor starts")
        assert list(system.conversation().ask("good"))[-1].type == "turn_answered"
        assert json.loads((folder / "system.json").read_text())["lives"] >= 3


@pytest.mark.parametrize("where", ["end", "beginning"])
def test_a_damaged_log_is_said_and_no_turn_of_it_is_run_again(
    where: str, start: Callable[..., System], tmp_path: Path
) -> None:
    system = start(storage={"path": str(tmp_path / "state")})
    conversation = system.conversation(conversation_id="damaged", linked=False)
    note = tmp_path / "note"
    for event in conversation.ask(call("note_down", path=str(note), text="once", seconds=60)):
        if event.type == "tool_call_started":
            eventually(lambda: is_written(note))
            break
    folder = Path(system.status().runtime_dir)
    system.close()
    spoiled = "seq = 1" if where == "beginning" else "seq = (SELECT max(seq) FROM journal_events)"
    with closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite3")) as database, database:
        database.execute(f"UPDATE journal_events SET body = body || ' ' WHERE {spoiled}")
    assert not folder.exists()
    again = start(storage={"path": str(tmp_path / "state")})
    if where == "beginning":
        with pytest.raises((Unavailable, Refused), match="damaged"):
            again.conversation(conversation_id="damaged", linked=False)
    else:
        conversation = again.conversation(conversation_id="damaged", linked=False)
        ended = eventually(lambda: [e for e in conversation.history() if e.terminal])
        assert [e.reason for e in ended] == ["log_damaged"]  # type: ignore[attr-defined]
    assert note.read_text().splitlines() == ["once"]


def test_a_huge_result_is_cut_and_the_conversation_goes_on(conversation: Conversation) -> None:
    events = list(conversation.ask(call("flood", kib=4096)))
    assert events[-1].type == "turn_answered"
    (text,) = texts(events)
    assert len(text) < 300 * 1024
    assert "left out" in text
    assert texts(list(conversation.ask(call("say", text="after")))) == ["said after"]


@pytest.mark.parametrize("kind", ["huge_int", "bad_citations", "object"])
def test_a_result_that_cannot_be_kept_is_an_error_result(
    conversation: Conversation, system: System, kind: str
) -> None:
    events = list(conversation.ask(call("odd_result", kind=kind)))
    assert events[-1].type == "turn_answered"
    assert [e.outcome for e in events if e.type == "tool_call_finished"] == ["error"]  # type: ignore[attr-defined]
    assert restarts(system) == 0
