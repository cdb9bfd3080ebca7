"""A child process and its three pipes, for an owner with one epoll loop: nothing here blocks.

It decides how a child is started (through ``launcher.py``: own session, killed with its parent, no new
privileges), what may wait for its stdin, and how it is stopped: end of input, SIGTERM, SIGKILL, always to the
whole process group. It never reads a clock, starts a thread or restarts anything; the external-server actor
owns it, registers ``stdout_fd``, ``stderr_fd``, ``stdin_fd`` (while ``wants_write``) and ``pidfd`` (readable:
it ended), and calls in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import IO

from callboard.transports.errors import ChildClosed, CommandNotFound, OutboxFull, SpawnFailed
from callboard.transports.redaction import redacted

CHUNK_BYTES = 256 * 1024
OUTBOX_BYTES = 64 * 1024 * 1024
STDERR_TAIL_BYTES = 16 * 1024
STOP_STEP_S = 1.0
_REAP_S = 1.0
_REASON_CHARS = 2000
_DRAIN_CHUNKS = 16

_LAUNCHER = Path(__file__).with_name("launcher.py")
_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR")


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: by itself with ``code``, or by ``signal``; neither: somebody else reaped it."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        """Say it for people: ``exit code 1``, ``killed by SIGKILL``."""
        if self.signal is not None:
            return f"killed by {signal.Signals(self.signal).name}"
        return "exit status unknown" if self.code is None else f"exit code {self.code}"


def default_environment(extra: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Make a child's environment: a short allow-list from ``base``, and ``extra`` over it.

    Secrets in our own environment stay here. Values that begin with ``()`` (exported shell functions) are
    skipped.
    """
    inherited = {
        name: value
        for name, value in base.items()
        if (name in _INHERITED or name.startswith("LC_")) and not value.startswith("()")
    }
    return {**inherited, **extra}


def resolve_command(command: str, env: Mapping[str, str], cwd: str | None = None) -> str:
    """Find the executable as the child would, on the child's PATH and from its working folder.

    Raises CommandNotFound, which says what was looked for and where.
    """
    folder = Path(cwd) if cwd is not None else Path.cwd()
    if "/" in command:
        return _resolve_path(command, folder / command)
    path = env.get("PATH", "")
    entries = [str(folder / entry) for entry in path.split(os.pathsep)] if path else []
    found = shutil.which(command, path=os.pathsep.join(entries)) if entries and command else None
    if found is None:
        where = f"not found on the child's PATH ({path})" if path else "the child has no PATH"
        raise CommandNotFound(command, f"{where}; install it, or configure its full path")
    return found


def _resolve_path(command: str, path: Path) -> str:
    if not path.exists():
        raise CommandNotFound(command, f"{path} does not exist; correct the command")
    if not path.is_file():
        raise CommandNotFound(command, f"{path} is not a file")
    if not os.access(path, os.X_OK):
        raise CommandNotFound(command, f"{path} is not executable; try chmod +x, or name its interpreter")
    return str(path)


class _Stop(Enum):
    RUNNING = auto()
    INPUT_CLOSED = auto()
    TERMINATED = auto()
    KILLED = auto()


class ChildProcess:
    """A started child. The owner must call ``close`` in the end, whatever happened before.

    ``argv`` is the command and its arguments, ``env`` its whole environment, ``cwd`` its working folder.
    Raises SpawnFailed (CommandNotFound for the command) and then nothing is left behind. Use it as a context
    manager to have it closed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        outbox_bytes: int = OUTBOX_BYTES,
        stderr_tail_bytes: int = STDERR_TAIL_BYTES,
        hidden: Mapping[str, str] | None = None,
    ) -> None:
        self._process = _spawn(argv, env, cwd)
        self.pid = self._process.pid
        self.pidfd = _pidfd(self._process)
        self.stdin_fd, self.stdout_fd, self.stderr_fd = (
            _non_blocking(pipe) for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        self._outbox: deque[memoryview] = deque()
        self._outbox_bytes = 0
        self._outbox_limit = outbox_bytes
        self._stderr = bytearray()
        self._stderr_limit = stderr_tail_bytes
        self._hidden = hidden or {}
        self._stop = _Stop.RUNNING
        self._stop_next: float | None = None
        self._status: ExitStatus | None = None
        self._closed = False

    def __enter__(self) -> ChildProcess:
        """Give the child itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # Reading.

    def read_stdout(self) -> bytes | None:
        """Read what is there, at most ``CHUNK_BYTES``: empty when nothing is, None at the end of the stream.

        At the end unregister ``stdout_fd``, which stays readable. The process may live on.
        """
        return _read(self.stdout_fd)

    def read_stderr(self) -> bytes | None:
        """Read what is there, as ``read_stdout`` does, and keep the tail of it."""
        chunk = _read(self.stderr_fd)
        if chunk:
            self._stderr += chunk
            del self._stderr[: -self._stderr_limit]
        return chunk

    def stderr_tail(self) -> str:
        """Give the last part of what was read from stderr, for an error message."""
        return self._stderr.decode("utf-8", "replace")

    def describe_end(self) -> str:
        """Say how it ended (or that it lives) and what it said last on stderr, for people to read."""
        for _ in range(_DRAIN_CHUNKS):
            if self._closed or not self.read_stderr():
                break
        status = self.poll()
        ending = "closed its stdout, still running" if status is None else str(status)
        last_words = redacted(self.stderr_tail(), self._hidden).strip()[-_REASON_CHARS:]
        return f"{ending}; stderr ends: {last_words}" if last_words else f"{ending}; nothing on stderr"

    # Writing.

    @property
    def wants_write(self) -> bool:
        """True while something waits to be written: register ``stdin_fd`` for writing."""
        return bool(self._outbox)

    @property
    def stdin_closed(self) -> bool:
        """True when nothing can be sent any more."""
        stdin = self._process.stdin
        return stdin is None or stdin.closed

    def send(self, data: bytes) -> None:
        """Put one whole message into the outbox; ``flush`` writes it.

        Raises OutboxFull when it does not fit (nothing of it is taken), ChildClosed when stdin is closed.
        """
        if self.stdin_closed:
            raise ChildClosed(f"process {self.pid} takes no more input")
        if self._outbox_bytes + len(data) > self._outbox_limit:
            raise OutboxFull(
                f"process {self.pid} does not read its input: {self._outbox_bytes} bytes wait, "
                f"{len(data)} more exceed the bound of {self._outbox_limit}"
            )
        if data:
            self._outbox.append(memoryview(data))
            self._outbox_bytes += len(data)

    def flush(self) -> bool:
        """Write what the pipe takes now. True when nothing waits any more, or the child closed its end."""
        while self._outbox:
            try:
                written = os.write(self.stdin_fd, self._outbox[0][:CHUNK_BYTES])
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                self._close_stdin()
                return True
            self._outbox_bytes -= written
            rest = self._outbox.popleft()[written:]
            if rest:
                self._outbox.appendleft(rest)
        return True

    # Ending.

    def poll(self) -> ExitStatus | None:
        """Give the exit status once the process has ended, and reap it; its whole group is killed then."""
        if self._status is None:
            self._status = self._reap()
        return self._status

    def begin_stop(self, now: float) -> None:
        """Ask the child to end, by closing its stdin after a last flush. Then call ``advance_stop``."""
        if self._stop is _Stop.RUNNING:
            if not self.stdin_closed:
                self.flush()
            self._close_stdin()
            self._stop, self._stop_next = _Stop.INPUT_CLOSED, now + STOP_STEP_S

    def advance_stop(self, now: float) -> ExitStatus | None:
        """Go on with stopping: SIGTERM one second after ``begin_stop``, SIGKILL after one more, to the group.

        Gives the exit status once there is one. Call it when ``pidfd`` is readable and at
        ``next_stop_deadline``.
        """
        status = self.poll()
        if status is not None or self._stop_next is None or now < self._stop_next:
            return status
        if self._stop is _Stop.INPUT_CLOSED:
            self._signal_group(signal.SIGTERM)
            self._stop, self._stop_next = _Stop.TERMINATED, now + STOP_STEP_S
        else:
            self._signal_group(signal.SIGKILL)
            self._stop, self._stop_next = _Stop.KILLED, None
        return self.poll()

    def next_stop_deadline(self) -> float | None:
        """Give the instant of the next step of stopping; None when there is none (any more)."""
        return None if self._status is not None else self._stop_next

    def close(self) -> None:
        """Close every descriptor. A child that lives is killed with its group and reaped (1 s at most)."""
        if self._closed:
            return
        self._closed = True
        if self.poll() is None:
            self._signal_group(signal.SIGKILL)
            watch = select.poll()
            watch.register(self.pidfd, select.POLLIN)
            watch.poll(_REAP_S * 1000)
            self.poll()
        self._close_stdin()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self.pidfd)

    def _reap(self) -> ExitStatus | None:
        # The group is killed while the dead leader still holds its number: after the reaping, the number
        # could already belong to a stranger.
        options = os.WEXITED | os.WNOHANG
        try:
            if os.waitid(os.P_PIDFD, self.pidfd, options | os.WNOWAIT) is None:
                return None
            self._signal_group(signal.SIGKILL)
            ended = os.waitid(os.P_PIDFD, self.pidfd, options)
        except ChildProcessError:
            ended = None
        status = ExitStatus()
        if ended is not None:
            by_itself = ended.si_code == os.CLD_EXITED
            status = ExitStatus(code=ended.si_status) if by_itself else ExitStatus(signal=ended.si_status)
        self._process.returncode = status.code if status.code is not None else -(status.signal or 0)
        return status

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _close_stdin(self) -> None:
        self._outbox.clear()
        self._outbox_bytes = 0
        if self._process.stdin is not None:
            self._process.stdin.close()


def _spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> subprocess.Popen[bytes]:
    if not argv:
        raise SpawnFailed("cannot start a child process: the command is empty")
    if cwd is not None and not Path(cwd).is_dir():
        raise SpawnFailed(f"cannot start {argv[0]!r}: its working folder {cwd} does not exist")
    resolve_command(argv[0], env, cwd)
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), "--", *argv]
    try:
        return subprocess.Popen(
            launcher,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            close_fds=True,
            start_new_session=True,
        )
    except (OSError, ValueError) as fault:
        raise SpawnFailed(f"cannot start {argv[0]!r}: {fault}") from fault


def _pidfd(process: subprocess.Popen[bytes]) -> int:
    try:
        return os.pidfd_open(process.pid)
    except OSError as fault:
        process.kill()
        with process:
            process.wait(_REAP_S)
        raise SpawnFailed(f"cannot watch process {process.pid}: {fault}") from fault


def _non_blocking(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    descriptor = pipe.fileno()
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    return descriptor


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, CHUNK_BYTES) or None
    except BlockingIOError:
        return b""
