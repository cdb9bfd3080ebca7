"""Every row of the list has a test, and every test that claims a row names one that exists."""

from __future__ import annotations

import ast
import runpy
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
ROWS: dict[str, str] = runpy.run_path(str(HERE / "rows.py"))["ROWS"]


def claims() -> dict[str, list[str]]:
    """Which tests claim which rows, read from the ``covers`` marks of all test files."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func).split(".")[-1] == "covers":
                    assert node.name.startswith("test_"), f"{path.name}: {node.name} is no test"
                    assert mark.args, f"{path.name}: {node.name} covers nothing"
                    for row in mark.args:
                        assert isinstance(row, ast.Constant), f"{path.name}: rows are named literally"
                        found[str(row.value)].append(f"{path.name}::{node.name}")
    return found


def test_the_list_is_whole() -> None:
    assert list(ROWS) == [f"OTP-{number}" for number in range(1, 64)]


def test_every_row_has_a_test() -> None:
    claimed = claims()
    missing = [row for row in ROWS if row not in claimed]
    assert not missing, f"rows without a test: {missing}"


def test_every_claim_names_a_row() -> None:
    foreign = {row: tests for row, tests in claims().items() if row not in ROWS}
    assert not foreign, f"tests that name no row: {foreign}"
