"""The sources of tool modules as they were described: kept in a folder, one file each, so that calls run just these.

A file's name is the digest of the source and of where it came from; beside the source it holds what that compiles to,
so that no call compiles. What no spec names any more stays an hour for calls that wait for a place, within a bound. The
catalogue writes, in the system's private runtime folder; who starts a call's process reads. Nothing is imported here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1024 * 1024
"""A module of which there is more to keep is loaded from disk, and refused once it differs."""
GRACE_S = 3600.0
MAX_RETIRED_BYTES = 32 * MAX_BYTES
_DRAFT = ".draft"
_DRAFT_S = 60.0
_DIGEST_CHARS = 64


@dataclass(frozen=True, slots=True)
class KeptSource:
    """A module's source, and what it compiles to for one version of Python; empty where that is to be done anew."""

    source: bytes
    compiled: bytes = b""

    def to_bytes(self) -> bytes:
        """Give the form in which it is kept."""
        return b"%d\n%b%b" % (len(self.source), self.source, self.compiled)

    @classmethod
    def from_bytes(cls, kept: bytes) -> KeptSource:
        """Read ``to_bytes``'s form; raises ValueError."""
        length, _, rest = kept.partition(b"\n")
        end = int(length)
        return cls(source=rest[:end], compiled=rest[end:])


def digest_of(origin: str, source: bytes) -> str:
    """Give the name under which the source of the file ``origin`` is kept."""
    return hashlib.sha256(os.fsencode(origin) + b"\0" + source).hexdigest()


def read_kept(path: str) -> bytes | None:
    """Give what is kept at ``path``; None when it is not there."""
    try:
        return Path(path).read_bytes() if path else None
    except OSError:
        return None


class KeptSources:
    """The folder of one system's catalogue, made when it is needed, with mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> str:
        """Say where the source with this digest is, if it is kept; raises ValueError for what is none."""
        if len(digest) != _DIGEST_CHARS or not digest.isalnum():
            raise ValueError(f"not a digest: {digest[:80]!r}")
        return os.fspath(self.folder / digest)

    def keep(self, digest: str, content: bytes) -> None:
        """Keep ``content``, whole or not at all; raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path(digest)
        draft = f"{path}{_DRAFT}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
            os.replace(draft, path)  # noqa: PTH105
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise

    def renew(self, paths: Iterable[str]) -> None:
        """Count the hour of grace of these from now on; of those that are still named, it does not run."""
        for path in paths:
            try:
                os.utime(path)
            except OSError:
                continue

    def sweep(self, named: Iterable[str], now: float) -> None:
        """Remove what is not among ``named`` for longer than the grace, or beyond the bound; ``now`` is wall time.

        Another thread may ``keep`` meanwhile: its draft is left alone.
        """
        keep = set(named)
        retired: list[tuple[float, int, Path]] = []
        for file in self._files():
            if os.fspath(file) in keep:
                continue
            try:
                found = file.stat()
            except FileNotFoundError:  # a draft that has its name now
                continue
            if file.suffix != _DRAFT or now - found.st_mtime > _DRAFT_S:
                retired.append((found.st_mtime, found.st_size, file))
        total = 0
        for changed_at, size, file in sorted(retired, reverse=True):
            total += size
            if now - changed_at > GRACE_S or total > MAX_RETIRED_BYTES:
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [
            file for file in self.folder.iterdir() if len(file.name.removesuffix(_DRAFT)) == _DIGEST_CHARS
        ]
