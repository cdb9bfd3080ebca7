"""A private system that cannot even be launched: one sentence, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard import daemon
from callboard.config import default_config
from callboard.errors import DaemonFailed
from callboard.paths import runtime_dir
from callboard.private_system import PrivateSystem


@pytest.mark.parametrize("step", ["open", "launch"])
def test_a_start_that_the_system_refuses_is_said_and_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Path.open

    def refuse(given: object = None, *mode: Any, **__: Any) -> Any:
        if isinstance(given, Path) and given.name != "daemon.out":
            return really(given, *mode, **__)
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


@pytest.mark.parametrize("owner_lives", [True, False])
def test_the_last_words_of_a_failed_start_stay_for_the_owner_alone(
    owner_lives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise DaemonFailed("no root")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(daemon, "_run_tree", fail)
    folder = runtime_dir("private-1")
    (folder / "daemon.out").write_text("words", encoding="utf-8")
    lease, owners_end = os.pipe()
    try:
        if not owner_lives:
            os.close(owners_end)
        with pytest.raises(DaemonFailed, match="no root"):
            daemon._run(default_config({}), "private-1", folder / "state", lease, None)
    finally:
        os.close(lease)
        if owner_lives:
            os.close(owners_end)
    assert (folder / "daemon.out").exists() == owner_lives


def test_a_private_system_that_ends_while_starting_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'callboard: there is no root' >&2\nexit 3\n", encoding="utf-8")
    fake.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(DaemonFailed, match=r"^there is no root$"):
        PrivateSystem.start(default_config({}), 20.0)
    assert list((tmp_path / "callboard").iterdir()) == []
