"""The registry's mark: a file that says its version, so that to know it for the one that is known costs a look.

The catalogue writes it before it answers whatever changed the registry. Whoever finds the version that he knows need
not ask; where there is no mark, everybody asks.
"""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "registry"
_VERSION_BYTES = 64


class RegistryMark:
    """The mark of the system in ``runtime_dir``."""

    def __init__(self, runtime_dir: str) -> None:
        self._path = os.fspath(Path(runtime_dir) / _NAME)

    def put(self, version: str) -> None:
        """Set the mark; raises OSError, and then there is none: one that is out of date would be believed."""
        draft = Path(f"{self._path}.new")
        try:
            draft.write_text(version, encoding="ascii")
            draft.replace(self._path)
        except OSError:
            self._spoil()
            raise

    def _spoil(self) -> None:
        try:
            self.remove()
        except OSError:
            os.truncate(self._path, 0)

    def remove(self) -> None:
        """Have everybody ask."""
        Path(self._path).unlink(missing_ok=True)

    def version(self) -> str:
        """Give the registry's version; empty when there is no mark."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.read(fd, _VERSION_BYTES).decode("ascii", "replace")
        finally:
            os.close(fd)
