"""The interactive chat: read a line, carry it out, show what comes, until the person leaves.

The loop and its input and output; what things look like is decided in ``turn_text`` and ``listings``, what a
line means in ``commands``. It holds one conversation that the caller opened and closes. ``callboard chat``
runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Protocol, TextIO

from callboard.actors.events import ApprovalRequested, Event, TurnAnswered, TurnCancelled, TurnFailed
from callboard.errors import CallboardError
from callboard.gateway.terminal.approvals import (
    Decidable,
    Decider,
    ListDecider,
    PersonDecider,
    have_decided,
    waiting_turn,
)
from callboard.gateway.terminal.commands import Complain, Do, Nothing, Say, help_lines, nearest, parse
from callboard.gateway.terminal.interrupts import CancelOnInterrupt
from callboard.gateway.terminal.lines import Lines
from callboard.gateway.terminal.listings import history_lines, server_lines, tool_lines, tree_lines
from callboard.gateway.terminal.look import Look
from callboard.gateway.terminal.plain import clean
from callboard.gateway.terminal.turn_text import Piece, TurnText
from callboard.views import ActorInfo, ServerInfo, ToolListing

ANSWERED, FAILED, UNREACHABLE, CANCELLED, INTERRUPTED = 0, 1, 3, 4, 130


class ChatSystem(Protocol):
    """What the chat needs of a system."""

    def servers(self) -> list[ServerInfo]:
        """List the external servers."""
        ...

    def tree(self) -> list[ActorInfo]:
        """List the actors."""
        ...


class ChatConversation(Decidable, Protocol):
    """What the chat needs of a conversation, besides the decisions on its calls."""

    def ask(
        self,
        text: str,
        *,
        request_id: str | None = None,
        deadline_s: float | None = None,
        tool_deadline_s: float | None = None,
    ) -> Iterator[Event]:
        """Run a turn."""
        ...

    def cancel(self) -> None:
        """Cancel the running turn."""
        ...

    def enable(self, name: str, /) -> None:
        """Enable a tool."""
        ...

    def disable(self, name: str, /) -> None:
        """Disable a tool."""
        ...

    def tools(self) -> list[ToolListing]:
        """List the tools."""
        ...

    def history(self) -> list[Event]:
        """Give the events so far."""
        ...


class Chat:
    """One person's chat on one conversation. All that is shown goes to ``out``.

    A call that waits for a person is decided by the person, or (in a pipe, or where it is given) by ``approve``:
    patterns of the tools that are approved of, any other being denied.
    """

    def __init__(
        self,
        system: ChatSystem,
        conversation: ChatConversation,
        lines: Lines,
        *,
        out: TextIO,
        look: Look,
        approve: Iterable[str] = (),
    ) -> None:
        self._system = system
        self._conversation = conversation
        self._lines = lines
        self._out = out
        self._look = look
        self._code = ANSWERED
        self._decider: Decider = (
            PersonDecider(lines.answer, self._tell, look)
            if lines.interactive and not approve
            else ListDecider(approve)
        )

    def run(self) -> int:
        """Chat until the input ends or the person leaves; give the exit code.

        That is 0 for a person, and the last turn's code for a pipe; 130 when Ctrl-C left a running turn.
        """
        try:
            self._catch_up()
            while (line := self._next_line()) is not None:
                if not self._carry_out(line):
                    break
        except KeyboardInterrupt:
            self._tell("")
            return INTERRUPTED
        return ANSWERED if self._lines.interactive else self._code

    def _next_line(self) -> str | None:
        try:
            line = self._lines.read()
        except KeyboardInterrupt:
            line = None
        if line is None and self._lines.interactive:
            self._tell("")
        return line

    def _carry_out(self, line: str) -> bool:
        match parse(line):
            case Say(text):
                self._turn(text)
            case Do("/quit"):
                return False
            case Do(command, argument):
                self._command(command, argument)
            case Complain(message):
                self._tell(clean(message))
            case Nothing():
                pass
        return True

    def _command(self, command: str, argument: str) -> None:
        try:
            for line in self._reply(command, argument):
                self._tell(line)
        except CallboardError as fault:
            self._tell_fault(fault)

    def _reply(self, command: str, argument: str) -> list[str]:
        match command:
            case "/tools":
                return tool_lines(self._conversation.tools(), self._look)
            case "/enable":
                self._conversation.enable(self._known_tool(argument))
                return [f"{clean(argument)} is enabled, from the next step on"]
            case "/disable":
                self._conversation.disable(self._known_tool(argument))
                return [f"{clean(argument)} is disabled, from the next step on"]
            case "/servers":
                return server_lines(self._system.servers(), self._look)
            case "/tree":
                return tree_lines(self._system.tree(), self._look)
            case "/history":
                return history_lines(self._conversation.history(), self._look)
            case "/cancel":
                return ["no turn is running"]
        return help_lines()

    def _known_tool(self, name: str) -> str:
        known = [tool.name for tool in self._conversation.tools()]
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else "/tools lists them."
            raise CallboardError(f"there is no tool {name!r}; {hint}")
        return name

    def _turn(self, text: str) -> None:
        self._code = FAILED
        turn = TurnText(self._look, streaming=True)
        try:
            with CancelOnInterrupt(self._cancel):
                self._show(self._conversation.ask(text), turn)
        except CallboardError as fault:
            self._code = UNREACHABLE
            self._write(turn.end())
            self._tell_fault(fault)
        finally:
            self._write(turn.end())

    def _show(self, events: Iterator[Event], turn: TurnText) -> None:
        """Show events as they come; while a person is asked for a decision, the prompt is theirs alone."""
        with ExitStack() as listening:
            listening.enter_context(self._lines.listening(self._cancel))
            for event in events:
                self._write(turn.feed(event))
                if isinstance(event, ApprovalRequested):
                    listening.close()
                    self._write(turn.end())
                    have_decided(self._conversation, event, self._decider, self._tell, self._cancel)
                    listening.enter_context(self._lines.listening(self._cancel))
                if event.terminal:
                    self._code = ending_code(event)

    def _catch_up(self) -> None:
        """A turn that waits for a person is taken up where it was left."""
        turn = TurnText(self._look, streaming=True)
        try:
            with CancelOnInterrupt(self._cancel):
                self._show(waiting_turn(self._conversation), turn)
        except CallboardError as fault:
            self._tell_fault(fault)
        finally:
            self._write(turn.end())

    def _cancel(self) -> None:
        try:
            self._conversation.cancel()
        except CallboardError as fault:
            self._tell_fault(fault)

    def _write(self, pieces: list[Piece]) -> None:
        write_pieces(pieces, self._out, self._out)

    def _tell(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()

    def _tell_fault(self, fault: CallboardError) -> None:
        self._tell(self._look.paint(f"{self._look.bad} {clean(str(fault))}", "red"))


def write_pieces(pieces: Iterable[Piece], answer: TextIO, activity: TextIO) -> None:
    """Write each piece to its channel's stream, at once."""
    for piece in pieces:
        stream = answer if piece.channel == "answer" else activity
        stream.write(piece.text)
        stream.flush()


def ending_code(event: Event) -> int:
    """Give the exit code of a turn's ending: 0 answered, 1 failed, 4 cancelled."""
    match event:
        case TurnAnswered():
            return ANSWERED
        case TurnCancelled():
            return CANCELLED
        case TurnFailed():
            return FAILED
    return FAILED
