"""Arguments that fit a function as they are, seen without pydantic: the way of most calls, and 2 ms shorter. Pure.

It knows five types and decides for them alone; of everything else it says that it does not know, and
``tools/signature.py`` checks and converts. Where it does give arguments, they are what that would give. Called by the
decorator's ``FunctionTool.execute``.
"""

from __future__ import annotations

import builtins
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from callboard.tools.contract import ToolContext
from callboard.tools.plain_values import is_unicode

_PLAIN: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "ToolContext": ToolContext}
_BUILTINS = frozenset({"str", "int", "float", "bool"})
_VARIADIC = 0x04 | 0x08
_EXACT_FLOAT = 2**53
_WORD = re.compile(r"\w+")


def plain_call(
    function: Callable[..., Any], arguments: Mapping[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Give the keyword arguments of the call, or None where that is not for this module to say."""
    types_of = _types_of(function, arguments)
    if types_of is None or not arguments.keys() <= types_of.keys():
        return None
    bound: dict[str, Any] = {}
    for name, wanted in types_of.items():
        if wanted is ToolContext:
            if name in arguments:
                return None
            bound[name] = context
        elif name in arguments:
            value = _fitting(arguments[name], wanted)
            if value is None:
                return None
            bound[name] = value
        elif not _has_default(function, name):
            return None
    return bound


def _types_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, type] | None:
    """Give the type of each parameter that matters; one that is left out may be of any."""
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        return None
    code = function.__code__
    if code.co_flags & _VARIADIC or code.co_posonlyargcount or hasattr(function, "__signature__"):
        return None
    found: dict[str, type] = {}
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        annotation = function.__annotations__.get(name)
        known = _type_of(annotation, function.__globals__)
        if known is not None:
            found[name] = known
        elif (
            name in arguments
            or not _has_default(function, name)
            or _may_be_context(annotation, function.__globals__)
        ):
            return None
    return found


def _type_of(annotation: object, names: Mapping[str, Any]) -> type | None:
    if isinstance(annotation, str):
        known = _PLAIN.get(annotation)
        shadowed = annotation in names if annotation in _BUILTINS else names.get(annotation) is not known
        return None if shadowed else known
    return next((known for known in _PLAIN.values() if annotation is known), None)


def _may_be_context(annotation: object, names: Mapping[str, Any]) -> bool:
    """True for ``ToolContext | None``, for what has yet to be evaluated, and for whatever is not known here."""
    if annotation is None or annotation is types.NoneType:
        return False
    if not isinstance(annotation, str):
        parts = typing.get_args(annotation)
        is_class = isinstance(annotation, type) and annotation is not ToolContext
        return (
            any(isinstance(part, str) or _may_be_context(part, names) for part in parts)
            if parts
            else not is_class
        )
    return not all(_is_another_class(word, names) for word in _WORD.findall(annotation))


def _is_another_class(word: str, names: Mapping[str, Any]) -> bool:
    meant = names.get(word, getattr(builtins, word, None))
    return word == "None" or (isinstance(meant, type) and meant is not ToolContext)


def _fitting(value: object, wanted: type) -> Any:
    """Give the value as the function gets it; None where it does not fit as it is."""
    match value:
        case str() if type(value) is wanted is str:
            return value if is_unicode(value) else None
        case int() if type(value) is int and wanted is float:
            return float(value) if abs(value) <= _EXACT_FLOAT else None
        case _:
            return value if type(value) is wanted else None


def _has_default(function: types.FunctionType | Callable[..., Any], name: str) -> bool:
    assert isinstance(function, types.FunctionType)
    code = function.__code__
    named = code.co_varnames[: code.co_argcount]
    defaults = len(function.__defaults__ or ())
    return name in (named[len(named) - defaults :] if defaults else ()) or name in (
        function.__kwdefaults__ or {}
    )
