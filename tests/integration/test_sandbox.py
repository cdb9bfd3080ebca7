"""What a sandboxed tool can reach: each attempt of a hostile one, in each profile, is a cell of the table."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from callboard.testing.tool_bench import ToolBench
from callboard.tools.content import JsonBlock, TextBlock
from callboard.tools.contract import ToolSpec
from callboard.tools.describe import specs_in_a_process
from callboard.tools.sandbox_host import host, try_isolated
from callboard.tools.sandbox_plan import lacks

TOOLS = Path(__file__).parent / "deadly_tools.py"


def _lacking(profile: str) -> str | None:
    found = host()
    said = lacks(profile, found)
    if said is None and profile == "isolated" and found.bubblewrap is not None:
        said = try_isolated(found.bubblewrap)
    return said


_LACKING = {profile: _lacking(profile) for profile in ("confined", "isolated")}
_PROFILES = [
    pytest.param(profile, marks=pytest.mark.skipif(said is not None, reason=f"{profile}: {said}"))
    for profile, said in _LACKING.items()
]
isolated = pytest.mark.skipif(_LACKING["isolated"] is not None, reason=str(_LACKING["isolated"]))


@pytest.fixture(scope="module")
def specs() -> dict[str, ToolSpec]:
    """The tools, described once."""
    described = specs_in_a_process([str(TOOLS)], 60.0)[str(TOOLS)]
    assert isinstance(described, tuple), described
    return {spec.name: spec for spec in described}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolBench]:
    """A process that keeps the calls."""
    with ToolBench(tmp_path_factory.mktemp("bench")) as bench:
        yield bench


def _attempt(bench: ToolBench, spec: ToolSpec, *attempts: tuple[str, object]) -> list[dict[str, str]]:
    asked = [[what, str(target)] for what, target in attempts]
    result, _ = bench.call(spec, {"attempts": asked})
    (block,) = result.content
    assert isinstance(block, JsonBlock), f"{block} {result.output}"
    return list(block.value)


@pytest.mark.parametrize("profile", _PROFILES)
def test_a_sandboxed_tool_reaches_nothing_of_its_neighbours(
    bench: ToolBench, specs: dict[str, ToolSpec], tmp_path: Path, profile: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    mail = str(tmp_path / "mail")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        letters.bind(mail)
        datagrams.bind(("127.0.0.1", 0))
        letters.setblocking(False)
        datagrams.setblocking(False)
        attempts: list[tuple[str, object]] = [
            ("read", secret),
            ("list", tmp_path),
            ("write", tmp_path / "new"),
            ("write", "/usr/new"),
            ("read", f"/proc/{os.getpid()}/environ"),
            ("tcp", server.getsockname()[1]),
            ("unix", mail),
            ("signal", os.getpid()),
        ]
        unheard: list[tuple[str, object]] = [
            ("udp", datagrams.getsockname()[1]),
            ("run", f"/bin/cat {secret}"),
        ]
        tried = _attempt(bench, specs[f"attempt_{profile}"], *attempts, *unheard)
        for attempt, outcome in zip(attempts, tried, strict=False):
            assert "refused" in outcome, (attempt, outcome)
        assert "a secret" not in str(tried)
        for receiver in (letters, datagrams):
            with pytest.raises(BlockingIOError):
                receiver.recv(10)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("profile", _PROFILES)
def test_a_sandboxed_tool_can_do_its_work(
    bench: ToolBench, specs: dict[str, ToolSpec], tmp_path: Path, profile: str
) -> None:
    given, place = tmp_path / "given", tmp_path / "place"
    given.write_text("for it")
    place.mkdir()
    spec = specs[f"attempt_{profile}"]
    granted = replace(spec.limits, readable=(str(given),), writable=(str(place),))
    own, ran, read, overwritten, new = _attempt(
        bench,
        replace(spec, limits=granted),
        ("write", "own file"),
        ("run", "/bin/echo ran"),
        ("read", given),
        ("write", given),
        ("write", place / "new"),
    )
    assert (own, ran, read) == ({"done": "1"}, {"done": "ran\n"}, {"done": "for it"})
    assert "refused" in overwritten
    assert (new, (place / "new").read_text()) == ({"done": "1"}, "x")


def test_without_a_profile_a_tool_has_its_users_reach(
    bench: ToolBench, specs: dict[str, ToolSpec], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("open")
    assert _attempt(bench, specs["attempt_freely"], ("read", file)) == [{"done": "open"}]


@pytest.mark.parametrize("profile", _PROFILES)
def test_a_sandboxed_tool_shares_no_memory_and_no_environment_with_the_daemon(
    bench: ToolBench, specs: dict[str, ToolSpec], profile: str
) -> None:
    spec = specs["look_around"]
    result, _ = bench.call(replace(spec, limits=replace(spec.limits, sandbox=profile)), {})
    (block,) = result.content
    assert isinstance(block, JsonBlock), block
    seen = block.value
    assert seen["environment"]["HOME"] == seen["folder"] == seen["cwd"]
    assert len(seen["descriptors"]) == 5
    assert "PYTEST" not in json.dumps(seen)


@pytest.mark.parametrize("profile", _PROFILES)
@pytest.mark.parametrize(
    ("tool", "arguments", "outcome", "says"),
    [
        ("die", {"how": "segfault"}, "killed", "killed by SIGSEGV"),
        ("die", {"how": "os_exit"}, "killed", "exited with code 4"),
        ("hang", {"how": "deaf"}, "deadline", "deadline of 1 s"),
        ("devour", {"how": "alone"}, "error", "memory limit of 256 MiB"),
        ("chatter", {"text": "hi"}, "ok", "done"),
    ],
)
def test_deaths_in_a_sandbox_are_told_as_elsewhere(
    bench: ToolBench,
    specs: dict[str, ToolSpec],
    profile: str,
    tool: str,
    arguments: dict[str, str],
    outcome: str,
    says: str,
) -> None:
    spec = specs[tool]
    if tool == "hang":
        spec = replace(spec, deadline_s=4.0)
        says = "deadline of 4 s"
    result, _ = bench.call(replace(spec, limits=replace(spec.limits, sandbox=profile)), arguments)
    (block,) = result.content
    assert isinstance(block, TextBlock)
    assert (result.outcome, says in block.text) == (outcome, True), block.text
    assert not bench.folders()


@isolated
def test_a_fork_bomb_is_ended_with_its_namespace(bench: ToolBench, specs: dict[str, ToolSpec]) -> None:
    began = time.monotonic()
    result, _ = bench.call(specs["multiply"], {})
    (block,) = result.content
    assert isinstance(block, TextBlock)
    assert "started more than 24 processes and was killed" in block.text
    assert time.monotonic() - began < 40.0


@isolated
def test_what_escapes_in_an_isolated_tool_ends_with_it(
    bench: ToolBench, specs: dict[str, ToolSpec], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    spec = specs["die"]
    limits = replace(spec.limits, sandbox="isolated", writable=(str(place),))
    result, _ = bench.call(replace(spec, limits=limits), {"how": "escape", "note": str(place / "pid")})
    assert result.outcome == "ok"
    assert int((place / "pid").read_text()) < 100, "a pid of a namespace of its own"


def test_a_profile_that_the_host_cannot_give_is_refused(
    specs: dict[str, ToolSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    note = tmp_path / "ran"
    with ToolBench(tmp_path) as bench:
        result, _ = bench.call(specs["attempt_isolated"], {"attempts": [["write", str(note)]]})
    (block,) = result.content
    assert isinstance(block, TextBlock)
    assert (result.is_error, result.outcome) == (True, "unavailable")
    assert "bubblewrap (the command bwrap) is not installed" in block.text
    assert not note.exists()


def test_a_sandbox_that_cannot_be_set_up_is_said_and_the_tool_not_run(
    specs: dict[str, ToolSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with ToolBench(tmp_path) as bench:
        result, _ = bench.call(specs["attempt_isolated"], {"attempts": [["list", "/"]]})
    (block,) = result.content
    assert isinstance(block, TextBlock)
    assert result.outcome == "unavailable"
    assert "No permissions to create new namespace" in block.text
