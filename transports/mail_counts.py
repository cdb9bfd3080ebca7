"""What one process counts about its mail, and says in the log: each refusal at its first, second, fourth, ... time."""

from __future__ import annotations

from collections import Counter

FOREIGN = "Mail.Refused.Foreign User"
MALFORMED = "Mail.Refused.Malformed"
UNREADABLE = "Mail.Refused.Not Unpicklable"
OUTBOX_FULL = "Mail.Failed.Outbox Full"
FAILED = "Mail.Failed.Other"
DEAD_TARGET = "Mail.Failed.Dead Target"
UNTOLD = "Mail.Failed.Sender Not Told"


class MailCounts:
    """Counts by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str) -> bool:
        """Count one; True when it should be said in the log."""
        self.counts[name] += 1
        number = self.counts[name]
        return number & (number - 1) == 0
