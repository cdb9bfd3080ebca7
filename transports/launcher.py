"""The last step before a child's own program: ties it to its parent, cleans what Python left, and execs.

A script of its own, run as ``python -I -S launcher.py <parent_pid> -- command argument …`` by
``ChildProcess``; never imported by it, and it imports nothing of ours. It exists because the same calls
between fork and exec, in a process with libraries loaded, can deadlock. Its parent has already made it the
leader of a new session. It ends with 127 when there is no such command, 126 when it cannot be executed, and
says so on stderr.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38

EXIT_CANNOT_EXECUTE = 126
EXIT_NOT_FOUND = 127


def main(arguments: list[str]) -> int:
    """Replace this process by the command; return an exit status only when that failed."""
    if len(arguments) < 3 or not arguments[0].isdigit() or arguments[1] != "--":
        return _fail(EXIT_CANNOT_EXECUTE, "usage: launcher.py <parent_pid> -- command argument ...")
    parent_pid, command = int(arguments[0]), arguments[2:]
    _restrict()
    if os.getppid() != parent_pid:
        # The parent died before the death signal was armed: nobody would ever stop this child.
        return _fail(EXIT_CANNOT_EXECUTE, "the parent is gone")
    _reset_signals()
    environment = _environment_as_given()
    try:
        os.execvpe(command[0], command, environment)
    except (FileNotFoundError, NotADirectoryError) as fault:
        return _fail(EXIT_NOT_FOUND, f"cannot start {command[0]!r}: {fault.strerror}")
    except OSError as fault:
        return _fail(EXIT_CANNOT_EXECUTE, f"cannot start {command[0]!r}: {fault.strerror}")


def _restrict() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_PDEATHSIG, signal.SIGKILL), (PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _environment_as_given() -> dict[bytes, bytes]:
    # Python sets LC_CTYPE for itself when the locale is "C" (PEP 538): the child shall not see it.
    environment = dict(os.environb)
    with open("/proc/self/environ", "rb") as given:  # noqa: PTH123 (importing pathlib costs more than all else)
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0")):
            environment.pop(b"LC_CTYPE", None)
    return environment


def _fail(status: int, message: str) -> int:
    sys.stderr.write(f"callboard: {message}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
