"""Thespian's transport contract over the Unix-domain mail: one object per actor process, or per outside thread.

It decides in what order an actor sees things (mail, wakeups, watched descriptors, signals) and what Thespian is told
of each send. The sockets, the outboxes and the check of who sent what are ``unix_sender`` and ``unix_receiver``.
Thespian calls it; ``mail.Endpoint`` uses it directly.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.util
import os
import select
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from thespian.actors import ActorAddress, ActorExitRequest, ActorSystemMessage, ChildActorExited, PoisonMessage
from thespian.actors import WakeupMessage, WatchMessage
from thespian.system.addressManager import ActorLocalAddress, CannotPickleAddress
from thespian.system.messages.convention import CONV_ADDR_IPV4_CAPABILITY
from thespian.system.messages.multiproc import ChildMayHaveDied, EndpointConnected
from thespian.system.timing import ExpirationTimer, timePeriodSeconds
from thespian.system.transport import (
    ExternalInterfaceTransportInit,
    SendStatus,
    Thespian__Run_Expired,
    Thespian__Run_HandlerResult,
    Thespian__Run_Terminated,
    TransmitOnly,
    TransportInit__Base,
)
from thespian.system.utilis import thesplog

from callboard.transports import letters, mail_counts, unix_socket
from callboard.transports.address_book import AddressBook
from callboard.transports.mail_counts import MailCounts
from callboard.transports.mail_errors import MailError, OutboxFull
from callboard.transports.mail_folder import MailFolder, probe
from callboard.transports.outbox import Parcel
from callboard.transports.unix_address import UnixAddress, new_name
from callboard.transports.unix_receiver import Letter, Receiver
from callboard.transports.unix_sender import Sender
from callboard.transports.unix_socket import Sending
from callboard.transports.wakeups import Wakeups

MAIL_FOLDER = "Mail Folder"
ADMIN_NAME = "Mail Admin Name"
_DATAGRAMS_AT_ONCE = 16
_DATAGRAMS_DRAINED = 1024
_INBOX_FULL = 1024
_LOOK_AROUND_EVERY = 32
_TRY_AGAIN_S = 1.0
_SWEEP_S = 30.0
_DRAIN_S = 2.0
_POISON_KEPT = 1024
_STATUS = {
    Sending.SENT: SendStatus.Sent,
    Sending.DEAD: SendStatus.DeadTarget,
    Sending.FAILED: SendStatus.Failed,
}


@dataclass(frozen=True, slots=True)
class Outside:
    """How a thread of a process outside the actor system opens its end: in this folder, under a new name."""

    folder: str
    admin: Any


class Endpoint(TransportInit__Base):  # type: ignore[misc]
    """What a parent gives its child to open its end with, and keeps to know it by.

    ``inherited`` are the parent's descriptors, each with what it refers to: a forked child closes them.
    """

    def __init__(self, instance: int | None, address: UnixAddress, parent: Any, admin: Any, inherited: Any) -> None:
        self.instance = instance
        self.address = address
        self.parent = parent
        self.admin = admin
        self.inherited = inherited

    @property
    def addrInst(self) -> int | None:  # noqa: N802
        """The number under which the parent created the child."""
        return self.instance


class UnixTransport:
    """The mail of one process. Sends may come from any thread; ``run`` is one thread's at a time."""

    def __init__(self, init: Any, *args: Any) -> None:
        own = self._opening(init, args)
        self._folders: dict[str, MailFolder | None] = {}
        self._folder = MailFolder(own.folder, create=isinstance(init, ExternalInterfaceTransportInit))
        self._folders[own.folder] = self._folder
        self._socket = _bind(self._folder, own.name)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._own = own
        self.myAddress = ActorAddress(own)
        self._close_files = multiprocessing.util.Finalize(
            None, _unlink, args=(own.path,), exitpriority=0
        )
        self._counts = MailCounts()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._lock = threading.Lock()
        self._sender = Sender(own.path, self._socket, self._resolve, self._poll)
        self._receiver = Receiver(self._socket, self._counts)
        self._inbox: deque[Letter] = deque()
        self._wakeups = Wakeups()
        self._watches: frozenset[int] = frozenset()
        self._unborn: dict[int, UnixAddress] = {}
        self._runner: int | None = None
        self._aborted = self._drain = False
        self._check_children = self._shutdown_signalled = False
        self._wakeup_was_last = False
        self._delivered = 0
        self._poison = 0
        self._try_again_at = 0.0
        self._sweep_at = time.monotonic() + _SWEEP_S if self._is_admin else None

    def _opening(self, init: Any, args: tuple[Any, ...]) -> UnixAddress:
        if isinstance(init, Endpoint):
            _close_inherited(init.inherited)
            self._admin, self._parent = init.admin, init.parent
            return init.address
        if isinstance(init, Outside):
            self._admin, self._parent = init.admin, None
            return UnixAddress(f"{init.folder}/{new_name()}")
        self._admin, self._parent = self.getAdminAddr(args[0]), None
        return UnixAddress(f"{self._admin.addressDetails.folder}/{new_name()}")

    @property
    def _is_admin(self) -> bool:
        return bool(self._own == self._admin.addressDetails)

    # ------------------------------------------------------------ addresses
    @classmethod
    def getAdminAddr(cls, capabilities: dict[str, Any]) -> Any:  # noqa: N802
        """Give the address of the admin of the system with these capabilities."""
        folder = capabilities.get(MAIL_FOLDER)
        if not folder:
            raise MailError(f"the capability {MAIL_FOLDER!r} must name the folder of the actors' sockets")
        return ActorAddress(UnixAddress(f"{os.path.abspath(folder)}/{capabilities.get(ADMIN_NAME, 'admin')}"))

    @classmethod
    def getAddressFromString(cls, spec: Any) -> Any:  # noqa: N802
        """Give the address that is written as the absolute path of its socket."""
        if not isinstance(spec, str) or not os.path.isabs(spec):
            raise MailError(f"an address of this mail is the absolute path of a socket, not {spec!r}")
        return ActorAddress(UnixAddress(os.path.abspath(spec)))

    @classmethod
    def getConventionAddress(cls, capabilities: dict[str, Any]) -> Any:  # noqa: N802
        """Give the addresses of the convention's leaders; None when there are none."""
        found = capabilities.get(CONV_ADDR_IPV4_CAPABILITY)
        if not found:
            return None
        return [cls.getAddressFromString(each) for each in (found if isinstance(found, list) else [found])]

    @classmethod
    def probeAdmin(cls, address: Any) -> bool:  # noqa: N802
        """True when somebody has the admin's socket open."""
        folder = MailFolder(address.addressDetails.folder)
        try:
            return folder.is_open(address.addressDetails.name)
        finally:
            folder.close()

    def setAddressManager(self, manager: Any) -> None:  # noqa: N802
        """Take the actor's address manager; its list of children shall not grow for ever."""
        self._book = AddressBook(ActorAddress(UnixAddress(f"{self._own.folder}/nobody")))
        manager._managed = self._book

    def _resolve(self, path: str) -> str | None:
        address = UnixAddress(path)
        if address.folder not in self._folders:
            try:
                self._folders[address.folder] = MailFolder(address.folder)
            except MailError as fault:
                thesplog("no mail to %s: %s", path, fault, level=logging.WARNING)
                return None
        folder = self._folders[address.folder]
        return folder.sun_path(address.name) if folder is not None else None

    # ------------------------------------------------------------ children
    def prepEndpoint(self, assigned: Any, capabilities: dict[str, Any]) -> Endpoint:  # noqa: N802
        """Choose the address of a child that is about to be forked."""
        details, instance = assigned.addressDetails, None
        if isinstance(details, ActorLocalAddress):
            instance = details.addressInstanceNum
            details = self._unborn[instance] = UnixAddress(f"{self._own.folder}/{new_name()}")
        inherited = [(fd, _identity(fd)) for fd in self._fds()]
        return Endpoint(instance, details, self.myAddress, self._admin, inherited)

    def connectEndpoint(self, endpoint: Endpoint) -> None:  # noqa: N802
        """Do nothing: the child reports by mail."""

    def deadAddress(self, manager: Any, address: Any) -> None:  # noqa: N802
        """Forget a dead child: fail what waits for it, and remove the socket that it may have left."""
        details = address.addressDetails
        if isinstance(details, ActorLocalAddress):
            self._book.bury(details.addressInstanceNum)
            details = self._unborn.pop(details.addressInstanceNum, None)
        else:
            self._book.bury_address(details)
        if not isinstance(details, UnixAddress):
            return
        with self._lock:
            self._sender.push_to(details.path)
        if details.folder == self._own.folder:
            self._folder.unlink_if_dead(details.name)
        self._complete()

    def _fds(self) -> list[int]:
        own = [self._socket.fileno(), self._wake]
        return own + self._sender.fds + [fd for f in self._folders.values() if f is not None for fd in f.fds]

    def protectedFileNumList(self) -> list[int]:  # noqa: N802
        """List the descriptors that are needed to go on."""
        return self._fds()

    def childResetFileNumList(self) -> list[int]:  # noqa: N802
        """List the descriptors that a forked child has to close."""
        return self._fds()

    def external_transport_clone(self) -> UnixTransport:
        """Open another end for another thread of this process."""
        return type(self)(Outside(self._own.folder, self._admin))

    # ------------------------------------------------------------ sending
    def scheduleTransmit(self, manager: Any, intent: Any, has_exclusive_flag: bool = False) -> None:  # noqa: N802
        """Send the intent's message, now or as soon as its target has room; the intent is told what became of it.

        Raises CannotPickleAddress while an address in it is not known yet (Thespian then comes again), TooLarge, and
        what pickling raises.
        """
        if manager is not None and not self._readdress(manager, intent):
            return
        target, message = intent.targetAddr.addressDetails, intent.message
        if isinstance(target, ActorLocalAddress):
            raise CannotPickleAddress(intent.targetAddr)
        if not isinstance(target, UnixAddress):
            raise MailError(f"{target} is no address of this mail")
        if target == self._own:
            self._post_to_self(intent)
            return
        try:
            chunks, size = letters.freeze(message)
        except Exception:
            if isinstance(message, logging.LogRecord):
                self._fail(intent, mail_counts.FAILED)
                return
            raise
        try:
            with self._lock:
                urgent = isinstance(message, ActorSystemMessage)
                self._sender.post(target.path, Parcel(chunks, size, intent), urgent=urgent)
        except OutboxFull as fault:
            self._refuse(intent, fault)
        self._complete()
        if self._sender.has_waiting and threading.get_ident() != self._runner:
            self._interrupt()

    def _readdress(self, manager: Any, intent: Any) -> bool:
        target, message = manager.prepMessageSend(intent.targetAddr, intent.message)
        if message is SendStatus.DeadTarget:
            intent.tx_done(SendStatus.Sent)
            return False
        if target is None:
            raise CannotPickleAddress(intent.targetAddr)
        intent.changeTargetAddr(target)
        intent.changeMessage(message)
        return True

    def _post_to_self(self, intent: Any) -> None:
        if isinstance(intent.message, ChildActorExited) and self._runner in (None, threading.get_ident()):
            # A dead child's last words are in the socket already, and are to be seen before its exit notice.
            self._inbox.extend(self._receive(_DATAGRAMS_DRAINED))
        self._inbox.append(Letter(self.myAddress, intent.message))
        if threading.get_ident() != self._runner:
            self._interrupt()
        intent.tx_done(SendStatus.Sent)

    def _complete(self) -> None:
        """Tell the intents what became of them; their callbacks may send in turn."""
        while True:
            with self._lock:
                done = self._sender.take_done()
            if not done:
                return
            for intent, outcome in done:
                if outcome is Sending.DEAD:
                    self._counts.add(mail_counts.DEAD_TARGET)
                elif outcome is Sending.FAILED:
                    self._counts.add(mail_counts.FAILED)
                intent.tx_done(_STATUS[outcome])

    def _refuse(self, intent: Any, fault: OutboxFull) -> None:
        """Tell the sender, as Thespian does: its message comes back as poison, from the target."""
        if self._counts.add(mail_counts.OUTBOX_FULL):
            thesplog("mail to %s failed: %s", intent.targetAddr, fault, level=logging.WARNING)
        if not isinstance(intent.message, (logging.LogRecord, ActorSystemMessage)):
            if self._poison < _POISON_KEPT:
                self._poison += 1
                poison = PoisonMessage(intent.message, f"not sent to {intent.targetAddr}: {fault}")
                self._inbox.append(Letter(intent.targetAddr, poison))
            else:
                self._counts.add(mail_counts.UNTOLD)
        intent.tx_done(SendStatus.Failed)

    def _fail(self, intent: Any, name: str) -> None:
        self._counts.add(name)
        intent.tx_done(SendStatus.Failed)

    # ------------------------------------------------------------ running
    def run(self, handler: Any, maximumDuration: Any = None) -> Any:  # noqa: N803
        """Deliver what comes to ``handler`` until it gives something false, or the time (a timedelta) is over.

        Without a handler the first envelope is given back. ``TransmitOnly``: deliver nothing, wait until some mail
        that waits has gone, and give how much is left.
        """
        give_up_at = None if maximumDuration is None else time.monotonic() + timePeriodSeconds(maximumDuration)
        self._runner = threading.get_ident()
        try:
            if handler is TransmitOnly or isinstance(handler, TransmitOnly):
                return self._run_sending(give_up_at)
            return self._run_delivering(handler, give_up_at)
        finally:
            if self._drain:
                self._send_rest(time.monotonic() + _DRAIN_S)
            self._aborted = self._drain = False
            self._runner = None

    def _run_delivering(self, handler: Any, give_up_at: float | None) -> Any:
        while not self._aborted:
            letter = self._next(give_up_at)
            if letter is None:
                return Thespian__Run_Terminated() if self._aborted else Thespian__Run_Expired()
            if handler is None:
                return letter
            result = Thespian__Run_HandlerResult(handler(letter))
            if not result:
                return result
        return Thespian__Run_Terminated()

    def _run_sending(self, give_up_at: float | None) -> int:
        before = self._sender.waiting()
        while (left := self._sender.waiting()) and left == before and not self._aborted:
            now = time.monotonic()
            if give_up_at is not None and now >= give_up_at:
                break
            self._wait(None if give_up_at is None else give_up_at - now, reading=False)
        return self._sender.waiting()

    def _send_rest(self, give_up_at: float) -> None:
        while self._sender.has_waiting and (left := give_up_at - time.monotonic()) > 0:
            self._wait(left, reading=False)

    def _next(self, give_up_at: float | None) -> Letter | None:
        """Give what is to be delivered next; None when the time is over. Mail and due wakeups take turns."""
        looked = False
        while True:
            self._delivered += 1
            if self._delivered % _LOOK_AROUND_EVERY == 0:
                self._wait(0.0, reading=len(self._inbox) < _INBOX_FULL)
            if (signal := self._signalled()) is not None:
                return signal
            now = time.monotonic()
            if (letter := self._ready(now, looked)) is not None:
                return letter
            if self._aborted or (looked and give_up_at is not None and now >= give_up_at):
                return None
            self._wait(self._patience(now, give_up_at), reading=True)
            looked = True

    def _ready(self, now: float, looked: bool) -> Letter | None:
        due = self._wakeups.is_due(now)
        if due and (not self._wakeup_was_last or (looked and not self._inbox)):
            self._wakeup_was_last = True
            wakeup = self._wakeups.take_due(now)
            assert wakeup is not None
            return Letter(self.myAddress, WakeupMessage(wakeup.period, wakeup.payload))
        while self._inbox:
            letter = self._inbox.popleft()
            self._wakeup_was_last = False
            message = letter.message
            if isinstance(message, WatchMessage):
                message.ready = [fd for fd in message.ready if fd in self._watches]
                if not message.ready:
                    continue
            elif isinstance(message, EndpointConnected):
                self._unborn.pop(message.childInstance, None)
            elif isinstance(message, PoisonMessage):
                self._poison = max(0, self._poison - 1)
            return letter
        return None

    def _patience(self, now: float, give_up_at: float | None) -> float | None:
        """Give how long to wait at most; None for ever."""
        if self._inbox:
            return 0.0
        ends = [at for at in (give_up_at, self._wakeups.next_at(), self._sweep_at) if at is not None]
        if self._sender.has_waiting:
            ends.append(now + _TRY_AGAIN_S)
        return max(0.0, min(ends) - now) if ends else None

    def _signalled(self) -> Letter | None:
        if self._check_children:
            self._check_children = False
            return Letter(self.myAddress, ChildMayHaveDied())
        if self._shutdown_signalled:
            self._shutdown_signalled = False
            return Letter(self.myAddress, ActorExitRequest())
        return None

    def _wait(self, timeout_s: float | None, *, reading: bool) -> None:
        """Wait until a descriptor is ready, at most this long, and do what it asks for."""
        if timeout_s is not None and self._sender.has_waiting:
            timeout_s = min(timeout_s, _TRY_AGAIN_S)
        if not reading:
            self._poll.unregister(self._socket)
        try:
            ready = self._poll.poll(None if timeout_s is None else _round_up(timeout_s))
        finally:
            if not reading:
                self._poll.register(self._socket, select.POLLIN)
        watched = []
        for fd, events in ready:
            if fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            elif fd == self._socket.fileno():
                self._inbox.extend(self._receive(_DATAGRAMS_AT_ONCE))
            elif fd in self._watches:
                self._see(fd, events, watched)
            else:
                with self._lock:
                    self._sender.push(fd)
        if self._sender.has_waiting and time.monotonic() >= self._try_again_at:
            self._try_again_at = time.monotonic() + _TRY_AGAIN_S
            with self._lock:
                self._sender.push_all()
        if watched and not any(isinstance(letter.message, WatchMessage) for letter in self._inbox):
            self._inbox.append(Letter(self.myAddress, WatchMessage(watched)))
        self._complete()
        self._sweep()

    def _receive(self, limit: int) -> list[Letter]:
        return self._receiver.receive(limit)

    def _see(self, fd: int, events: int, watched: list[int]) -> None:
        if events & select.POLLNVAL:
            thesplog("watched descriptor %s is closed", fd, level=logging.WARNING)
            self._poll.unregister(fd)
            self._watches -= {fd}
        else:
            watched.append(fd)

    def _sweep(self) -> None:
        """The admin removes the sockets of those that died with nobody left to bury them."""
        if self._sweep_at is not None and time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_S
            self._folder.sweep()

    # ------------------------------------------------------------ what an actor and Thespian ask for
    def addWakeup(self, period: Any, payload: Any) -> None:  # noqa: N802
        """Deliver a WakeupMessage after ``period`` (a timedelta, or seconds)."""
        self._wakeups.add(time.monotonic() + timePeriodSeconds(period), period, payload)
        if threading.get_ident() != self._runner:
            self._interrupt()

    def set_watch(self, fds: list[int]) -> None:
        """Deliver a WatchMessage when one of these descriptors (and no others) is readable."""
        wanted = frozenset(fds)
        if wanted == self._watches:
            return
        for fd in self._watches - wanted - set(self._fds()):  # A closed one's number may be one of ours by now.
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
        for fd in wanted - self._watches:
            self._poll.register(fd, select.POLLIN)
        self._watches = wanted

    def interrupt_wait(self, signal_shutdown: bool = False, check_children: bool = False) -> None:
        """Note what a signal asks for, and wake ``run``. Called by signal handlers: it takes no lock."""
        self._shutdown_signalled |= signal_shutdown
        self._check_children |= check_children
        self._interrupt()

    def _interrupt(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake, 1)

    def abort_run(self, drain: bool = False) -> None:
        """End the present ``run``, or the next one if none runs; ``drain``: once the mail that waits is sent."""
        self._aborted = True
        self._drain |= drain

    def enableRXPauseFlowControl(self, enable: bool = True) -> None:  # noqa: N802
        """Do nothing: this mail never stops receiving in order to send."""

    def _updateStatusResponse(self, response: Any) -> None:  # noqa: N802
        for parcel in self._sender.waiting_parcels()[:100]:
            response.addPendingMessage(self.myAddress, parcel.intent.targetAddr, str(parcel.intent.message))
        for letter in list(self._inbox)[:100]:
            response.addReceivedMessage(letter.sender, self.myAddress, str(letter.message))
        now = time.monotonic()
        waiting = [(self.myAddress, ExpirationTimer(max(0.0, w.at - now))) for w in self._wakeups.waiting()]
        response.addWakeups(waiting)
        for name, number in sorted(self._counts.counts.items()):
            response.addKeyVal(number, name)

    def close(self) -> None:
        """Give everything back; what waits has failed. Twice is not an error."""
        if self._socket.fileno() < 0:
            return
        with self._lock:
            self._sender.close()
        self._complete()
        self._socket.close()
        os.close(self._wake)
        self._close_files()
        for folder in self._folders.values():
            if folder is not None:
                folder.close()


def _bind(folder: MailFolder, name: str) -> Any:
    """Open the socket; where a dead one is in its place (an admin's: others' names are new), remove that first."""
    try:
        return unix_socket.bind(folder.sun_path(name))
    except MailError:
        if probe(folder.sun_path(name)):
            raise
    folder.unlink(name)
    return unix_socket.bind(folder.sun_path(name))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _close_inherited(inherited: list[tuple[int, tuple[int, int]]]) -> None:
    """Close the parent's descriptors, where they were inherited and nobody has closed them before."""
    for fd, identity in inherited:
        with contextlib.suppress(OSError):
            if _identity(fd) == identity:
                os.close(fd)


def _round_up(timeout_s: float) -> int:
    return int(timeout_s * 1000) + (1 if timeout_s > 0 else 0)
