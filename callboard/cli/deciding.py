"""Who decides on a call that waits for a person, on the command line. ``ask`` and ``tools call`` use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from callboard.gateway.terminal.approvals import Decider

MAX_ANSWER = 1 << 20


def decider_for(approve: Sequence[str], as_json: bool) -> Decider:
    """A person is asked where one sits at the terminal; the answers come from there, not from a pipe."""
    from callboard.gateway.terminal.approvals import ListDecider, PersonDecider
    from callboard.gateway.terminal.interrupts import raising_interrupts
    from callboard.gateway.terminal.look import look_of

    def answer(question: str, _text: str) -> str | None:
        typer.echo(question, nl=False, err=True)
        with raising_interrupts():
            return sys.stdin.readline(MAX_ANSWER) or None

    if approve or as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ListDecider(approve)
    return PersonDecider(answer, partial(typer.echo, err=True), look_of(sys.stderr, os.environ))
