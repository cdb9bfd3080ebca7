"""``callboard serve``, ``stop``, ``reload`` and ``status``: the daemon's life."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import typer

from callboard.cli import options
from callboard.cli.exits import FOUND_FAULTS, reported
from callboard.cli.exits import report as report_fault
from callboard.cli.faults import modules_not_loaded
from callboard.cli.listing import print_views
from callboard.cli.opening import attach, check_model
from callboard.cli.options import Flags, system_name


@reported
def serve(
    context: typer.Context,
    name: options.NameOption = None,
    config: options.ConfigOption = None,
    base_url: options.BaseUrlOption = None,
    model: options.ModelOption = None,
    api_key: options.ApiKeyOption = None,
    tools_from: options.ToolsFromOption = None,
    yes: options.YesOption = False,
) -> int:
    """Run the daemon in the foreground, until Ctrl-C, SIGTERM or 'callboard stop'.

    chat, ask and the listings of the same user then work on it. Each --name is a system of its own.

    \b
    Examples:
      callboard serve
      callboard serve --name work --config ./work.toml
    """
    from callboard.daemon import SystemInfo, check_free
    from callboard.daemon import serve as serve_daemon

    wanted = system_name(context, name)
    check_free(wanted)
    flags = Flags(
        config=config, base_url=base_url, model=model, api_key=api_key, tools_from=tuple(tools_from or ())
    )
    loaded = flags.load()
    check_model(loaded, "agreed" if yes else "required")

    def announce(info: SystemInfo) -> None:
        model = "the embedded model" if info.model == "embedded" else f"model {info.model}"
        typer.echo(f"callboard: {info.name} is up: process {info.pid}, {model}; Ctrl-C stops it", err=True)
        for message in modules_not_loaded(info.name):
            report_fault(message)

    return serve_daemon(loaded, wanted, announce)


@reported
def stop(context: typer.Context, name: options.NameOption = None) -> None:
    """Stop the running daemon and wait until it is gone; exit with 3 when none runs."""
    wanted = system_name(context, name)
    with attach(wanted) as system:
        system.stop()
    typer.echo(f"{wanted} is stopped")


@reported
def reload(
    context: typer.Context, name: options.NameOption = None, as_json: options.JsonOption = False
) -> int:
    """Load the running daemon's tools anew, as SIGHUP does, and say what changed.

    Calls under way end undisturbed; later ones use the new code. A module that cannot be loaded keeps the tools that
    it had: it is told, and the exit code is 1.
    """
    with attach(system_name(context, name)) as system:
        report = system.reload()
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        told = {"added": report.added, "changed": report.changed, "removed": report.removed}
        lines = [f"{word}: {', '.join(names)}" for word, names in told.items() if names]
        typer.echo("\n".join(lines) or "nothing changed")
    for _, reason in report.faults:
        report_fault(reason)
    return FOUND_FAULTS if report.faults else 0


@reported
def status(
    context: typer.Context, name: options.NameOption = None, as_json: options.JsonOption = False
) -> None:
    """Show the running daemon: pid, version, since when, configuration; exit with 3 when none runs."""
    from callboard.gateway.terminal.listings import status_lines
    from callboard.gateway.terminal.look import look_of

    with attach(system_name(context, name)) as system:
        found = system.status()
    print_views(found, status_lines(found, look_of(sys.stdout, os.environ)), as_json)
