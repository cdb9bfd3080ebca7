"""Thespian's transport contract over the Unix-domain mail: one object per actor process, or per outside thread.

It translates: Thespian's addresses, endpoints, intents and runs on one side, the ``PostOffice`` of this process on the
other. What is sent when, and in which order things are seen, is decided there.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from thespian.actors import (
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    ChildActorExited,
    PoisonMessage,
)
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
)
from thespian.system.utilis import thesplog

from callboard.transports import letters, mail_counts
from callboard.transports.address_book import AddressBook
from callboard.transports.mail_errors import MailError, TargetFull
from callboard.transports.mail_folder import MailFolder
from callboard.transports.outbox import Parcel
from callboard.transports.post_office import PostOffice
from callboard.transports.unix_address import UnixAddress, new_name
from callboard.transports.unix_endpoint import Endpoint, Outside, close_inherited, identified
from callboard.transports.unix_receiver import Letter
from callboard.transports.unix_socket import Sending

MAIL_FOLDER = "Mail Folder"
ADMIN_NAME = "Mail Admin Name"
_DRAIN_S = 2.0
_POISON_KEPT = 1024
_SHOWN = 100
_STATUS = {
    Sending.SENT: SendStatus.Sent,
    Sending.DEAD: SendStatus.DeadTarget,
    Sending.FAILED: SendStatus.Failed,
}
_COUNTED = {Sending.DEAD: mail_counts.DEAD_TARGET, Sending.FAILED: mail_counts.FAILED}


class UnixTransport:
    """The mail of one process, as Thespian wants it. Sends may come from any thread, ``run`` from one at a time."""

    def __init__(self, init: Any, *args: Any) -> None:
        own = self._opening(init, args)
        creates = isinstance(init, ExternalInterfaceTransportInit)
        is_admin = own == self._admin.addressDetails
        self._post = PostOffice(own, self._done, create=creates, sweeps=is_admin)
        self.myAddress = self._post.address
        self._unborn: dict[int, UnixAddress] = {}
        self._book = AddressBook(None)
        self._drain = False
        self._poison = 0

    def _opening(self, init: Any, args: tuple[Any, ...]) -> UnixAddress:
        """Note where the admin is, and give the address to open."""
        if isinstance(init, Endpoint):
            close_inherited(init.inherited)
            self._admin = init.admin
            return init.address
        if isinstance(init, Outside):
            self._admin = init.admin
            return UnixAddress(f"{init.folder}/{new_name()}")
        self._admin = self.getAdminAddr(args[0])
        return UnixAddress(f"{self._admin.addressDetails.folder}/{new_name()}")

    # ------------------------------------------------------------ addresses
    @classmethod
    def getAdminAddr(cls, capabilities: dict[str, Any]) -> Any:  # noqa: N802
        """Give the address of the admin of the system with these capabilities. Raises MailError."""
        folder = capabilities.get(MAIL_FOLDER)
        if not folder:
            raise MailError(f"the capability {MAIL_FOLDER!r} must name the folder of the actors' sockets")
        return ActorAddress(UnixAddress(f"{Path(folder).absolute()}/{capabilities.get(ADMIN_NAME, 'admin')}"))

    @classmethod
    def getAddressFromString(cls, spec: Any) -> Any:  # noqa: N802
        """Give the address that is written as the absolute path of its socket. Raises MailError."""
        if not isinstance(spec, str) or not Path(spec).is_absolute():
            raise MailError(f"an address of this mail is the absolute path of a socket, not {spec!r}")
        return ActorAddress(UnixAddress(str(Path(spec))))

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
        self._book = AddressBook(ActorAddress(UnixAddress(f"{self._post.own.folder}/nobody")))
        manager._managed = self._book

    # ------------------------------------------------------------ children
    def prepEndpoint(self, assigned: Any, capabilities: dict[str, Any]) -> Endpoint:  # noqa: N802
        """Choose the address of a child that is about to be forked."""
        details, instance = assigned.addressDetails, None
        if isinstance(details, ActorLocalAddress):
            instance = details.addressInstanceNum
            details = self._unborn[instance] = UnixAddress(f"{self._post.own.folder}/{new_name()}")
        return Endpoint(instance, details, self._admin, identified(self._post.fds))

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
        if isinstance(details, UnixAddress):
            self._post.push_to(details.path)
            if details.folder == self._post.own.folder:
                self._post.folder.unlink_if_dead(details.name)

    def protectedFileNumList(self) -> list[int]:  # noqa: N802
        """List the descriptors that are needed to go on."""
        return self._post.fds

    def childResetFileNumList(self) -> list[int]:  # noqa: N802
        """List the descriptors that a forked child has to close."""
        return self._post.fds

    def external_transport_clone(self) -> UnixTransport:
        """Open another end for another thread of this process."""
        return type(self)(Outside(self._post.own.folder, self._admin))

    # ------------------------------------------------------------ sending
    def scheduleTransmit(self, manager: Any, intent: Any, has_exclusive_flag: bool = False) -> None:  # noqa: N802
        """Send the intent's message, now or as soon as its target has room; the intent is told what became of it.

        Raises CannotPickleAddress while an address in it is not known yet (Thespian then comes again), TooLarge,
        MailError for an address of another mail, and what pickling raises.
        """
        if manager is not None and not self._readdress(manager, intent):
            return
        target, message = intent.targetAddr.addressDetails, intent.message
        if isinstance(target, ActorLocalAddress):
            raise CannotPickleAddress(intent.targetAddr)
        if not isinstance(target, UnixAddress):
            raise MailError(f"{target} is no address of this mail")
        if target == self._post.own:
            # A dead child's last words are in the socket already, and are to be seen before its exit notice.
            self._post.post_to_self(message, after_mail=isinstance(message, ChildActorExited))
            intent.tx_done(SendStatus.Sent)
            return
        try:
            chunks, size = letters.freeze(message)
            urgent = isinstance(message, ActorSystemMessage)
            self._post.send(target.path, Parcel(chunks, size, intent), urgent=urgent)
        except TargetFull as fault:
            self._refuse(intent, fault)
        except Exception:
            if not isinstance(message, logging.LogRecord):
                raise
            self._done(intent, Sending.FAILED)  # Who logs is not to be disturbed.

    def _readdress(self, manager: Any, intent: Any) -> bool:
        """Replace a child's local address by its real one; False when the message is not to be sent at all."""
        target, message = manager.prepMessageSend(intent.targetAddr, intent.message)
        if message is SendStatus.DeadTarget:
            intent.tx_done(SendStatus.Sent)
            return False
        if target is None:
            raise CannotPickleAddress(intent.targetAddr)
        intent.changeTargetAddr(target)
        intent.changeMessage(message)
        return True

    def _done(self, intent: Any, outcome: Sending) -> None:
        if outcome in _COUNTED:
            self._post.counts.add(_COUNTED[outcome])
        intent.tx_done(_STATUS[outcome])

    def _refuse(self, intent: Any, fault: TargetFull) -> None:
        """Tell the sender as Thespian does: its message comes back as poison, from the target."""
        if self._post.counts.add(mail_counts.OUTBOX_FULL):
            thesplog("mail to %s failed: %s", intent.targetAddr, fault, level=logging.WARNING)
        if not isinstance(intent.message, (logging.LogRecord, ActorSystemMessage)):
            if self._poison < _POISON_KEPT:
                self._poison += 1
                poison = PoisonMessage(intent.message, f"not sent to {intent.targetAddr}: {fault}")
                self._post.post_to_self(poison, intent.targetAddr)
            else:
                self._post.counts.add(mail_counts.UNTOLD)
        intent.tx_done(SendStatus.Failed)

    # ------------------------------------------------------------ running
    def run(self, handler: Any, maximumDuration: Any = None) -> Any:  # noqa: N803
        """Deliver what comes to ``handler`` until it gives something false, or the time (a timedelta) is over.

        Without a handler the first envelope is given back. ``TransmitOnly``: deliver nothing, wait until some mail
        that waits has gone, and give how much is left.
        """
        give_up_at = (
            None if maximumDuration is None else time.monotonic() + timePeriodSeconds(maximumDuration)
        )
        self._post.enter()
        try:
            if handler is TransmitOnly or isinstance(handler, TransmitOnly):
                return self._send_waiting(give_up_at, enough=self._post.waiting - 1)
            return self._deliver(handler, give_up_at)
        finally:
            if self._drain:
                self._post.aborted = False
                self._send_waiting(time.monotonic() + _DRAIN_S, enough=0)
            self._drain = self._post.aborted = False
            self._post.leave()

    def _deliver(self, handler: Any, give_up_at: float | None) -> Any:
        while not self._post.aborted:
            letter = self._post.next(give_up_at)
            if letter is None:
                return Thespian__Run_Terminated() if self._post.aborted else Thespian__Run_Expired()
            self._note(letter)
            if handler is None:
                return letter
            result = Thespian__Run_HandlerResult(handler(letter))
            if not result:
                return result
        return Thespian__Run_Terminated()

    def _note(self, letter: Letter) -> None:
        if isinstance(letter.message, EndpointConnected):
            self._unborn.pop(letter.message.childInstance, None)
        elif isinstance(letter.message, PoisonMessage):
            self._poison = max(0, self._poison - 1)

    def _send_waiting(self, give_up_at: float | None, *, enough: int) -> int:
        """Send until at most ``enough`` messages wait, or time is over; give how many wait."""
        while (left := self._post.waiting) > max(0, enough) and not self._post.aborted:
            now = time.monotonic()
            if give_up_at is not None and now >= give_up_at:
                break
            self._post.wait(None if give_up_at is None else give_up_at - now, reading=False)
        return self._post.waiting if left else 0

    def abort_run(self, drain: bool = False) -> None:
        """End the present ``run``, or the next one if none runs; ``drain``: once the mail that waits is sent."""
        self._post.aborted = True
        self._drain |= drain

    def interrupt_wait(self, signal_shutdown: bool = False, check_children: bool = False) -> None:
        """Note what a signal asks for, and wake ``run``. Called by signal handlers."""
        if check_children:
            self._post.signal(ChildMayHaveDied())
        if signal_shutdown:
            self._post.signal(ActorExitRequest())
        self._post.wake()

    # ------------------------------------------------------------ what an actor and Thespian ask for
    def addWakeup(self, period: Any, payload: Any) -> None:  # noqa: N802
        """Deliver a WakeupMessage after ``period`` (a timedelta, or seconds)."""
        self._post.wake_after(timePeriodSeconds(period), period, payload)

    def set_watch(self, fds: list[int]) -> None:
        """Deliver a WatchMessage when one of these descriptors, and no others, is readable."""
        self._post.watch(frozenset(fds))

    def enableRXPauseFlowControl(self, enable: bool = True) -> None:  # noqa: N802
        """Do nothing: this mail never stops receiving in order to send."""

    def _updateStatusResponse(self, response: Any) -> None:  # noqa: N802
        for parcel in self._post.waiting_parcels()[:_SHOWN]:
            response.addPendingMessage(self.myAddress, parcel.intent.targetAddr, str(parcel.intent.message))
        for letter in self._post.waiting_letters()[:_SHOWN]:
            response.addReceivedMessage(letter.sender, self.myAddress, str(letter.message))
        now = time.monotonic()
        due = [ExpirationTimer(max(0.0, w.at - now)) for w in self._post.wakeups.waiting()]
        response.addWakeups([(self.myAddress, timer) for timer in due])
        for name, number in sorted(self._post.counts.counts.items()):
            response.addKeyVal(number, name)

    def close(self) -> None:
        """Give everything back; what waits has failed. Twice is not an error."""
        self._post.close()
