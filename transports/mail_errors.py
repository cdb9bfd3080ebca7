"""What can go wrong with the mail between actors."""

from __future__ import annotations

from callboard.transports.errors import TransportError


class MailError(TransportError, OSError):
    """The mail, or the actor system on it, could not be opened or used."""


class Malformed(MailError):
    """A datagram or payload that is not one of ours, or is damaged; it was not unpickled."""


class TooLarge(MailError):
    """A message beyond the limit for one message."""


class TargetFull(MailError):
    """A target does not take its mail, and no more is kept for it."""
