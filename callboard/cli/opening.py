"""Reach the system that a command works on: the running one, or a private one of its own.

Also sees to it that the embedded model can run before a private system is started for it.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from callboard.cli.options import Flags
from callboard.errors import CallboardError, NoDaemon, Refused, Unavailable

if TYPE_CHECKING:
    from callboard.api import Conversation, System
    from callboard.config import Config

Weights: TypeAlias = Literal["not needed", "required", "offered", "agreed"]

_FIRST_START_S = 15.0
_LOOK_AGAIN_S = 0.05
_OTHERWISE = "or use another model: set OPENAI_API_KEY, or --base-url and --model"


def open_system(name: str, flags: Flags, weights: Weights = "not needed", *, lasting: bool = False) -> System:
    """Attach to the system ``name``; with flags, or when none runs, start a private one. Raises
    CallboardError.

    ``lasting``: a private one works on the journal of ``name``, which must not run then; else, beside a running
    system, it keeps a journal of its own, which goes with it.
    """
    from callboard import daemon
    from callboard.api import connect

    if not flags.given:
        try:
            return attach(name)
        except NoDaemon:
            pass
    config = flags.load()
    if daemon.runs(name):
        if lasting:
            raise Refused(
                f"the system {name} runs and has its conversations; leave the configuration flags out, or stop it"
            )
        config = _with_storage(config, path=None, url=None)
    elif lasting:
        config = _with_storage(config, path=config.storage_path(name))
    check_model(config, weights)
    return connect(name=name, config=config, private=True)


def attach(name: str) -> System:
    """Attach to the running system ``name``; raises NoDaemon, and then leaves no folder of that name behind."""
    from callboard import daemon
    from callboard.api import connect

    if not daemon.runs(name):
        raise NoDaemon(f"no system named {name} is running; start one with 'callboard serve'")
    return connect(name=name, private=False)


def await_servers(system: System) -> None:
    """Wait, bounded, until the servers of a private system are past their first start: it has just begun."""
    give_up_at = time.monotonic() + _FIRST_START_S
    while system.private and any(server.state == "starting" for server in system.servers()):
        if time.monotonic() > give_up_at:
            return
        time.sleep(_LOOK_AGAIN_S)


@contextmanager
def opened(
    system: System,
    conversation_id: str | None,
    *,
    team: str,
    user: str,
    template: str,
    tools: Sequence[str] | None,
) -> Iterator[Conversation]:
    """Give a new conversation, or go on with one, as the user and roles it was opened for.

    In a daemon it is left open, to go on with; a turn under way is cancelled when an error or a signal ends the
    command. A private system's ends with it. Raises ConversationNotFound, or Refused for ``tools`` of one that exists.
    """
    if conversation_id is None:
        conversation = system.conversation(
            team=team, user=user, template=template, tools=tools, linked=system.private
        )
        with closing(conversation) if system.private else _cancelled_by_errors(conversation):
            yield conversation
        return
    from callboard.actors.events import ConversationOpened

    if tools is not None:
        raise Refused(
            "--tools is for a new conversation; in a chat, /enable and /disable change an old one's"
        )
    log = system.history(conversation_id, team=team)
    first = next((event for event in log if isinstance(event, ConversationOpened)), None)
    whose, roles = (first.user, first.roles) if first is not None else (user, ())
    yield system.conversation(
        team=team, user=whose, roles=roles, conversation_id=conversation_id, linked=False, create=False
    )


@contextmanager
def _cancelled_by_errors(conversation: Conversation) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(CallboardError):
            conversation.cancel()
        raise


def check_model(config: Config, weights: Weights) -> None:
    """See that the embedded model, if it is the one configured, can run; raises Unavailable.

    ``required`` only looks; ``offered`` asks the person to download what is missing; ``agreed`` downloads it.
    """
    if not config.embedded or weights == "not needed":
        return
    if importlib.util.find_spec("xllamacpp") is None:
        raise Unavailable(f"the embedded model needs a package: pip install 'callboard[local]'; {_OTHERWISE}")
    from callboard.embedded import weights as files

    if files.find(config.model.weights) is not None:
        return
    asking = weights == "offered" and sys.stdin.isatty()
    if weights != "agreed" and not (asking and _agrees(config)):
        raise Unavailable(
            f"the embedded model's weights are not here; run 'callboard model pull' (1.1 GB, once), "
            f"{_OTHERWISE}"
        )
    from callboard.cli.model import pull_shown

    pull_shown(files.DEFAULT_SOURCES, config.model.weights)


def _with_storage(config: Config, **changes: Path | None) -> Config:
    return config.model_copy(update={"storage": config.storage.model_copy(update=changes)})


def _agrees(config: Config) -> bool:
    from callboard.embedded import weights as files

    size = f"{files.EMBEDDED.size_bytes / 1e9:.1f} GB"
    target = config.model.weights or files.weights_path()
    typer.echo(
        f"No model is configured, so Callboard uses its embedded one, {files.MODEL_NAME}.\n"
        f"It would now download the model's weights, once: {size}, checked by SHA-256,\n"
        f"  to {target}\n"
        f"It is small: good for a question with one or two tool calls, not an autonomous agent.\n"
        f"For another model leave now, and set OPENAI_API_KEY, or --base-url and --model."
    )
    try:
        return typer.confirm("Download?", default=False)
    except typer.Abort:
        return False
