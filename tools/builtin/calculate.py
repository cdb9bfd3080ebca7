"""``calculate``: arithmetic that a model should not do in its head. Runs in a call's process."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from callboard.tools.builtin.arithmetic import MAX_CHARS, evaluate
from callboard.tools.decorator import tool


@tool(read_only=True, idempotent=True, deadline_s=10.0, memory_mb=256)
def calculate(expression: Annotated[str, Field(min_length=1, max_length=MAX_CHARS)]) -> int | float | bool:
    """Work out an arithmetic expression exactly as Python would.

    Knows + - * / // % ** and comparisons, the constants pi, e and tau, and functions such as sqrt, sin
    (radians), log, ln, log10, exp, round, min, max, sum, abs, floor, ceil, factorial, comb, gcd.

    Args:
        expression: For example (1 + 2) * 3 ** 2, or sqrt(2) / 2. Write 1000, not 1,000.
    """
    return evaluate(expression)
