"""``callboard doctor``: what this machine can give, found by trying. Today: the sandboxes of tools."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from callboard.cli import options
from callboard.cli.exits import TURN_FAILED, reported

if TYPE_CHECKING:
    from callboard.sandbox_report import SandboxReport

doctor_app = typer.Typer(help="What this machine can give.", no_args_is_help=True)


@doctor_app.callback()
def _doctor() -> None:
    """Look what this machine can give, by trying.

    \b
    Examples:
      callboard doctor sandbox
      callboard doctor sandbox --json
    """


@doctor_app.command("sandbox")
@reported
def sandbox(as_json: options.JsonOption = False) -> int:
    """Try each sandbox profile on a hostile tool, and say what holds; 1 when a wall does not.

    A profile that this machine cannot give is no fault of the command: tools that ask for it are refused.
    """
    from callboard.sandbox_report import examine

    report = examine()
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        typer.echo("\n".join(_lines(report)))
    return TURN_FAILED if any(profile.breaches for profile in report.profiles) else 0


def _lines(report: SandboxReport) -> list[str]:
    lines = [f"strongest profile: {report.strongest}", ""]
    for profile in report.profiles:
        state = f"no: {profile.lacking}" if profile.lacking else "yes"
        lines.append(f"  {profile.name:<9} {state}")
        lines += [
            f"            {'breached' if breach else 'holds':<9} {what}" for what, breach in profile.walls
        ]
    lines += ["", "limits"]
    lines += [f"  {name:<18} {how}" for name, how in report.limits]
    return lines
