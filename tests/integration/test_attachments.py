"""Large results of tools in a running system: whole for who asks, and felt by nobody else."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from callboard.actors.events import (
    ConversationOpened,
    Event,
    StepFinished,
    ToolCallFinished,
    TurnAnswered,
    TurnStarted,
)
from callboard.actors.items import FunctionCall
from callboard.api import Conversation, System
from callboard.cli.app import app
from callboard.errors import Refused
from callboard.history_export import to_json
from callboard.paths import state_dir
from callboard.testing.turns import call, finished_calls
from callboard.tools.content import Attachment, TextBlock

DEADLY = Path(__file__).parent / "deadly_tools.py"
MIB = 1 << 20
WHOLE = b"HEAD" + b"x" * (50 * MIB) + b"TAIL"


@pytest.fixture
def deadly(start: Callable[..., System]) -> System:
    return start(tools={"modules": [str(DEADLY)]})


def finished(conversation: Conversation, **arguments: object) -> ToolCallFinished:
    events = list(conversation.ask(call("big", **arguments)))
    assert events[-1].type == "turn_answered"
    (done,) = finished_calls(events)
    return done


def test_a_result_of_50_mb_is_had_whole_and_neighbours_do_not_notice(
    deadly: System,
) -> None:
    neighbour = deadly.conversation(user="bob", team="blue")
    list(neighbour.ask("hello"))
    turns: list[float] = []
    is_over = threading.Event()

    def chat() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            list(neighbour.ask("hello"))
            turns.append(time.monotonic() - began)

    beside = threading.Thread(target=chat)
    beside.start()
    conversation = deadly.conversation(user="ann", team="red")
    done = finished(conversation, mib=50)
    is_over.set()
    beside.join()
    assert (done.is_error, done.outcome) == (False, "ok")
    (shown,) = done.content
    assert isinstance(shown, TextBlock)
    assert "characters left out …]" in shown.text
    (attachment,) = done.attachments
    assert (attachment.size, attachment.content) == (len(WHOLE), None)
    assert conversation.attachment(attachment.digest) == WHOLE
    assert len(turns) > 2, "a neighbour's turns went on meanwhile"
    assert max(turns) < 15.0, "none of them hung"


def test_contents_are_exported_with_the_history_and_imported_again(deadly: System, tmp_path: Path) -> None:
    conversation = deadly.conversation(user="ann", team="red")
    digest = finished(conversation, mib=3).attachments[0].digest
    events = deadly.whole_history(conversation.id, team="red")
    copy = deadly.import_conversation(events, team="blue")
    assert len(deadly.attachment(copy, digest, team="blue")) == 3 * MIB + 8
    bare = deadly.import_conversation(deadly.history(conversation.id, team="red"), team="red")
    with pytest.raises(Refused, match="no attachment begins with"):
        deadly.attachment(bare, digest, team="red")
    deadly.delete_conversation(conversation.id, team="red")
    assert len(deadly.attachment(copy, digest, team="blue")) == 3 * MIB + 8


def test_a_damaged_content_costs_its_attachment_alone_also_through_the_daemon(
    deadly: System, own_folders: Path
) -> None:
    conversation = deadly.conversation(user="ann", team="red")
    (attachment,) = finished(conversation, mib=1).attachments
    (journal,) = Path(deadly.status().runtime_dir).rglob("journal.sqlite3")
    damage(journal, attachment.pieces[0])
    events = deadly.whole_history(conversation.id, team="red")
    assert [one.attachments for one in finished_calls(events)] == [(attachment,)]
    with pytest.raises(Refused, match="is damaged"):
        deadly.attachment(conversation.id, attachment.digest, team="red")


def damage(journal: Path, digest: str) -> None:
    with closing(sqlite3.connect(journal)) as database, database:
        change = "UPDATE journal_attachments SET content = x'00' WHERE digest = ?"
        assert database.execute(change, (digest,)).rowcount == 1


def drawn(name: str, *attachments: Attachment) -> list[Event]:
    return [
        ConversationOpened(seq=1, conversation_id=name, user="ann", team=""),
        TurnStarted(seq=2, turn_id="t", text="draw"),
        StepFinished(
            seq=3,
            turn_id="t",
            step=1,
            text="",
            calls=(FunctionCall(call_id="c", tool="draw", arguments="{}"),),
        ),
        ToolCallFinished(
            seq=4,
            turn_id="t",
            call_id="c",
            tool="draw",
            is_error=False,
            outcome="ok",
            attachments=attachments,
        ),
        TurnAnswered(seq=5, turn_id="t", text="done"),
    ]


def test_exports_lack_a_damaged_content_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, kept = Attachment.of(b"\x00\xff" * 700_000, "image/png"), Attachment.of(b"kept", "image/png")
    source, moved = tmp_path / "source.json", tmp_path / "moved.jsonl"
    source.write_text(to_json(drawn("c", lost, kept)), encoding="utf-8")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments])

    assert run("history", "import", str(source)).exit_code == 0
    damage(state_dir() / "systems" / "default" / "journal.sqlite3", lost.pieces[1])
    done = run("history", "export", "c")
    named = json.loads(done.stdout)["events"][3]["attachments"]
    assert [one.get("base64") for one in named] == [None, "a2VwdA=="]
    told = f"the content of the attachment {lost.digest[:12]} is damaged, and not in the export"
    assert (done.exit_code, told in done.stderr) == (1, True)
    done = run("journal", "export", str(moved))
    assert (done.exit_code, "1 pieces of attachments are damaged" in done.stderr) == (3, True)
    pieces = [row["piece"] for row in map(json.loads, moved.read_text().splitlines()) if "piece" in row]
    assert len(pieces) == 2, "all others are there"
    monkeypatch.setattr("callboard.cli.history.MAX_BYTES", 100)
    assert "is over the 0 MiB that 'history import' takes" in run("history", "export", "c").stderr


def test_the_command_lists_attachments_and_writes_one_as_it_is(tmp_path: Path) -> None:
    content, name = b"\x00\xff" * 700_000, "a" * 32
    attachment = Attachment.of(content, "image/png")
    config, exported, written = tmp_path / "c.toml", tmp_path / "export.json", tmp_path / "written"
    config.write_text(f'[storage]\npath = "{tmp_path / "state"}"\n', encoding="utf-8")
    exported.write_text(to_json(drawn(name, attachment)), encoding="utf-8")

    def history(*arguments: str) -> Result:
        done = CliRunner().invoke(app, ["history", *arguments, "--config", str(config)])
        assert done.exit_code == 0, done.output
        return done

    history("import", str(exported))
    (listed,) = json.loads(history("attachment", name, "--json").stdout)
    assert (listed["digest"], listed["size"], listed["tool"]) == (attachment.digest, len(content), "draw")
    assert history("attachment", name, attachment.digest[:8]).stdout_bytes == content
    history("attachment", name, attachment.digest, "-o", str(written))
    assert written.read_bytes() == content
    again = history("export", name)
    assert json.loads(again.stdout)["events"][3]["attachments"][0]["base64"]
    unknown = CliRunner().invoke(app, ["history", "attachment", name, "zz", "--config", str(config)])
    assert unknown.exit_code != 0
    assert "no attachment begins with 'zz'" in unknown.stderr
