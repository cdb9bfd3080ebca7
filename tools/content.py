"""What a tool gives back: typed content blocks, citations, and the result that carries them.

Pure data with its JSON form. It decides nothing and knows no actor; the turn machine, the workers,
the external servers and the log all speak in these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any


class ContentError(ValueError):
    """A JSON object is not the form of a content block or a citation."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Plain text, shown to the model as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class JsonBlock:
    """Any JSON value; the model sees its compact text."""

    value: JsonValue


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image: ``data`` is base64 text, ``mime_type`` such as ``image/png``."""

    data: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class ResourceBlock:
    """A named resource: its URI, and its text or base64 ``blob`` where they were sent along."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


Block: TypeAlias = TextBlock | JsonBlock | ImageBlock | ResourceBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Where a statement comes from. Lines and pages count from 1; ``retrieved_at`` is ISO 8601 in UTC."""

    document: str | None = None
    page: int | None = None
    line: int | None = None
    line_end: int | None = None
    url: str | None = None
    record_id: str | None = None
    score: float | None = None
    retrieved_at: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a tool that is a generator yields to say how far it is; ``fraction`` is from 0 to 1 where it is known."""

    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The one outcome of one call.

    ``outcome`` is ``ok``, ``error`` (the tool or its arguments), ``deadline``, ``killed``, ``denied``,
    ``unavailable``, ``unknown`` (it may have run; it was not repeated) or ``cancelled``.
    An error's text stands in ``content`` as the model will read it. ``output`` is what the tool printed, head and
    tail; ``full`` is the whole text of a result whose ``content`` was cut. Neither is ever shown to a model, and no
    tool sets them.
    """

    content: tuple[Block, ...] = ()
    is_error: bool = False
    outcome: str = "ok"
    citations: tuple[Citation, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    output: str = ""
    full: str | None = None


def error_result(message: str, outcome: str = "error") -> ToolResult:
    """Make the result that tells the model, in one text block, what went wrong."""
    return ToolResult(content=(TextBlock(message),), is_error=True, outcome=outcome)


def block_to_json(block: Block) -> dict[str, JsonValue]:
    """Give the block's JSON form: an object with ``type`` and the block's fields."""
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text}
        case JsonBlock(value):
            return {"type": "json", "value": value}
        case ImageBlock(data, mime_type):
            return {"type": "image", "data": data, "mime_type": mime_type}
        case ResourceBlock(uri, mime_type, text, blob):
            return {"type": "resource", "uri": uri, "mime_type": mime_type, "text": text, "blob": blob}


def block_from_json(value: Mapping[str, JsonValue]) -> Block:
    """Read a block from its JSON form; raises ContentError on an unknown type or a missing field."""
    try:
        match value.get("type"):
            case "text":
                return TextBlock(str(value["text"]))
            case "json":
                return JsonBlock(value["value"])
            case "image":
                return ImageBlock(str(value["data"]), str(value["mime_type"]))
            case "resource":
                return ResourceBlock(
                    str(value["uri"]), value.get("mime_type"), value.get("text"), value.get("blob")
                )
            case other:
                raise ContentError(f"unknown content block type {other!r}")
    except KeyError as missing:
        raise ContentError(f"content block {value.get('type')!r} lacks {missing}") from missing


def citation_to_json(citation: Citation) -> dict[str, JsonValue]:
    """Give the citation's JSON form: only the fields that are set."""
    fields = {name: getattr(citation, name) for name in Citation.__slots__}
    return {name: value for name, value in fields.items() if value is not None}


def citation_from_json(value: Mapping[str, JsonValue]) -> Citation:
    """Read a citation from its JSON form; unknown fields raise ContentError."""
    unknown = set(value) - set(Citation.__slots__)
    if unknown:
        raise ContentError(f"unknown citation fields {sorted(unknown)}")
    return Citation(**value)


def result_to_json(result: ToolResult) -> dict[str, JsonValue]:
    """Give the result's JSON form."""
    return {
        "content": [block_to_json(block) for block in result.content],
        "is_error": result.is_error,
        "outcome": result.outcome,
        "citations": [citation_to_json(citation) for citation in result.citations],
        "metadata": dict(result.metadata),
        "output": result.output,
        "full": result.full,
    }


def result_from_json(form: Mapping[str, JsonValue]) -> ToolResult:
    """Read a result from its JSON form; raises ContentError, KeyError or TypeError on anything else."""
    full, output = form.get("full"), form.get("output", "")
    if not isinstance(full, str | None) or not isinstance(output, str):
        raise ContentError("full and output must be text")
    return ToolResult(
        content=tuple(block_from_json(block) for block in form["content"]),
        is_error=form["is_error"],
        outcome=form["outcome"],
        citations=tuple(citation_from_json(citation) for citation in form["citations"]),
        metadata=form["metadata"],
        output=output,
        full=full,
    )
