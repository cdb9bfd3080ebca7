"""A call's process keeps the environment that its plan gives it, and nothing of any other."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import ctypes, os
from callboard.tools.environment import keep_only

before = os.environb[b"GOES"]
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_void_p
at = libc.getenv(b"GOES")
keep_only({"STAYS": "as planned", "COMES": "new"})
shown = open("/proc/self/environ", "rb").read().strip(b"\\0")
print(sorted(os.environ), os.environ["STAYS"], os.environ["COMES"], before, ctypes.string_at(at, 9), shown, 1 + 1)
"""


def test_what_goes_is_overwritten_wherever_it_stood() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"GOES": "something", "STAYS": "as it was", "ONE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    gone = b"\x00" * len("something")
    assert done.stdout.strip() == f"['COMES', 'STAYS'] as planned new {gone!r} {gone!r} b'' 2"
