"""How a command ends: its exit code by kind of outcome, and one quiet line instead of a traceback.

Every command is wrapped by ``reported``. What the operating
system refuses (a full disk) is said likewise; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TextIO

import typer

from callboard.errors import CallboardError, ConfigError, ConversationNotFound, Refused, ToolNotFound

OK = 0
TURN_FAILED = 1
FOUND_FAULTS = 1
BAD_USAGE = 2
UNREACHABLE = 3
TURN_CANCELLED = 4
INTERRUPTED = 130
READER_GONE = 141

EXIT_CODES = """\
\b
Exit codes:
  0    answered, or done
  1    the turn failed; the journal is damaged (journal check); an attachment's content is damaged, and
       not in the export (history export); a tool module was not loaded (reload);
       the call failed or was refused (tools call); a tool is not fit for models (tools test)
  2    wrong usage or configuration
  3    the system could not be reached or started; nothing is running; output could not be written
  4    the turn was cancelled
  130  interrupted by Ctrl-C
  141  the reader of a pipe went away"""

_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG)

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
            silence(sys.stdout)
            code = READER_GONE
        except OSError as fault:
            report_os_fault(fault)
            code = UNREACHABLE
        except KeyboardInterrupt:
            code = INTERRUPTED
        raise typer.Exit(code)

    return run


def report(message: str) -> None:
    """Say on stderr what went wrong, cleaned of what a terminal would obey; where stderr takes nothing, nobody."""
    from callboard.gateway.terminal.plain import clean

    try:
        typer.echo(f"callboard: {clean(message)}", err=True)
    except OSError:
        silence(sys.stderr)


def report_os_fault(fault: OSError) -> None:
    """Say in one sentence what the operating system refused, and drop output that cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
    told = fault.strerror or str(fault) or type(fault).__name__
    if fault.filename is None and fault.errno in _NOT_WRITTEN:
        report(f"the output could not be written: {told}")
    else:
        report(told if fault.filename is None else f"{os.fsdecode(fault.filename)}: {told}")


def silence(stream: TextIO) -> None:
    """Let what is still buffered for a stream that takes no more go nowhere, so that the exit is quiet."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
