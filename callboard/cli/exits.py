"""How a command ends: its exit code by kind of outcome, and one quiet line instead of a traceback.

Every command is wrapped by ``reported``. An exception that is not ours is a bug and keeps its traceback.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from callboard.errors import CallboardError, ConfigError, ConversationNotFound, Refused, ToolNotFound

OK = 0
TURN_FAILED = 1
BAD_USAGE = 2
UNREACHABLE = 3
TURN_CANCELLED = 4
INTERRUPTED = 130
READER_GONE = 141

EXIT_CODES = """\
\b
Exit codes:
  0    answered, or done
  1    the turn failed
  2    wrong usage or configuration
  3    the system could not be reached or started; nothing is running
  4    the turn was cancelled
  130  interrupted by Ctrl-C
  141  the reader of a pipe went away"""

Arguments = ParamSpec("Arguments")


def exit_code(fault: CallboardError) -> int:
    """Give the exit code for an error of ours."""
    usage = (ConfigError, ToolNotFound, ConversationNotFound, Refused)
    return BAD_USAGE if isinstance(fault, usage) else UNREACHABLE


def reported(command: Callable[Arguments, int | None]) -> Callable[Arguments, None]:
    """Wrap a command that gives an exit code (None is 0): our errors become a line on stderr and a code."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            code = command(*args, **kwargs) or OK
            sys.stdout.flush()
        except CallboardError as fault:
            report(str(fault))
            code = exit_code(fault)
        except BrokenPipeError:
            silence_stdout()
            code = READER_GONE
        except KeyboardInterrupt:
            code = INTERRUPTED
        raise typer.Exit(code)

    return run


def report(message: str) -> None:
    """Say on stderr what went wrong, cleaned of what a terminal would obey."""
    from callboard.gateway.terminal.plain import clean

    typer.echo(f"callboard: {clean(message)}", err=True)


def silence_stdout() -> None:
    """Let what is still buffered for a reader that is gone go nowhere, so that the exit is quiet."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
