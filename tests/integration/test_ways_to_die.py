"""Whatever a tool does to its process, the model is given one short result in time, and nothing is left behind."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callboard.one_call import run_one, start_worker
from callboard.supervisor.process import is_running
from callboard.testing.tool_bench import ToolBench
from callboard.testing.turns import eventually
from callboard.tools.bounds import LIMIT_BYTES
from callboard.tools.content import JsonBlock, TextBlock, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.describe import specs_in_a_process

TOOLS = Path(__file__).parent / "deadly_tools.py"
_BUSY_S = 8.0
"""What a busy machine may add."""


@pytest.fixture(scope="module")
def specs() -> dict[str, ToolSpec]:
    """The tools, described once."""
    described = specs_in_a_process([str(TOOLS)], 60.0)[str(TOOLS)]
    assert isinstance(described, tuple), described
    return {spec.name: spec for spec in described}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolBench]:
    """A process that keeps one call after the other, so that each costs a fork and not a start of Python."""
    with ToolBench(tmp_path_factory.mktemp("bench")) as bench:
        yield bench


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the private folders of these calls come to lie."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _text(result: ToolResult) -> str:
    (block,) = result.content
    return block.text if isinstance(block, TextBlock) else json.dumps(getattr(block, "value", None))


DEATHS = [
    ("die", {"how": "exit"}, "error", "SystemExit: the tool called exit, with exit code 3"),
    ("die", {"how": "os_exit"}, "killed", "die did not finish: its process exited with code 4"),
    ("die", {"how": "segfault"}, "killed", "die did not finish: its process was killed by SIGSEGV"),
    ("die", {"how": "kill"}, "killed", "die did not finish: its process was killed by SIGKILL"),
    ("die", {"how": "abort"}, "killed", "die did not finish: its process was killed by SIGABRT"),
    ("die", {"how": "interrupt"}, "error", "die failed: KeyboardInterrupt"),
    ("die", {"how": "close"}, "killed", "it closed descriptors that are not its own"),
    ("die", {"how": "unpicklable"}, "error", "type function, which has no JSON form"),
    ("hang", {"how": "sleep"}, "deadline", "hang exceeded its deadline of 1 s and was killed"),
    ("hang", {"how": "loop"}, "deadline", "hang exceeded its deadline of 1 s and was killed"),
    ("hang", {"how": "deaf"}, "deadline", "hang exceeded its deadline of 1 s and was killed"),
    ("devour", {"how": "alone"}, "error", "devour exceeded its memory limit of 256 MiB"),
    ("devour", {"how": "children"}, "killed", "devour exceeded its memory limit of 256 MiB and was killed"),
    ("burn", {}, "killed", "burn exceeded its limit of 1 s of CPU time and was killed"),
    ("babble", {}, "killed", "babble printed more than 2 MiB and was killed"),
    ("hoard", {"how": "one"}, "error", "File too large"),
    ("hoard", {"how": "many"}, "killed", "hoard filled its temporary folder beyond 4 MiB and was killed"),
]


@pytest.mark.parametrize(("tool", "arguments", "outcome", "says"), DEATHS)
def test_each_way_to_die_is_one_honest_result(
    specs: dict[str, ToolSpec],
    bench: ToolBench,
    tool: str,
    arguments: dict[str, Any],
    outcome: str,
    says: str,
) -> None:
    began = time.monotonic()
    result, _ = bench.call(specs[tool], arguments)
    assert (result.is_error, result.outcome) == (True, outcome), _text(result)
    assert says in _text(result)
    assert len(_text(result)) < 300
    waits_for_cpu = tool in ("burn", "devour")
    assert waits_for_cpu or time.monotonic() - began < 2.0 + _BUSY_S
    assert not bench.folders()


@pytest.mark.parametrize(("tool", "outcome"), [("die", "ok"), ("hang", "deadline")])
def test_a_grandchild_in_a_session_of_its_own_ends_with_the_call(
    specs: dict[str, ToolSpec], bench: ToolBench, tmp_path: Path, tool: str, outcome: str
) -> None:
    note = tmp_path / "pid"
    spec = replace(specs[tool], deadline_s=4.0)
    result, _ = bench.call(spec, {"how": "escape", "note": str(note)})
    assert result.outcome == outcome
    pid = int(note.read_text())
    assert not is_running(pid)


def test_who_started_a_worker_that_is_killed_takes_out_what_it_left(
    specs: dict[str, ToolSpec], own_temporary_folder: Path
) -> None:
    run_one(specs["die"], {"how": "kill_parent"})
    assert not list(own_temporary_folder.glob("callboard-call-*"))


def test_a_result_of_50_mb_is_a_success_whose_head_and_tail_are_shown(
    specs: dict[str, ToolSpec], bench: ToolBench
) -> None:
    result, _ = bench.call(specs["big"], {"mib": 50})
    assert (result.is_error, result.outcome) == (False, "ok")
    text = _text(result)
    assert len(text) < LIMIT_BYTES + 100
    assert text.startswith("HEADxxx")
    assert text.endswith("xxxTAIL")
    assert "characters left out" in text
    (attachment,) = result.attachments
    assert (attachment.size, attachment.mime_type) == (8 + (50 << 20), "text/plain")
    assert attachment.content == b"HEAD" + b"x" * (50 << 20) + b"TAIL"


def test_a_result_that_was_cut_is_kept_whole_beside_it(specs: dict[str, ToolSpec], bench: ToolBench) -> None:
    result, _ = bench.call(specs["big"], {"mib": 1})
    assert [a.content for a in result.attachments] == [b"HEAD" + b"x" * (1 << 20) + b"TAIL"]


def test_what_a_tool_prints_is_kept_apart_from_its_result(
    specs: dict[str, ToolSpec], bench: ToolBench
) -> None:
    result, _ = bench.call(specs["chatter"], {"text": "hello"})
    assert _text(result) == "done"
    assert result.output == "hello\noops\n"
    loud, _ = bench.call(specs["chatter"], {"text": "y" * 999, "times": 300})
    assert len(loud.output) < 65_000
    assert "bytes left out" in loud.output
    assert loud.output.endswith("oops\n")


def test_what_a_tool_digs_is_filled_in_again(specs: dict[str, ToolSpec], bench: ToolBench) -> None:
    for levels in (50, 3000):
        result, _ = bench.call(specs["dig"], {"levels": levels})
        assert _text(result) == f"{levels} levels"
        assert not bench.folders()


def test_a_death_shows_in_the_output_where_it_happened(specs: dict[str, ToolSpec], bench: ToolBench) -> None:
    result, _ = bench.call(specs["die"], {"how": "segfault"})
    frames = [line for line in result.output.splitlines() if line.startswith("  File ")]
    assert "in die" in frames[-1]
    assert not [frame for frame in frames if "/callboard/" in frame], "those below the tool's are ours"


@pytest.mark.parametrize(("tool", "fraction"), [("count_up", 0.0), ("count_later", None)])
def test_a_generator_tells_its_progress_and_gives_its_last_value(
    specs: dict[str, ToolSpec], bench: ToolBench, tool: str, fraction: float | None
) -> None:
    result, told = bench.call(specs[tool], {"to": 3})
    assert result.content == (JsonBlock(3),)
    assert [progress.text for progress in told] == ["at 0", "at 1", "at 2"]
    assert told[0].fraction == fraction


def test_a_tool_sees_the_usual_environment_its_own_and_nothing_else(
    specs: dict[str, ToolSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary-1234")
    monkeypatch.setenv("DECLARED", "given")
    spec = specs["look_around"]
    limits = replace(spec.limits, env=("DECLARED", "ABSENT"))
    result = run_one(replace(spec, limits=limits), {}, ToolContext(user="ann"))
    (block,) = result.content
    assert isinstance(block, JsonBlock)
    seen = block.value
    assert "canary" not in json.dumps(seen).lower()
    assert seen["environment"]["DECLARED"] == "given"
    usual = {"PATH", "HOME", "TMPDIR", "DECLARED", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TERM"}
    assert {name for name in seen["environment"] if not name.startswith("LC_")} <= usual
    assert seen["descriptors"][:4] == [0, 1, 2, 3]
    assert len(seen["descriptors"]) == 5, "the fifth is the listing's own"
    assert (seen["stdin"], seen["session"], seen["user"]) == ("", True, "ann")
    assert not Path(seen["folder"]).exists()


def test_a_call_that_uses_cpu_gives_way_to_others(specs: dict[str, ToolSpec], bench: ToolBench) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    result, _ = bench.call(specs["grow_old"], {})
    (block,) = result.content
    assert isinstance(block, JsonBlock)
    assert block.value > before or before >= 10


def test_a_worker_that_is_stopped_ends_its_call(specs: dict[str, ToolSpec], tmp_path: Path) -> None:
    note = tmp_path / "pid"
    channel_r, channel_w = os.pipe2(os.O_CLOEXEC)
    spec = replace(specs["hang"], deadline_s=100.0)
    worker = start_worker(spec, {"how": "escape", "note": str(note)}, ToolContext(), 100.0, channel_w)
    os.close(channel_w)
    pid = int(eventually(lambda: note.exists() and note.read_text()))
    worker.terminate()
    worker.wait(10.0)
    os.close(channel_r)
    assert not is_running(pid)
