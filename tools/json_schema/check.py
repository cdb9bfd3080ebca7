"""Does a JSON value fit a JSON Schema (2020-12, and what older drafts say otherwise)? If not: what, and where.

Pure, and bounded: the work is counted, not timed, so a schema or a value made to be slow ends in ``TooMuchWork``.
References are followed inside the schema only, and nothing is ever fetched. ``format`` and unknown keywords assert
nothing. ``tools/arguments.py`` calls ``problems_of``; why it is our own is told in docs/decisions/057.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import unquote

from callboard.tools.json_schema.applicators import APPLICATORS
from callboard.tools.json_schema.patterns import Patterns
from callboard.tools.json_schema.problem import BrokenSchema, Path, Problem, TooMuchWork
from callboard.tools.json_schema.values import ASSERTIONS, shown

MAX_STEPS = 200_000
MAX_DEPTH = 128
_OLD_DRAFTS = ("/draft-03/", "/draft-04/", "/draft-06/", "/draft-07/")


def problems_of(value: object, schema: Mapping[str, Any] | bool, limit: int = 5) -> list[Problem]:
    """Give the first ``limit`` problems of ``value`` under ``schema``; an empty list when it fits.

    Raises BrokenSchema (an unknown type, a reference that leads nowhere, out of the schema or round in circles) and
    TooMuchWork.
    """
    try:
        return list(islice(Check(schema).problems(value, schema, ()), limit))
    except RecursionError:
        raise TooMuchWork("the schema is nested too deeply") from None


class Check:
    """One check of one value: what is left of the work that it may do, and where it is."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.patterns = Patterns()
        draft = root.get("$schema") if isinstance(root, Mapping) else None
        self.ref_stands_alone = isinstance(draft, str) and any(old in draft for old in _OLD_DRAFTS)
        self._left = MAX_STEPS
        self._depth = 0
        self._following: set[tuple[int, Path]] = set()

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooMuchWork(f"the check takes more than {MAX_STEPS} steps")

    def fits(self, value: Any, schema: Any, path: Path) -> bool:
        return next(self.problems(value, schema, path), None) is None

    def problems(self, value: Any, schema: Any, path: Path) -> Iterator[Problem]:
        size = len(value) if isinstance(value, dict | list) else 0
        self.spend(1 + size + (len(schema) if isinstance(schema, Mapping) else 0))
        if schema is False:
            yield Problem(path, f"{shown(value)} is not allowed here")
        if not isinstance(schema, Mapping):
            return
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooMuchWork(f"its schemas lie more than {MAX_DEPTH} levels deep in one another")
        try:
            for keyword, wanted in in_force(schema, self.ref_stands_alone):
                yield from self._keyword(keyword, wanted, value, schema, path)
        finally:
            self._depth -= 1

    def _keyword(
        self, keyword: str, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
    ) -> Iterator[Problem]:
        assertion = ASSERTIONS.get(keyword)
        if assertion is not None:
            self.spend(_cost(keyword, wanted, value))
            yield from (Problem(path, message) for message in assertion(wanted, value, schema))
        applicator = APPLICATORS.get(keyword)
        if applicator is not None:
            yield from applicator(self, wanted, value, schema, path)

    def follow(self, reference: Any, value: Any, path: Path) -> Iterator[Problem]:
        target = self.resolve(reference)
        here = (id(target), path)
        if here in self._following:
            raise BrokenSchema(f"the reference {shown(reference)} leads round in circles")
        self._following.add(here)
        try:
            yield from self.problems(value, target, path)
        finally:
            self._following.discard(here)

    def resolve(self, reference: Any) -> Any:
        """Find what a reference inside this schema means; raises BrokenSchema."""
        text = str(reference)
        own = self.root.get("$id") if isinstance(self.root, Mapping) else None
        if isinstance(own, str) and own.rstrip("#") and text.startswith(own.rstrip("#")):
            text = text[len(own.rstrip("#")) :] or "#"
        if text in ("#", "#/"):
            return self.root
        found = self._pointed(text) if text.startswith("#/") else self._anchored(text)
        if found is None:
            raise BrokenSchema(f"the reference {shown(reference)} cannot be resolved inside it")
        return found

    def _pointed(self, text: str) -> Any:
        here = self.root
        for part in unquote(text[2:]).split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping):
                here = here.get(name)
            elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
                here = here[int(name)]
            else:
                return None
        return here

    def _anchored(self, text: str) -> Any:
        level: list[Any] = [self.root] if text.startswith("#") else []
        while level:
            self.spend(len(level))
            for part in level:
                if isinstance(part, Mapping) and text[1:] in (
                    part.get("$anchor"),
                    part.get("$dynamicAnchor"),
                ):
                    return part
            level = [inner for outer in level for inner in _inner(outer)]
        return None


def _inner(outer: Any) -> list[Any]:
    found = outer.values() if isinstance(outer, Mapping) else outer if isinstance(outer, list) else ()
    return [inner for inner in found if isinstance(inner, Mapping | list)]


def in_force(schema: Mapping[str, Any], ref_stands_alone: bool) -> Iterator[tuple[str, Any]]:
    """Give the keywords that count: up to draft 7 a reference hides those beside it."""
    if ref_stands_alone and "$ref" in schema:
        return iter([("$ref", schema["$ref"])])
    return iter(schema.items())


def _cost(keyword: str, wanted: Any, value: Any) -> int:
    if keyword in ("const", "enum"):
        return _weight(value) + _weight(wanted)
    if keyword == "uniqueItems":
        return _weight(value)
    return len(wanted) if isinstance(wanted, list | dict) else 1


def _weight(value: Any) -> int:
    """Count the values in a value."""
    if not isinstance(value, dict | list):
        return 1
    inner = value.values() if isinstance(value, dict) else value
    return 1 + sum(_weight(part) for part in inner)
