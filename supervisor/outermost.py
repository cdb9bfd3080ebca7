"""The outermost process: opens the actor system, watches root and Thespian's admin, and restarts the whole.

It adopts every orphan below it (child sub-reaper), so that what escapes a dead parent is found and ended. It ends
in order on SIGTERM or SIGINT, or when its lease (a pipe that its owner holds) is closed; SIGHUP it passes on to an
actor. No actor runs in it.
"""

from __future__ import annotations

import os
import select
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from callboard.supervisor import log, mends
from callboard.supervisor.envelope import Envelope, Exiting, Init, Ping, Pong, Shutdown, Started, StartFailed
from callboard.supervisor.intensity import Intensity, RestartWindow
from callboard.supervisor.process import (
    become_subreaper,
    close_private,
    descendants,
    is_stopped,
    kill,
    open_pidfd,
    raise_descriptor_limit,
)
from callboard.supervisor.supervisor import SUPERVISOR
from callboard.supervisor.table import ROOT, ProcessTable, Row, write_address

START_S = 60.0
WHOLE_RESTARTS = Intensity(5, 60.0)
STOP_S = 3.0
_BEAT_S = 0.5
_BEAT_LIMIT_S = 5.0
_HELD_LIMIT_S = 1.5
_SWEEP_EVERY_S = 0.5
_SWEEP_LIMIT_S = 1.5


class StartError(RuntimeError):
    """The tree did not come up; the message says which child and why."""


class ActorSystemLike(Protocol):
    """What the outermost process needs of an actor system (``transports.mail.ActorSystemHandle``)."""

    def create(self, actor: str) -> Any:
        """Create a top-level actor."""
        ...

    def send(self, address: Any, message: Any) -> None:
        """Send a message."""
        ...

    def receive(self, timeout_s: float) -> Any | None:
        """Receive a message."""
        ...

    def close(self) -> None:
        """Close this process's end."""
        ...


@dataclass(slots=True)
class _Tree:
    """One life of the whole system."""

    system: ActorSystemLike
    root: Any
    root_pid: int
    root_pidfd: int
    admin_pidfd: int
    beat: int = 0
    beat_seen_at: float = field(default_factory=time.monotonic)
    held_since: float | None = None


class Outermost:
    """Runs the tree until it is told to stop. Not to be used from a thread.

    ``on_hangup`` is the name of an actor and the command that it is sent on SIGHUP; without one, or when the terminal
    that this process was started from is gone, SIGHUP stops the tree. ``on_orphans`` is called when processes whose
    parent was lost have ended here.
    """

    def __init__(
        self,
        runtime_dir: Path,
        root_args: Mapping[str, Any],
        open_system: Callable[[], ActorSystemLike],
        on_up: Callable[[int], None],
        lease_fd: int | None = None,
        on_hangup: tuple[str, Any] | None = None,
        intensity: Intensity = WHOLE_RESTARTS,
        on_orphans: Callable[[], None] | None = None,
    ) -> None:
        self._runtime_dir = runtime_dir
        self._root_args = root_args
        self._open_system = open_system
        self._on_up = on_up
        self._lease_fd = lease_fd
        self._on_hangup = on_hangup
        self._on_orphans = on_orphans
        self._had_terminal = _has_terminal()
        self._hangups = 0
        self._window = RestartWindow(intensity)
        self._table = ProcessTable(runtime_dir)
        self._log = log.open_log(runtime_dir, child="outermost")
        self._lives = 0
        self._stop_signals = 0
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Start the tree and keep it; gives the exit code: 0 stopped in order, 1 given up. Raises StartError."""
        become_subreaper()
        raise_descriptor_limit()
        mends.apply(os.getpid())
        self._catch_signals()
        try:
            return self._keep()
        finally:
            self._sweep()
            os.close(self._wake_r)
            os.close(self._wake_w)

    def _keep(self) -> int:
        while True:
            reason = self._live()
            if reason is None:
                self._log.info("stopped")
                return 0
            self._log.error("system_lost", reason=reason, lives=self._lives)
            if not self._window.record(time.monotonic()):
                self._log.critical("gave_up", reason="the system was lost too often")
                return 1

    def _live(self) -> str | None:
        """One life of the whole: gives why it was lost, None when it was stopped. Only a first start fails for good."""
        try:
            tree = self._start()
        except (StartError, OSError) as fault:
            if self._stop_signals:
                return None
            if self._lives == 1:
                raise
            return f"it did not start again: {fault}"
        self._on_up(self._lives)
        reason = self._watch(tree)
        if reason is None:
            self._stop(tree)
        else:
            self._abandon(tree)
        return reason

    # ------------------------------------------------------------ start
    def _start(self) -> _Tree:
        self._lives += 1
        self._table.create()
        system = self._open_system()
        admin = self._admin_pid()
        root = system.create(SUPERVISOR)
        init = Init(
            id=ROOT,
            kind="supervisor",
            incarnation=self._lives,
            runtime_dir=str(self._runtime_dir),
            args=self._root_args,
        )
        system.send(root, init)
        started = self._await_root(system)
        if isinstance(started, str):
            self._sweep()
            system.close()
            raise StartError(started)
        root_fd, admin_fd = open_pidfd(started.pid), open_pidfd(admin)
        if root_fd is None or admin_fd is None:
            self._sweep()
            system.close()
            raise StartError("the root supervisor ended right after its start")
        self._show_root(started)
        return _Tree(system, started.address, started.pid, root_fd, admin_fd)

    def _await_root(self, system: ActorSystemLike) -> Started | str:
        give_up_at = time.monotonic() + START_S
        while (left := give_up_at - time.monotonic()) > 0:
            if self._stop_signals:
                return "stopped while starting"
            match system.receive(min(left, 0.5)):
                case Started(id="root") as started:
                    return started
                case StartFailed(failure=failure):
                    return failure.message
                case Exiting(reason=reason):
                    return reason
        return f"the tree was not up after {START_S:.0f} s"

    def _admin_pid(self) -> int:
        for process in psutil.Process().children():
            if process.status() != psutil.STATUS_ZOMBIE:
                return process.pid
        raise StartError("Thespian's admin process is not there")

    def _show_root(self, started: Started) -> None:
        self._table.put(
            Row(
                id=ROOT,
                kind="supervisor",
                parent=None,
                state="running",
                incarnation=self._lives,
                restarts=self._lives - 1,
                pid=started.pid,
                address=write_address(started.address),
            )
        )

    # ------------------------------------------------------------ watch
    def _watch(self, tree: _Tree) -> str | None:
        """Wait until the tree is lost (gives why) or is to be stopped (gives None)."""
        poll = select.poll()
        fds = [self._wake_r, tree.root_pidfd, tree.admin_pidfd]
        if self._lease_fd is not None:
            fds.append(self._lease_fd)
        for fd in fds:
            poll.register(fd, select.POLLIN | select.POLLHUP)
        swept_at = time.monotonic()
        while True:
            ready = {fd for fd, _ in poll.poll(_BEAT_S * 1000)}
            self._drain_wakeups()
            self._pass_hangups_on(tree)
            if self._stop_signals or self._lease_fd in ready:
                return None
            if tree.root_pidfd in ready:
                return "the root supervisor died"
            if tree.admin_pidfd in ready:
                return "Thespian's admin died"
            now = time.monotonic()
            if now - swept_at > _SWEEP_EVERY_S:
                swept_at = now
                self._end_orphans(tree)
                if not self._beat(tree):
                    return "the root supervisor answers no heartbeat"
                if self._is_held(tree, now):
                    return "Thespian's admin is stopped"

    def _beat(self, tree: _Tree) -> bool:
        tree.beat += 1
        tree.system.send(tree.root, Ping(tree.beat))
        while (message := tree.system.receive(0.02)) is not None:
            if isinstance(message, Pong):
                tree.beat_seen_at = time.monotonic()
        return time.monotonic() - tree.beat_seen_at < _BEAT_LIMIT_S

    def _is_held(self, tree: _Tree, now: float) -> bool:
        """The admin answers no ping of ours; what can be seen is whether something holds it."""
        admin = _pid_of(tree.admin_pidfd)
        if admin is None or not is_stopped(admin):
            tree.held_since = None
            return False
        tree.held_since = tree.held_since or now
        return now - tree.held_since > _HELD_LIMIT_S

    def _end_orphans(self, tree: _Tree) -> None:
        """Whatever was re-parented to us lost its parent: end it, and reap it."""
        own = self._own_children(tree)
        for process in psutil.Process().children():
            if process.pid not in own and process.status() != psutil.STATUS_ZOMBIE:
                self._log.warning("orphan_ended", orphan=process.pid)
                kill(process.pid)
        if self._reap() and self._on_orphans is not None:
            self._on_orphans()

    def _own_children(self, tree: _Tree) -> set[int]:
        return {pid for fd in (tree.admin_pidfd,) if (pid := _pid_of(fd)) is not None}

    # ------------------------------------------------------------ end
    def _stop(self, tree: _Tree) -> None:
        self._log.info("stopping")
        tree.system.send(tree.root, Shutdown())
        poll = select.poll()
        poll.register(tree.root_pidfd, select.POLLIN)
        poll.register(self._wake_r, select.POLLIN)
        give_up_at = time.monotonic() + STOP_S
        while (left := give_up_at - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(left * 1000)}
            self._drain_wakeups()
            if tree.root_pidfd in ready or self._stop_signals > 1:
                break
        self._abandon(tree)

    def _abandon(self, tree: _Tree) -> None:
        self._sweep()
        tree.system.close()
        close_private(tree.root_pidfd)
        close_private(tree.admin_pidfd)

    def _sweep(self) -> None:
        """SIGKILL everything below this process until nothing is left, and reap it."""
        give_up_at = time.monotonic() + _SWEEP_LIMIT_S
        while (left := descendants(os.getpid())) and time.monotonic() < give_up_at:
            for process in left:
                kill(process.pid)
            self._reap()
            select.select([], [], [], 0.005)
        self._reap()

    def _reap(self) -> bool:
        """Reap what has ended; True when there was anything."""
        has_reaped = False
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                has_reaped = True
        except ChildProcessError:
            pass
        return has_reaped

    # ------------------------------------------------------------ signals
    def _catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: Any) -> None:
        if number == signal.SIGHUP and self._on_hangup is not None:
            self._hangups += 1
        else:
            self._stop_signals += 1
        try:
            os.write(self._wake_w, bytes([number]))
        except BlockingIOError:
            return

    def _pass_hangups_on(self, tree: _Tree) -> None:
        """A SIGHUP that comes with the loss of our terminal means the end, any other one is a command."""
        if not self._hangups or self._on_hangup is None:
            return
        self._hangups = 0
        if self._had_terminal and not _has_terminal():
            self._stop_signals += 1
            return
        name, body = self._on_hangup
        found = self._table.find(name)
        self._log.info("hangup", to=name, found=found is not None)
        if found is not None:
            tree.system.send(found[0], Envelope(request_id=uuid.uuid4().hex, body=body))

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_r, 512):
                continue
        except BlockingIOError:
            return


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _pid_of(pidfd: int) -> int | None:
    """Read the pid behind a pidfd from the kernel; None once it is reaped."""
    info = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii")
    for line in info.splitlines():
        if line.startswith("Pid:"):
            pid = int(line.split()[1])
            return pid if pid > 0 else None
    return None
