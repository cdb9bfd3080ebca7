"""``callboard history``: list, show, export, import and delete conversations of the past.

On the running daemon where there is one, else on its journal as it lies on the disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from callboard.cli import options
from callboard.cli.exits import BAD_USAGE, FOUND_FAULTS, OK, exit_code, report, reported
from callboard.cli.files import MAX_BYTES, read_text, write_out
from callboard.cli.options import system_name
from callboard.errors import CallboardError, Refused

if TYPE_CHECKING:
    from callboard.actors.events import Event
    from callboard.cli.stored_histories import Histories
    from callboard.gateway.terminal.look import Look
    from callboard.views import ConversationInfo

history_app = typer.Typer(
    no_args_is_help=True, help="Conversations of the past: list, show, attachment, export, import, delete."
)

_PAGE = 200
_COMPLETED = 50


def complete_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Give the ids that begin like this, with their titles, for the shell's completion; nothing where that fails."""
    try:
        team = str(context.params.get("team") or "")
        with open_histories(
            system_name(context, None), context.params.get("config"), read_only=True
        ) as histories:
            found = histories.conversations(team=team, limit=_COMPLETED)
    except (CallboardError, OSError):
        return []
    return [(i.conversation_id, i.title) for i in found if i.conversation_id.startswith(incomplete)]


IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The conversation's id, as listed.", autocompletion=complete_ids)
]
IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="The conversations' ids.", autocompletion=complete_ids)
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The file to read; '-' is standard input.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Work on the journal that this file names, not on the daemon."
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="List at most so many.")
]
AnyUserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only this user's.")]
AfterOption = Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only events after number N.")]
FormatOption = Annotated[
    Literal["json", "markdown"],
    typer.Option("--format", "-f", help="JSON is whole and can be imported again."),
]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; '-' is standard output.")
]
NewUserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Whose it is; else as the file says.")
]
NewTeamOption = Annotated[
    str | None, typer.Option("--team", metavar="NAME", help="Which team's it is; else as the file says.")
]
NewIdOption = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Its id here; else the file's, or a new one.")
]
ReopenOption = Annotated[
    bool, typer.Option("--reopen", help="Let a conversation that was closed take turns again.")
]
DeleteOption = Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")]


@history_app.command("list")
@reported
def list_histories(
    context: typer.Context,
    name: options.NameOption = None,
    config: ConfigOption = None,
    team: options.TeamOption = "",
    user: AnyUserOption = None,
    limit: LimitOption = 50,
    as_json: options.JsonOption = False,
) -> int:
    """List a team's conversations, the last changed first.

    \b
    Examples:
      callboard history list
      callboard history list --team red --user ann --limit 200
      callboard history list --json | jq -r '.[].conversation_id'
    """
    from callboard.gateway.terminal.transcript import conversation_lines

    with open_histories(system_name(context, name), config, read_only=True) as histories:
        found = _listed(histories, team, user, limit + 1)
    shown = found[:limit]
    if as_json:
        typer.echo(json.dumps([_json_of(info) for info in shown], indent=2))
    else:
        typer.echo("\n".join(conversation_lines(shown, _look())))
    if len(found) > limit:
        report(f"there are more than {limit} conversations; --limit shows more")
    return OK


@history_app.command("show")
@reported
def show(
    context: typer.Context,
    conversation: IdArgument,
    name: options.NameOption = None,
    config: ConfigOption = None,
    team: options.TeamOption = "",
    after: AfterOption = 0,
    as_json: options.JsonOption = False,
) -> int:
    """Show a conversation as a transcript.

    With --json its events, one object a line.

    \b
    Examples:
      callboard history show 5f0c1e4cf7de4c6b8cbbf1b5a0e0b9a1
      callboard history show ID --json | jq 'select(.type == "tool_call_finished")'
    """
    from callboard.actors.events import event_to_json
    from callboard.gateway.terminal.transcript import transcript_lines

    with open_histories(system_name(context, name), config, read_only=True) as histories:
        events = histories.history(conversation, team=team, after=after)
    if as_json:
        for event in events:
            typer.echo(json.dumps(event_to_json(event), default=str))
    else:
        typer.echo("\n".join(transcript_lines(events, _look())))
    return OK


@history_app.command("export")
@reported
def export(
    context: typer.Context,
    conversation: IdArgument,
    name: options.NameOption = None,
    config: ConfigOption = None,
    team: options.TeamOption = "",
    format: FormatOption = "json",
    output: OutputOption = "-",
) -> int:
    """Write a conversation as JSON or Markdown.

    JSON is whole, for 'history import'; Markdown is for people. Ends with exit code 1 when the stored content of an
    attachment is damaged: everything else is written, and what is missing is said.

    \b
    Examples:
      callboard history export ID -o conversation.json
      callboard history export ID --format markdown | less
    """
    from callboard.history_export import to_json, to_markdown

    with open_histories(system_name(context, name), config, read_only=True) as histories:
        is_whole = format == "json"
        read = histories.whole_history if is_whole else histories.history
        events = read(conversation, team=team)
    text = to_json(events) if is_whole else to_markdown(events)
    write_out(output, text)
    return _tell_of_export(events, text) if is_whole else OK


def _tell_of_export(events: list[Event], text: str) -> int:
    from callboard.actors.attachments import attachments_of

    if len(text) > MAX_BYTES:
        most = MAX_BYTES // (1024 * 1024)
        report(
            f"the export is over the {most} MiB that 'history import' takes; 'journal export' has no such limit"
        )
    lost = dict.fromkeys(a.digest for _, a in attachments_of(events) if a.content is None)
    for digest in lost:
        report(f"the content of the attachment {digest[:12]} is damaged, and not in the export")
    return FOUND_FAULTS if lost else OK


@history_app.command("import")
@reported
def import_history(
    context: typer.Context,
    file: FileArgument,
    name: options.NameOption = None,
    config: ConfigOption = None,
    user: NewUserOption = None,
    team: NewTeamOption = None,
    id: NewIdOption = None,
    reopen: ReopenOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Import an exported conversation or a message list.

    Prints the new conversation's id. A message list is what OpenAI-compatible services take:
    [{"role": "user", "content": "…"}, …]. What is not whole is repaired, and each repair is told and kept in
    the history.

    \b
    Examples:
      callboard history import conversation.json
      callboard history import messages.json --user ann --team red
    """
    from callboard.actors.events import ConversationOpened
    from callboard.actors.history_import import adopted, repaired
    from callboard.actors.names import is_conversation_id

    events, notes = _read(file)
    opened = next((event for event in events if isinstance(event, ConversationOpened)), None)
    id = id or (opened.conversation_id if opened else "") or uuid.uuid4().hex
    if not is_conversation_id(id):
        raise Refused(f"--id: expected 1 to 64 letters, digits, '_' or '-', got {id[:80]!r}")
    user = user if user is not None else opened.user if opened else ""
    team = team if team is not None else opened.team if opened else ""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    adoptee = adopted(events, conversation_id=id, user=user, team=team, at=at)
    whole, repairs = repaired(adoptee, notes, reopen=reopen)
    with open_histories(system_name(context, name), config, read_only=False) as histories:
        new_id = histories.import_conversation(whole, conversation_id=id, team=team, user=user)
    for repair in repairs:
        report(f"{file}: repaired: {repair}")
    told = {"conversation_id": new_id, "team": team, "user": user, "events": len(whole), "repairs": repairs}
    typer.echo(json.dumps(told, indent=2) if as_json else new_id)
    return OK


@history_app.command("delete")
@reported
def delete(
    context: typer.Context,
    conversations: IdsArgument,
    name: options.NameOption = None,
    config: ConfigOption = None,
    team: options.TeamOption = "",
    yes: DeleteOption = False,
) -> int:
    """Delete conversations for ever.

    Their events go, and the contents that no other conversation has. Asks first; where nobody can be asked,
    --yes is needed. A turn under way is cancelled.

    \b
    Examples:
      callboard history delete ID
      callboard history list --json | jq -r '.[].conversation_id' | xargs callboard history delete --yes
    """
    ids = list(dict.fromkeys(conversations))
    if not yes and not _agreed(ids):
        return BAD_USAGE
    code = OK
    with open_histories(system_name(context, name), config, read_only=False) as histories:
        for conversation in ids:
            try:
                histories.delete_conversation(conversation, team=team)
            except CallboardError as fault:
                report(str(fault))
                code = max(code, exit_code(fault))
            else:
                typer.echo(f"deleted {_line(conversation)}")
    return code


@contextmanager
def open_histories(name: str, config: Path | None, *, read_only: bool) -> Iterator[Histories]:
    """Reach the conversations: through the daemon ``name`` if it runs and no ``config`` is given, else on the disk."""
    from callboard import daemon
    from callboard.cli.opening import attach
    from callboard.cli.stored_histories import StoredHistories, opened_journal

    if config is None and daemon.runs(name):
        with attach(name) as system:
            yield system
    else:
        with opened_journal(name, config, read_only=read_only) as journal:
            yield StoredHistories(journal)


def _listed(histories: Histories, team: str, user: str | None, limit: int) -> list[ConversationInfo]:
    found: list[ConversationInfo] = []
    while len(found) < limit:
        before = found[-1].cursor if found else None
        page = histories.conversations(
            team=team, user=user, limit=min(_PAGE, limit - len(found)), before=before
        )
        found += page
        if not page:
            break
    return found


def _read(file: str) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    from callboard.actors.events import EventError
    from callboard.actors.history_forms import read_history

    try:
        return read_history(read_text(file))
    except EventError as fault:
        raise Refused(f"{file}: {fault}") from fault


def _agreed(ids: list[str]) -> bool:
    what = f"conversation {_line(ids[0])}" if len(ids) == 1 else f"{len(ids)} conversations"
    if not sys.stdin.isatty():
        report(f"{what} would be deleted for ever; say so with --yes")
        return False
    try:
        return typer.confirm(f"Delete {what} for ever?", default=False, err=True)
    except typer.Abort:
        return False


def _json_of(info: ConversationInfo) -> dict[str, object]:
    form = dataclasses.asdict(info)
    del form["cursor"]
    return form


def _line(text: str) -> str:
    from callboard.gateway.terminal.plain import one_line

    return one_line(text)


def _look() -> Look:
    from callboard.gateway.terminal.look import look_of

    return look_of(sys.stdout, os.environ)
