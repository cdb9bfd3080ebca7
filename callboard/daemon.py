"""The daemon's process: takes the system's lock, opens the tree, and says where it is. Runs until it is stopped.

``callboard serve`` runs it in the foreground; ``connect`` starts a private one by exec, with a lease: a pipe whose
other end the owner holds, so that the system ends when the owner does, however it dies.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from callboard.config import Config
from callboard.errors import CallboardError, ConfigError, DaemonFailed
from callboard.paths import private_dir, runtime_dir, runtime_path
from callboard.private_remains import LOCK, remove_remains

EXIT_OK = 0
EXIT_GAVE_UP = 1
EXIT_CONFIG = 2
EXIT_NOT_STARTED = 3
_INFO = "system.json"
_PRIVATE_STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemInfo:
    """What a running system says of itself in its runtime folder. ``lives`` counts restarts of the whole, from 1."""

    name: str
    pid: int
    version: str
    started_at: str
    config: str | None
    model: str
    private: bool
    lives: int
    templates: dict[str, list[str]]


def read_info(folder: Path) -> SystemInfo | None:
    """Read what the system in this runtime folder says of itself; None when there is none, or it is starting."""
    try:
        return SystemInfo(**json.loads((folder / _INFO).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def is_running(folder: Path) -> bool:
    """True while a process holds the system's lock."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def runs(name: str) -> bool:
    """True while a system of this name runs. It only looks: no folder is made for a name that has none."""
    return runtime_path(name).is_dir() and is_running(runtime_dir(name))


def check_free(name: str) -> None:
    """Raise DaemonFailed, saying where it is, when a system of this name runs already."""
    if runs(name):
        raise _taken(runtime_dir(name), name)


def serve(
    config: Config,
    name: str,
    announce: Callable[[SystemInfo], None] | None = None,
    *,
    journal_wrapper: str = "",
) -> int:
    """Run the system ``name`` in this process until it is stopped; gives the exit code.

    ``announce`` is called when the tree is up. ``journal_wrapper`` is for tests: see ``actors/settings.py``.
    Raises DaemonFailed when it cannot start or one runs already.
    """
    return _run(config, name, config.storage_path(name), None, announce, journal_wrapper)


def _run(
    config: Config,
    name: str,
    state_dir: Path,
    lease_fd: int | None,
    announce: Callable[[SystemInfo], None] | None,
    journal_wrapper: str = "",
) -> int:
    folder = runtime_dir(name)
    lock = _take_lock(folder, name)
    code = EXIT_NOT_STARTED
    try:
        _make_state(state_dir)
        code = _run_tree(config, name, folder, state_dir, lease_fd, announce, journal_wrapper)
        return code
    finally:
        _clear(folder, wholly=lease_fd is not None and (code == EXIT_OK or _is_hung_up(lease_fd)))
        os.close(lock)


def _run_tree(
    config: Config,
    name: str,
    folder: Path,
    state_dir: Path,
    lease_fd: int | None,
    announce: Callable[[SystemInfo], None] | None,
    journal_wrapper: str,
) -> int:
    from callboard.transports import mail

    mail.prepare_environment(folder)
    from callboard.actors import names
    from callboard.actors.messages import ReloadTools
    from callboard.settings import settings_of
    from callboard.supervisor.mends import MendError
    from callboard.supervisor.outermost import Outermost, StartError
    from callboard.tree import root_args

    def tidy() -> None:
        """What a tool left may take long to remove, and whoever watches the tree has no time. One at a time will do."""
        if tidying.acquire(blocking=False):
            threading.Thread(target=take_away, name="tidy", daemon=True).start()

    def take_away() -> None:
        try:
            _take_away_remains(folder)
        finally:
            tidying.release()

    tidying = threading.Lock()

    def up(lives: int) -> None:
        info = SystemInfo(
            name=name,
            pid=os.getpid(),
            version=version("callboard"),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            config=config.source,
            model="embedded" if config.embedded else config.model.name,
            private=lease_fd is not None,
            lives=lives,
            templates={name: list(t.tools) for name, t in config.templates.items()},
        )
        _write(folder / _INFO, json.dumps(asdict(info)))
        if lives == 1 and announce is not None:
            announce(info)
        tidy()

    settings = settings_of(config, folder, state_dir)
    if journal_wrapper:
        settings = replace(settings, journal_wrapper=journal_wrapper)
    reload = (names.CATALOGUE, ReloadTools())
    outermost = Outermost(
        folder, root_args(settings), partial(mail.open_system, folder), up, lease_fd, reload, on_orphans=tidy
    )
    try:
        return outermost.run()
    except (StartError, mail.MailError, MendError) as fault:
        raise DaemonFailed(f"the system {name} did not start: {fault}") from fault
    finally:
        _take_away_remains(folder)


def _take_away_remains(folder: Path) -> None:
    """Remove what killed processes of this user left: the folders of calls, and of whole private systems."""
    from callboard.actors.worker_folder import remove_stale
    from callboard.supervisor.log import open_log

    try:
        remove_stale()
        removed = remove_remains(folder.parent)
    except OSError as fault:
        open_log(folder, child="daemon").warning("remains_stay", reason=str(fault))
        return
    if removed:
        open_log(folder, child="daemon").info("remains_removed", systems=removed)


def _take_lock(folder: Path, name: str) -> int:
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise _taken(folder, name) from None
    return fd


def _taken(folder: Path, name: str) -> DaemonFailed:
    info = read_info(folder)
    where = f" as process {info.pid}" if info else ""
    return DaemonFailed(
        f"a system named {name} runs already{where}, in {folder}; 'callboard stop' ends it, --name starts another"
    )


def _make_state(state_dir: Path) -> None:
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise DaemonFailed(
            f"cannot make the state folder {state_dir}: {fault.strerror}; set [storage] path, or XDG_STATE_HOME"
        ) from fault


def _is_hung_up(lease_fd: int) -> bool:
    """True when the lease's owner is gone, so that nobody is left to read why the system ended."""
    poll = select.poll()
    poll.register(lease_fd, 0)
    return bool(poll.poll(0))


def _clear(folder: Path, *, wholly: bool) -> None:
    """Leave nothing of a life behind but the lock and the log; ``wholly``: nothing at all.

    A private system that failed leaves its last words to its owner, who removes the folder.
    """
    (folder / _INFO).unlink(missing_ok=True)
    if wholly:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        shutil.rmtree(folder / "actors", ignore_errors=True)


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def main(argv: list[str] | None = None) -> int:
    """Run a private system: ``python -m callboard.daemon --name N --config-json FILE --lease-fd FD``."""
    parser = argparse.ArgumentParser(prog="python -m callboard.daemon", description=main.__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--config-json", required=True, type=Path)
    parser.add_argument("--lease-fd", required=True, type=int)
    given = parser.parse_args(argv)
    os.set_inheritable(given.lease_fd, False)
    try:
        config = Config.from_json(given.config_json.read_text(encoding="utf-8"))
        given.config_json.unlink()
        state = config.storage.path or private_dir(runtime_dir(given.name) / _PRIVATE_STATE)
        return _run(config, given.name, state, given.lease_fd, None)
    except ConfigError as fault:
        print(f"callboard: {fault}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIG
    except CallboardError as fault:
        print(f"callboard: {fault}", file=sys.stderr)  # noqa: T201
        return EXIT_NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
