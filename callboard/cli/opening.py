"""Reach the system that a command works on: the running one, or a private one of its own.

Also sees to it that the embedded model can run before a private system is started for it.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Literal, TypeAlias

import typer

from callboard.cli.options import Flags
from callboard.errors import NoDaemon, Unavailable

if TYPE_CHECKING:
    from callboard.api import System
    from callboard.config import Config

Weights: TypeAlias = Literal["not needed", "required", "offered", "agreed"]

_OTHERWISE = "or use another model: set OPENAI_API_KEY, or --base-url and --model"


def open_system(name: str, flags: Flags, weights: Weights = "not needed") -> System:
    """Attach to the system ``name``; with flags, or when none runs, start a private one. Raises
    CallboardError.
    """
    from callboard.api import connect

    if not flags.given:
        try:
            return attach(name)
        except NoDaemon:
            pass
    config = flags.load()
    check_model(config, weights)
    return connect(name=name, config=config, private=True)


def attach(name: str) -> System:
    """Attach to the running system ``name``; raises NoDaemon, and then leaves no folder of that name behind."""
    from callboard import daemon
    from callboard.api import connect

    if not daemon.runs(name):
        raise NoDaemon(f"no system named {name} is running; start one with 'callboard serve'")
    return connect(name=name, private=False)


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
