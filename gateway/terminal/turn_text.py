"""From one turn's events to what is written where: the answer's stream, and the activity beside it.

A small pure machine: it remembers what of the answer was already shown and whether a line is open, so that a
turn reads well whether its text streams, comes whole, or is streamed anew after the model was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from callboard.actors.events import Event, StepFinished, TextDelta, TextDiscarded, TurnAnswered, TurnResumed
from callboard.gateway.terminal.activity import activity_line, citation_lines
from callboard.gateway.terminal.look import Look
from callboard.gateway.terminal.plain import clean

Channel: TypeAlias = Literal["answer", "activity"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Text for one of the two channels, newlines included."""

    channel: Channel
    text: str


class TurnText:
    """One turn as text.

    ``streaming`` shows text as it comes, also what a step says before its calls: for a person. Without it the
    answer channel receives the answer alone, once it is whole: for a program that reads it.
    """

    def __init__(self, look: Look, *, streaming: bool) -> None:
        self._look = look
        self._streaming = streaming
        self._shown = ""
        self._line_open = False

    def feed(self, event: Event) -> list[Piece]:
        """Give what to write for the next event."""
        match event:
            case TextDelta(text=text):
                return self._say(text) if self._streaming else []
            case TextDiscarded():
                shown, self._shown = self._shown, ""
                if not clean(shown).strip():
                    return []
            case TurnResumed():  # what was streamed since the last step does not count
                self._shown = ""
            case StepFinished(calls=calls) if calls:
                return self._end_step(event.text)
            case TurnAnswered():
                return self._answer(event)
        line = activity_line(event, self._look)
        return [] if line is None else [*self._close_line(), Piece("activity", line + "\n")]

    def end(self) -> list[Piece]:
        """Give what closes an open line, when the turn ended or was left."""
        return self._close_line()

    def _say(self, text: str) -> list[Piece]:
        self._shown += text
        safe = clean(text)
        if not safe:
            return []
        self._line_open = not safe.endswith("\n")
        return [Piece("answer", safe)]

    def _end_step(self, text: str) -> list[Piece]:
        if not self._streaming:
            return [Piece("activity", clean(text).strip() + "\n")] if text.strip() else []
        pieces = self._rest_of(text) + self._close_line()
        self._shown = ""
        return pieces

    def _answer(self, event: TurnAnswered) -> list[Piece]:
        capped = activity_line(event, self._look)
        pieces = self._rest_of(event.text) + self._close_line()
        if capped is not None:
            pieces.append(Piece("activity", capped + "\n"))
        sources = citation_lines(event.citations, self._look)
        if sources:
            pieces.append(Piece("activity", "\n".join(sources) + "\n"))
        return pieces

    def _rest_of(self, text: str) -> list[Piece]:
        if text.startswith(self._shown):
            return self._say(text[len(self._shown) :])
        return [] if text.strip() == self._shown.strip() else self._close_line() + self._say(text)

    def _close_line(self) -> list[Piece]:
        if not self._line_open:
            return []
        self._line_open = False
        return [Piece("answer", "\n")]
