"""Evaluate an arithmetic expression by walking its syntax tree: numbers, operators, a list of functions, no
more.

Pure. Nothing is compiled or run: a node that is not in the tables below is refused by name. Time and memory
are bounded: length, depth, the size of every whole number, and of the arguments of functions that grow.
Called by ``calculate``.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

from callboard.tools.errors import ToolFault

Number: TypeAlias = int | float

MAX_CHARS = 1000
MAX_DEPTH = 60
MAX_BITS = 10_000
MAX_FACTORIAL = 1000
MAX_DIGITS_ROUNDED = 400


class CalculationError(ToolFault):
    """The expression cannot be worked out; the message says which part and why."""


def evaluate(expression: str) -> Number | bool:
    """Work out ``expression``; comparisons give a bool. Raises CalculationError, and nothing else."""
    if len(expression) > MAX_CHARS:
        raise CalculationError(f"the expression is longer than {MAX_CHARS} characters: split it up")
    written = expression.strip().translate(_TYPOGRAPHY)
    try:
        tree = ast.parse(written, mode="eval")
    except SyntaxError as error:
        raise CalculationError(
            f"the expression cannot be read: {error.msg} (column {error.offset})"
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CalculationError("the expression cannot be read") from error
    return _value(tree.body, MAX_DEPTH)


def _value(node: ast.expr, depth: int) -> Number | bool:
    if depth == 0:
        raise CalculationError(f"the expression is nested more than {MAX_DEPTH} levels deep")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name):
            if name not in _CONSTANTS:
                raise CalculationError(f"unknown name {name!r}; constants are {', '.join(_CONSTANTS)}")
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _number(operand, depth)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=sign, right=right):
            return _operation(type(sign), _number(left, depth), _number(right, depth))
        case ast.Compare():
            return _comparison(node, depth)
        case ast.Call():
            return _call(node, depth)
        case ast.Tuple():
            raise CalculationError("a comma stands outside a function: write 1000, not 1,000")
        case _:
            raise CalculationError(
                f"{type(node).__name__} is not arithmetic: use numbers, operators, functions"
            )


def _number(node: ast.expr, depth: int) -> Number:
    value = _value(node, depth - 1)
    if isinstance(value, bool):
        raise CalculationError("a comparison cannot be calculated with")
    return value


def _operation(sign: type[ast.operator], left: Number, right: Number) -> Number:
    if sign is ast.Pow:
        return _power(left, right)
    operation = _OPERATORS.get(sign)
    if operation is None:
        advice = ": use ** for powers" if sign is ast.BitXor else ""
        raise CalculationError(f"the operator {sign.__name__} is not known{advice}")
    return _attempt(operation, left, right)


def _comparison(node: ast.Compare, depth: int) -> bool:
    values = [_number(part, depth) for part in (node.left, *node.comparators)]
    for sign, left, right in zip(node.ops, values, values[1:], strict=False):
        comparison = _COMPARISONS.get(type(sign))
        if comparison is None:
            raise CalculationError(f"the comparison {type(sign).__name__} is not known")
        if not comparison(left, right):
            return False
    return True


def _call(node: ast.Call, depth: int) -> Number:
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)[:40]
        raise CalculationError(f"unknown function {name!r}; known are {', '.join(sorted(_FUNCTIONS))}")
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        raise CalculationError(f"{node.func.id} takes numbers only, separated by commas")
    return _attempt(_FUNCTIONS[node.func.id], *(_number(argument, depth) for argument in node.args))


def _attempt(operation: Callable[..., Number], *numbers: Number) -> Number:
    """The one seam where the errors of arithmetic become ours."""
    try:
        return _bounded(operation(*numbers))
    except ZeroDivisionError as error:
        raise CalculationError("division by zero") from error
    except OverflowError as error:
        raise CalculationError("the result is too large") from error
    except (ValueError, TypeError) as error:
        raise CalculationError(f"{_name_of(operation)} cannot take that: {error}") from error


def _bounded(value: object) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise CalculationError(
                f"a whole number of more than {MAX_BITS} bits comes up: use floats, such as 2.0"
            )
        return value
    if not isinstance(value, float):
        raise CalculationError("the result is not a real number")
    if not math.isfinite(value):
        raise CalculationError("the result is too large, or no number at all")
    return value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        bits = (abs(base).bit_length() - 1) * abs(exponent)
        if exponent > 0 and bits > MAX_BITS:
            raise CalculationError("a power of whole numbers is too large: use floats, such as 2.0")
        if exponent < 0 and bits > MAX_BITS:
            return 0.0
    return _attempt(operator.pow, base, exponent)


def _factorial(n: Number) -> Number:
    if n > MAX_FACTORIAL:
        raise CalculationError(f"factorial takes whole numbers up to {MAX_FACTORIAL}")
    return math.factorial(_whole(n))


def _choose(function: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    def choose(n: Number, k: Number) -> Number:
        if max(n, k) > MAX_FACTORIAL:
            raise CalculationError(f"comb and perm take whole numbers up to {MAX_FACTORIAL}")
        return function(_whole(n), _whole(k))

    return choose


def _round(value: Number, digits: Number = 0) -> Number:
    if abs(digits) > MAX_DIGITS_ROUNDED:
        raise CalculationError(f"round takes at most {MAX_DIGITS_ROUNDED} digits")
    return round(value, _whole(digits)) if digits else round(value)


def _whole(value: Number) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise CalculationError(f"{value} is not a whole number")
    return int(value)


def _integers(function: Callable[..., int]) -> Callable[..., Number]:
    return lambda *values: function(*map(_whole, values))


def _extreme(function: Callable[[tuple[Number, ...]], Number]) -> Callable[..., Number]:
    return lambda *values: function(values)


def _name_of(operation: Callable[..., Number]) -> str:
    return next((name for name, known in _FUNCTIONS.items() if known is operation), operation.__name__)


_TYPOGRAPHY = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "π": "pi"})

_CONSTANTS: Mapping[str, Number] = MappingProxyType({"pi": math.pi, "e": math.e, "tau": math.tau})

_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }
)

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Number, Number], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)

_OF_MATH = (
    *("sqrt", "cbrt", "exp", "log", "log2", "log10", "hypot", "floor", "ceil", "trunc", "degrees", "radians"),
    *(
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
    ),
)

_FUNCTIONS: Mapping[str, Callable[..., Number]] = MappingProxyType(
    {name: cast(Callable[..., Number], getattr(math, name)) for name in _OF_MATH}
    | {
        "ln": math.log,
        "abs": abs,
        "pow": _power,
        "round": _round,
        "min": _extreme(min),
        "max": _extreme(max),
        "sum": _extreme(sum),
        "factorial": _factorial,
        "comb": _choose(math.comb),
        "perm": _choose(math.perm),
        "gcd": _integers(math.gcd),
        "lcm": _integers(math.lcm),
    }
)
