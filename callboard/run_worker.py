"""The worker of ``callboard.run``: a process that runs one call of one tool, hands over the result, and ends.

It reads one request (a JSON object) from its standard input and writes one result (a JSON line) to the
private descriptor that its argument names; what the tool prints goes to standard error. It decides and times
nothing: its parent, ``callboard/run_calls.py``, kills it. It dies with its parent.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from callboard.supervisor.process import bind_to_parent
from callboard.tools.content import (
    ToolResult,
    block_from_json,
    block_to_json,
    citation_from_json,
    citation_to_json,
    error_result,
)
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.errors import ToolsError
from callboard.tools.execute import execute
from callboard.tools.loader import load_tool

_MIB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGESIZE")


def main() -> None:
    """Run the request on standard input; ``argv[1]`` is the number of the descriptor for the result."""
    result_fd = int(sys.argv[1])
    os.set_inheritable(result_fd, False)
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    bind_to_parent(request["parent"])
    _redirect()
    line = _encode(_call(request)) + b"\n"
    with os.fdopen(result_fd, "wb") as result:
        result.write(line)


def result_to_json(result: ToolResult) -> dict[str, Any]:
    """Give the result's JSON form."""
    return {
        "content": [block_to_json(block) for block in result.content],
        "is_error": result.is_error,
        "outcome": result.outcome,
        "citations": [citation_to_json(citation) for citation in result.citations],
        "metadata": dict(result.metadata),
    }


def result_from_json(form: dict[str, Any]) -> ToolResult:
    """Read a result from its JSON form; raises ContentError, KeyError or TypeError on anything else."""
    return ToolResult(
        content=tuple(block_from_json(block) for block in form["content"]),
        is_error=form["is_error"],
        outcome=form["outcome"],
        citations=tuple(citation_from_json(citation) for citation in form["citations"]),
        metadata=form["metadata"],
    )


def _call(request: dict[str, Any]) -> ToolResult:
    spec = ToolSpec(**request["spec"])
    context = ToolContext(**request["context"])
    try:
        tool = load_tool(spec)
    except ToolsError as fault:
        advice = 'run with isolation="thread", or put the tool in a module that a new process can import'
        return error_result(f"the tool {spec.name} could not be loaded: {fault}; {advice}", "unavailable")
    if spec.memory_mb is not None:
        _limit_memory(spec.memory_mb)
    try:
        return execute(tool, request["arguments"], context)
    except MemoryError:
        limit = f" of {spec.memory_mb} MiB" if spec.memory_mb is not None else ""
        return error_result(f"{spec.name} exceeded its memory limit{limit}")


def _encode(result: ToolResult) -> bytes:
    try:
        return json.dumps(result_to_json(result)).encode("ascii")
    except (TypeError, ValueError, RecursionError) as fault:
        broken = error_result(f"the tool's result has no JSON form: {fault}")
        return json.dumps(result_to_json(broken)).encode("ascii")


def _redirect() -> None:
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)


def _limit_memory(mib: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as figures:  # noqa: PTH123
        used = int(figures.read().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + mib * _MIB, used + mib * _MIB))


if __name__ == "__main__":
    main()
