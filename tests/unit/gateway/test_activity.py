"""How events look, row by row, and how a turn's pieces come together."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.events import (
    Event,
    StepFinished,
    TextDelta,
    TextDiscarded,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from callboard.actors.items import FunctionCall
from callboard.gateway.terminal.activity import activity_line, citation_lines, seconds_text
from callboard.gateway.terminal.look import Look
from callboard.gateway.terminal.plain import cells
from callboard.gateway.terminal.turn_text import TurnText
from callboard.tools.content import Citation, ImageBlock, JsonBlock, ResourceBlock, TextBlock

WIDE = Look(width=200)
ASCII = Look(width=200, unicode=False)


def started(arguments: Any, tool: str = "calculate") -> ToolCallStarted:
    return ToolCallStarted(turn_id="t", call_id="c", tool=tool, arguments=arguments)


def finished(*content: Any, outcome: str = "ok", duration_s: float = 0.02) -> ToolCallFinished:
    return ToolCallFinished(
        turn_id="t",
        call_id="c",
        tool="calculate",
        is_error=outcome != "ok",
        outcome=outcome,
        content=content,
        duration_s=duration_s,
    )


@pytest.mark.parametrize(
    ("event", "look", "line"),
    [
        (started({"expression": "17*23"}), WIDE, '▸ calculate {"expression": "17*23"}'),
        (started({"expression": "17*23"}), ASCII, '> calculate {"expression": "17*23"}'),
        (started('{"broken": '), WIDE, '▸ calculate {"broken":'),
        (started({"q": "漢"}), WIDE, '▸ calculate {"q": "漢"}'),
        (started({"a": "\x1b[31m"}, "to\x1b[2Jol"), WIDE, '▸ tool {"a": "\\u001b[31m"}'),
        (started({"expression": "1" * 40}), Look(width=30), '▸ calculate {"expression": "1…'),
        (started({"expression": "1" * 40}), Look(width=30, unicode=False), '> calculate {"expression": ...'),
        (started({}, "n" * 40), Look(width=20), "▸ " + "n" * 17 + "…"),
        (finished(TextBlock("391")), WIDE, "✓ calculate 0.02 s → 391"),
        (finished(TextBlock("391")), ASCII, "+ calculate 0.02 s -> 391"),
        (finished(TextBlock("a\nb\x1b[1A")), WIDE, "✓ calculate 0.02 s → a b"),
        (finished(JsonBlock({"x": 1}), TextBlock("y")), WIDE, '✓ calculate 0.02 s → {"x": 1} y'),
        (finished(ImageBlock("AA", "image/png")), WIDE, "✓ calculate 0.02 s → [image/png]"),
        (finished(ResourceBlock("file:///a")), WIDE, "✓ calculate 0.02 s → [file:///a]"),
        (finished(), WIDE, "✓ calculate 0.02 s →"),
        (finished(TextBlock("bad"), outcome="error"), WIDE, "✗ calculate 0.02 s bad"),
        (
            finished(TextBlock("it took too long"), outcome="deadline", duration_s=2.0),
            WIDE,
            "✗ calculate 2.0 s deadline: it took too long",
        ),
        (
            TurnFailed(turn_id="t", reason="step_cap", message="ten\nsteps"),
            WIDE,
            "✗ the turn failed (step_cap): ten steps",
        ),
        (TurnCancelled(turn_id="t"), WIDE, "✗ cancelled"),
        (TurnCancelled(turn_id="t", reason="owner_gone"), WIDE, "✗ cancelled (its owner is gone)"),
        (TurnResumed(turn_id="t", attempt=2), WIDE, "▸ the turn goes on (life 2)"),
        (TurnStarted(turn_id="t", text="hi"), WIDE, None),
        (TurnAnswered(turn_id="t", text="hi"), WIDE, None),
    ],
)
def test_an_event_is_one_line(event: Event, look: Look, line: str | None) -> None:
    shown = activity_line(event, look)
    assert (shown.rstrip() if shown else shown) == line


def test_colour_never_changes_what_is_read() -> None:
    line = activity_line(started({"a": 1}), Look(colour=True))
    assert line == '\x1b[36m▸\x1b[0m calculate \x1b[2m{"a": 1}\x1b[0m'


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_call_is_wider_than_the_screen(width: int) -> None:
    for event in (
        started({"q": "漢字" * 99}, "tool" * 16),
        finished(TextBlock("x " * 999)),
        finished(outcome="killed"),
    ):
        assert cells(activity_line(event, Look(width=width)) or "") <= width


def test_sources_are_numbered_and_named_once() -> None:
    twice = Citation(document="docs/a.md", line=12, line_end=20)
    citations = [
        twice,
        Citation(url="http://x"),
        twice,
        Citation(document="b.pdf", page=3),
        Citation(record_id="r7"),
    ]
    assert citation_lines([*citations, Citation(document="c", line=4, line_end=4), Citation()], WIDE) == [
        "[1] docs/a.md:12-20",
        "[2] http://x",
        "[3] b.pdf, page 3",
        "[4] r7",
        "[5] c:4",
        "[6] an unnamed source",
    ]


def test_durations_are_readable() -> None:
    assert [seconds_text(s) for s in (0, 0.016, 2, 99.9, 125)] == [
        "0.00 s",
        "0.02 s",
        "2.0 s",
        "99.9 s",
        "2 min 5 s",
    ]


CALLS = (FunctionCall(call_id="c", tool="calculate", arguments="{}"),)


def delta(text: str) -> TextDelta:
    return TextDelta(turn_id="t", text=text)


def step(text: str, calls: tuple[FunctionCall, ...] = ()) -> StepFinished:
    return StepFinished(turn_id="t", step=1, text=text, calls=calls)


def answered(text: str, **more: Any) -> TurnAnswered:
    return TurnAnswered(turn_id="t", text=text, **more)


def written(events: list[Event], *, streaming: bool) -> tuple[str, str]:
    turn = TurnText(WIDE, streaming=streaming)
    pieces = [piece for event in events for piece in turn.feed(event)] + turn.end()
    return tuple("".join(p.text for p in pieces if p.channel == c) for c in ("answer", "activity"))  # type: ignore


CALLED = [
    delta("Let me "),
    delta("see."),
    step("Let me see.", CALLS),
    started({}),
    finished(TextBlock("391")),
]
LOST = TextDiscarded(turn_id="t", reason="killed")


@pytest.mark.parametrize(
    ("events", "streamed", "piped"),
    [
        ([delta("39"), delta("1"), step("391"), answered("391")], "391\n", "391\n"),
        ([step("391"), answered("391")], "391\n", "391\n"),
        ([answered("391")], "391\n", "391\n"),
        ([delta("39"), answered("391")], "391\n", "391\n"),
        ([delta("391\n"), answered("391\n")], "391\n", "391\n"),
        ([delta("391\n"), answered("391")], "391\n", "391\n"),
        ([*CALLED, delta("391"), step("391"), answered("391")], "Let me see.\n391\n", "391\n"),
        ([delta("3"), LOST, delta("391"), answered("391")], "3\n391\n", "391\n"),
        (
            [delta("3"), TurnResumed(turn_id="t", attempt=1), delta("391"), answered("391")],
            "3\n391\n",
            "391\n",
        ),
        ([delta("wrong"), answered("391")], "wrong\n391\n", "391\n"),
        ([delta("3"), TurnFailed(turn_id="t", reason="model", message="m")], "3\n", ""),
        ([delta("3")], "3\n", ""),
        ([delta("\x1b]0;t\x07ok"), answered("\x1b]0;t\x07ok")], "ok\n", "ok\n"),
        ([answered("")], "", ""),
    ],
)
def test_the_answer_is_shown_once_however_it_comes(events: list[Event], streamed: str, piped: str) -> None:
    assert written(events, streaming=True)[0] == streamed
    assert written(events, streaming=False)[0] == piped


def test_what_is_not_the_answer_stands_beside_it() -> None:
    sources = (Citation(document="a.md", line=1),)
    events: list[Event] = [*CALLED, answered("391", citations=sources, capped=True)]
    activity = (
        "▸ calculate {}\n✓ calculate 0.02 s → 391\n✗ the step limit closed the tools before this answer\n"
        "[1] a.md:1\n"
    )
    assert written(events, streaming=True)[1] == activity
    assert written(events, streaming=False)[1] == "Let me see.\n" + activity


@pytest.mark.parametrize(
    ("streaming", "before", "told"), [(True, "Hel", True), (True, "", False), (False, "Hel", False)]
)
def test_discarded_text_is_told_only_where_it_was_shown(streaming: bool, before: str, told: bool) -> None:
    turn = TurnText(WIDE, streaming=streaming)
    if before:
        turn.feed(TextDelta(turn_id="t", text=before))
    said = "".join(piece.text for piece in turn.feed(TextDiscarded(turn_id="t", reason="model_lost")))
    assert ("the text above does not count" in said) == told
