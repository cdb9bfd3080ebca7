"""The actor mail: the one place where the actor system is opened, and the endpoint of a process outside it.

For now Thespian's stock TCP base, bound to whatever Thespian binds: not safe on hosts shared with people you do not
trust (docs/decisions/003). Nothing else in the product knows which base it is.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

_BASE = "multiprocTCPBase"
_SLICE_S = 0.5


class MailError(OSError):
    """The actor system could not be opened, or an endpoint could not be made."""


def prepare_environment(runtime_dir: str | Path) -> None:
    """Set what Thespian reads at its import: to be called before the first import of it in this process."""
    os.environ.setdefault("THESPIAN_BASE_IPADDR", "127.0.0.1")
    os.environ.setdefault("THESPIAN_MAX_PENDING_TRANSMITS", "500")
    os.environ.setdefault("THESPLOG_FILE", str(Path(runtime_dir) / "thespian.log"))
    os.environ.setdefault("THESPLOG_THRESHOLD", "WARNING")


class ActorSystemHandle:
    """An open actor system, held by the outermost process."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def create(self, actor: str) -> Any:
        """Create a top-level actor and give its address; raises MailError."""
        from thespian.actors import ActorSystemException

        try:
            return self._system.createActor(actor)
        except ActorSystemException as fault:
            raise MailError(f"cannot create {actor}: {fault}") from fault

    def send(self, address: Any, message: Any) -> None:
        """Send without waiting for an answer."""
        self._system.tell(address, message)

    def receive(self, timeout_s: float) -> Any | None:
        """Give the next message to this process, or None after ``timeout_s`` seconds."""
        return self._system.listen(timedelta(seconds=timeout_s))

    def close(self) -> None:
        """Close this process's end. The processes of the system are its owner's to end."""
        self._system._systemBase.transport.close()


def open_system() -> ActorSystemHandle:
    """Open a new actor system, private to the calling process tree; raises MailError."""
    from thespian.actors import ActorSystem, ActorSystemException

    try:
        capabilities = {"Admin Port": _free_port()}
        return ActorSystemHandle(
            ActorSystem(_BASE, capabilities, logDefs=_log_definitions(), transientUnique=True)
        )
    except ActorSystemException as fault:
        raise MailError(f"the actor system did not start: {fault}") from fault


class Endpoint:
    """A mailbox of a process outside the system. For one thread at a time; hooks and forks nothing."""

    def __init__(self) -> None:
        from thespian.actors import ActorAddress
        from thespian.system.systemBase import ExternalOpsToActors
        from thespian.system.transport.IPBase import TCPv4ActorAddress
        from thespian.system.transport.TCPTransport import ExternalTransportCopy, TCPTransport

        nowhere = ActorAddress(TCPv4ActorAddress("127.0.0.1", 1, external=("127.0.0.1", 1)))
        self._transport = TCPTransport(ExternalTransportCopy(), nowhere, False, False)
        self._operations = ExternalOpsToActors(nowhere, self._transport)

    @property
    def address(self) -> Any:
        """Where answers to this endpoint are to be sent."""
        return self._transport.myAddress

    def send(self, address: Any, message: Any) -> None:
        """Send the message; a dead target is not an error, there is just no answer."""
        from thespian.actors import ActorSystemException

        try:
            self._operations.tell(address, message)
        except ActorSystemException:
            return

    def receive(self, timeout_s: float) -> Any | None:
        """Give the next message, or None after ``timeout_s`` seconds."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            message = self._operations.listen(timedelta(seconds=min(left, _SLICE_S)))
            if message is not None:
                return message
        return None

    def close(self) -> None:
        """Give the endpoint's socket back."""
        listener = self._transport.socket
        self._transport.close()
        listener.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _log_definitions() -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"none": {"class": "logging.NullHandler", "level": "ERROR"}},
        "root": {"handlers": ["none"], "level": "ERROR"},
    }
