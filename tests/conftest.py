"""What every test stands on: folders of its own, and the check that nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from callboard.supervisor.process import become_subreaper
from callboard.testing.postgres import NoPostgres, PostgresServer

SETTLE_S = 8.0


@pytest.fixture(scope="session", autouse=True)
def _as_in_the_foreground() -> None:
    """A run in the background was started to ignore Ctrl-C, and so would be all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _adopt_orphans() -> None:
    """Whatever a test leaves running becomes a child of this process, where it can be seen."""
    become_subreaper()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | NoPostgres]:
    """A PostgreSQL server for the whole run, started before the first test that wants it; or why there is none."""
    try:
        server = PostgresServer()
    except NoPostgres as reason:
        yield reason
        return
    with server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer | NoPostgres) -> str:
    """Give the URL of an empty journal: what holds for one database must hold for the other."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/journal.sqlite3"
    if isinstance(postgres, NoPostgres):
        pytest.skip(str(postgres))
    return postgres.empty("journal")


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test its own home, state, cache, configuration and runtime folders, and no endpoint, key or weights."""
    home = tmp_path_factory.mktemp("home")
    for variable, folder in (
        ("HOME", home),
        ("XDG_RUNTIME_DIR", home / "run"),
        ("XDG_STATE_HOME", home / "state"),
        ("XDG_CACHE_HOME", home / "cache"),
        ("XDG_CONFIG_HOME", home / "config"),
    ):
        folder.mkdir(mode=0o700, exist_ok=True)
        monkeypatch.setenv(variable, str(folder))
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CALLBOARD_WEIGHTS", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture(autouse=True)
def nothing_left_behind(own_folders: Path) -> Iterator[None]:
    """Fail the test that leaves a process, a descriptor or a runtime folder of a private system behind."""
    processes = {p.pid for p in psutil.Process().children(recursive=True)}
    descriptors = _descriptors()
    yield
    give_up_at = time.monotonic() + SETTLE_S
    while left := _left(processes):
        if time.monotonic() > give_up_at:
            lines = [_describe(p) for p in left]
            for process in left:
                process.kill()
            pytest.fail("processes left behind: " + "; ".join(lines))
        time.sleep(0.02)
    more = _descriptors() - descriptors
    sockets = [d for d in more if d.startswith(("socket:", "pipe:", "anon_inode:[pidfd"))]
    assert not sockets, f"descriptors left open: {sockets}"
    runtime = own_folders / "run" / "callboard"
    private = [p.name for p in runtime.iterdir() if p.name.startswith("private-")] if runtime.is_dir() else []
    assert not private, f"runtime folders left: {private}"


def _left(before: set[int]) -> list[psutil.Process]:
    _reap()
    return [p for p in psutil.Process().children(recursive=True) if p.pid not in before]


def _reap() -> None:
    """Collect orphans that were adopted and have ended; our own children belong to whoever started them."""
    for process in psutil.Process().children():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:120]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} gone"


def _descriptors() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{os.readlink(entry)}")
        except FileNotFoundError:
            continue
    return found
