"""Datagram sockets as the mail uses them: bind, receive with the peer's credentials, send without waiting.

It decides what an error number means for the mail (full, dead, failed) and refuses nothing itself: who the peer is,
is reported with each datagram as the kernel gave it. Received descriptors are the caller's to close.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
from dataclasses import dataclass
from enum import Enum, auto

from callboard.transports.datagrams import MAX_DATAGRAM
from callboard.transports.mail_errors import MailError

SEND_BUFFER = 1024 * 1024
_CREDENTIALS = struct.Struct("3i")
_MAX_FDS = 4
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
_FULL = {errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS}
_DEAD = {
    errno.ECONNREFUSED,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPIPE,
    errno.ECONNRESET,
    errno.ENOTCONN,
    errno.EPROTOTYPE,
}


class Sending(Enum):
    """What became of a datagram."""

    SENT = auto()
    FULL = auto()
    DEAD = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Received:
    """One datagram: its bytes (valid until the next one), the sender's uid by the kernel, and its descriptors.

    ``uid`` is None when the kernel gave none; ``whole`` is False when something was cut off.
    """

    data: memoryview
    uid: int | None
    fds: tuple[int, ...]
    whole: bool

    def close_fds(self) -> None:
        """Close the descriptors that came with it."""
        for fd in self.fds:
            os.close(fd)


def bind(sun_path: str) -> socket.socket:
    """Open the socket that receives at this path: mode 0600, not blocking, with credentials on every datagram.

    Raises MailError.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        made.setblocking(False)
        os.fchmod(made.fileno(), 0o600)
        made.bind(sun_path)
    except OSError as fault:
        made.close()
        raise MailError(fault.errno, f"cannot open the mail socket {sun_path}: {fault.strerror}") from fault
    return made


def connect(sun_path: str) -> socket.socket | Sending:
    """Open a socket that sends to this path only, whose readiness for writing tells when the target has room."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        made.connect(sun_path)
    except OSError as fault:
        made.close()
        return Sending.DEAD if fault.errno in _DEAD else Sending.FAILED
    return made


def send(via: socket.socket, data: bytes, sun_path: str | None = None, fd: int | None = None) -> Sending:
    """Send one datagram, with a descriptor or without: to the path, or where ``via`` is connected to."""
    try:
        if fd is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            via.sendmsg([data], rights, 0, *([] if sun_path is None else [sun_path]))
        elif sun_path is None:
            via.send(data)
        else:
            via.sendto(data, sun_path)
    except OSError as fault:
        if fault.errno in _FULL:
            return Sending.FULL
        return Sending.DEAD if fault.errno in _DEAD else Sending.FAILED
    return Sending.SENT


class Inlet:
    """The receiving side of a bound socket, with one buffer for all datagrams."""

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self._buffer = memoryview(bytearray(MAX_DATAGRAM))

    def receive(self) -> Received | None:
        """Take the next datagram; None when none is there."""
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into(
                [self._buffer], _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        uid, fds = None, array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                uid = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[1]
            elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        whole = not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        return Received(self._buffer[:size], uid, tuple(fds), whole)
