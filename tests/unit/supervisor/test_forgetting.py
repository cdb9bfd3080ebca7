"""What an actor holds about its children does not grow with the number of children that it ever had (B21)."""

from __future__ import annotations

import atexit
import gc
import itertools
import multiprocessing.process
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from thespian.actors import ActorAddress
from thespian.system.addressManager import CannotPickleAddress
from thespian.system.messages.multiproc import ChildMayHaveDied, EndpointConnected
from thespian.system.multiprocCommon import MultiProcManager
from thespian.system.transport import ReceiveEnvelope, SendStatus, TransmitIntent

from callboard.supervisor.child import Child
from callboard.supervisor.forgetting import forget_child
from callboard.transports.mail import Endpoint

CHILDREN = int(os.environ.get("CALLBOARD_TEST_CHILDREN", "20000"))
LIMIT_BYTES = 100.0
BLOCK_BYTES = 64


class FakeProcess:
    """A process that is dead as soon as it has started, unless ``lives``."""

    pids = itertools.count(1_000_000)
    exitcode = -9
    lives = False

    def __init__(self, **_given: Any) -> None:
        self.pid = next(self.pids)

    def start(self) -> None:
        multiprocessing.process._children.add(self)  # type: ignore[attr-defined]

    def is_alive(self) -> bool:
        return self.lives

    def join(self, _timeout_s: float) -> None:
        return


class StockTransport:
    """As little of a stock transport as the manager needs; its manager keeps Thespian's own list of addresses."""

    def __init__(self) -> None:
        self.myAddress = ActorAddress("me")
        self.inbox: list[Any] = []

    def setAddressManager(self, _manager: Any) -> None:  # noqa: N802
        return

    def childResetFileNumList(self) -> list[int]:  # noqa: N802
        return []

    def prepEndpoint(self, address: Any, _capabilities: Any) -> Any:  # noqa: N802
        return SimpleNamespace(addrInst=address.addressDetails.addressInstanceNum)

    def connectEndpoint(self, _endpoint: Any) -> None:  # noqa: N802
        return

    def deadAddress(self, _manager: Any, _address: Any) -> None:  # noqa: N802
        return

    def scheduleTransmit(self, manager: Any, intent: Any) -> None:  # noqa: N802
        if intent.targetAddr == self.myAddress:
            self.inbox.append(ReceiveEnvelope(self.myAddress, intent.message))
            return
        if manager is not None and manager.prepMessageSend(intent.targetAddr, intent.message)[0] is None:
            raise CannotPickleAddress(intent.targetAddr)
        intent.tx_done(SendStatus.DeadTarget)

    def set_watch(self, _fds: Any) -> None:
        return

    def run(self, handler: Any, _limit: Any) -> None:
        while self.inbox:
            handler(self.inbox.pop(0))


@pytest.fixture(params=["stock", "unix"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Thespian's manager of one actor, in this process, with its own list of addresses or with our mail."""
    endpoint = None
    transport: Any = StockTransport()
    if request.param == "unix":
        (tmp_path / "mail").mkdir(mode=0o700)
        endpoint = Endpoint(tmp_path, "unix")
        transport = endpoint._transport
    nobody = ActorAddress("parent") if endpoint is None else transport.myAddress
    made = MultiProcManager(
        Child, None, transport, None, None, nobody, nobody, None, {}, SimpleNamespace(Process=FakeProcess), {}
    )
    atexit.unregister(made._shutdownActor)
    made._governer = SimpleNamespace(eventRatePause=lambda _now: None)
    made.asLogger = nobody
    made.actorInst = SimpleNamespace(receiveMessage=lambda _message, _sender: None)
    yield made
    if endpoint is not None:
        endpoint.close()


def live_and_die(manager: Any, number: int) -> Any:
    """One child's life as the manager sees it; every third dies before it has reported."""
    address = manager.createActor(Child, None, None)
    manager._send_intent(TransmitIntent(address, "init"))
    if number % 3:
        report(manager, number, address)
    if number % 2 == 0:
        hear_of_deaths(manager)
    return address


def report(manager: Any, number: int, address: Any) -> None:
    """The child's first message, which says where it is."""
    own = address.addressDetails.addressInstanceNum
    details: Any = f"child-{number}"
    if not isinstance(manager.transport, StockTransport):
        details = manager.transport._unborn.pop(own)
    manager.handleMessages(ReceiveEnvelope(ActorAddress(details), EndpointConnected(own)))


def bury(manager: Any, number: int, address: Any, *, forgets: bool) -> None:
    """Forget the child; of half of them Thespian itself hears only afterwards."""
    if forgets:
        forget_child(manager, address)
    if number % 2:
        hear_of_deaths(manager)


def hear_of_deaths(manager: Any) -> None:
    """As after SIGCHLD."""
    manager.handleMessages(ReceiveEnvelope(manager.myAddress, ChildMayHaveDied()))
    manager.transport.run(manager.handleMessages, 0)


def growth(manager: Any, children: int, *, forgets: bool) -> float:
    """Fit the bytes per child that stay, after a first tenth in which what is bounded fills."""
    points = []
    for number in range(children):
        if number % (children // 10) == 0:
            gc.collect()
            points.append((number, held_bytes(manager)))
        bury(manager, number, live_and_die(manager, number), forgets=forgets)
    return slope(points[1:])


def slope(points: list[tuple[int, int]]) -> float:
    """The least-squares slope."""
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)


def held_bytes(manager: Any) -> int:
    """All small objects of this process, by the allocator's count of blocks, and the one large list."""
    return sys.getallocatedblocks() * BLOCK_BYTES + sys.getsizeof(manager._addrManager._managed)


def test_a_hundred_thousand_children_cost_less_than_a_hundred_bytes_each(manager: Any) -> None:
    """Fewer by default, to be quick: the fit is the same."""
    assert growth(manager, CHILDREN, forgets=True) < LIMIT_BYTES
    assert (manager._children, manager._child_procs, manager._awaitingAddressUpdate._awt) == ([], [], [])


def test_without_forgetting_each_child_costs_more(manager: Any) -> None:
    assert growth(manager, 1000, forgets=False) > LIMIT_BYTES
    assert len(manager._awaitingAddressUpdate._awt) == 334, "mail to those that died before they had reported"


def test_mail_that_waits_for_a_forgotten_child_has_failed_and_later_mail_is_mail_to_the_dead(
    manager: Any,
) -> None:
    address = manager.createActor(Child, None, None)
    outcomes: list[Any] = []
    for _ in range(2):
        intent = TransmitIntent(address, "init", onError=lambda result, _intent: outcomes.append(result))
        manager._send_intent(intent)
        if not outcomes:
            forget_child(manager, address)
            forget_child(manager, address)
    assert outcomes == [SendStatus.Failed, SendStatus.DeadTarget]
    assert manager._awaitingAddressUpdate._awt == []


def test_forgetting_one_child_keeps_the_others(manager: Any) -> None:
    FakeProcess.lives = True
    kept, gone = (manager.createActor(Child, None, None) for _ in range(2))
    for number, address in enumerate((kept, gone)):
        report(manager, number, address)
    forget_child(manager, gone)
    assert [child.addressDetails for child in manager._children] == [
        manager._addrManager.exportAddr(kept).addressDetails
    ]
    assert [getattr(info, "forgotten", False) for info in manager._child_procs] == [False, True]
    FakeProcess.lives = False
    hear_of_deaths(manager)
    assert (manager._children, manager._child_procs) == ([], [])
