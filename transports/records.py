"""Frozen, slotted dataclasses pickled by their values: a third of the time that their own way takes.

Python's ``__getstate__`` for them asks ``fields()`` of each object anew. Here that is asked once for each class; what
comes out is the same object. Every other class, and one that says itself how it is pickled, goes its own way. Used by
``letters.py``.
"""

from __future__ import annotations

import dataclasses
import operator
import pickle
from collections.abc import Callable
from typing import Any, TypeAlias

_Reduce: TypeAlias = Callable[[Any], Any]

_STATE = ("__getstate__", "__setstate__")
_OWN_WAYS = frozenset({"__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__"})


class RecordPickler(pickle.Pickler):
    """A pickler that knows records."""

    def reducer_override(self, obj: Any) -> Any:
        """Give the record's class and values; ``NotImplemented`` for whatever is none."""
        kind = type(obj)
        reduce = _REDUCES.get(kind)
        if reduce is None:
            reduce = _REDUCES[kind] = _reduce_of(kind)
        return reduce(obj)


def rebuild(kind: type, values: tuple[Any, ...]) -> Any:
    """Make a record of its class and values, as they were; nothing of the class runs."""
    record: Any = object.__new__(kind)
    setters = _SETTERS.get(kind)
    if setters is None:
        setters = _SETTERS[kind] = tuple(getattr(kind, name).__set__ for name in _names(kind))
    for setter, value in zip(setters, values, strict=True):
        setter(record, value)
    return record


def _reduce_of(kind: type) -> _Reduce:
    if not _is_record(kind):
        return _other
    names = _names(kind)
    values: Callable[[Any], Any] = operator.attrgetter(*names)

    def reduce(record: Any) -> Any:
        return rebuild, (kind, values(record))

    def reduce_single(record: Any) -> Any:
        return rebuild, (kind, (values(record),))

    return reduce_single if len(names) == 1 else reduce


def _other(_obj: Any) -> Any:
    return NotImplemented


def _is_record(kind: type) -> bool:
    """True for a frozen dataclass whose only state is its fields' slots, inherited ones among them."""
    return (
        all(_is_slotted(part) for part in kind.__mro__[:-1])
        and len(_names(kind)) > 0
        and {name for part in kind.__mro__[:-1] for name in part.__dict__["__slots__"]} == set(_names(kind))
    )


def _is_slotted(kind: type) -> bool:
    own = kind.__dict__
    return (
        "__dataclass_params__" in own
        and own["__dataclass_params__"].frozen
        and type(own.get("__slots__")) is tuple
        and all(getattr(own.get(name), "__module__", "") == "dataclasses" for name in _STATE)
        and not own.keys() & _OWN_WAYS
    )


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


_REDUCES: dict[type, _Reduce] = {}
_SETTERS: dict[type, tuple[Callable[[Any, Any], None], ...]] = {}
