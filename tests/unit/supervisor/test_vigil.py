"""The vigil: who hangs is ended, who uses too much is dealt with as its spec says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callboard.supervisor.envelope import Busy, Ping, Pong, Shutdown
from callboard.supervisor.figures import Action, Figures, Limits
from callboard.supervisor.heartbeat import LIMIT_S
from callboard.supervisor.vigil import Vigil


class Host:
    """Stands in for the supervisor actor: its clock, timers, mail and log."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.mail: list[tuple[Any, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.log = self

    def now(self) -> float:
        return self.time

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.timers.append((self.time + delay_s, action))

    def send(self, address: Any, message: Any) -> None:
        self.mail.append((address, message))

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append({"event": event, **facts})

    def pass_time(self, until: float, answer: Callable[[Ping], None] | None = None) -> None:
        while self.timers and min(self.timers, key=lambda t: t[0])[0] <= until:
            due = min(self.timers, key=lambda t: t[0])
            self.timers.remove(due)
            self.time = due[0]
            due[1]()
            if answer is not None:
                for _, message in self.mail:
                    if isinstance(message, Ping):
                        answer(message)
            self.mail = [m for m in self.mail if not isinstance(m[1], Ping)]
        self.time = until


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def ended(host: Host) -> list[tuple[str, int, str]]:
    return []


@pytest.fixture
def vigil(host: Host, ended: list[tuple[str, int, str]]) -> Vigil:
    return Vigil(host, lambda id, incarnation, reason: ended.append((id, incarnation, reason)))  # type: ignore[arg-type]


USED = Figures(rss_mb=300.0, cpu_s=1.0, descriptors=10, threads=1)


def test_a_child_that_answers_nothing_is_ended_with_the_reason(
    host: Host, vigil: Vigil, ended: list[tuple[str, int, str]]
) -> None:
    vigil.watch("a", 3, "address", None)
    host.pass_time(LIMIT_S - 0.1)
    assert ended == []
    host.pass_time(LIMIT_S + 3)
    assert ended[0][:2] == ("a", 3)
    assert "heartbeat" in ended[0][2]


def test_a_child_that_announced_a_long_operation_is_left_alone(
    host: Host, vigil: Vigil, ended: list[tuple[str, int, str]]
) -> None:
    vigil.watch("a", 1, "address", None)
    vigil.excuse("a", Busy(id="a", incarnation=1, for_s=100.0))
    host.pass_time(100.0)
    assert ended == []
    host.pass_time(100.0 + LIMIT_S + 3)
    assert ended


def test_a_stopping_child_is_watched_no_longer(
    host: Host, vigil: Vigil, ended: list[tuple[str, int, str]]
) -> None:
    vigil.watch("a", 1, "address", None)
    vigil.forget("a")
    host.pass_time(100.0)
    assert ended == []


@pytest.mark.parametrize(
    ("action", "kills", "asks"), [("warn", False, False), ("restart", False, True), ("kill", True, False)]
)
def test_a_limit_is_acted_on_as_the_spec_says(
    action: Action, kills: bool, asks: bool, host: Host, vigil: Vigil, ended: list[tuple[str, int, str]]
) -> None:
    vigil.watch("a", 1, "address", Limits(rss_mb=256.0, action=action))
    host.pass_time(5.0, answer=lambda ping: vigil.heard(Pong(ping.number, USED)))
    assert bool(ended) is kills
    assert any(isinstance(message, Shutdown) for _, message in host.mail) is asks
    assert [line["event"] for line in host.lines] == ["limit_exceeded"], "said once, not at every heartbeat"
    assert "rss_mb 300" in host.lines[0]["reason"]


def test_within_its_limits_a_child_is_left_alone(
    host: Host, vigil: Vigil, ended: list[tuple[str, int, str]]
) -> None:
    vigil.watch("a", 1, "address", Limits(rss_mb=512.0, action="kill"))
    host.pass_time(60.0, answer=lambda ping: vigil.heard(Pong(ping.number, USED)))
    assert ended == []
    assert host.lines == []
