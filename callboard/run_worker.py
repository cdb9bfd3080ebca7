"""The watch over one call without actors, as ``actors/call_worker.py`` has it in the daemon.

It reads one request (a JSON object) from its standard input and writes a JSON object a line to the private descriptor
that its argument names: ``{"progress": [text, fraction]}``, and ``{"result": …}`` last. The tool worker is below it
(``actors/worker_process.py``). It ends in order on SIGTERM, which it is also sent when its parent dies. Started by
``callboard/run_calls.py`` (for ``callboard.run``) and ``callboard/one_call.py`` (for tests of tools, and ``doctor``).
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from callboard.actors.messages import Work
from callboard.actors.worker_endings import refused
from callboard.actors.worker_folder import make_folder
from callboard.actors.worker_process import LOOK_EVERY_S, Fork, WorkProcess, call_of
from callboard.tools.content import Progress, ToolResult, error_result, result_to_json
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.errors import ToolsError
from callboard.tools.fork_server import fork_worker
from callboard.tools.limits import limits_from_json
from callboard.tools.removal import remove_folder

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from callboard.run_worker import main; main()"
)
_PR_SET_PDEATHSIG = 1
_LEAVE_S = 3.0


def main() -> None:
    """Keep the request on standard input; ``argv[1]`` is the number of the descriptor for what there is to tell."""
    channel_fd = int(sys.argv[1])
    os.set_inheritable(channel_fd, False)
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    stop_fd = _arrange_end(request["parent"])
    with os.fdopen(channel_fd, "w", encoding="ascii") as channel:

        def say(message: Mapping[str, Any]) -> None:
            channel.write(json.dumps(message) + "\n")
            channel.flush()

        result = keep(
            work_from_json(request["work"]), stop_fd, lambda p: say({"progress": [p.text, p.fraction]})
        )
        if result is not None:
            say({"result": result_to_json(result)})


def keep(
    work: Work, stop_fd: int, progressed: Callable[[Progress], None], fork: Fork = fork_worker
) -> ToolResult | None:
    """Run the call to its end and give its result; None when ``stop_fd`` became readable first.

    Whatever the call started is gone.
    """
    try:
        folder = make_folder()
    except OSError as fault:
        return error_result(f"no process could be started for {work.spec.name}: {fault}", "unavailable")
    process = WorkProcess(work.spec, folder, fork=fork)
    try:
        call = call_of(work)
        process.start()
        process.hand_over(call, work.deadline_s)
        stopped = _drive(process, work.deadline_s, stop_fd, progressed)
    except ToolsError as fault:
        return refused(work.spec.name, work.spec.limits.sandbox, str(fault))
    except (OSError, TypeError, ValueError) as fault:
        return error_result(f"no process could be started for {work.spec.name}: {fault}", "unavailable")
    finally:
        process.end()
        if not process.reap_within(_LEAVE_S):
            process.give_up()
        process.close()
        remove_folder(folder)
    return None if stopped else process.result()


def work_to_json(work: Work) -> dict[str, Any]:
    """Give the call's JSON form; arguments and settings are to be JSON values themselves."""
    return dataclasses.asdict(work)


def work_from_json(form: Mapping[str, Any]) -> Work:
    """Read a call from its JSON form; of the tool only what a worker needs."""
    spec, context = form["spec"], form["context"]
    return Work(
        spec=ToolSpec(
            name=spec["name"],
            description="",
            parameters={},
            limits=limits_from_json(spec["limits"]),
            module=spec["module"],
            attribute=spec["attribute"],
            kept_source=spec["kept_source"],
        ),
        arguments=form["arguments"],
        context=ToolContext(**{**context, "roles": tuple(context["roles"])}),
        deadline_s=form["deadline_s"],
    )


def _drive(
    process: WorkProcess, deadline_s: float, stop_fd: int, progressed: Callable[[Progress], None]
) -> bool:
    """Serve the process until it is over; True when it was stopped from outside."""
    give_up_at = time.monotonic() + deadline_s
    look_at = time.monotonic() + LOOK_EVERY_S
    while not process.is_over:
        now = time.monotonic()
        if now >= give_up_at:
            process.stop("deadline")
            break
        if now >= look_at:
            look_at = now + LOOK_EVERY_S
            process.look()
            continue
        fds = [process.word_fd, stop_fd]
        fds += [process.channel_fd] if process.channel_is_open else []
        fds += [process.output_fd] if process.output_is_open else []
        ready = select.select(fds, [], [], min(look_at, give_up_at) - now)[0]
        if stop_fd in ready:
            return True
        if process.output_fd in ready:
            process.read_output()
        if process.channel_fd in ready:
            for progress in process.read_channel():
                progressed(progress)
        if process.word_fd in ready:
            break
    return False


def _arrange_end(parent_pid: int) -> int:
    """Give a descriptor that becomes readable on SIGTERM, which also comes when the parent dies."""
    stop_r, stop_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(stop_w, warn_on_full_buffer=False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(1)
    return stop_r


if __name__ == "__main__":
    main()
