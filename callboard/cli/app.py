"""The table of commands, and ``run``.

Importing this imports typer and nothing else that is heavy, so that ``--help`` and shell completion are
quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from callboard.cli import listing, options, running, talking, trusting
from callboard.cli.doctor import doctor_app
from callboard.cli.exits import EXIT_CODES, READER_GONE, UNREACHABLE, report_os_fault, reported, silence
from callboard.cli.history_attachment import history_app
from callboard.cli.journal import journal_app
from callboard.cli.model import model_app
from callboard.cli.streams import open_missing_streams
from callboard.cli.tools import tools_app

_ABOUT = f"""Callboard: a supervised runtime for tool-calling agents.

chat, ask and the listings work on your running daemon (callboard serve). Where none runs, or with
configuration flags of their own, they start a private system and end it afterwards.

\b
Examples:
  callboard chat
  callboard ask "What is 17*23?"
  callboard serve --config ./callboard.toml
  callboard tools --json

{EXIT_CODES}"""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()


@app.callback(help=_ABOUT)
def _global(
    name: options.NameOption = None,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@reported
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as version_of

    typer.echo(version_of("callboard"))


app.command("chat")(talking.chat)
app.command("ask")(talking.ask)
app.command("serve")(running.serve)
app.command("stop")(running.stop)
app.command("reload")(running.reload)
app.command("status")(running.status)
app.add_typer(tools_app, name="tools")
app.command("servers")(listing.servers)
app.command("tree")(listing.tree)
app.command("trust")(trusting.trust)
app.add_typer(history_app, name="history")
app.add_typer(journal_app, name="journal")
app.add_typer(model_app, name="model")
app.add_typer(doctor_app, name="doctor")
app.command("version")(version)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit code. Text that a stream cannot encode is shown as '?'."""
    open_missing_streams()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="callboard")
        sys.stdout.flush()
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BrokenPipeError:
        silence(sys.stdout)
        return READER_GONE
    except OSError as fault:
        report_os_fault(fault)
        return UNREACHABLE
    return 0
