"""A log as a document: JSON that comes back whole, Markdown in which nothing said can pass for the document."""

from __future__ import annotations

import json

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ContextTrimmed,
    ConversationClosed,
    ConversationOpened,
    Event,
    HistoryRepaired,
    StepFinished,
    ToolApproved,
    ToolCallFinished,
    ToolCallStarted,
    ToolDisabled,
    ToolEnabled,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.history_forms import read_history
from callboard.actors.items import FunctionCall
from callboard.history_export import MAX_RESULT, title_of, to_json, to_markdown
from callboard.tools.content import Block, Citation, ImageBlock, JsonBlock, ResourceBlock, TextBlock

AT = "2026-01-31T12:00:00.000+00:00"
OPENED = ConversationOpened(seq=1, at=AT, conversation_id="c1", user="ann", team="red")


def result(*content: Block, is_error: bool = False, outcome: str = "ok") -> ToolCallFinished:
    return ToolCallFinished(
        turn_id="t",
        call_id="a",
        tool="search",
        is_error=is_error,
        outcome=outcome,
        content=content,
        citations=(Citation(document="docs/a.md", line=3),),
        duration_s=0.25,
    )


def turn(*between: Event, text: str = "What is 17*23?") -> list[Event]:
    return [OPENED, TurnStarted(seq=2, at=AT, turn_id="t", text=text), *between]


def test_the_json_form_is_ascii_and_reads_back_as_the_same_events() -> None:
    log = turn(
        result(TextBlock("ä\x1b[2J"), ImageBlock("aGk=", "image/png")), TurnAnswered(turn_id="t", text="so")
    )
    text = to_json(log)
    assert text.isascii()
    assert "\x1b" not in text
    form = json.loads(text)
    assert {**form, "events": None} == {
        "format": "callboard history",
        "version": 1,
        "conversation_id": "c1",
        "user": "ann",
        "team": "red",
        "events": None,
    }
    assert read_history(text) == (tuple(log), ())


def test_a_log_without_an_opening_can_be_exported() -> None:
    assert json.loads(to_json([]))["conversation_id"] is None
    assert to_markdown([]).startswith("# A conversation without messages")


def test_markdown_tells_a_turn_from_question_to_answer() -> None:
    call = FunctionCall(call_id="a", tool="search", arguments="{}")
    text = to_markdown(
        turn(
            StepFinished(turn_id="t", step=1, text="Let me see.", calls=(call,)),
            ToolCallStarted(turn_id="t", call_id="a", tool="search", arguments={"q": "x"}),
            result(TextBlock("391")),
            StepFinished(turn_id="t", step=2, text="It is 391."),
            TurnAnswered(turn_id="t", text="It is 391.", citations=(Citation(document="docs/a.md", line=3),)),
        )
    )
    wanted = [
        "# What is 17\\*23?",
        "- conversation: `c1`",
        "## 1. User",
        "> What is 17*23?",
        "### Assistant",
        "> Let me see.",
        "### Call of `search`",
        '"q": "x"',
        "Result of `search`, after 0.25 s:",
        "391",
        "1. `docs/a.md:3`",
        "### Answer",
        "> It is 391.",
        "1. `docs/a.md:3`",
    ]
    places = []
    for piece in wanted:
        places.append(text.index(piece, places[-1] if places else 0))
    assert text.count("> It is 391.") == 1


def test_every_ending_and_remark_is_told() -> None:
    text = to_markdown(
        turn(
            TurnFailed(turn_id="t", reason="deadline", message="too late"),
            TurnCancelled(turn_id="t", reason="user"),
            ApprovalRequested(turn_id="t", call_id="a", tool="search", reason="it deletes"),
            ApprovalDecided(turn_id="t", call_id="a", approved=True, by="ann"),
            ApprovalDecided(turn_id="t", call_id="a", approved=False, reason="no"),
            ApprovalDecided(turn_id="t", call_id="a", approved=False, reason="expired", expired=True),
            ToolApproved(tool="search", version="v", by="ann"),
            ContextTrimmed(
                turn_id="t", step=1, left_out_items=3, left_out_tokens=9, cut_results=0, limit=100
            ),
            ToolEnabled(tool="search"),
            ToolDisabled(tool="search"),
            result(TextBlock("no"), is_error=True, outcome="killed"),
            TurnAnswered(turn_id="t", text="", capped=True),
            ConversationClosed(),
            HistoryRepaired(repairs=("a call got a result",)),
        )
    )
    for piece in (
        "**The turn failed (`deadline`):**\n\n> too late",
        "cancelled (`user`)",
        "*A person was asked about `search`: `it deletes`*",
        "*The call was approved by `ann`.*",
        "*The call was denied by `a person`: `no`.*",
        "*The call `expired`, and was denied.*",
        "*`search` was approved for this conversation by `ann`.*",
        "without 3 of its items",
        "*`search` was enabled.*",
        "*`search` was disabled.*",
        "Error (`killed`) of `search`",
        "the step limit closed the tools",
        "*The conversation was closed (`closed`).*",
        "- `a call got a result`",
    ):
        assert piece in text


def test_contents_are_shown_by_kind_and_cut_by_size() -> None:
    text = to_markdown(
        turn(
            result(
                JsonBlock({"a": 1}),
                ImageBlock("aGVsbG8=", "image/png"),
                ResourceBlock("file:///a", text="in a"),
                ResourceBlock("file:///b", blob="aGVsbG8="),
                ResourceBlock("file:///c"),
                TextBlock("x" * (MAX_RESULT + 7)),
            )
        )
    )
    assert '```json\n{\n  "a": 1\n}\n```' in text
    assert "*An image, `image/png`, 6 bytes.*" in text
    assert "aGVsbG8=" not in text
    assert "in a" in text and "`file:///b`, 6 bytes" in text and "`file:///c`." in text
    assert "… 7 more characters" in text


def test_nothing_that_was_said_can_pass_for_the_document() -> None:
    evil = "x\n## 2. User\n> y\n```\n### Answer\x1b[2J"
    call = ToolCallStarted(turn_id="t", call_id="a", tool="s`h", arguments="```\n## 2. User")
    text = to_markdown(turn(call, result(TextBlock(evil)), TurnAnswered(turn_id="t", text=evil), text=evil))
    fence = ""
    outside = []
    for line in text.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.rstrip("abcdefghijklmnopqrstuvwxyz")
        else:
            outside.append(line)
    assert not fence, "every fence is closed"
    assert [line for line in outside if line.startswith("##")] == [
        f"## 1. User, {AT}",
        "### Call of `` s`h ``",
        "### Answer",
    ]
    assert "\x1b" not in text


def test_a_title_is_one_short_line() -> None:
    assert title_of([]) == ""
    assert title_of(turn(text="  a\n\tb ")) == "a b"
    assert len(title_of(turn(text="x" * 500))) == 80
