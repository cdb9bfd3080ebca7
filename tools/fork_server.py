"""Who forks tool workers: a process that does nothing else, or, where there is none, whoever wants the worker.

Each fork makes all memory of its parent shared anew, and each page that the parent writes to from then on is copied:
for a client that is 3 ms of CPU a call, and more than the fork itself. The fork server is a fork of the client's that
writes to next to nothing; it has no mailbox, and no descriptor but its socket. It ends with its client, and its workers
with it. Called by ``actors/call.py`` and ``actors/worker_process.py``; it decides nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
from collections.abc import Mapping
from functools import partial
from typing import NoReturn

import setproctitle

from callboard.tools.environment import keep_only
from callboard.tools.keeper import die_with, keep, reset_signals
from callboard.tools.runner import Ends, run_executed, run_forked

_ANSWER_S = 5.0
_ANSWER_BYTES = 16
_ORDER_BYTES = 100_000
_SOCKET_FD = 3
_MOST_DESCRIPTORS = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A worker that is wanted. ``command`` leads to the call's process; without one that is a fork of the worker's.

    ``folder`` is the call's private one, which the worker removes at its end. The setup are ``setup_bytes`` of the
    memory that all of them share.
    """

    title: str
    folder: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    setup_bytes: int

    def to_json(self) -> bytes:
        """Give the JSON form."""
        return json.dumps(dataclasses.asdict(self)).encode("ascii")

    @classmethod
    def from_json(cls, text: bytes) -> Order:
        """Read ``to_json``'s form."""
        form = json.loads(text)
        return cls(**{**form, "command": tuple(form["command"])})


def fork_worker(order: Order, ends: Ends, *, signals_are_reset: bool = False) -> tuple[int, int]:
    """Fork the worker from this process, which forks the call's below itself; gives its pid and a pidfd."""
    if order.command:
        run = partial(run_executed, order.command, order.environment, ends=ends)
    else:
        run = partial(run_forked, order.setup_bytes, ends=ends)
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        keep(parent_pid, order.title, order.folder, ends.word, run, signals_are_reset=signals_are_reset)
    return pid, os.pidfd_open(pid)


class ForkServer:
    """The fork server of one client. What it cannot do is done by the client, so nothing depends on it.

    ``fault`` says why it was ended, where it was: the workers that it had forked ended with it.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._socket: socket.socket | None = None
        self.pid = 0
        self.fault = ""

    def start(self) -> None:
        """Fork the server from this process; raises OSError."""
        self.close()
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            own.close()
            its.close()
            raise
        if pid == 0:
            _serve(parent_pid, self._title, its.fileno())
        its.close()
        own.settimeout(_ANSWER_S)
        self._socket, self.pid, self.fault = own, pid, ""

    def fork(self, order: Order, ends: Ends) -> tuple[int, int]:
        """Have the server fork the worker, or fork it here where there is no server, or none any more; raises OSError
        where no process can be had. Gives its pid and a pidfd.
        """
        text = order.to_json()
        if self._socket is None or len(text) > _ORDER_BYTES:
            return fork_worker(order, ends)
        try:
            socket.send_fds(self._socket, [text], [*dataclasses.astuple(ends)])
            answer, fds, _, _ = socket.recv_fds(self._socket, _ANSWER_BYTES, 1)
        except OSError as fault:  # it is stuck; whatever it still did with the order must not happen twice
            self._give_up(str(fault))
        else:
            if fds:
                return int(answer), fds[0]
            if answer:
                raise OSError(int(answer), os.strerror(int(answer)))
            self._give_up("it was killed")
        return fork_worker(order, ends)

    def _give_up(self, fault: str) -> None:
        self.fault = fault
        self.close()

    def close(self) -> None:
        """Let the server end, if it runs; its workers end with it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = 0


def _serve(parent_pid: int, title: str, socket_fd: int) -> NoReturn:
    try:
        die_with(parent_pid)
        os.setsid()
        reset_signals()
        signal.signal(signal.SIGCHLD, lambda _number, _frame: _reap())
        os.dup2(socket_fd, _SOCKET_FD)
        for fd in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        os.closerange(_SOCKET_FD + 1, _MOST_DESCRIPTORS)
        keep_only({})  # each order has its own, and what is not here need not be removed for each call
        setproctitle.setproctitle(f"callboard: {title}")
        _take_orders(socket.socket(fileno=_SOCKET_FD))
    finally:  # a fork must not go back into its parent's frames, whatever happens
        os._exit(0)


def _take_orders(orders: socket.socket) -> None:
    """A worker is not reaped before its answer is sent: until then its pid is its own."""
    while True:
        text, fds, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 5)
        if not text:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        try:
            pid, pidfd = fork_worker(Order.from_json(text), Ends(*fds), signals_are_reset=True)
        except OSError as fault:
            orders.send(str(fault.errno).encode("ascii"))
        else:
            socket.send_fds(orders, [str(pid).encode("ascii")], [pidfd])
            os.close(pidfd)
        for fd in fds:
            os.close(fd)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))


def _reap() -> None:
    """A worker says itself how its call ended; here it only leaves the list of processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
