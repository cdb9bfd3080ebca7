"""Large results of tools in a running system: whole for who asks, and felt by nobody else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from callboard.actors.events import (
    ConversationOpened,
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
    assert max(turns) < 2.0, "the longest of a neighbour's turns meanwhile"


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


def test_the_command_lists_attachments_and_writes_one_as_it_is(tmp_path: Path) -> None:
    content, name = b"\x00\xff" * 700_000, "a" * 32
    attachment = Attachment.of(content, "image/png")
    config, exported, written = tmp_path / "c.toml", tmp_path / "export.json", tmp_path / "written"
    config.write_text(f'[storage]\npath = "{tmp_path / "state"}"\n', encoding="utf-8")
    events = [
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
            attachments=(attachment,),
        ),
        TurnAnswered(seq=5, turn_id="t", text="done"),
    ]
    exported.write_text(to_json(events), encoding="utf-8")

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
