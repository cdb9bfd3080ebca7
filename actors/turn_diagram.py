"""The turn machine's table as a diagram and as a list, for docs/turn.md: ``python -m callboard.actors.turn_diagram``.

Pure, but for the command itself: with a file as its argument it puts both between the markers in it, and without one
prints them. A test compares the document with what comes out here.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from callboard.actors.turn_inputs import Input
from callboard.actors.turn_table import OPEN_PHASES, TRANSITIONS, Phase

_BEGIN = "<!-- from the table: begin -->"
_END = "<!-- from the table: end -->"
_ENDS = (Phase.ENDED, Phase.LEFT)


class DiagramError(ValueError):
    """The document has no place for the diagram."""


def diagram() -> str:
    """Draw the phases in Mermaid; what leads out of (nearly) all open phases is drawn once, from them together."""
    inner: dict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    outer: dict[Phase, list[str]] = defaultdict(list)
    for (phase, given), targets in TRANSITIONS.items():
        for to in targets - {phase}:
            is_common = phase in OPEN_PHASES and _is_common(given, to)
            names = outer[to] if is_common else inner[phase, to]
            if given.__name__ not in names:
                names.append(given.__name__)
    inner = dict(sorted(inner.items(), key=lambda item: [list(Phase).index(phase) for phase in item[0]]))
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.NEW.name}", "    state open {"]
    lines += [
        _edge(edge, names, "        ") for edge, names in inner.items() if set(edge) <= set(OPEN_PHASES)
    ]
    lines += ["    }"]
    lines += [_edge(edge, names) for edge, names in inner.items() if not set(edge) <= set(OPEN_PHASES)]
    lines += [f"    open --> {to.name}: {', '.join(names)}" for to, names in outer.items()]
    lines += [f"    {phase.name} --> [*]" for phase in _ENDS]
    return "\n".join(["```mermaid", *lines, "```"])


def _is_common(given: type[Input], to: Phase) -> bool:
    """True where but one open phase at most knows no such way out."""
    ways = sum(to in TRANSITIONS.get((phase, given), ()) for phase in OPEN_PHASES)
    return to not in OPEN_PHASES and ways >= len(OPEN_PHASES) - 1


def _edge(edge: tuple[Phase, Phase], names: list[str], indent: str = "    ") -> str:
    return f"{indent}{edge[0].name} --> {edge[1].name}: {', '.join(names)}"


def listing() -> str:
    """List the whole table: for each phase what it means, which inputs count, and where each may lead."""
    rows = ["| phase | shown as | meaning | input | may lead to |", "| --- | --- | --- | --- | --- |"]
    for phase in Phase:
        about = f"| {phase.name} | {phase.shown} | {phase.meaning} |"
        inputs = [(given, to) for (row, given), to in TRANSITIONS.items() if row is phase]
        for given, targets in inputs:
            to = ", ".join(p.name for p in Phase if p in targets)
            rows.append(f"{about} {given.__name__} | {to} |")
            about = "| | | |"
        if not inputs:
            rows.append(f"{about} | |")
    return "\n".join(rows)


def with_table(document: str) -> str:
    """Give the document with diagram and list between its markers; raises DiagramError where it has none."""
    before, begin, rest = document.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise DiagramError(f"the document lacks the markers {_BEGIN} and {_END}")
    return f"{before}{begin}\n{diagram()}\n\n{listing()}\n{end}{after}"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.stdout.write(f"{diagram()}\n\n{listing()}\n")
    else:
        page = Path(sys.argv[1])
        page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
