"""The documentation's diagram is the machine's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.turn_diagram import DiagramError, diagram, listing, with_table
from callboard.actors.turn_table import TRANSITIONS, Phase

PAGE = Path(__file__).parents[3] / "docs" / "turn.md"


def test_the_documentation_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run python -m callboard.actors.turn_diagram docs/turn.md"


def test_every_way_is_drawn_and_listed() -> None:
    drawn, listed = diagram(), listing()
    for (phase, given), targets in TRANSITIONS.items():
        for to in targets - {phase}:
            lines = [
                line for line in drawn.splitlines() if f"--> {to.name}" in line and given.__name__ in line
            ]
            assert any(line.split()[0] in (phase.name, "open") for line in lines), (phase, given, to)
    for phase in Phase:
        assert phase.name in drawn
        assert f"| {phase.name} | {phase.shown} | {phase.meaning} |" in listed


def test_a_page_without_the_markers_is_refused() -> None:
    with pytest.raises(DiagramError, match="lacks the markers"):
        with_table("# A page")
