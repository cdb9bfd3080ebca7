"""``callboard chat`` and ``callboard ask``: turns, in a dialogue or one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.cli import options
from callboard.cli.deciding import MAX_ANSWER, decider_for
from callboard.cli.exits import BAD_USAGE, INTERRUPTED, TURN_CANCELLED, TURN_FAILED, report, reported
from callboard.cli.faults import check_tools, tell_servers_down
from callboard.cli.history import complete_ids
from callboard.cli.opening import Weights, open_system, opened
from callboard.cli.options import Flags, system_name, tool_names
from callboard.errors import CallboardError

if TYPE_CHECKING:
    from callboard.actors.events import Event
    from callboard.api import Conversation, System

MAX_QUESTION = MAX_ANSWER

QuestionArgument = Annotated[
    str | None,
    typer.Argument(metavar="QUESTION", help="The question; '-', or nothing in a pipe, reads standard input."),
]
ConversationOption = Annotated[
    str | None,
    typer.Option(
        "--conversation",
        metavar="ID",
        help="Go on with this conversation ('history list').",
        autocompletion=complete_ids,
    ),
]
EventsOption = Annotated[
    bool, typer.Option("--json", help="Print the turn's events, one JSON object a line.")
]


@reported
def chat(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    base_url: options.BaseUrlOption = None,
    model: options.ModelOption = None,
    api_key: options.ApiKeyOption = None,
    tools: options.ToolsOption = None,
    tools_from: options.ToolsFromOption = None,
    template: options.TemplateOption = "default",
    conversation: ConversationOption = None,
    team: options.TeamOption = "",
    user: options.UserOption = "",
    approve: options.ApproveOption = None,
    yes: options.YesOption = False,
) -> int:
    """Talk to an agent that uses tools.

    Without a model configured it uses the embedded one, and asks before it downloads it. Ctrl-C cancels the
    running turn, a second one leaves; /help lists the chat's own commands. In a pipe, each line is a turn.

    \b
    Examples:
      callboard chat
      callboard chat --base-url http://127.0.0.1:8080/v1 --model small --tools-from ./my_tools.py
      callboard chat --conversation ID
      printf 'What is 17*23?\\n' | callboard chat --yes
    """
    flags = Flags(
        config=config, base_url=base_url, model=model, api_key=api_key, tools_from=tuple(tools_from or ())
    )
    weights: Weights = "agreed" if yes else "offered"
    lasting = conversation is not None
    with open_system(system_name(context, name), flags, weights, lasting=lasting) as system:
        wanted = tool_names(tools)
        check_tools(system, flags, wanted)
        tell_servers_down(system)
        with opened(system, conversation, team=team, user=user, template=template, tools=wanted) as talk:
            return _chat(system, talk, approve or ())


@reported
def ask(
    context: typer.Context,
    question: QuestionArgument = None,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    base_url: options.BaseUrlOption = None,
    model: options.ModelOption = None,
    api_key: options.ApiKeyOption = None,
    tools: options.ToolsOption = None,
    tools_from: options.ToolsFromOption = None,
    template: options.TemplateOption = "default",
    conversation: ConversationOption = None,
    team: options.TeamOption = "",
    user: options.UserOption = "",
    deadline: options.DeadlineOption = None,
    tool_deadline: options.ToolDeadlineOption = None,
    as_json: EventsOption = False,
    approve: options.ApproveOption = None,
    yes: options.YesOption = False,
) -> int:
    """Ask one question: the answer on standard output, the activity on standard error.

    In a pipe the output is the answer alone, once it is whole; at a terminal it streams. With --json it is
    each event as it comes; those that are not logged have "seq": null.

    \b
    Examples:
      callboard ask "What is 17*23?"
      callboard ask --json --tools calculate,current_time --tool-deadline 2 "How late is it?"
      callboard ask --conversation ID "And times two?"
      git diff | callboard ask --base-url http://127.0.0.1:8080/v1 --model small
    """
    text = _question(question)
    if text is None:
        return BAD_USAGE
    flags = Flags(
        config=config, base_url=base_url, model=model, api_key=api_key, tools_from=tuple(tools_from or ())
    )
    weights: Weights = "agreed" if yes else "required"
    lasting = conversation is not None
    with open_system(system_name(context, name), flags, weights, lasting=lasting) as system:
        wanted = tool_names(tools)
        check_tools(system, flags, wanted)
        with opened(system, conversation, team=team, user=user, template=template, tools=wanted) as talk:
            code = _ask(talk, text, deadline, tool_deadline, as_json, approve or ())
            tell_servers_down(system)
            return code


def _chat(system: System, conversation: Conversation, approve: Sequence[str]) -> int:
    from callboard.gateway.terminal.chat import Chat
    from callboard.gateway.terminal.lines import PipedLines, PromptedLines
    from callboard.gateway.terminal.look import look_of
    from callboard.paths import state_dir

    look = look_of(sys.stdout, os.environ)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Chat(
            system, conversation, PipedLines(sys.stdin), out=sys.stdout, look=look, approve=approve
        ).run()
    typer.echo(look.paint(_greeting(system, conversation), "dim"))
    with closing(PromptedLines(state_dir() / "chat_history")) as lines:
        code = Chat(system, conversation, lines, out=sys.stdout, look=look, approve=approve).run()
    if not system.private:
        typer.echo(look.paint(f"Go on with: callboard chat --conversation {conversation.id}", "dim"))
    return code


def _greeting(system: System, conversation: Conversation) -> str:
    from callboard.gateway.terminal.plain import one_line

    enabled = sum(tool.state == "enabled" for tool in conversation.tools())
    return f"{one_line(system.model_name)}, {enabled} tools enabled. /help for help, Ctrl-D to leave."


def _ask(
    conversation: Conversation,
    text: str,
    deadline_s: float | None,
    tool_deadline_s: float | None,
    as_json: bool,
    approve: Sequence[str],
) -> int:
    from callboard.actors.events import event_to_json
    from callboard.gateway.terminal.approvals import have_decided, waiting_turn
    from callboard.gateway.terminal.chat import ending_code, write_pieces
    from callboard.gateway.terminal.interrupts import CancelOnInterrupt
    from callboard.gateway.terminal.look import look_of
    from callboard.gateway.terminal.turn_text import TurnText

    turn = TurnText(look_of(sys.stderr, os.environ), streaming=sys.stdout.isatty())
    decider = decider_for(approve, as_json)
    code = TURN_FAILED

    def cancel() -> None:
        try:
            conversation.cancel()
        except CallboardError as fault:
            report(str(fault))

    def show(event: Event) -> None:
        if as_json:
            print(json.dumps(event_to_json(event), default=str), flush=True)  # noqa: T201
        else:
            write_pieces(turn.feed(event), sys.stdout, sys.stderr)

    with CancelOnInterrupt(cancel) as interrupts:
        for event in waiting_turn(conversation):
            have_decided(conversation, event, decider, report, cancel)
        for event in conversation.ask(text, deadline_s=deadline_s, tool_deadline_s=tool_deadline_s):
            show(event)
            have_decided(conversation, event, decider, report, cancel)
            if event.terminal:
                code = ending_code(event)
    write_pieces(turn.end(), sys.stdout, sys.stderr)
    return INTERRUPTED if interrupts.pressed and code == TURN_CANCELLED else code


def _question(given: str | None) -> str | None:
    if given is None and sys.stdin.isatty():
        report('expected a question, as in: callboard ask "What is 17*23?"')
        return None
    text = sys.stdin.read(MAX_QUESTION + 1) if given in (None, "-") else str(given)
    if len(text) > MAX_QUESTION:
        report("expected a question of at most 1 MiB")
        return None
    if not text.strip():
        report("expected a question, got nothing but white space")
        return None
    return text
