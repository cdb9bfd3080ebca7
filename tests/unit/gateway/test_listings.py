"""Tools, servers, the tree and the history as lines."""

from __future__ import annotations

import io

import pytest

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    ToolDisabled,
    TurnAnswered,
    TurnCancelled,
    TurnStarted,
)
from callboard.gateway.terminal.listings import (
    history_lines,
    server_lines,
    status_lines,
    tool_lines,
    tool_page,
    tree_lines,
)
from callboard.gateway.terminal.look import Look, look_of
from callboard.gateway.terminal.plain import cells
from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing

LOOK = Look(width=80)
TOOLS = [
    ToolListing(name="zip", state="disabled", reason="its module fails to import"),
    ToolListing(
        name="calculate", description="Evaluate.\nMore.", state="enabled", annotations=("read_only",)
    ),
    ToolListing(name="evil", description="\x1b[2Jx" + "y" * 200),
]


def test_tools_stand_in_the_order_of_their_use() -> None:
    lines = tool_lines(TOOLS, LOOK)
    assert lines[0] == "enabled    calculate  Evaluate."
    assert lines[1].startswith("available  evil       xyyy") and lines[1].endswith("…")
    assert lines[2] == "disabled   zip        its module fails to import"
    assert all(cells(line) <= 80 for line in lines)
    assert tool_lines([], LOOK) == ["There are no tools."]


def test_one_tool_is_told_of_in_full() -> None:
    page = tool_page(TOOLS[1], LOOK)
    assert page[:2] == ["calculate", "Evaluate.\nMore."]
    assert "  says of itself  read_only" in page


def test_a_server_in_trouble_shows_its_error_first() -> None:
    lines = server_lines(
        [
            ServerInfo(name="time", state="ready", pid=7, protocol="2025-11-25", tools=2, last_error="old"),
            ServerInfo(name="bad", state="parked", restarts=5, last_error="exit\ncode 1"),
        ],
        LOOK,
    )
    assert lines == [
        "ready   time  2 tools, pid 7, protocol 2025-11-25",
        "parked  bad   exit code 1, 0 tools, 5 restarts",
    ]
    assert server_lines([], LOOK) == ["No external servers are configured."]


def test_the_tree_is_indented_by_parent() -> None:
    actors = [
        ActorInfo(id="root", kind="root", pid=1),
        ActorInfo(id="conversations", kind="supervisor", pid=2, parent="root"),
        ActorInfo(id="c1", kind="client", pid=3, parent="conversations", restarts=2),
        ActorInfo(id="journal", kind="journal", pid=4, parent="root", state="restarting"),
        ActorInfo(id="lost", kind="client", parent="nobody"),
        ActorInfo(id="own", kind="client", parent="own"),
    ]
    assert tree_lines(actors, LOOK) == [
        "root  pid 1, running",
        "  conversations  supervisor, pid 2, running",
        "    c1  client, pid 3, running, 2 restarts",
        "  journal  pid 4, restarting",
        "lost  client, no process, running",
        "own  client, no process, running",
    ]


def test_a_tree_that_goes_in_a_circle_ends() -> None:
    circle = [ActorInfo(id="a", kind="k", parent="b"), ActorInfo(id="b", kind="k", parent="a")]
    assert tree_lines(circle, LOOK) == []


def test_the_status_says_where_and_since_when() -> None:
    status = SystemStatus(
        name="default",
        pid=5,
        version="0.1.0",
        started_at="2026-01-01T00:00:00Z",
        uptime_s=130,
        config=None,
        runtime_dir="/run/x",
        conversations=2,
    )
    text = "\n".join(status_lines(status, LOOK))
    assert "default is running" in text and "(2 min 10 s)" in text and "none, the defaults" in text


def test_the_history_reads_like_the_dialogue() -> None:
    events: list[Event] = [
        TurnStarted(turn_id="1", text="a\nb"),
        TurnAnswered(turn_id="1", text="x\ny"),
        ToolDisabled(tool="calculate"),
        TurnStarted(turn_id="2", text=""),
        TurnCancelled(turn_id="2"),
    ]
    lines = [line.rstrip() for line in history_lines(events, LOOK)]
    assert lines == ["", "> a", "  b", "x", "y", "calculate was disabled", "", ">", "✗ cancelled"]
    approvals: list[Event] = [
        ApprovalRequested(turn_id="1", call_id="c", tool="wipe", reason="it deletes"),
        ApprovalDecided(turn_id="1", call_id="c", approved=False, by="ann", reason="not \x1b[2Jtoday"),
        ApprovalDecided(turn_id="1", call_id="c", approved=True),
    ]
    assert history_lines(approvals, LOOK) == [
        "wipe waited for a person: it deletes",
        "denied by ann: not today",
        "approved",
    ]
    assert history_lines([], LOOK) == ["Nothing has been said yet."]


class Screen(io.StringIO):
    encoding = "UTF-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
    ],
)
def test_colours_are_for_terminals_that_want_them(environ: dict[str, str], colour: bool) -> None:
    assert look_of(Screen(), environ).colour is colour


def test_a_pipe_is_80_columns_of_plain_text() -> None:
    ascii_pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert look_of(ascii_pipe, {"TERM": "xterm"}) == Look(width=80, colour=False, unicode=False)
