"""What third parties write into the definitions of their tools, made fit to be shown to a model and to a person.

Pure. Everything in a definition is untrusted text (SECURITY: tool poisoning): sizes and depth are capped, invisible and
direction-changing characters are taken out of prose. Where such a character stands in what is sent back as it is (a
property's name, an enum's member), the tool is left out, for a cleaned name would be another one. What was found is
told, never silently mended. Called by the external-server actor for each list of tools.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_DESCRIPTION = 4096
MAX_SCHEMA_CHARS = 32 * 1024
MAX_SCHEMA_DEPTH = 24
MAX_TOOLS = 256
_PROSE = frozenset({"description", "title", "$comment"})
_SHOWN = 60

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but for newline and tab
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb"  # zero width, direction
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"  # tags, halves of pairs
)


@dataclass(frozen=True, slots=True)
class Screened:
    """The definitions that can be used, and one sentence for each thing that was amiss."""

    tools: tuple[dict[str, Any], ...]
    flags: tuple[str, ...]


class _Unfit(Exception):
    """The definition cannot be used; the message says why."""


def screened(tools: Iterable[Mapping[str, Any]]) -> Screened:
    """Screen a server's tools, in MCP's form (``name``, ``description``, ``inputSchema`` …)."""
    kept: list[dict[str, Any]] = []
    flags: list[str] = []
    for tool in tools:
        name = _shown(str(tool.get("name", "")))
        if len(kept) == MAX_TOOLS:
            flags.append(f"there are more than {MAX_TOOLS} tools: the rest is left out")
            break
        try:
            kept.append(_screened(tool, flags, name))
        except _Unfit as why:
            flags.append(f"tool {name} is left out: {why}")
    return Screened(tuple(kept), tuple(flags))


def cleaned(text: str, limit: int = MAX_DESCRIPTION) -> str:
    """Give prose in Unicode's NFKC form, without hidden characters, at most ``limit`` characters long."""
    return _HIDDEN.sub("", unicodedata.normalize("NFKC", text))[:limit]


def _screened(tool: Mapping[str, Any], flags: list[str], name: str) -> dict[str, Any]:
    if _HIDDEN.search(str(tool.get("name", ""))):
        raise _Unfit("its name holds invisible characters")
    schema = tool.get("inputSchema", {})
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as fault:
        raise _Unfit(f"its schema is no JSON ({type(fault).__name__})") from fault
    if size > MAX_SCHEMA_CHARS:
        raise _Unfit(f"its schema is {size} characters long: at most {MAX_SCHEMA_CHARS} are shown to a model")
    before = len(flags)
    form = {**tool, "inputSchema": _clean(schema, "", 0, flags, name)}
    for key in ("description", "title"):
        if isinstance(form.get(key), str):
            form[key] = _prose(form[key], flags, name)
    if len(flags) > before:
        del flags[before + 1 :]
    return form


def _clean(value: Any, key: str, depth: int, flags: list[str], name: str) -> Any:
    if depth > MAX_SCHEMA_DEPTH:
        raise _Unfit(f"its schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
    match value:
        case dict():
            for inner in value:
                if _HIDDEN.search(str(inner)):
                    raise _Unfit(f"its schema has a name with invisible characters ({_shown(str(inner))})")
            return {inner: _clean(part, inner, depth + 1, flags, name) for inner, part in value.items()}
        case list():
            return [_clean(part, "", depth + 1, flags, name) for part in value]
        case str() if key in _PROSE:
            return _prose(value, flags, name)
        case str() if _HIDDEN.search(value):
            raise _Unfit(f"its schema has a value with invisible characters (under {_shown(key)})")
    return value


def _prose(text: str, flags: list[str], name: str) -> str:
    if _HIDDEN.search(text):
        flags.append(f"tool {name}: invisible characters were taken out of its description")
    elif len(text) > MAX_DESCRIPTION:
        flags.append(f"tool {name}: its description of {len(text)} characters is cut at {MAX_DESCRIPTION}")
    return cleaned(text)


def _shown(text: str) -> str:
    return repr(_HIDDEN.sub("·", text)[:_SHOWN])
