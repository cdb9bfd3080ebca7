"""The sending side of one process's mail: at once where the target has room, else from an outbox for that target.

Order is kept per target; a full target delays nobody else's mail; a dead one is known at once. It never waits. The
transport calls in with its lock held, polls the descriptors of the outboxes for writing, and completes what is done.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from callboard.transports import datagrams, memfd, unix_socket
from callboard.transports.mail_errors import TargetFull
from callboard.transports.outbox import Outbox, Parcel
from callboard.transports.unix_socket import Sending

TOTAL_BYTES = 512 * 1024 * 1024
_PUSH_BYTES = 32 * 1024


class _Box:
    """The outbox of one target with the socket that is connected to it."""

    def __init__(self, path: str, via: socket.socket) -> None:
        self.path = path
        self.via = via
        self.outbox = Outbox()
        self.added_bytes = 0
        self.memory_fd: int | None = None

    def close(self) -> None:
        self.drop_memory()
        self.via.close()

    def drop_memory(self) -> None:
        if self.memory_fd is not None:
            os.close(self.memory_fd)
            self.memory_fd = None


class Sender:
    """Sends for one address. ``resolve`` gives what the kernel takes for a target's path, or None for nowhere."""

    def __init__(
        self,
        own_path: str,
        via: socket.socket,
        resolve: Callable[[str], str | None],
        poll: select.poll,
    ) -> None:
        self._own = os.fsencode(own_path)
        self._via = via
        self._resolve = resolve
        self._poll = poll
        self._boxes: dict[str, _Box] = {}
        self._by_fd: dict[int, _Box] = {}
        self._done: list[tuple[Any, Sending]] = []

    # ------------------------------------------------------------ sending
    def post(self, path: str, parcel: Parcel, *, urgent: bool = False) -> None:
        """Send the parcel, or keep it until its target has room. Raises TargetFull, and then it was not taken."""
        box = self._boxes.get(path)
        if box is not None:
            self._put(box, parcel, urgent)
            if box.added_bytes >= _PUSH_BYTES:
                self._push(box)
            return
        target = self._resolve(path)
        outcome = Sending.DEAD if target is None else self._send(self._via, (parcel,), target)
        if outcome is not Sending.FULL or target is None:
            self._done.append((parcel.intent, outcome))
            return
        self._open_box(path, target, parcel)

    def _open_box(self, path: str, target: str, parcel: Parcel) -> None:
        via = unix_socket.connect(target)
        if isinstance(via, Sending):
            self._done.append((parcel.intent, via))
            return
        box = _Box(path, via)
        box.outbox.add(parcel)
        self._boxes[path] = self._by_fd[via.fileno()] = box
        self._poll.register(via, select.POLLOUT)
        self._push(box)

    def _put(self, box: _Box, parcel: Parcel, urgent: bool) -> None:
        if not urgent and self.waiting_bytes() + parcel.size > TOTAL_BYTES:
            raise TargetFull(f"{TOTAL_BYTES} bytes of mail wait in this process already")
        box.outbox.add(parcel, urgent=urgent)
        box.added_bytes += parcel.size

    def push(self, fd: int) -> bool:
        """Send what the outbox with this descriptor can send now; False when there is no such outbox."""
        box = self._by_fd.get(fd)
        if box is not None:
            self._push(box)
        return box is not None

    def push_all(self) -> None:
        """Try every outbox: for the case that a readiness was missed."""
        for box in list(self._boxes.values()):
            self._push(box)

    def push_to(self, path: str) -> None:
        """Try the outbox of this target: it may be dead."""
        box = self._boxes.get(path)
        if box is not None:
            self._push(box)

    def _push(self, box: _Box) -> None:
        box.added_bytes = 0
        while parcels := box.outbox.batch():
            outcome = self._send_kept(box, parcels)
            if outcome is Sending.FULL:
                return
            if outcome is Sending.DEAD:
                parcels = box.outbox.empty()
            else:
                box.outbox.drop(len(parcels))
            self._done.extend((parcel.intent, outcome) for parcel in parcels)
        self._close_box(box)

    def _close_box(self, box: _Box) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(box.via)
        del self._boxes[box.path], self._by_fd[box.via.fileno()]
        box.close()

    def _send_kept(self, box: _Box, parcels: list[Parcel]) -> Sending:
        """Send from an outbox; a large parcel's memory file is made once, however often it has to be tried."""
        if not parcels[0].is_large:
            return self._send(box.via, parcels, None)
        if box.memory_fd is None:
            try:
                box.memory_fd = memfd.seal(parcels[0].chunks)
            except OSError:
                return Sending.FAILED
        data = datagrams.encode_memory(self._own, parcels[0].size)
        outcome = unix_socket.send(box.via, data, fd=box.memory_fd)
        if outcome is not Sending.FULL:
            box.drop_memory()
        return outcome

    def _send(self, via: socket.socket, parcels: list[Parcel] | tuple[Parcel], target: str | None) -> Sending:
        if not parcels[0].is_large:
            bodies = [p.chunks[0] if len(p.chunks) == 1 else b"".join(p.chunks) for p in parcels]
            return unix_socket.send(via, datagrams.encode(self._own, bodies), target)
        try:
            fd = memfd.seal(parcels[0].chunks)
        except OSError:
            return Sending.FAILED
        try:
            return unix_socket.send(via, datagrams.encode_memory(self._own, parcels[0].size), target, fd)
        finally:
            os.close(fd)

    # ------------------------------------------------------------ what is going on
    def take_done(self) -> list[tuple[Any, Sending]]:
        """Give the intents that are done since the last call, with what became of each, in order."""
        done, self._done = self._done, []
        return done

    def waiting(self) -> int:
        """Give the number of messages that wait."""
        return sum(len(box.outbox) for box in self._boxes.values())

    def waiting_bytes(self) -> int:
        """Give the bytes that wait."""
        return sum(box.outbox.bytes for box in self._boxes.values())

    def waiting_parcels(self) -> list[Parcel]:
        """List what waits."""
        return [parcel for box in self._boxes.values() for parcel in box.outbox.parcels()]

    @property
    def has_waiting(self) -> bool:
        """True while an outbox exists."""
        return bool(self._boxes)

    @property
    def fds(self) -> list[int]:
        """The descriptors that it holds."""
        memory = [box.memory_fd for box in self._boxes.values() if box.memory_fd is not None]
        return [*self._by_fd, *memory]

    def close(self) -> None:
        """Give up: what waits has failed."""
        for box in list(self._boxes.values()):
            self._done.extend((parcel.intent, Sending.FAILED) for parcel in box.outbox.empty())
            self._close_box(box)
