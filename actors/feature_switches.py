"""Feature flags as the embedding service switched them at run time, kept in a small file over restarts.

The catalogue owns it. What a flag means, and who decides by it, is in ``tools/features.py``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

FILE_NAME = "features.json"
MAX_SWITCHES = 10_000


class FeatureSwitches:
    """The switches by (flag, team), ``""`` being all teams. ``fault`` says why a file that is there was not read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self.fault = ""
        self._switches = self._read()

    @property
    def switches(self) -> Mapping[tuple[str, str], bool]:
        """The switches as they are."""
        return dict(self._switches)

    def switch(self, name: str, team: str, enabled: bool | None) -> None:
        """Set one switch, or with None take it away, and write it down. Raises OSError, and then nothing changed."""
        changed = {key: value for key, value in self._switches.items() if key != (name, team)}
        if enabled is not None:
            changed[name, team] = enabled
        if len(changed) > MAX_SWITCHES:
            raise OSError(f"at most {MAX_SWITCHES} switches can be kept")
        self._write(changed)
        self._switches = changed

    def _read(self) -> dict[tuple[str, str], bool]:
        try:
            form = json.loads(self._path.read_text("utf-8"))
            return {(str(name), str(team)): bool(enabled) for name, team, enabled in form["switches"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as fault:
            self.fault = f"{self._path}: cannot be read ({fault}); all flags are as configured"
            return {}

    def _write(self, switches: Mapping[tuple[str, str], bool]) -> None:
        handle, draft = tempfile.mkstemp(dir=self._path.parent, prefix=".features-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                rows = [[name, team, enabled] for (name, team), enabled in sorted(switches.items())]
                json.dump({"version": 1, "switches": rows}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            Path(draft).replace(self._path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
