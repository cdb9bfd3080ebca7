"""What the catalogue last described, on disk: its next incarnation goes on with that, and imports nothing anew.

So a crash of the catalogue changes no tool, whatever lies in the users' files by then. A record is good for one life
of the daemon. It decides nothing about tools; the catalogue writes and reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from callboard.tools.contract import ToolSpec
from callboard.tools.describe import spec_from_json, spec_to_json

_DRAFT = ".draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Each module's tools, in the modules' order, and the modules' faults."""

    modules: Mapping[str, tuple[ToolSpec, ...]] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


class CatalogueRecord:
    """The file ``path``; ``life`` tells this life of the daemon from every other; empty, nothing is read."""

    def __init__(self, path: Path, life: str) -> None:
        self._path = path
        self._life = life

    def write(self, recorded: Recorded) -> None:
        """Write it, whole or not at all; raises OSError, and leaves no older one then."""
        tools = {module: [spec_to_json(spec) for spec in specs] for module, specs in recorded.modules.items()}
        form = {"life": self._life, "tools": tools, "faults": dict(recorded.faults)}
        draft = self._path.with_suffix(_DRAFT)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps(form), encoding="ascii")
            draft.replace(self._path)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise

    def read(self) -> Recorded | None:
        """Give what was written in this life; None when nothing was, or it cannot be read."""
        try:
            form = json.loads(self._path.read_bytes())
            if not self._life or form["life"] != self._life:
                return None
            tools = {
                module: tuple(spec_from_json(row) for row in rows) for module, rows in form["tools"].items()
            }
            return Recorded(modules=tools, faults=dict(form["faults"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
