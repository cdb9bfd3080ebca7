"""A folder of documents on disk: what is in it, and reading one file without ever leaving it.

It decides which files are documents, and refuses every path that leads outside, by ``..`` or by a symbolic
link. It never writes. Called by the document index and by the tool that reads documents.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from callboard.storage.errors import DocumentsError

MARKDOWN_SUFFIXES = frozenset({".md", ".markdown"})
SUFFIXES = MARKDOWN_SUFFIXES | {".txt", ".rst"}
MAX_FILES = 20_000
MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """A file's bytes, with the time of change (nanoseconds) and size that belong to just these bytes."""

    data: bytes
    mtime_ns: int
    size: int

    @property
    def text(self) -> str:
        """The bytes as UTF-8, with a replacement character for what is not."""
        return self.data.decode("utf-8-sig", "replace")


class DocumentFolder:
    """The documents under one folder, named by their paths relative to it, with ``/`` between."""

    def __init__(self, root: str | Path) -> None:
        path = Path(root).expanduser()
        if not path.is_dir():
            problem = "is not a folder" if path.exists() else "does not exist"
            raise DocumentsError(f"the document folder {str(path)!r} {problem}: create it, or set 'folder'")
        self.root = path.resolve()

    def files(self) -> dict[str, tuple[int, int]]:
        """Give every document with its (time of change in nanoseconds, size in bytes), ordered by name.

        Hidden files and folders, other suffixes and links that lead outside are passed over. Raises
        DocumentsError when there are more than MAX_FILES.
        """
        found: dict[str, tuple[int, int]] = {}
        for path in self._walk():
            try:
                status = path.stat()
            except OSError:
                continue  # gone in the meantime, or a link to nothing
            if stat.S_ISREG(status.st_mode) and self._holds(Path(os.path.realpath(path))):
                found[path.relative_to(self.root).as_posix()] = (status.st_mtime_ns, status.st_size)
            if len(found) > MAX_FILES:
                raise DocumentsError(
                    f"the document folder {str(self.root)!r} holds more than {MAX_FILES} documents: "
                    "set 'folder' to a part of it"
                )
        return dict(sorted(found.items()))

    def read(self, name: str) -> Document:
        """Read one document; raises DocumentsError when it is none, is missing, or lies outside."""
        self._check(name)
        path = os.path.realpath(self.root / name)
        if not self._holds(Path(path)):
            raise DocumentsError(f"{name!r} lies outside the document folder")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise DocumentsError(f"the document {name!r} cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            # A folder on the way may have become a link since it was resolved: ask where the open file is.
            if not self._holds(Path(f"/proc/self/fd/{descriptor}").readlink()):
                raise DocumentsError(f"{name!r} lies outside the document folder")
            if not stat.S_ISREG(status.st_mode):
                raise DocumentsError(f"{name!r} is not a file")
            if status.st_size > MAX_BYTES:
                raise DocumentsError(f"the document {name!r} is larger than {MAX_BYTES // 2**20} MiB")
            return Document(file.read(MAX_BYTES), status.st_mtime_ns, status.st_size)

    def _walk(self) -> Iterator[Path]:
        for folder, subfolders, names in os.walk(self.root, followlinks=False):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in names:
                if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                    yield Path(folder, name)

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self.root)

    def _check(self, name: str) -> None:
        parts = PurePosixPath(name).parts
        if not parts or "\0" in name or name.startswith("/") or ".." in parts:
            raise DocumentsError(
                f"{name!r} is not the name of a document: give a path relative to the folder"
            )
        if any(part.startswith(".") for part in parts) or Path(name).suffix.lower() not in SUFFIXES:
            raise DocumentsError(f"{name!r} is not a document: those end in {', '.join(sorted(SUFFIXES))}")
