"""What a server's forms become here."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.mcp_content import change_since, progress_of, specs_of_server
from callboard.tools.content import Progress
from callboard.transports import mcp_effects

TOOL: dict[str, Any] = {"name": "x", "description": "X.", "inputSchema": {"type": "object"}}
ORIGIN = ("node", "server.js", "disk", "1.0")


def _version(tool: dict[str, Any], origin: tuple[str, ...] = ORIGIN) -> str:
    (spec,) = specs_of_server("disk", [tool], call_deadline_s=1.0, trusted=False, origin=origin)
    return spec.digest


@pytest.mark.parametrize(
    "change",
    [
        {"description": "X!"},
        {"title": "X"},
        {"inputSchema": {"type": "object", "required": []}},
        {"annotations": {"readOnlyHint": True}},
        {"outputSchema": {"type": "object"}},
        {"_meta": {"a": 1}},
    ],
)
def test_any_field_of_a_definition_is_in_its_version(change: dict[str, Any]) -> None:
    assert _version({**TOOL, **change}) != _version(TOOL)
    assert _version({**TOOL, **change}) == _version(
        {**change, **{k: v for k, v in TOOL.items() if k not in change}}
    )


@pytest.mark.parametrize("origin", [(), (*ORIGIN[:3], "1.1"), ("node", "other.js", "disk", "1.0")])
def test_the_program_that_a_tool_is_of_is_in_its_version(origin: tuple[str, ...]) -> None:
    assert _version(TOOL, origin) != _version(TOOL)


def test_a_call_is_made_of_the_version_that_was_decided_on_or_not_at_all() -> None:
    specs = specs_of_server("disk", [TOOL], call_deadline_s=1.0, trusted=False, origin=ORIGIN)
    assert change_since(specs, "x", _version(TOOL)) is None
    assert change_since(specs, "x", "") is None
    assert "tool_changed" in str(change_since(specs, "x", _version({**TOOL, "description": "X!"})))
    assert "tool_changed" in str(change_since((), "x", _version(TOOL)))


@pytest.mark.parametrize(
    ("progress", "total", "message", "told"),
    [
        (1.0, 4.0, "a quarter", Progress("a quarter", 0.25)),
        (1.0, 4.0, None, Progress("1/4", 0.25)),
        (2.5, None, None, Progress("2.5", None)),
        (5.0, 4.0, None, Progress("5/4", 1.0)),
        (-1.0, 4.0, "", Progress("-1/4", 0.0)),
        (1.0, 0.0, None, Progress("1", None)),
        (1.0, None, "in\u202evisible\x1b[2J", Progress("invisible[2J", None)),
        (1.0, None, "x" * 1000, Progress("x" * 200, None)),
    ],
)
def test_progress_has_a_text_and_a_fraction_where_there_is_a_total(
    progress: float, total: float | None, message: str | None, told: Progress
) -> None:
    assert progress_of(mcp_effects.Progress("1", progress, total, message)) == told
