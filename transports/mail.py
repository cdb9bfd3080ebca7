"""The actor mail: the one place where the actor system is opened, and the endpoint of a process outside it.

The mail goes over Unix-domain sockets in the folder ``mail`` of the system's runtime folder (docs/mail.md). Thespian's
stock TCP base stays selectable for comparison, by ``CALLBOARD_MAIL=tcp``, and is not safe: whoever reaches its ports
can run code. Nothing else in the product knows which base it is.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from callboard.transports.mail_errors import MailError as MailError

FOLDER = "mail"
_CHOICE = "CALLBOARD_MAIL"
_STOCK_BASE = "multiprocTCPBase"

Base = Literal["unix", "tcp"]


def prepare_environment(runtime_dir: str | Path) -> None:
    """Set what Thespian reads at its import: to be called before the first import of it in this process."""
    os.environ.setdefault("THESPIAN_BASE_IPADDR", "127.0.0.1")
    os.environ.setdefault("THESPIAN_MAX_PENDING_TRANSMITS", "500")
    os.environ.setdefault("THESPLOG_FILE", str(Path(runtime_dir) / "thespian.log"))
    os.environ.setdefault("THESPLOG_THRESHOLD", "WARNING")


def chosen_base(environ: Any = os.environ) -> Base:
    """Give the base that the environment asks for: ours unless CALLBOARD_MAIL=tcp. Raises MailError for others."""
    choice = environ.get(_CHOICE, "unix")
    if choice not in ("unix", "tcp"):
        raise MailError(f"{_CHOICE}={choice}: expected unix (the default) or tcp")
    return "tcp" if choice == "tcp" else "unix"


class ActorSystemHandle:
    """An open actor system, held by the outermost process. ``folder`` is where its sockets are, if it has such."""

    def __init__(self, system: Any, folder: str | None = None) -> None:
        self._system = system
        self._transport = system._systemBase.transport
        self._folder = folder

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
        """Close this process's end, and remove what sockets the system's processes left.

        The processes of the system are its owner's to end, and should have ended.
        """
        self._transport.close()
        if self._folder is not None and Path(self._folder).exists():
            from callboard.transports.mail_folder import MailFolder

            folder = MailFolder(self._folder)
            try:
                folder.remove()
            finally:
                folder.close()


def open_system(runtime_dir: str | Path, base: Base | None = None) -> ActorSystemHandle:
    """Open a new actor system, private to the calling process tree; raises MailError.

    ``runtime_dir`` is the system's runtime folder, private to the user; ``base`` None: as the environment says.
    """
    from thespian.actors import ActorSystemException

    try:
        if (base or chosen_base()) == "tcp":
            return _open_stock()
        return _open_unix(str(Path(runtime_dir).absolute() / FOLDER))
    except ActorSystemException as fault:
        raise MailError(f"the actor system did not start: {fault}") from fault


def _open_unix(folder: str) -> ActorSystemHandle:
    from thespian.actors import ActorSystem

    from callboard.transports.mail_folder import MailFolder
    from callboard.transports.unix_address import new_name
    from callboard.transports.unix_base import ActorSystemBase
    from callboard.transports.unix_transport import ADMIN_NAME, MAIL_FOLDER

    checked = MailFolder(folder, create=True)
    checked.sweep()
    checked.close()
    settings = SimpleNamespace(capabilities={MAIL_FOLDER: folder, ADMIN_NAME: f"admin-{new_name()}"})
    made = ActorSystemBase(settings, logDefs=_log_definitions())
    return ActorSystemHandle(ActorSystem(made, settings.capabilities, transientUnique=True), folder)


def _open_stock() -> ActorSystemHandle:
    from thespian.actors import ActorSystem

    warnings.warn(
        "the stock TCP mail is for comparison only: everyone who reaches its ports can run code as you",
        RuntimeWarning,
        stacklevel=3,
    )
    capabilities = {"Admin Port": _free_port()}
    return ActorSystemHandle(
        ActorSystem(_STOCK_BASE, capabilities, logDefs=_log_definitions(), transientUnique=True)
    )


class Endpoint:
    """A mailbox of a process outside the system. For one thread at a time; hooks and forks nothing.

    ``runtime_dir`` is the runtime folder of the system that it talks to; it can reach any actor whose address it has.
    Raises MailError.
    """

    def __init__(self, runtime_dir: str | Path, base: Base | None = None) -> None:
        self._is_stock = (base or chosen_base()) == "tcp"
        folder = str(Path(runtime_dir).absolute() / FOLDER)
        self._transport = _stock_transport() if self._is_stock else _unix_transport(folder)

    @property
    def address(self) -> Any:
        """Where answers to this endpoint are to be sent."""
        return self._transport.myAddress

    def send(self, address: Any, message: Any) -> None:
        """Send the message, never waiting; a dead target is not an error, there is just no answer.

        What a busy target has no room for now is sent while this endpoint receives.
        """
        from thespian.system.transport import TransmitIntent

        self._transport.scheduleTransmit(None, TransmitIntent(address, message))

    def receive(self, timeout_s: float) -> Any | None:
        """Give the next message, or None after ``timeout_s`` seconds."""
        from thespian.actors import ActorSystemMessage
        from thespian.system.transport import ReceiveEnvelope

        give_up_at = time.monotonic() + timeout_s
        while (left := give_up_at - time.monotonic()) > 0:
            envelope = self._transport.run(None, timedelta(seconds=left))
            if isinstance(envelope, ReceiveEnvelope) and not isinstance(envelope.message, ActorSystemMessage):
                return envelope.message
        return None

    def close(self) -> None:
        """Give the endpoint's socket back."""
        listener = getattr(self._transport, "socket", None)
        self._transport.close()
        if listener is not None:
            listener.close()


def _unix_transport(folder: str) -> Any:
    from thespian.actors import ActorAddress

    from callboard.transports.unix_address import UnixAddress
    from callboard.transports.unix_endpoint import Outside
    from callboard.transports.unix_transport import UnixTransport

    return UnixTransport(Outside(folder, ActorAddress(UnixAddress(f"{folder}/nobody"))))


def _stock_transport() -> Any:
    from thespian.actors import ActorAddress
    from thespian.system.transport.IPBase import TCPv4ActorAddress
    from thespian.system.transport.TCPTransport import ExternalTransportCopy, TCPTransport

    nowhere = ActorAddress(TCPv4ActorAddress("127.0.0.1", 1, external=("127.0.0.1", 1)))
    return TCPTransport(ExternalTransportCopy(), nowhere, False, False)


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
