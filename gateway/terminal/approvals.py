"""Who says yes or no to a call that waits for a person: the person at the terminal, else ``--approve``.

It asks and makes a ``Choice``; ``have_decided`` takes it to the conversation. What the model and the tool's owner
wrote is cleaned before it is shown. The chat and ``callboard ask`` use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from callboard.actors.events import ApprovalRequested, Event
from callboard.errors import CallboardError, Refused
from callboard.gateway.terminal.look import Look
from callboard.gateway.terminal.plain import clean, one_line

NOBODY = "nobody is here to approve of it; run with --approve NAME, or --approve all"
_QUESTION = "[y]es, [n]o, [a]lways in this conversation, [e]dit the arguments? "
_SHOWN_CHARS = 4000
_CHOICES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was decided; ``arguments`` are run instead of those asked for."""

    approved: bool
    arguments: Mapping[str, Any] | None = None
    for_conversation: bool = False
    reason: str = ""


class Decider(Protocol):
    """Somebody who decides."""

    def decide(self, asked: ApprovalRequested) -> Choice:
        """Decide on a call; raises KeyboardInterrupt when the whole turn is not wanted any more."""
        ...


class Decidable(Protocol):
    """What is needed of a conversation."""

    def pending(self) -> tuple[ApprovalRequested, ...]:
        """List the calls that wait for a person."""
        ...

    def events(
        self, after: int = 0, *, until_idle: bool = False, timeout_s: float | None = None
    ) -> Iterator[Event]:
        """Follow the conversation."""
        ...

    def approve(
        self,
        call_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        for_conversation: bool = False,
        reason: str = "",
    ) -> None:
        """Approve of a call."""
        ...

    def deny(self, call_id: str, reason: str = "") -> None:
        """Deny a call."""
        ...


class ListDecider:
    """Approves of the tools whose names fit one of the patterns (``all`` is every one), and denies the others."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple("*" if pattern == "all" else pattern for pattern in patterns)

    def decide(self, asked: ApprovalRequested) -> Choice:
        """Decide by the list."""
        if any(fnmatchcase(asked.tool, pattern) for pattern in self._patterns):
            return Choice(approved=True, reason="--approve")
        return Choice(approved=False, reason=NOBODY)


class PersonDecider:
    """Asks the person.

    ``answer(question, text)`` gives the line typed, ``text`` being there to edit; None at the end of input.
    """

    def __init__(
        self, answer: Callable[[str, str], str | None], tell: Callable[[str], None], look: Look
    ) -> None:
        self._answer = answer
        self._tell = tell
        self._look = look

    def decide(self, asked: ApprovalRequested) -> Choice:
        """Show the call and ask until there is an answer; the end of input denies."""
        for line in request_lines(asked, self._look):
            self._tell(line)
        while (typed := self._answer(_QUESTION, "")) is not None:
            match typed.strip().lower():
                case "y" | "yes":
                    return Choice(approved=True)
                case "a" | "always":
                    return Choice(approved=True, for_conversation=True)
                case "n" | "no":
                    reason = self._answer("reason, for the model (Enter for none): ", "") or ""
                    return Choice(approved=False, reason=reason.strip())
                case "e" | "edit":
                    edited = self._edited(asked.arguments)
                    if edited is not None:
                        return Choice(approved=True, arguments=edited)
        return Choice(approved=False, reason="the person left without an answer")

    def _edited(self, arguments: Any) -> Mapping[str, Any] | None:
        text = self._answer("arguments (JSON): ", json.dumps(arguments, ensure_ascii=False))
        try:
            edited = json.loads(text or "")
        except ValueError as fault:
            self._tell(f"that is not JSON: {fault}")
            return None
        if not isinstance(edited, dict):
            self._tell("that is no JSON object: write {…}")
            return None
        return edited


def request_lines(asked: ApprovalRequested, look: Look) -> list[str]:
    """Give the lines that show a call which waits: the tool, why a person is asked, and all of its arguments."""
    head = f"{look.paint('?', 'yellow')} {one_line(asked.tool)} waits for your approval"
    why = f": {one_line(asked.reason)}" if asked.reason else ""
    text = clean(json.dumps(asked.arguments, ensure_ascii=False, indent=2, default=str))
    if len(text) > _SHOWN_CHARS:
        text = f"{text[:_SHOWN_CHARS]}\n… ({len(text) - _SHOWN_CHARS} characters more)"
    return [head + why, *(f"  {line}" for line in text.splitlines())]


def waiting_turn(conversation: Decidable) -> Iterator[Event]:
    """Follow a turn that waits for a person from where it waits to its ending; nothing where none does."""
    pending = conversation.pending()
    if not pending:
        return
    for event in conversation.events((pending[0].seq or 1) - 1):
        yield event
        if event.terminal:
            return


def have_decided(
    conversation: Decidable,
    event: Event,
    decider: Decider,
    tell: Callable[[str], None],
    cancel: Callable[[], None],
) -> None:
    """Have a call decided on, if ``event`` asks for that and it still waits; ``cancel`` is called on Ctrl-C.

    A choice that cannot stand is asked for again, and in the end turned into a denial.
    """
    if not isinstance(event, ApprovalRequested):
        return
    try:
        if any(asked.call_id == event.call_id for asked in conversation.pending()):
            _decide(conversation, event, decider, tell)
    except KeyboardInterrupt:
        cancel()
    except CallboardError as fault:
        tell(clean(str(fault)))


def _decide(
    conversation: Decidable, asked: ApprovalRequested, decider: Decider, tell: Callable[[str], None]
) -> None:
    for _ in range(_CHOICES):
        choice = decider.decide(asked)
        if not choice.approved:
            conversation.deny(asked.call_id, choice.reason)
            return
        try:
            conversation.approve(
                asked.call_id,
                choice.arguments,
                for_conversation=choice.for_conversation,
                reason=choice.reason,
            )
            return
        except Refused as fault:
            tell(clean(str(fault)))
            if fault.kind == "expired":
                return
    conversation.deny(asked.call_id, "no approval that was given could be used")
