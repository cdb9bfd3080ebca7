"""When a fork server is there: from the first call until half a minute after the last, and not taken from a worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from callboard.actors import call_forks
from callboard.actors.call_forks import IDLE_S, CallForks


class Host:
    """An actor with a clock of the test's."""

    def __init__(self) -> None:
        self.init = SimpleNamespace(id="conversations.c1")
        self.rows: set[str] = set()
        self.table = SimpleNamespace(put=lambda row: self.rows.add(row.id), remove_row=self.rows.discard)
        self.log = SimpleNamespace(warning=lambda *_, **__: None)
        self.due: list[Callable[[], None]] = []

    def after(self, delay_s: float, action: Callable[[], None]) -> Any:
        assert delay_s == IDLE_S
        self.due = [action]
        return SimpleNamespace(cancel=self.due.clear)


def test_an_idle_server_ends_and_one_with_a_worker_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    host, workers = Host(), [1]
    forks = CallForks(host, lambda: not workers)  # type: ignore[arg-type]
    monkeypatch.setattr(call_forks.ForkServer, "fork", lambda *_: (os.getpid(), -1))
    assert forks.fork(None, None) == (os.getpid(), -1)  # type: ignore[arg-type]
    pid = forks._server.pid
    assert host.rows == {"conversations.c1.forks"}
    host.due[0]()
    assert psutil.pid_exists(pid), "a worker is left"
    workers.clear()
    host.due[0]()
    assert not psutil.pid_exists(pid)
    assert host.rows == set()
    assert forks._server.pid == 0
