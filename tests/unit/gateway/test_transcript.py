"""The list of conversations, and one of them as it was."""

from __future__ import annotations

from callboard.actors.events import (
    ConversationOpened,
    Event,
    HistoryRepaired,
    StepFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnStarted,
)
from callboard.actors.items import FunctionCall
from callboard.gateway.terminal.look import Look
from callboard.gateway.terminal.plain import cells
from callboard.gateway.terminal.transcript import conversation_lines, time_text, transcript_lines
from callboard.views import ConversationInfo

LOOK = Look(width=80)
AT = "2026-01-31T13:00:00.123+01:00"
LONG_ID = "5f0c1e4cf7de4c6b8cbbf1b5a0e0b9a1"


def test_a_list_shows_whole_ids_and_cuts_titles() -> None:
    lines = conversation_lines(
        [
            ConversationInfo(conversation_id=LONG_ID, updated_at=AT, turns=12, title="\x1b[2Jx" + "y" * 200),
            ConversationInfo(conversation_id="two", updated_at=AT, state="suspended", title="hi"),
        ],
        LOOK,
    )
    assert lines[0].split() == ["ID", "STATE", "UPDATED", "TURNS", "TITLE"]
    assert lines[1].startswith(f"{LONG_ID}  open       2026-01-31 12:00  12     xy") and lines[1].endswith(
        "…"
    )
    assert lines[2].split() == ["two", "suspended", "2026-01-31", "12:00", "0", "hi"]
    assert all(cells(line) <= 80 for line in lines)
    assert conversation_lines([], LOOK) == ["There are no conversations."]


def test_a_list_has_colours_where_the_terminal_has_them() -> None:
    (head, row) = conversation_lines([ConversationInfo(conversation_id="c")], Look(colour=True))
    assert head.startswith("\x1b[2mID") and "\x1b[32mopen " in row


def test_a_transcript_tells_whose_it_is_and_when_each_question_came() -> None:
    call = FunctionCall(call_id="a", tool="sum", arguments="{}")
    events: list[Event] = [
        ConversationOpened(conversation_id="c", user="ann", team="red", at=AT),
        TurnStarted(turn_id="t", text="a\x1b[2J\nb", at=AT),
        StepFinished(turn_id="t", step=1, text="Let me see.", calls=(call,)),
        ToolCallStarted(turn_id="t", call_id="a", tool="sum", arguments={}),
        StepFinished(turn_id="t", step=2, text="so"),
        TurnAnswered(turn_id="t", text="so"),
        HistoryRepaired(repairs=("a call had no\x9b2J result",)),
    ]
    assert transcript_lines(events, LOOK) == [
        "conversation c",
        "user ann, team red, template default, opened 2026-01-31 12:00:00Z",
        "",
        "2026-01-31 12:00:00Z",
        "> a",
        "  b",
        "Let me see.",
        "▸ sum {}",
        "so",
        "repaired: a call had no result",
    ]
    assert transcript_lines([], LOOK) == ["Nothing has been said yet."]


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert time_text("yester\x1b[2Jday") == "yesterday"
    assert time_text("2026-01-31T12:00:00") == "2026-01-31 12:00:00Z"
