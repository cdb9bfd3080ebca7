"""A decision on a call as lines of text, a layer a line; and a call's progress.

Pure; what is refused is said whole, the rest within the look's width. ``callboard tools call`` shows
them on standard error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callboard.gateway.terminal.look import Look, Paint
from callboard.gateway.terminal.plain import cells, cut, one_line, pad
from callboard.tools.content import Progress
from callboard.tools.decision_layers import Layer, Verdict

_NAME_WIDTH = 12
_PAINTS: Mapping[Verdict, Paint] = {"passed": "green", "refused": "red", "not asked": "dim"}


def decision_lines(layers: Iterable[Layer], look: Look) -> list[str]:
    """Give one line for each layer: a mark, its name, and what it said."""
    marks: Mapping[Verdict, str] = {"passed": look.good, "refused": look.bad, "not asked": "-"}
    lines = []
    for layer in layers:
        told = layer.reason or ("not asked" if layer.verdict == "not asked" else "")
        head = f"{marks[layer.verdict]} {pad(layer.name, _NAME_WIDTH)}"
        rest = one_line(told)
        if layer.verdict != "refused":
            rest = cut(rest, look.width - cells(head) - 2, look.ellipsis)
        lines.append(f"{look.paint(head, _PAINTS[layer.verdict])}  {rest}".rstrip())
    return lines


def progress_line(progress: Progress, look: Look) -> str:
    """Give the line that tells how far a call is."""
    share = "" if progress.fraction is None else f"{progress.fraction * 100:.0f} %"
    told = "  ".join(filter(None, (share, one_line(progress.text))))
    return look.paint(cut(f"{look.started} {told}", look.width, look.ellipsis), "dim")
