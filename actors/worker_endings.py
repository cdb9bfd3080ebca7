"""What the model is told of a call that ended without a result: one short, honest sentence for each way to die. Pure.

Called by ``actors/worker_process.py`` and, for a call whose process could not be started, by who wanted that.
"""

from __future__ import annotations

import signal
from typing import Literal, TypeAlias

from callboard.tools.content import ToolResult, error_result
from callboard.tools.limits import Limits
from callboard.tools.sandbox_plan import EXIT_CHANNEL_LOST

Cause: TypeAlias = Literal["deadline", "memory", "cpu", "output", "processes", "folder", "result", "progress"]

RESULT_BYTES = 96 * 1024 * 1024
_SAID_CHARS = 300


def overdue(name: str, deadline_s: float) -> ToolResult:
    """Give the result of a call that ran past its deadline."""
    return error_result(f"{name} exceeded its deadline of {deadline_s:g} s and was killed", "deadline")


def ended_for(name: str, cause: Cause, limits: Limits, deadline_s: float) -> ToolResult:
    """Give the result of a call that was killed because it went over a limit."""
    what = {
        "memory": f"exceeded its memory limit of {limits.memory_mb} MiB",
        "cpu": f"exceeded its limit of {limits.cpu_s:g} s of CPU time" if limits.cpu_s else "",
        "output": f"printed more than {limits.output_mb} MiB",
        "processes": f"started more than {limits.processes} processes",
        "folder": f"filled its temporary folder beyond {limits.file_mb} MiB",
        "progress": "told its progress faster than it can be heard",
        "result": f"gave a result of more than {RESULT_BYTES} bytes",
    }
    if cause == "deadline":
        return overdue(name, deadline_s)
    return error_result(f"{name} {what[cause]} and was killed", "killed")


def ended_by_itself(name: str, code: int, limits: Limits) -> ToolResult:
    """Give the result of a call whose process ended without one; ``code`` is negative for a signal."""
    if code == -signal.SIGXCPU and limits.cpu_s is not None:
        return ended_for(name, "cpu", limits, 0.0)
    if code == EXIT_CHANNEL_LOST:
        how = "it closed descriptors that are not its own, so its result was lost"
    elif code < 0:
        how = f"its process was killed by {_signal_name(-code)}"
    else:
        how = f"its process exited with code {code}"
    return error_result(f"{name} did not finish: {how}", "killed")


def not_set_up(name: str, profile: str, code: int, said: str) -> ToolResult:
    """Give the result of a call whose process ended before it was shut off; the tool was not run."""
    lines = said.strip().splitlines()
    reason = lines[-1][:_SAID_CHARS] if lines else f"it ended with {code}"
    return refused(name, profile, reason)


def refused(name: str, profile: str, reason: str) -> ToolResult:
    """Give the result of a call whose profile this host cannot give; the tool was not run."""
    message = (
        f"{name} was not run: its sandbox profile {profile!r} cannot be given here: {reason}"
        if profile != "none"
        else f"{name} was not run: its process could not be set up: {reason}"
    )
    return error_result(message, "unavailable")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
