"""``callboard tools``, ``servers`` and ``tree``: what a system has, as text or as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.cli import options
from callboard.cli.exits import OK, TURN_FAILED, reported
from callboard.cli.opening import open_system
from callboard.cli.options import Flags, system_name
from callboard.errors import ToolNotFound

if TYPE_CHECKING:
    from callboard.gateway.terminal.look import Look
    from callboard.tools.content import ToolResult
    from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing

tools_app = typer.Typer(help="The tools: list them, show one, or call one.")

ToolArgument = Annotated[str, typer.Argument(metavar="NAME", help="The tool's name, as listed.")]


@tools_app.callback(invoke_without_command=True)
def tools(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the tools, show one, or call one.

    \b
    Examples:
      callboard tools
      callboard tools show calculate
      callboard tools call calculate '{"expression": "17*23"}'
      callboard tools --json --tools-from ./my_tools.py
    """
    if context.invoked_subcommand is None:
        list_tools(context, name, config, tools_from, as_json)


@tools_app.command("list")
@reported
def list_tools(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List all tools with their state."""
    from callboard.gateway.terminal.listings import tool_lines

    with open_system(system_name(context, name), _flags(config, tools_from)) as system:
        found = system.tools()
    print_views(found, tool_lines(found, _look()), as_json)


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

    with open_system(system_name(context, name), _flags(config, tools_from)) as system:
        found = {listing.name: listing for listing in system.tools()}
    if tool not in found:
        near = nearest(tool, list(found))
        hint = f"did you mean {near!r}?" if near else "'callboard tools' lists them"
        raise ToolNotFound(f"there is no tool {tool!r}; {hint}")
    print_views(found[tool], tool_page(found[tool], _look()), as_json)


@tools_app.command("call")
@reported
def call_tool(
    context: typer.Context,
    tool: ToolArgument,
    arguments: Annotated[
        str, typer.Argument(metavar="ARGUMENTS", help="A JSON object; nothing is no arguments.")
    ] = "",
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    tools_from: options.ToolsFromOption = None,
    deadline: options.ToolDeadlineOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """Call one tool, on the same path as a model's call, and print its result; 1 when that is an error.

    What the tool prints goes to standard error. You are the operator: no permission is asked.
    """
    from callboard.tool_call import call
    from callboard.tools.content import result_to_json

    with open_system(system_name(context, name), _flags(config, tools_from)) as system:
        ran = call(system, tool, arguments, deadline_s=deadline)
    if as_json:
        typer.echo(json.dumps({**result_to_json(ran.result), "duration_s": ran.duration_s}, indent=2))
    else:
        print_result(ran.result)
    return TURN_FAILED if ran.result.is_error else OK


@reported
def servers(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the external MCP servers: state, pid, protocol, tools, restarts, last error."""
    from callboard.gateway.terminal.listings import server_lines

    with open_system(system_name(context, name), _flags(config, None)) as system:
        found = system.servers()
    print_views(found, server_lines(found, _look()), as_json)


@reported
def tree(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show the supervision tree; with --json a list of id, kind, pid, parent, state, restarts."""
    from callboard.gateway.terminal.listings import tree_lines

    with open_system(system_name(context, name), _flags(config, None)) as system:
        found = system.tree()
    print_views(found, tree_lines(found, _look()), as_json)


def print_result(result: ToolResult) -> None:
    """Print what a tool gave, and on standard error what it printed; where the result was cut, the whole of it."""
    from callboard.gateway.terminal.plain import clean
    from callboard.tool_call import shown

    if result.output:
        typer.echo(clean(result.output), err=True, nl=not result.output.endswith("\n"))
    typer.echo(clean(shown(result)))


def print_views(
    views: Sequence[ToolListing | ServerInfo | ActorInfo] | ToolListing | SystemStatus,
    lines: Sequence[str],
    as_json: bool,
) -> None:
    """Print views as one JSON document, or as the lines made of them."""
    if not as_json:
        typer.echo("\n".join(lines))
    elif isinstance(views, Sequence):
        typer.echo(json.dumps([dataclasses.asdict(view) for view in views], indent=2))
    else:
        typer.echo(json.dumps(dataclasses.asdict(views), indent=2))


def _flags(config: Path | None, tools_from: Sequence[str] | None) -> Flags:
    return Flags(config=config, tools_from=tuple(tools_from or ()))


def _look() -> Look:
    from callboard.gateway.terminal.look import look_of

    return look_of(sys.stdout, os.environ)
