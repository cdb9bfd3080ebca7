"""A module that misbehaves at import is a fault in the registry; the system starts without it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import callboard
from callboard.config import Config

TOOLS = str(Path(__file__).with_name("some_tools.py"))
BAD = {
    "crash.py": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    "leave.py": ("import os\nos._exit(0)", "exited with code 0"),
    "stop.py": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "sleep.py": ("import time\ntime.sleep(600)", "still being imported after 10 s"),
}


def test_bad_modules_neither_stop_nor_long_delay_the_start(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    modules = {str(tmp_path / name): words for name, (_, words) in BAD.items()}
    for name, (source, _) in BAD.items():
        (tmp_path / name).write_text(source)
    started = time.monotonic()
    config = configured().with_flags(tools_from=[*modules, TOOLS])
    with callboard.connect(config=config, private=True) as system:
        listed = {listing.name: listing for listing in system.tools()}
        assert time.monotonic() - started < 25.0
    assert "say" in listed
    for module, words in modules.items():
        assert words in listed[module].reason
