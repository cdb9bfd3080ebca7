"""Whatever a tool raises, and whatever its module does, the call's process says it in a result."""

from __future__ import annotations

from pathlib import Path

from callboard.testing.tool_bench import ToolBench
from callboard.tools.content import TextBlock, ToolResult
from callboard.tools.contract import ToolSpec
from callboard.tools.loader import specs_of
from callboard.tools.runner import Setup

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


def _said(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextBlock)
    return block.text


def test_what_a_tool_raises_for_the_process_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "odd_tools.py"
    file.write_text(TOOLS)
    with ToolBench(tmp_path) as bench:
        results = [bench.call(spec, {})[0] for spec in specs_of(str(file))]
    assert [(result.is_error, result.outcome) for result in results] == [(True, "error")] * 3
    assert [_said(result) for result in results] == [
        "interrupt failed: KeyboardInterrupt",
        "memory exceeded its memory limit",
        "odd failed: Odd: out of line",
    ]


def test_a_module_that_fails_in_the_worker_is_an_error_that_says_so(tmp_path: Path) -> None:
    with ToolBench(tmp_path) as bench:
        for number, source in enumerate(["raise KeyboardInterrupt", "raise SystemExit(2)", "1 / 0"]):
            file = tmp_path / f"late_{number}.py"
            file.write_text(source)
            spec = ToolSpec(name="late", description="", parameters={}, module=str(file), attribute="late")
            result, _ = bench.call(spec, {})
            assert result.outcome == "unavailable"
            assert _said(result).startswith("the tool late could not be loaded: tool module")


def test_a_setup_survives_its_way_to_a_new_process() -> None:
    setup = Setup(
        name="x",
        module="m",
        attribute="x",
        steps=(("rlimit", ("CORE", 0, 0)), ("memory", (64,)), ("no_sockets", ())),
        environment={"A": "ü"},
        cwd=None,
    )
    assert Setup.from_json(setup.to_json()) == setup
    assert setup.memory_mb == 64
