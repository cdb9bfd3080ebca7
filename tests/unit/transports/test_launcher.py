"""launcher.py as the script that it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import callboard.transports.child_process as child_process

LAUNCHER = str(Path(child_process.__file__).with_name("launcher.py"))


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", LAUNCHER, *arguments]
    env = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=20, check=False)


def test_the_command_replaces_the_launcher() -> None:
    done = launch(str(os.getpid()), "--", "echo", "--", "a b", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "-- a b \n", "")


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("no-such-command", 127, "cannot start 'no-such-command': No such file or directory"),
        ("/etc/passwd", 126, "cannot start '/etc/passwd': Permission denied"),
        ("/usr", 126, "cannot start '/usr': Permission denied"),
        ("/etc/passwd/x", 127, "cannot start '/etc/passwd/x': Not a directory"),
    ],
)
def test_a_command_that_cannot_be_executed_is_told_in_one_line(command: str, status: int, words: str) -> None:
    done = launch(str(os.getpid()), "--", command)
    assert done.returncode == status
    assert done.stderr == f"callboard: {words}\n"


def test_an_orphan_does_not_start_its_command() -> None:
    done = launch("1", "--", "echo", "started")
    assert done.returncode == 126 and done.stdout == "" and "parent is gone" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("1",), ("1", "--"), ("x", "--", "true"), ("1", "true", "true")])
def test_wrong_arguments_give_the_usage(arguments: tuple[str, ...]) -> None:
    done = launch(*arguments)
    assert done.returncode == 126 and "usage" in done.stderr
