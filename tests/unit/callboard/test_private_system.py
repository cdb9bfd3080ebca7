"""A private system that cannot even be launched: one sentence, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from callboard.config import default_config
from callboard.errors import DaemonFailed
from callboard.private_system import PrivateSystem


@pytest.mark.parametrize("step", ["open", "launch"])
def test_a_start_that_the_system_refuses_is_said_and_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    descriptors = len(os.listdir("/proc/self/fd"))
    if step == "open":
        monkeypatch.setattr(Path, "open", refuse)
    else:
        monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(DaemonFailed, match=r"cannot start a system in .*: No space left on device"):
        PrivateSystem.start(default_config({}), 5.0)
    assert list((tmp_path / "callboard").iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors
