"""The mail of one process: what comes in, what waits to go out, wakeups, watched descriptors and signals, in one wait.

It decides in what order they are seen: mail in the order of its arrival, a dead child's last words before its exit
notice, due wakeups in turn with mail, and neither a flood of mail nor of wakeups hides a watched descriptor. Sends may
come from any thread; ``next`` is one thread's at a time. ``unix_transport`` puts Thespian's contract around it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.util
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thespian.actors import ActorAddress, WakeupMessage, WatchMessage
from thespian.system.utilis import thesplog

from callboard.transports import unix_socket
from callboard.transports.mail_counts import MailCounts
from callboard.transports.mail_errors import MailError
from callboard.transports.mail_folder import MailFolder, probe
from callboard.transports.outbox import Parcel
from callboard.transports.unix_address import UnixAddress
from callboard.transports.unix_receiver import Letter, Receiver
from callboard.transports.unix_sender import Sender
from callboard.transports.unix_socket import Sending
from callboard.transports.wakeups import Wakeups

_DATAGRAMS_AT_ONCE = 16
_DATAGRAMS_DRAINED = 1024
_INBOX_FULL = 1024
_LOOK_AROUND_EVERY = 32
_TRY_AGAIN_S = 1.0
_SWEEP_S = 30.0


class PostOffice:
    """The process's end at ``own``. ``on_done(intent, outcome)`` is called for each send, when it is decided.

    ``create``: make the folder when it is missing. ``sweeps``: remove from time to time the sockets of those that
    died with nobody left to bury them. Raises MailError.
    """

    def __init__(
        self, own: UnixAddress, on_done: Callable[[Any, Sending], None], *, create: bool, sweeps: bool
    ) -> None:
        self.own = own
        self.address = ActorAddress(own)
        self.counts = MailCounts()
        self.aborted = False
        self.folder = MailFolder(own.folder, create=create)
        self._folders = {own.folder: self.folder}
        self._socket = _bind(self.folder, own.name)
        self._remove_file = multiprocessing.util.Finalize(None, _unlink, args=(own.path,), exitpriority=0)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._lock = threading.Lock()
        self._sender = Sender(own.path, self._socket, self._resolve, self._poll)
        self._receiver = Receiver(self._socket, self.counts)
        self._on_done = on_done
        self._inbox: deque[Letter] = deque()
        self._wakeups = Wakeups()
        self._watches: frozenset[int] = frozenset()
        self._signals: deque[Letter] = deque()
        self._runner: int | None = None
        self._wakeup_was_last = False
        self._delivered = 0
        self._try_again_at = 0.0
        self._sweep_at = time.monotonic() + _SWEEP_S if sweeps else None

    @property
    def fds(self) -> list[int]:
        """The descriptors that it holds."""
        folders = [fd for folder in self._folders.values() for fd in folder.fds]
        return [self._socket.fileno(), self._wake, *self._sender.fds, *folders]

    @property
    def waiting(self) -> int:
        """How many messages wait to be sent."""
        return self._sender.waiting()

    def waiting_parcels(self) -> list[Parcel]:
        """List what waits to be sent."""
        return self._sender.waiting_parcels()

    def waiting_letters(self) -> list[Letter]:
        """List what waits to be delivered."""
        return list(self._inbox)

    @property
    def wakeups(self) -> Wakeups:
        """The wakeups that wait."""
        return self._wakeups

    # ------------------------------------------------------------ sending
    def send(self, path: str, parcel: Parcel, *, urgent: bool) -> None:
        """Send the parcel, or keep it until its target has room. Raises TargetFull, and then it was not taken."""
        with self._lock:
            self._sender.post(path, parcel, urgent=urgent)
        self._complete()
        if self._sender.has_waiting:
            self._wake_other_thread()

    def push_to(self, path: str) -> None:
        """Try what waits for this target, which may be dead."""
        with self._lock:
            self._sender.push_to(path)
        self._complete()

    def post_to_self(self, message: Any, sender: Any = None, *, after_mail: bool = False) -> None:
        """Put a message in the own inbox; ``after_mail``: behind what is in the socket already."""
        if after_mail and self._runner in (None, threading.get_ident()):
            self._inbox.extend(self._receiver.receive(_DATAGRAMS_DRAINED))
        self._inbox.append(Letter(sender or self.address, message))
        self._wake_other_thread()

    def _complete(self) -> None:
        """Say what became of sends; who is told may send in turn."""
        while True:
            with self._lock:
                done = self._sender.take_done()
            if not done:
                return
            for intent, outcome in done:
                self._on_done(intent, outcome)

    def _resolve(self, path: str) -> str | None:
        address = UnixAddress(path)
        folder = self._folders.get(address.folder)
        if folder is None:
            try:
                folder = self._folders[address.folder] = MailFolder(address.folder)
            except MailError as fault:
                thesplog("no mail to %s: %s", path, fault, level=logging.WARNING)
                return None
        return folder.sun_path(address.name)

    # ------------------------------------------------------------ waiting
    def enter(self) -> None:
        """Note that this thread is the one that waits, from now on until ``leave``."""
        self._runner = threading.get_ident()

    def leave(self) -> None:
        """Note that no thread waits."""
        self._runner = None

    def next(self, give_up_at: float | None) -> Letter | None:
        """Give what is to be delivered next; None when the time is over or the run was aborted.

        It looks at least once, whatever the time.
        """
        looked = False
        while True:
            self._delivered += 1
            if self._delivered % _LOOK_AROUND_EVERY == 0:
                self.wait(0.0, reading=len(self._inbox) < _INBOX_FULL)
            now = time.monotonic()
            if self._signals:
                return self._signals.popleft()
            if (letter := self._ready(now, looked)) is not None:
                return letter
            if self.aborted or (looked and give_up_at is not None and now >= give_up_at):
                return None
            self.wait(self._patience(now, give_up_at))
            looked = True

    def _ready(self, now: float, looked: bool) -> Letter | None:
        due = self._wakeups.is_due(now)
        if due and (not self._wakeup_was_last or (looked and not self._inbox)):
            self._wakeup_was_last = True
            wakeup = self._wakeups.take_due(now)
            assert wakeup is not None
            return Letter(self.address, WakeupMessage(wakeup.period, wakeup.payload))
        while self._inbox:
            self._wakeup_was_last = False
            letter = self._inbox.popleft()
            if not isinstance(letter.message, WatchMessage) or self._still_watched(letter.message):
                return letter
        return None

    def _still_watched(self, message: Any) -> bool:
        message.ready = [fd for fd in message.ready if fd in self._watches]
        return bool(message.ready)

    def _patience(self, now: float, give_up_at: float | None) -> float | None:
        """Give how long to wait at most, in seconds; None for ever."""
        ends = [at for at in (give_up_at, self._wakeups.next_at(), self._sweep_at) if at is not None]
        return max(0.0, min(ends) - now) if ends else None

    def wait(self, timeout_s: float | None, *, reading: bool = True) -> None:
        """Wait until a descriptor is ready, at most this long, and do what it asks for; ``reading``: take mail."""
        if self._sender.has_waiting:
            timeout_s = _TRY_AGAIN_S if timeout_s is None else min(timeout_s, _TRY_AGAIN_S)
        if not reading:
            self._poll.unregister(self._socket)
        try:
            ready = self._poll.poll(None if timeout_s is None else _milliseconds(timeout_s))
        finally:
            if not reading:
                self._poll.register(self._socket, select.POLLIN)
        for fd, events in ready:
            self._serve(fd, events)
        self._watch_over(time.monotonic())
        self._complete()

    def _serve(self, fd: int, events: int) -> None:
        if fd == self._socket.fileno():
            self._inbox.extend(self._receiver.receive(_DATAGRAMS_AT_ONCE))
        elif fd == self._wake:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        elif fd not in self._watches:
            with self._lock:
                self._sender.push(fd)
        elif events & select.POLLNVAL:
            thesplog("watched descriptor %s is closed", fd, level=logging.WARNING)
            self.watch(self._watches - {fd})
        else:
            self._see(fd)

    def _see(self, fd: int) -> None:
        for letter in reversed(self._inbox):
            if isinstance(letter.message, WatchMessage):
                if fd not in letter.message.ready:
                    letter.message.ready.append(fd)
                return
        self._inbox.append(Letter(self.address, WatchMessage([fd])))

    def _watch_over(self, now: float) -> None:
        """Try all outboxes now and then, should a readiness have been missed, and sweep."""
        if self._sender.has_waiting and now >= self._try_again_at:
            self._try_again_at = now + _TRY_AGAIN_S
            with self._lock:
                self._sender.push_all()
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_S
            self.folder.sweep()

    # ------------------------------------------------------------ what is waited for
    def wake_after(self, delay_s: float, period: Any, payload: Any) -> None:
        """Deliver a WakeupMessage of this period and payload after ``delay_s`` seconds."""
        self._wakeups.add(time.monotonic() + delay_s, period, payload)
        self._wake_other_thread()

    def watch(self, fds: frozenset[int]) -> None:
        """Deliver a WatchMessage when one of these descriptors, and no others, is readable."""
        if fds == self._watches:
            return
        # A descriptor that was closed may have given its number to one of ours, which stays registered.
        for fd in self._watches - fds - set(self.fds):
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
        for fd in fds - self._watches:
            self._poll.register(fd, select.POLLIN)
        self._watches = fds

    def signal(self, message: Any) -> None:
        """Deliver this before all else, once however often it is asked for. For signal handlers: it takes no lock."""
        if not any(type(letter.message) is type(message) for letter in self._signals.copy()):
            self._signals.append(Letter(self.address, message))
        self.wake()

    def wake(self) -> None:
        """Make a ``wait`` in progress return."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake, 1)

    def _wake_other_thread(self) -> None:
        if threading.get_ident() != self._runner:
            self.wake()

    def close(self) -> None:
        """Give everything back; what waits has failed. Twice is not an error."""
        if self._socket.fileno() < 0:
            return
        with self._lock:
            self._sender.close()
        self._complete()
        self._socket.close()
        os.close(self._wake)
        self._remove_file()
        for folder in self._folders.values():
            folder.close()


def _bind(folder: MailFolder, name: str) -> socket.socket:
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
        Path(path).unlink()


def _milliseconds(timeout_s: float) -> int:
    return int(timeout_s * 1000) + (1 if timeout_s > 0 else 0)
