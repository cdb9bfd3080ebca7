"""The receiving side of one process's mail: datagrams in, letters out, strangers' mail refused before it is unpickled.

Who sent a datagram is what the kernel says (SCM_CREDENTIALS), never what the datagram says. What is refused is
counted and logged, and harms nobody: the next datagram is read as if nothing had been.
"""

from __future__ import annotations

import logging
import os
import socket

from thespian.actors import ActorAddress
from thespian.system.transport import ReceiveEnvelope
from thespian.system.utilis import thesplog

from callboard.transports import datagrams, letters, memfd
from callboard.transports.mail_counts import FOREIGN, MALFORMED, UNREADABLE, MailCounts
from callboard.transports.mail_errors import Malformed
from callboard.transports.unix_address import UnixAddress
from callboard.transports.unix_socket import Inlet, Received


class Letter(ReceiveEnvelope):  # type: ignore[misc]
    """A received message with its sender's address, as Thespian takes it."""

    def identify(self) -> str:
        """Name it for a log line, without printing the message (which may be of any size)."""
        return f"Letter(from {self.sender}, {type(self.message).__name__})"


class Receiver:
    """Receives from one bound socket."""

    def __init__(self, bound: socket.socket, counts: MailCounts) -> None:
        self._inlet = Inlet(bound)
        self._counts = counts
        self._uid = os.getuid()

    def receive(self, limit: int) -> list[Letter]:
        """Give the letters of at most ``limit`` datagrams that are there now, in order."""
        found: list[Letter] = []
        for _ in range(limit):
            received = self._inlet.receive()
            if received is None:
                break
            try:
                found += self._open(received)
            except Malformed as fault:
                self._refuse(MALFORMED, str(fault))
            finally:
                received.close_fds()
        return found

    def _open(self, received: Received) -> list[Letter]:
        if received.uid != self._uid:
            self._refuse(FOREIGN, f"a datagram of user id {received.uid}")
            return []
        if not received.whole:
            raise Malformed("a datagram that was cut off")
        datagram = datagrams.decode(received.data)
        sender = ActorAddress(UnixAddress(datagram.sender))
        if datagram.memory_size is None:
            return [letter for body in datagram.bodies for letter in self._thaw(sender, body)]
        if len(received.fds) != 1:
            raise Malformed(f"{len(received.fds)} descriptors where one memory file was announced")
        with memfd.sealed_content(received.fds[0], datagram.memory_size) as content:
            return self._thaw(sender, content)

    def _thaw(self, sender: ActorAddress, body: memoryview) -> list[Letter]:
        try:
            return [Letter(sender, letters.thaw(body))]
        except Exception as fault:  # Unpickling runs the message's own code, which may raise anything.
            self._refuse(UNREADABLE, f"a message from {sender}: {type(fault).__name__}: {fault}")
            return []

    def _refuse(self, name: str, what: str) -> None:
        if self._counts.add(name):
            thesplog("mail refused (%s, %s in all)", what, self._counts.counts[name], level=logging.WARNING)
