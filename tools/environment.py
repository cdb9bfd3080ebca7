"""The environment of a call's process: what its plan gives it, and of all else nothing, in its memory either.

Called by ``tools/runner.py`` in a fork, whose memory has its parent's environment three times: as the kernel shows it,
as C has it, and as Python does.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

_MIN_BYTES = 8  # a shorter object may be shared: all of one byte are
_HEADER = sys.getsizeof(b"") - 1  # of a bytes object, before its first byte


def keep_only(environment: Mapping[str, str]) -> None:
    """Make this the process's environment, and overwrite what goes."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name, value in list(os.environb.items()):
        if os.fsdecode(name) in environment:
            continue
        at = libc.getenv(name)
        if at:
            ctypes.memset(at, 0, len(value))
        if len(value) >= _MIN_BYTES:
            ctypes.memset(id(os.environ._data[name]) + _HEADER, 0, len(value))  # type: ignore[attr-defined]
        del os.environb[name]
    if os.environ != environment:
        os.environ.update(environment)
    _wipe_first_environment()


def _wipe_first_environment() -> None:
    """The kernel shows, as the process's environment, the memory where that lay when its ancestor was started."""
    with open("/proc/self/stat", "rb") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    if 0 < start < end and ctypes.string_at(start, end - start).strip(
        b"\0"
    ):  # to write costs a copy, to read does not
        ctypes.memset(start, 0, end - start)
