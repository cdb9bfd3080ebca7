"""``callboard journal``: check, back up, export and import the journal as a whole, as it lies on the disk."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from callboard.cli import options
from callboard.cli.exits import FOUND_FAULTS, OK, reported
from callboard.cli.files import STANDARD, writing
from callboard.cli.options import system_name
from callboard.cli.stored_histories import journal_errors, opened_journal
from callboard.errors import Refused

if TYPE_CHECKING:
    from callboard.storage.journal_terms import Incomplete

journal_app = typer.Typer(no_args_is_help=True, help="The journal as a whole: check, backup, export, import.")

FORMAT = "callboard journal"
VERSION = 1
MAX_LINE = 128 * 1024 * 1024
_TOLD_EVERY = 500

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Work on the journal that this file names.")
]
BackupArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The new file; it must not be there yet.")
]
ToArgument = Annotated[str, typer.Argument(metavar="FILE", help="The file to write; '-' is standard output.")]
FromArgument = Annotated[str, typer.Argument(metavar="FILE", help="The file to read; '-' is standard input.")]
OneTeamOption = Annotated[
    str | None, typer.Option("--team", metavar="NAME", help="Only this team's conversations.")
]


@journal_app.command("check")
@reported
def check(
    context: typer.Context,
    name: options.NameOption = None,
    config: ConfigOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """Read everything and say what is damaged.

    Ends with exit code 1 when anything is. Works while the daemon runs, too.

    \b
    Examples:
      callboard journal check
      callboard journal check --json
    """
    from callboard.gateway.terminal.plain import one_line

    with opened_journal(system_name(context, name), config, read_only=True) as journal, journal_errors():
        with progress("reading the journal"):
            complaints = journal.check()
        place = journal.name
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(complaint) for complaint in complaints], indent=2))
    elif not complaints:
        typer.echo(f"{place}: all is well")
    for complaint in () if as_json else complaints:
        team = f" (team {one_line(complaint.team)})" if complaint.team else ""
        whose = f"conversation {one_line(complaint.conversation)}{team}: " if complaint.conversation else ""
        typer.echo(f"{whose}{one_line(complaint.problem)}")
    return FOUND_FAULTS if complaints else OK


@journal_app.command("backup")
@reported
def backup(
    context: typer.Context,
    file: BackupArgument,
    name: options.NameOption = None,
    config: ConfigOption = None,
) -> int:
    """Copy the whole journal to a new file.

    As it is at one moment; also while the daemon runs. The copy is a journal: put it in the place of a lost
    one while no daemon runs. PostgreSQL has pg_dump for it.

    \b
    Examples:
      callboard journal backup /backups/callboard-$(date +%F).sqlite3
    """
    with opened_journal(system_name(context, name), config, read_only=True) as journal, journal_errors():
        if file.exists():
            raise Refused(f"{file}: is there already; a backup never replaces a file")
        if not file.absolute().parent.is_dir():
            raise Refused(f"{file}: its folder is not there")
        with progress("copying the journal"):
            journal.backup(file)
    typer.echo(str(file))
    return OK


@journal_app.command("export")
@reported
def export(
    context: typer.Context,
    file: ToArgument = STANDARD,
    name: options.NameOption = None,
    config: ConfigOption = None,
    team: OneTeamOption = None,
) -> int:
    """Write all conversations as JSON lines.

    One event a line, for 'journal import'. Works while the daemon runs, too. Where something is damaged, all
    else is written, and then it ends with exit code 3 and says what is missing.

    \b
    Examples:
      callboard journal export journal.jsonl
      callboard journal export --team red | gzip > red.jsonl.gz
    """
    with (
        opened_journal(system_name(context, name), config, read_only=True) as journal,
        progress("exporting the journal") as tell,
        writing(file) as out,
        journal_errors(),
    ):
        damage = _write_rows(journal.export(team), out, tell)
    if damage is not None:  # by now the file is there, with everything else
        with journal_errors():
            raise damage
    return OK


@journal_app.command("import")
@reported
def import_journal(
    context: typer.Context,
    file: FromArgument,
    name: options.NameOption = None,
    config: ConfigOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """Add what 'journal export' wrote.

    Only while no daemon has the journal. What exists is never replaced.

    \b
    Examples:
      callboard journal import journal.jsonl
      zcat red.jsonl.gz | callboard journal import -
    """
    with (
        opened_journal(system_name(context, name), config, read_only=False) as journal,
        progress("importing the journal") as tell,
        _reading(file) as lines,
        journal_errors(),
    ):
        count = journal.import_(_rows(file, lines, tell))
    typer.echo(json.dumps({"conversations": count}) if as_json else f"{count} conversations were added")
    return OK


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """Show on a terminal's stderr what goes on, and how many events are done; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what, spinner="line") as status:
        yield lambda done: status.update(f"{what}: {done} events")


def _write_rows(
    rows: Iterable[dict[str, Any]], out: TextIO, tell: Callable[[int], None]
) -> Incomplete | None:
    from callboard.storage.journal_terms import Incomplete

    out.write(json.dumps({"format": FORMAT, "version": VERSION}) + "\n")
    try:
        for number, row in enumerate(rows, start=1):
            out.write(json.dumps(row) + "\n")
            if number % _TOLD_EVERY == 0:
                tell(number)
    except Incomplete as damage:
        return damage
    return None


@contextmanager
def _reading(file: str) -> Iterator[TextIO]:
    if file == STANDARD:
        yield sys.stdin
        return
    try:
        with Path(file).open(encoding="utf-8", newline="\n") as stream:
            yield stream
    except OSError as fault:
        raise Refused(f"{file}: cannot be read: {fault.strerror or fault}") from fault


def _rows(file: str, lines: TextIO, tell: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    number = 0
    while line := _line(file, lines, number + 1):
        number += 1
        if not line.strip():
            continue
        row = _parsed(file, number, line)
        if number == 1:
            _check_head(file, row)
            continue
        if number % _TOLD_EVERY == 0:
            tell(number)
        yield row
    if number == 0:
        raise Refused(f"{file}: is empty; expected what 'callboard journal export' wrote")


def _line(file: str, lines: TextIO, number: int) -> str:
    try:
        line = lines.readline(MAX_LINE)
    except UnicodeDecodeError as fault:
        raise Refused(f"{file}: line {number}: expected UTF-8 text") from fault
    if len(line) == MAX_LINE:
        raise Refused(f"{file}: line {number}: is too long")
    return line


def _parsed(file: str, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise Refused(f"{file}: line {number}: expected a JSON object") from fault
    if not isinstance(row, dict):
        raise Refused(f"{file}: line {number}: expected a JSON object")
    return row


def _check_head(file: str, row: dict[str, Any]) -> None:
    if row.get("format") != FORMAT:
        raise Refused(
            f"{file}: line 1: expected what 'callboard journal export' wrote; see also 'history import'"
        )
    version = row.get("version")
    if version != VERSION:
        raise Refused(
            f"{file}: line 1: version {version!r} is not known here; this Callboard reads {VERSION}"
        )
