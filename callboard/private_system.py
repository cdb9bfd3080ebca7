"""A private system: a daemon started by exec for one owner, with a lease that ends it when the owner ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from callboard.config import Config
from callboard.daemon import SystemInfo, read_info
from callboard.errors import DaemonFailed, Unavailable
from callboard.paths import runtime_dir
from callboard.private_remains import private_name
from callboard.supervisor import log

_END_S = 6.0
_OUTPUT = "daemon.out"


class PrivateSystem:
    """The process, its runtime folder, and the lease. ``close`` ends it; so does the end of this process."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, lease_fd: int) -> None:
        self._process = process
        self.folder = folder
        self._lease_fd = lease_fd
        self.info: SystemInfo

    @classmethod
    def start(cls, config: Config, timeout_s: float) -> Self:
        """Start it and wait until it is up; raises DaemonFailed with its last words, or with why it cannot start."""
        name = private_name()
        folder = runtime_dir(name)
        try:
            system = cls._launch(config, name, folder)
        except OSError as fault:
            shutil.rmtree(folder, ignore_errors=True)
            raise DaemonFailed(f"cannot start a system in {folder}: {fault.strerror or fault}") from fault
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        system._await_up(timeout_s)
        return system

    @classmethod
    def _launch(cls, config: Config, name: str, folder: Path) -> Self:
        config_file = folder / "config.json"
        fd = os.open(config_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(config.to_json())
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        command = [sys.executable, "-m", "callboard.daemon", "--name", name]
        command += ["--config-json", str(config_file), "--lease-fd", str(theirs)]
        try:
            with (folder / _OUTPUT).open("wb") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, folder, ours)

    def _await_up(self, timeout_s: float) -> None:
        give_up_at = time.monotonic() + timeout_s
        try:
            while time.monotonic() < give_up_at:
                info = read_info(self.folder)
                if info is not None:
                    self.info = info
                    return
                self.check()
                time.sleep(0.01)
            raise DaemonFailed(f"the system was not up after {timeout_s:g} s")
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise when the process has ended: DaemonFailed while it starts, else Unavailable."""
        code = self._process.poll()
        if code is None:
            return
        words = self._last_words()
        if hasattr(self, "info"):
            raise Unavailable(f"the private system ended (exit code {code}). {words}")
        raise DaemonFailed(words or f"the system ended while starting (exit code {code})")

    def close(self) -> int:
        """Close the lease, wait for the end, and leave nothing behind; gives the exit code."""
        if self._lease_fd >= 0:
            os.close(self._lease_fd)
            self._lease_fd = -1
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self._process.returncode

    def _last_words(self) -> str:
        try:
            output = (self.folder / _OUTPUT).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            output = ""
        lines = output.splitlines()[-12:] or log.tail(self.folder, 5)
        return "\n".join(lines).removeprefix("callboard: ")
