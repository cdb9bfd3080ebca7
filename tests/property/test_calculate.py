"""The calculator agrees with Python on arithmetic, and answers any text at all with a number or one error."""

from __future__ import annotations

import math
import operator

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.tools.builtin.arithmetic import CalculationError, evaluate

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
LEAVES = st.integers(-1000, 1000).map(lambda value: (f"({value})", value))


def _joined(parts: st.SearchStrategy[tuple[str, int]]) -> st.SearchStrategy[tuple[str, int]]:
    return st.tuples(parts, st.sampled_from(sorted(OPERATIONS)), parts).map(
        lambda three: (
            f"({three[0][0]} {three[1]} {three[2][0]})",
            OPERATIONS[three[1]](three[0][1], three[2][1]),
        )
    )


@given(st.recursive(LEAVES, _joined, max_leaves=20))
def test_whole_numbers_are_exact(built: tuple[str, int]) -> None:
    expression, value = built
    assert evaluate(expression) == value


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6).filter(bool))
def test_division_is_pythons(left: float, right: float) -> None:
    try:
        assert evaluate(f"({left!r}) / ({right!r})") == left / right
    except CalculationError:
        assert not math.isfinite(left / right)


PIECES = st.sampled_from(
    [
        *("1", "0", "9", ".5", "1e9", "pi", "e", "x", "_", "'", "\0", " if "),
        *("(", ")", "[", "]", ",", ":", "=", "+", "-", "*", "/", "//", "%", "**", "^", "<", "=="),
        *("sqrt(", "factorial(", "round(", "max(", "comb(", "lcm(", "gcd("),
    ]
)


@settings(max_examples=400, deadline=1000)
@given(st.lists(PIECES, max_size=20).map("".join) | st.text(max_size=60))
def test_any_text_gives_a_number_or_a_calculation_error(text: str) -> None:
    try:
        value = evaluate(text)
    except CalculationError as error:
        assert str(error)
    else:
        assert isinstance(value, int | float)
        assert math.isfinite(value) if isinstance(value, float) else value.bit_length() <= 10_000
