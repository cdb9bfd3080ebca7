"""``callboard history attachment``: what was too large for a result, listed or given whole."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.cli import options
from callboard.cli.exits import OK, reported
from callboard.cli.files import STANDARD, write_bytes
from callboard.cli.history import ConfigOption, IdArgument, OutputOption, history_app, open_histories
from callboard.cli.options import system_name
from callboard.errors import Refused

if TYPE_CHECKING:
    from callboard.actors.events import Event

__all__ = ["history_app"]

_SHOWN = 16

DigestArgument = Annotated[
    str | None, typer.Argument(metavar="DIGEST", help="Its digest, or how that begins; else all are listed.")
]


@history_app.command("attachment")
@reported
def attachment(
    context: typer.Context,
    conversation: IdArgument,
    digest: DigestArgument = None,
    name: options.NameOption = None,
    config: ConfigOption = None,
    team: options.TeamOption = "",
    output: OutputOption = "-",
    as_json: options.JsonOption = False,
) -> int:
    """Write the whole of a large result.

    The bytes as they are. Without DIGEST it lists what there is.

    \b
    Examples:
      callboard history attachment ID
      callboard history attachment ID 5f0c1e -o report.txt
    """
    with open_histories(system_name(context, name), config, read_only=True) as histories:
        if digest is not None:
            if output == STANDARD and sys.stdout.isatty():
                raise Refused("a terminal would take its bytes for commands: name a file with -o, or pipe it")
            write_bytes(output, histories.attachment(conversation, digest, team=team))
            return OK
        events = histories.history(conversation, team=team)
    _list(events, as_json)
    return OK


def _list(events: list[Event], as_json: bool) -> None:
    from callboard.actors.attachments import attachments_of
    from callboard.gateway.terminal.plain import one_line

    found = attachments_of(events)
    if as_json:
        listed = [
            {
                "digest": a.digest,
                "size": a.size,
                "mime_type": a.mime_type,
                "tool": c.tool,
                "call_id": c.call_id,
            }
            for c, a in found
        ]
        typer.echo(json.dumps(listed, indent=2))
        return
    for call, a in found:
        typer.echo(one_line(f"{a.digest[:_SHOWN]}  {a.size:>9}  {a.mime_type}  {call.tool}"))
