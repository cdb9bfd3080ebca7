"""``callboard tools``: list them, show one, call one. (``tools test`` is in ``callboard/cli/tool_tests.py``.)"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callboard.cli import options
from callboard.cli.deciding import MAX_ANSWER, decider_for
from callboard.cli.exits import BAD_USAGE, OK, TURN_FAILED, report, reported
from callboard.cli.faults import check_tools, is_module_fault, tell_servers_down
from callboard.cli.listing import look_here, print_views
from callboard.cli.opening import attach, await_servers, open_system
from callboard.cli.options import Flags, system_name
from callboard.cli.tool_tests import test_tools
from callboard.errors import CallboardError, ToolNotFound

if TYPE_CHECKING:
    from callboard.actors.messages import ToolRan
    from callboard.tool_call import News
    from callboard.tools.decision_layers import Layer

tools_app = typer.Typer(help="The tools: list them, show one, call one, or test your own.")

_STANDARD_INPUT = "-"
_USAGE = ("unknown_tool", "bad_arguments")


def complete_tools(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Give the running daemon's tools that begin like this, for the shell's completion; nothing where none runs."""
    try:
        with attach(system_name(context, context.params.get("name"))) as system:
            found = system.tools()
    except (CallboardError, OSError):
        return []
    listed = [tool for tool in found if not is_module_fault(tool)]
    return [
        (tool.name, tool.description.partition("\n")[0])
        for tool in listed
        if tool.name.startswith(incomplete)
    ]


ToolArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The tool's name, as listed.", autocompletion=complete_tools)
]
ArgumentsArgument = Annotated[
    str,
    typer.Argument(
        metavar="ARGUMENTS", help="A JSON object; nothing is no arguments, '-' reads standard input."
    ),
]
RoleOption = Annotated[
    list[str] | None, typer.Option("--role", metavar="NAME", help="A role of the user's; may be repeated.")
]
EnableOption = Annotated[
    bool, typer.Option("--enable", help="Enable the tool first, where the template does not.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the call's progress, also where nobody looks.")
]


@tools_app.callback(invoke_without_command=True)
def tools(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the tools, show one, call one, or test your own.

    \b
    Examples:
      callboard tools
      callboard tools show calculate
      callboard tools call calculate '{"expression": "17*23"}'
      callboard tools test --module ./my_tools.py
    """
    if context.invoked_subcommand is None:
        list_tools(context, name, config, tools_from, as_json)
    elif name or config or tools_from or as_json:
        context.fail(f"put the options after the word {context.invoked_subcommand!r}")


@tools_app.command("list")
@reported
def list_tools(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List all tools with their state, as the default template has them."""
    from callboard.gateway.terminal.listings import tool_lines

    with open_system(system_name(context, name), _flags(config, tools_from)) as system:
        await_servers(system)
        found = system.tools()
        tell_servers_down(system)
    print_views(found, tool_lines(found, look_here()), as_json)


@tools_app.command("show")
@reported
def show_tool(
    context: typer.Context,
    tool: ToolArgument,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show one tool: its whole description, state and source."""
    from callboard.gateway.terminal.commands import nearest
    from callboard.gateway.terminal.listings import tool_page

    flags = _flags(config, tools_from)
    with open_system(system_name(context, name), flags) as system:
        check_tools(system, flags, None)
        await_servers(system)
        found = {listing.name: listing for listing in system.tools()}
    if tool not in found:
        near = nearest(tool, list(found))
        hint = f"did you mean {near!r}?" if near else "'callboard tools' lists them"
        raise ToolNotFound(f"there is no tool {tool!r}; {hint}")
    print_views(found[tool], tool_page(found[tool], look_here()), as_json)


@tools_app.command("call")
@reported
def call_tool(
    context: typer.Context,
    tool: ToolArgument,
    arguments: ArgumentsArgument = "",
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    template: options.TemplateOption = "default",
    team: options.TeamOption = "",
    user: options.UserOption = "",
    role: RoleOption = None,
    enable: EnableOption = False,
    deadline: options.ToolDeadlineOption = None,
    approve: options.ApproveOption = None,
    verbose: VerboseOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Call one tool, on the same path as a model's call in a new conversation, and print its result.

    How the call was decided, layer by layer, and what the tool prints go to standard error; with --json both are in
    the document. A call that needs a person's approval asks at a terminal; elsewhere it is denied without --approve.

    \b
    Examples:
      callboard tools call calculate '{"expression": "17*23"}'
      callboard tools call lint '{"repository": "x"}' --user ann --team blue --role writer
      callboard tools call files__delete - --approve files__delete < arguments.json
    """
    from callboard.supervisor.envelope import Principal
    from callboard.tool_call import call

    given = sys.stdin.read(MAX_ANSWER + 1) if arguments == _STANDARD_INPUT else arguments
    shows = _Shows(as_json, verbose)
    flags = _flags(config, tools_from)
    with open_system(system_name(context, name), flags) as system:
        check_tools(system, flags, None)
        ran = call(
            system,
            tool,
            given,
            principal=Principal(user=user, team=team, roles=tuple(role or ())),
            template=template,
            enable=enable,
            deadline_s=deadline,
            decide=decider_for(approve or (), as_json).decide,
            heard=shows.take,
        )
    is_usage = ran.decision.partition(":")[0] in _USAGE
    if as_json:
        typer.echo(json.dumps(_document(ran), indent=2))
    else:
        shows.decision(ran.layers)
        print_result(ran, as_usage=is_usage)
    return OK if not ran.result.is_error else BAD_USAGE if is_usage else TURN_FAILED


tools_app.command("test")(test_tools)


class _Shows:
    """Shows on standard error how the call was decided, once, and its progress."""

    def __init__(self, as_json: bool, verbose: bool) -> None:
        from callboard.gateway.terminal.look import look_of

        self._look = look_of(sys.stderr, os.environ)
        self._decides = not as_json
        self._progresses = verbose or (sys.stderr.isatty() and not as_json)

    def take(self, news: News) -> None:
        from callboard.gateway.terminal.decision_lines import progress_line
        from callboard.tools.content import Progress

        if not isinstance(news, Progress):
            self.decision(news.layers)
        elif self._progresses:
            typer.echo(progress_line(news, self._look), err=True)

    def decision(self, layers: Sequence[Layer]) -> None:
        from callboard.gateway.terminal.decision_lines import decision_lines

        if self._decides:
            typer.echo("\n".join(decision_lines(layers, self._look)), err=True)
        self._decides = False


def print_result(ran: ToolRan, *, as_usage: bool) -> None:
    """Print what a tool gave, and on standard error what it printed; where the result was cut, the whole of it.

    ``as_usage``: nothing ran for a fault of who called; that is said on standard error.
    """
    from callboard.gateway.terminal.plain import clean
    from callboard.tool_call import shown

    result = ran.result
    if as_usage:
        report(shown(result))
        return
    if result.output:
        typer.echo(clean(result.output), err=True, nl=not result.output.endswith("\n"))
    typer.echo(clean(shown(result)))


def _document(ran: ToolRan) -> dict[str, Any]:
    from callboard.tools.content import result_to_json

    layers = [dataclasses.asdict(layer) for layer in ran.layers]
    told = {"duration_s": ran.duration_s, "decision": ran.decision, "layers": layers}
    return {**result_to_json(ran.result), **told}


def _flags(config: Path | None, tools_from: Sequence[str] | None) -> Flags:
    return Flags(config=config, tools_from=tuple(tools_from or ()))
