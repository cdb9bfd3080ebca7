"""Each mend of Thespian is needed: without it the fault is there, with all of them it is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import thespian

from callboard.supervisor import mends
from callboard.supervisor.process import is_running, kill
from callboard.testing.turns import eventually

SCENARIOS = Path(__file__).parent / "mend_scenarios.py"
BOTH = pytest.mark.parametrize("base", ["unix", "tcp"])


def play(scenario: str, base: str, folder: Path, without: str | None = None) -> dict[str, Any]:
    """Play it in a process of its own; its files are below ``folder``."""
    command = [sys.executable, str(SCENARIOS), scenario, "--mail", base]
    command += ["--without", without] if without else []
    printed = folder / f"printed-{without}"
    with printed.open("wb") as out, (folder / "errors").open("wb") as errors:
        # Files, not pipes: what outlives the scenario would keep a pipe open.
        subprocess.run(
            command,
            stdout=out,
            stderr=errors,
            env=os.environ | {"TMPDIR": str(folder)},
            timeout=60,
            check=False,
        )
    lines = printed.read_text().splitlines()
    assert lines, (folder / "errors").read_text()[-2000:]
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@BOTH
def test_a_child_that_dies_while_another_death_is_handled_is_heard_of(base: str, tmp_path: Path) -> None:
    assert play("lost_exits", base, tmp_path, without="lost_exits") == {"heard": 1, "code": None}
    assert play("lost_exits", base, tmp_path) == {"heard": 2, "code": -9}


def test_a_parent_ends_that_does_not_know_that_its_children_are_dead(tmp_path: Path) -> None:
    assert play("shutdown", "tcp", tmp_path, without="shutdown") == {"ended": False}
    assert play("shutdown", "tcp", tmp_path) == {"ended": True}


def test_on_our_mail_such_a_parent_ends_also_without_that_mend(tmp_path: Path) -> None:
    assert play("shutdown", "unix", tmp_path, without="shutdown") == {"ended": True}


@BOTH
def test_the_death_of_thespians_logger_does_not_take_the_admin(base: str, tmp_path: Path) -> None:
    without = play("logger_death", base, tmp_path, without="logger_death")
    assert without == {"admin_lives": False, "answers": False}
    assert play("logger_death", base, tmp_path) == {"admin_lives": True, "answers": True}


@BOTH
def test_a_segmentation_fault_ends_the_actor_and_does_not_spin(base: str, tmp_path: Path) -> None:
    without = play("signals", base, tmp_path, without="signals")
    assert not without["ended"]
    assert without["spun_s"] > 0.1
    assert play("signals", base, tmp_path)["ended"]


@BOTH
def test_nobody_outlives_the_parent_or_the_admin(base: str, tmp_path: Path) -> None:
    without = play("orphans", base, tmp_path, without="orphans")
    assert without == {"leaves_end": False, "all_end": False}
    assert play("orphans", base, tmp_path) == {"leaves_end": True, "all_end": True}


def test_nobody_outlives_the_outermost_process(tmp_path: Path) -> None:
    left = play("outermost", "unix", tmp_path, without="orphans")["pids"]
    assert all(is_running(pid) for pid in left)
    for pid in left:
        kill(pid)
    pids = play("outermost", "unix", tmp_path)["pids"]
    eventually(lambda: not any(is_running(pid) for pid in pids), 3.0, "all end with the outermost process")


def test_a_child_inherits_no_private_descriptor(tmp_path: Path) -> None:
    assert play("descriptors", "unix", tmp_path, without="orphans") == {"parent": 1, "child": 1}
    assert play("descriptors", "unix", tmp_path) == {"parent": 1, "child": 0}


@pytest.mark.parametrize("module", ["multiprocCommon", "actorManager", "addressManager", "systemCommon"])
def test_another_thespian_is_refused(module: str, tmp_path: Path) -> None:
    assert thespian.__file__ is not None
    copy = tmp_path / "other" / "thespian"
    shutil.copytree(
        Path(thespian.__file__).parent, copy, ignore=shutil.ignore_patterns("test", "__pycache__")
    )
    with (copy / "system" / f"{module}.py").open("a") as source:
        source.write("# changed\n")
    ended = subprocess.run(
        [sys.executable, "-c", "import os; from callboard.supervisor import mends; mends.apply(os.getpid())"],
        env=os.environ | {"PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert f"MendError: thespian/system/{module}.py is not the one" in ended.stderr
    assert "install thespian==4.0.1" in ended.stderr


def test_a_mend_that_does_not_exist_cannot_be_left_out() -> None:
    with pytest.raises(mends.MendError, match="there is no mend nonsense; there are lost_exits, shutdown"):
        mends.apply(os.getpid(), frozenset({"nonsense"}))
