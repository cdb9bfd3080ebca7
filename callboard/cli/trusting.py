"""``callboard trust``: record that a working folder's configuration may be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from callboard.cli.exits import BAD_USAGE, OK, report, reported
from callboard.cli.options import JsonOption

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="The file, or its folder; ./callboard.toml if not given.")
]
ForgetOption = Annotated[bool, typer.Option("--forget", help="Trust it no more.")]


@reported
def trust(path: PathArgument = Path(), forget: ForgetOption = False, as_json: JsonOption = False) -> int:
    """Trust a callboard.toml, as it is now, together with the local files that it makes run.

    Such a file names modules to import and commands to run. Read it first. When it changes, or one of those
    files does, it is untrusted again. (The one in your configuration folder needs no trust.)

    \b
    Examples:
      callboard trust
      callboard trust ~/project/callboard.toml
      callboard trust --forget
    """
    from callboard import trust as record
    from callboard.config import FILE_NAME, load_config, named_files
    from callboard.gateway.terminal.plain import one_line

    file = path / FILE_NAME if path.is_dir() else path
    if forget:
        if not record.forget(file):
            report(f"{file} was not trusted")
            return BAD_USAGE
        typer.echo(f"{file} is trusted no more")
        return OK
    config = load_config(file)
    trusted = record.record(file, named_files(file))
    commands = {name: server.argv for name, server in config.servers.items()}
    if as_json:
        typer.echo(json.dumps({"files": [str(each) for each in trusted], "commands": commands}, indent=2))
        return OK
    for each in trusted:
        typer.echo(f"trusted: {one_line(str(each))}")
    for server, words in commands.items():
        typer.echo(f"  it runs, as server {server}: {one_line(' '.join(words))}")
    return OK
