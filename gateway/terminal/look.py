"""How things may look on one terminal: its width, whether it has colours, which marks it can print.

``Look`` is a value; ``look_of`` reads it off a stream and the environment once. It prints nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

Paint: TypeAlias = Literal["dim", "bold", "green", "red", "yellow", "cyan"]

_CODES: Mapping[Paint, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Width in columns, and what the terminal can do."""

    width: int = 80
    colour: bool = False
    unicode: bool = True

    @property
    def started(self) -> str:
        """The mark of a call that starts."""
        return "▸" if self.unicode else ">"

    @property
    def good(self) -> str:
        """The mark of what went well."""
        return "✓" if self.unicode else "+"

    @property
    def bad(self) -> str:
        """The mark of what failed."""
        return "✗" if self.unicode else "x"

    @property
    def arrow(self) -> str:
        """What stands between a call and its result."""
        return "→" if self.unicode else "->"

    @property
    def ellipsis(self) -> str:
        """What stands for text that was cut off."""
        return "…" if self.unicode else "..."

    def paint(self, text: str, paint: Paint) -> str:
        """Give ``text`` coloured, or as it is where there are no colours. Cut it first, paint it last."""
        return f"\x1b[{_CODES[paint]}m{text}\x1b[0m" if self.colour and text else text


def look_of(stream: TextIO, environ: Mapping[str, str]) -> Look:
    """Read off what ``stream`` can show: no colour when piped, under NO_COLOR or on a dumb terminal."""
    tty = stream.isatty()
    colour = tty and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") not in ("", "dumb")
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    width = shutil.get_terminal_size((80, 24)).columns if tty else 80
    return Look(width=max(20, width), colour=colour, unicode=encoding.startswith("utf"))
