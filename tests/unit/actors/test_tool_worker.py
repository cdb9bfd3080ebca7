"""Whatever a tool raises, its worker sends a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.messages import Work
from callboard.actors.tool_worker import ToolWorkerActor
from callboard.tools.content import TextBlock
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.loader import specs_of

TOOLS = """
from callboard.tools.decorator import tool

class Odd(BaseException):
    pass

@tool
def interrupt() -> str:
    raise KeyboardInterrupt

@tool
def memory() -> str:
    raise MemoryError

@tool
def odd() -> str:
    raise Odd("out of line")
"""


def _call(spec: ToolSpec) -> str:
    worker = ToolWorkerActor()
    worker._work = Work(spec=spec, arguments={}, context=ToolContext())
    result = worker._call()
    assert (result.is_error, result.outcome) == (True, "error")
    (block,) = result.content
    assert isinstance(block, TextBlock)
    return block.text


def test_what_a_tool_raises_for_the_process_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "odd_tools.py").write_text(TOOLS)
    texts = [_call(spec) for spec in specs_of(str(tmp_path / "odd_tools.py"))]
    assert texts == [
        "interrupt failed: KeyboardInterrupt",
        "memory exceeded its memory limit",
        "odd failed: Odd: out of line",
    ]


@pytest.mark.parametrize("source", ["raise KeyboardInterrupt", "raise SystemExit(2)", "1 / 0"])
def test_a_module_that_fails_in_the_worker_is_an_error_that_says_so(tmp_path: Path, source: str) -> None:
    file = tmp_path / "late_tools.py"
    file.write_text(source)
    spec = ToolSpec(name="late", description="", parameters={}, module=str(file), attribute="late")
    assert _call(spec).startswith("the tool late could not be loaded: tool module")
