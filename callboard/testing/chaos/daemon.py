"""A daemon for chaos: a named system with a wrapper before its journal, started by exec, killed and started again.

``python -m callboard.testing.chaos.daemon`` is its process; ``ChaosDaemon`` is the test's handle on it. A named
system, unlike a private one, can be opened again by a new daemon over the same state.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from callboard.actors import log_writer
from callboard.actors.log_writer import STUCK_AFTER_S
from callboard.api import System, connect
from callboard.config import Config
from callboard.daemon import read_info, serve
from callboard.errors import CallboardError
from callboard.paths import runtime_dir
from callboard.supervisor.process import is_running
from callboard.testing.turns import eventually

START_S = 60.0
STOP_S = 10.0
_GONE_S = 8.0
_LOOK_EVERY_S = 0.02
_CONFIG = "chaos-config.json"
_OUTPUT = "chaos.out"


class ChaosDaemon:
    """The system ``name`` over ``config``.

    ``wrapper`` stands before its journal, ``environ`` is added to its own, and a turn bears a fault of the storage for
    ``patience_s`` seconds.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        wrapper: str = "",
        environ: Mapping[str, str] | None = None,
        patience_s: float = STUCK_AFTER_S,
    ) -> None:
        self._config = config
        self._patience_s = patience_s
        self._wrapper = wrapper
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.name = name
        self.folder = runtime_dir(name)
        self.faults: list[str] = []

    def start(self, *prefix: str) -> System:
        """Start it (again), behind the command ``prefix`` if any, wait until it is up, and give a connection."""
        self.launch(*prefix)
        eventually(self._is_up, START_S, f"the system {self.name} is up")
        return connect(name=self.name, private=False)

    @contextmanager
    def kept(self) -> Iterator[System]:
        """Start it, and start it again whenever it is gone, as whoever runs daemons does.

        When it does not start again, that is one of its ``faults``.
        """
        over = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(over,), daemon=True)
        with self.start() as system:
            keeper.start()
            try:
                yield system
            finally:
                over.set()
                keeper.join(START_S)

    def _keep(self, over: threading.Event) -> None:
        try:
            while not over.wait(_LOOK_EVERY_S):
                if self.has_ended:
                    self.start().close()
        except AssertionError as failed:
            self.faults.append(str(failed))

    def launch(self, *prefix: str) -> None:
        """Start it (again), and wait for nothing."""
        config_file = self.folder / _CONFIG
        config_file.touch(mode=0o600)
        config_file.write_text(self._config.to_json(), encoding="utf-8")
        command = [*prefix, sys.executable, "-m", "callboard.testing.chaos.daemon", "--name", self.name]
        command += ["--config-json", str(config_file), "--journal-wrapper", self._wrapper]
        command += ["--patience", str(self._patience_s)]
        with (self.folder / _OUTPUT).open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environ,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        """True when there is no process, or no longer."""
        return self._process is None or self._process.poll() is not None

    def outermost(self) -> psutil.Process:
        """Give the daemon's outermost process."""
        info = read_info(self.folder)
        assert info is not None, f"the system {self.name} is not up"
        return psutil.Process(info.pid)

    def stop(self) -> int:
        """Stop it in order; gives the exit code. Whatever is left of it after a while fails with its names."""
        assert self._process is not None
        pids = self.pids()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_S)
        eventually(lambda: not [p for p in pids if is_running(p)], _GONE_S, f"all of {pids} are gone")
        return code

    def end(self) -> None:
        """End it by force if it still runs, and remove what it wrote down of itself."""
        if self._process is not None and not self.has_ended:
            pids = self.pids()
            self._process.kill()
            self._process.wait()
            eventually(lambda: not [p for p in pids if is_running(p)], _GONE_S, f"all of {pids} are gone")

    def pids(self) -> list[int]:
        """Give the pids of all its processes."""
        assert self._process is not None
        try:
            process = psutil.Process(self._process.pid)
            return [process.pid, *(p.pid for p in process.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []

    def last_words(self) -> str:
        """Give the end of what it printed."""
        return (self.folder / _OUTPUT).read_text(encoding="utf-8", errors="replace")[-2000:]

    def _is_up(self) -> bool:
        if self.has_ended:
            raise AssertionError(f"the system {self.name} did not start: {self.last_words()}")
        assert self._process is not None
        info = read_info(self.folder)
        return info is not None and info.pid == self._process.pid


def main() -> int:
    """Run the system until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--config-json", type=Path, required=True)
    parser.add_argument("--journal-wrapper", default="")
    parser.add_argument("--patience", type=float, required=True)
    given = parser.parse_args()
    log_writer.STUCK_AFTER_S = given.patience  # every actor is forked from this process
    try:
        config = Config.from_json(given.config_json.read_text(encoding="utf-8"))
        return serve(config, given.name, journal_wrapper=given.journal_wrapper)
    except CallboardError as fault:
        print(f"callboard chaos: {fault}", file=sys.stderr)  # noqa: T201
        return 3


if __name__ == "__main__":
    sys.exit(main())
