"""Thespian 4.0.1's faults, mended from outside: each mend replaces few attributes and says which fault it ends.

``apply`` is called once, by the outermost process, before the actor system opens; forked actors inherit it.
It refuses any other Thespian, by the digest of the source that it mends or leans on. No file of Thespian is touched.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # sixty calls in each actor: the public module wraps each twice
import hashlib
import os
import signal
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard.supervisor.process import FATAL_SIGNALS, PRIVATE_FDS, bind_to_parent

_DIGESTS = {
    "multiprocCommon.py": "fe2c4c348eac187d6cc7dabe0eff23dca276a2822e51b41d07e0c954c9e5efee",
    "actorManager.py": "ef63efe7ab4f9b5efa085671aa51696d727876415b0b06c699ab33b84095121a",
    "addressManager.py": "bde03286ba816a81f63ecec77d4caf12017e4bb028d3483feda28d09e8e4e359",
    "systemCommon.py": "6d8a54fdf089d749a8d2bacf3165f5f812e5d8f2e5a5e66b67e83efa5977877c",
}
_EXIT_CODES_KEPT = 4096
_ADOPTION_LIMIT_S = 5.0

_exit_codes: dict[int, int | None] = {}
_applied = False


class MendError(RuntimeError):
    """This Thespian is not the one that the mends were made for."""


@dataclass(frozen=True, slots=True)
class _Thespian:
    """What is mended: Thespian's modules, and the process that all others are to end with."""

    common: Any
    manager: Any
    outermost_pid: int


def apply(outermost_pid: int, without: AbstractSet[str] = frozenset()) -> None:
    """Mend Thespian in this process and all that it forks; calling it twice does nothing more.

    ``without`` names mends of ``MENDS`` to leave out: for the tests that show what each of them is for.
    Raises MendError when the installed source differs from the one the mends were written against, or for an
    unknown name.
    """
    global _applied
    if unknown := without - MENDS.keys():
        raise MendError(f"there is no mend {', '.join(sorted(unknown))}; there are {', '.join(MENDS)}")
    if _applied:
        return
    from thespian.system import actorManager, addressManager, multiprocCommon, systemCommon

    _check_source(multiprocCommon, actorManager, addressManager, systemCommon)
    thespian = _Thespian(multiprocCommon, actorManager, outermost_pid)
    for name, mend in MENDS.items():
        if name not in without:
            mend(thespian)
    _applied = True


def exit_code_of(pid: int) -> int | None:
    """Give the exit code of a child that Thespian has reaped (negative: a signal), None when not known."""
    return _exit_codes.pop(pid, None)


def _check_source(*modules: Any) -> None:
    for module in modules:
        path = Path(module.__file__)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != _DIGESTS[path.name]:
            raise MendError(
                f"thespian/system/{path.name} is not the one of Thespian 4.0.1 that Callboard mends; "
                "install thespian==4.0.1"
            )


def _mend_lost_exits(thespian: _Thespian) -> None:
    """Children that die together are all announced; the exit code of each is kept for its supervisor."""

    def check(info: Any) -> bool:
        process = info.childProc
        if process.is_alive():
            return True
        process.join(0.5)
        if getattr(info, "forgotten", False):
            return False
        if len(_exit_codes) >= _EXIT_CODES_KEPT:
            _exit_codes.pop(next(iter(_exit_codes)))
        _exit_codes[process.pid] = process.exitcode
        return False

    thespian.common.MultiProcReplicator._checkChildLiveness = staticmethod(check)
    thespian.common.MultiProcReplicator._childExited = lambda self, address: None


def _mend_shutdown(thespian: _Thespian) -> None:
    """An actor that exits waits for each of its dead children apart, not for the last one only.

    On the stock TCP mail only: on ours the exit of every child is heard of once ``lost_exits`` is mended.
    """
    manager = thespian.manager

    def send_exits(self: Any, shutdown_children: bool = True) -> bool:
        manager.atexit.unregister(self._shutdownActor)
        if getattr(self, "_exiting", None):
            return True
        self._exiting = True
        children = list(self.childAddresses) if shutdown_children else []
        for child in children:
            request = manager.ActorExitRequest(recursive=True)

            def gone(_result: Any, intent: Any, child: Any = child) -> Any:
                return self._childInaccessible(child, intent)

            self._send_intent(manager.TransmitIntent(child, request, onError=gone))
        if children:
            return True
        self._sayGoodbye()
        self.transport.abort_run(drain=True)
        return False

    manager.ActorManager._shutdownActor = send_exits


def _mend_logger_death(thespian: _Thespian) -> None:
    """The death of Thespian's logger does not take the admin with it (a misspelt attribute)."""
    thespian.common.MultiProcReplicator.logDefs = property(
        lambda self: self.__dict__.get("logDefs", getattr(self, "logdefs", None)),
        lambda self, value: self.__dict__.__setitem__("logDefs", value),
    )


def _mend_signals(thespian: _Thespian) -> None:
    """A fault signal ends the process; Thespian would catch it and spin (B14)."""

    def set_handler(number: int, action: Any) -> Any:
        return _signal.signal(number, _signal.SIG_DFL if number in FATAL_SIGNALS else action)

    thespian.common.set_signal_handler = set_handler


def _mend_orphans(thespian: _Thespian) -> None:
    """Every actor, the admin and the logger die with their parent (B7), and inherit no descriptor of its."""
    common, outermost_pid = thespian.common, thespian.outermost_pid
    start_child, start_logger, admin_init = (
        common.startChild,
        common.startupASLogger,
        common.MultiProcAdmin.__init__,
    )

    def bound_child(*args: Any, **kwargs: Any) -> Any:
        _settle_in_child()
        return start_child(*args, **kwargs)

    def bound_logger(*args: Any, **kwargs: Any) -> Any:
        _settle_in_child()
        return start_logger(*args, **kwargs)

    def bound_admin(self: Any, *args: Any, **kwargs: Any) -> None:
        _await_adoption(outermost_pid)
        bind_to_parent(outermost_pid)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        admin_init(self, *args, **kwargs)

    common.startChild = bound_child
    common.startupASLogger = bound_logger
    common.MultiProcAdmin.__init__ = bound_admin


def _settle_in_child() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    bind_to_parent(parent.pid)
    for fd in list(PRIVATE_FDS):
        PRIVATE_FDS.discard(fd)
        os.close(fd)
    _exit_codes.clear()


def _await_adoption(outermost_pid: int) -> None:
    """The admin daemonises: its first parent ends, and only then has the outermost process adopted it."""
    give_up_at = time.monotonic() + _ADOPTION_LIMIT_S
    while os.getppid() != outermost_pid and time.monotonic() < give_up_at:
        time.sleep(0.001)


MENDS: dict[str, Callable[[_Thespian], None]] = {
    "lost_exits": _mend_lost_exits,
    "shutdown": _mend_shutdown,
    "logger_death": _mend_logger_death,
    "signals": _mend_signals,
    "orphans": _mend_orphans,
}
