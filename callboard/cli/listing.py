"""``callboard servers`` and ``tree``, and how every listing is printed: as text or as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from callboard.cli import options
from callboard.cli.exits import reported
from callboard.cli.opening import await_servers, open_system
from callboard.cli.options import Flags, system_name

if TYPE_CHECKING:
    from callboard.gateway.terminal.look import Look
    from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing


@reported
def servers(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the external MCP servers: state, pid, protocol, tools, restarts, last error."""
    from callboard.gateway.terminal.listings import server_lines

    with open_system(system_name(context, name), Flags(config=config)) as system:
        await_servers(system)
        found = system.servers()
    print_views(found, server_lines(found, look_here()), as_json)


@reported
def tree(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show the supervision tree; with --json a list of id, kind, pid, parent, state, restarts."""
    from callboard.gateway.terminal.listings import tree_lines

    with open_system(system_name(context, name), Flags(config=config)) as system:
        found = system.tree()
    print_views(found, tree_lines(found, look_here()), as_json)


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


def look_here() -> Look:
    """Give how things may look on standard output."""
    from callboard.gateway.terminal.look import look_of

    return look_of(sys.stdout, os.environ)
