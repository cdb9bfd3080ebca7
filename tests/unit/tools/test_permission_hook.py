"""The hook is asked by a tool of its own; only a clear yes allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callboard.tools.content import JsonBlock, TextBlock, ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.execute import execute
from callboard.tools.loader import load_tool
from callboard.tools.permission_call import denial_of, hook_arguments, hook_spec

SPEC = ToolSpec(name="wipe", description="", parameters={}, server="disk")
CONTEXT = ToolContext(user="ann", team="red", roles=("r",), conversation_id="c", call_id="1")
HOOK = """
seen = []

def yes(request):
    seen.append(request)
    return (request.tool, request.arguments, request.user, request.team, request.roles, request.server) == (
        "wipe", {"path": "/x"}, "ann", "red", ("r",), "disk")

async def later(request):
    return "not now"

def no(request): return False
def nothing(request): return None
def one(request): return 1
def fails(request): raise RuntimeError("the directory service is down")
def leaves(request): raise SystemExit(0)
"""


def _asked(tmp_path: Path, name: str) -> ToolResult:
    file = tmp_path / "authz.py"
    file.write_text(HOOK)
    arguments = hook_arguments(f"{file}:{name}", SPEC, {"path": "/x"})
    return execute(load_tool(hook_spec(1.0)), arguments, CONTEXT)


def test_a_hook_sees_the_call_and_its_principal_and_may_allow(tmp_path: Path) -> None:
    assert denial_of(_asked(tmp_path, "yes")) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no", "says no"),
        ("later", "says no: not now"),
        ("nothing", "NoneType"),
        ("one", "int"),
        ("fails", "the directory service is down"),
        ("leaves", "exit"),
        ("gone", "has no function gone"),
        ("seen", "has no function seen"),
    ],
)
def test_anything_but_a_yes_denies(tmp_path: Path, name: str, words: str) -> None:
    assert words in str(denial_of(_asked(tmp_path, name)))


@pytest.mark.parametrize(
    "result",
    [
        error_result("killed", "deadline"),
        ToolResult(content=()),
        ToolResult(content=(TextBlock("yes"),)),
        ToolResult(content=(JsonBlock({"allowed": "True"}),)),
        ToolResult(content=(JsonBlock({"allowed": True}),), is_error=True),
        ToolResult(content=(JsonBlock({"allowed": True}), TextBlock("x"))),
    ],
)
def test_no_other_result_is_taken_for_a_yes(result: Any) -> None:
    assert "failed, so the call is denied" in str(denial_of(result))
