"""Secrets are wiped from a process's own memory, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import ctypes, os
from callboard.supervisor import wiping

parts = ("cana", "ry-", "0123456789")
held = ["".join(parts), "before " + "".join(parts) + " after", "x".join(("sho", "rt"))]
wiping.known([held[0], held[2], os.environ["BOTH"]])
wiping.wipe()
print(repr(held[0]), repr(held[1]), held[2], os.environ["BOTH"], os.environb[b"BOTH"].decode())
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(libc.getenv(b"BOTH").decode())
wiping.wipe()
"""


def test_what_is_known_is_overwritten_but_short_texts_and_the_environment_are_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "BOTH": "declared-by-a-tool"},
    )
    gone = "\\x00" * len("canary-0123456789")
    assert done.stdout.splitlines() == [
        f"'{gone}' 'before {gone} after' shoxrt declared-by-a-tool declared-by-a-tool",
        "declared-by-a-tool",
    ]
