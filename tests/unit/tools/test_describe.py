"""A module of tools is described by a process of its own, whatever it does when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from callboard.tools.describe import spec_from_json, spec_to_json, specs_in_a_process
from callboard.tools.errors import ModuleFault
from callboard.tools.kept_source import MAX_BYTES, KeptSource, KeptSources, read_kept
from callboard.tools.loader import specs_of

TOOLS = """
from callboard.tools.decorator import tool

@tool(deadline_s=2.5, memory_mb=64, read_only=True)
def add(a: int, b: int = 2) -> int:
    '''Add ü.'''
    return a + b
"""


def _write(folder: Path, source: str, name: str = "users.py") -> str:
    (folder / name).write_text(source)
    return str(folder / name)


def _reason(module: str, limit_s: float = 10.0) -> str:
    described = specs_in_a_process([module], limit_s)[module]
    assert isinstance(described, ModuleFault), described
    assert described.module == module
    return described.reason


def test_the_specs_are_those_that_this_process_would_make(tmp_path: Path) -> None:
    path = _write(tmp_path, "print('loud')\n" + TOOLS)
    described = specs_in_a_process([path, path])
    assert described == {path: specs_of(path)}


def test_a_spec_comes_back_from_json_as_it_was(tmp_path: Path) -> None:
    (spec,) = specs_of(_write(tmp_path, TOOLS))
    assert spec_from_json(spec_to_json(spec)) == spec
    assert spec.digest


def test_a_dotted_module_is_found_on_this_process_s_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a:b").mkdir()
    _write(tmp_path / "a:b", TOOLS, "users_elsewhere.py")
    monkeypatch.syspath_prepend(tmp_path / "a:b")
    described = specs_in_a_process(["users_elsewhere"])["users_elsewhere"]
    assert not isinstance(described, ModuleFault)
    assert [(spec.name, spec.module) for spec in described] == [("add", "users_elsewhere")]


def test_the_source_that_was_described_is_kept_and_the_specs_say_where(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path / "kept")
    path = _write(tmp_path, TOOLS)
    large = _write(tmp_path, TOOLS + "#" * MAX_BYTES, "large.py")
    described = specs_in_a_process([path, large], kept=kept)
    (spec,), (other,) = described[path], described[large]  # type: ignore[misc]
    assert KeptSource.from_bytes(read_kept(spec.kept_source) or b"").source == TOOLS.encode()
    assert Path(spec.kept_source).parent == kept.folder
    assert Path(other.kept_source).parent == kept.folder
    assert read_kept(other.kept_source) is None
    assert specs_in_a_process([path])[path] == specs_of(path)
    assert spec == replace(specs_of(path)[0], kept_source=spec.kept_source)


def test_a_source_that_cannot_be_kept_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("in the way")
    path = _write(tmp_path, TOOLS)
    fault = specs_in_a_process([path], kept=KeptSources(tmp_path / "kept"))[path]
    assert isinstance(fault, ModuleFault)
    assert "source could not be kept" in fault.reason


def test_whatever_a_module_does_is_its_own_fault(tmp_path: Path) -> None:
    sources = {
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)": "killed by SIGSEGV while it was imported",
        "import os\nos._exit(0)": "exited with code 0 while it was imported",
        "raise SystemExit(3)": "exit (3)",
        "raise KeyboardInterrupt": "KeyboardInterrupt",
        "import os\nos.closerange(0, 64)": "close descriptors",
        "import os\nos.closerange(0, 64)\n[os.open('/dev/null', os.O_RDWR) for _ in range(9)]": "close desc",
        "1 / 0": "ZeroDivisionError: division by zero (line 1)",
        "x = 1": "no tools",
        TOOLS + f"\nadd.description = 'x' * {2 << 20}": "larger than",
        TOOLS + "\nadd.name = 5": "tool 5 has a field of a wrong type",
        TOOLS + "\nadd.memory_mb = True\nadd.annotations = 3": "cannot be described",
    }
    modules = {
        _write(tmp_path, source, f"m{n}.py"): words for n, (source, words) in enumerate(sources.items())
    }
    good = _write(tmp_path, TOOLS, "good.py")
    described = specs_in_a_process([*modules, good], 60.0)
    assert not isinstance(described[good], ModuleFault)
    for path, words in modules.items():
        fault = described[path]
        assert isinstance(fault, ModuleFault)
        assert words in fault.reason, fault.reason


@pytest.mark.parametrize("first", ["", "import os; os.closerange(0, 64)", "import os; os.fork()"])
def test_an_import_that_does_not_end_is_cut_off_with_its_children(tmp_path: Path, first: str) -> None:
    pids = tmp_path / "pids"
    path = _write(
        tmp_path,
        f"{first}\nimport os, time\nwith open({str(pids)!r}, 'a') as f: f.write(f'{{os.getpid()}}\\n')\n"
        "while True: time.sleep(60)\n",
    )
    started = time.monotonic()
    assert _reason(path, 2.0) == "it was still being imported after 2 s"
    assert time.monotonic() - started < 6.0
    deadline = time.monotonic() + 5.0
    left = [int(pid) for pid in pids.read_text().split()]
    assert left
    while any(_runs(pid) for pid in left):
        assert time.monotonic() < deadline


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_thread_that_lives_on_does_not_hold_up_the_description(tmp_path: Path) -> None:
    path = _write(
        tmp_path, TOOLS + "\nimport threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    )
    started = time.monotonic()
    assert not isinstance(specs_in_a_process([path], 30.0)[path], ModuleFault)
    assert time.monotonic() - started < 20.0


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    path = _write(tmp_path, TOOLS)
    before = len(os.listdir("/proc/self/fd"))
    specs_in_a_process([path, "/nowhere.py"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_command_writes_one_document(tmp_path: Path) -> None:
    path = _write(tmp_path, "print('noise')\n" + TOOLS)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "callboard.tools.describe", path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.startswith(b'{"tools": [')
    assert done.stdout.count(b"\n") == 1
    assert b"noise" in done.stderr
