"""What a tool gives back: typed content blocks, citations, and the result that carries them.

Pure data with its JSON form. It decides nothing and knows no actor; the turn machine, the workers,
the external servers and the log all speak in these values.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any

PIECE_BYTES = 1024 * 1024


class ContentError(ValueError):
    """A JSON object is not the form of a content block, a citation or an attachment."""


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
class Attachment:
    """The whole of something that a result's ``content`` only has in part, or names: ``size`` bytes of ``mime_type``.

    ``digest`` is the SHA-256 of all of it, ``pieces`` those of its parts of ``PIECE_BYTES``, by which it is stored.
    ``content`` is there on the way to where it is stored, and in what has no store (``callboard.run``, an export).
    """

    digest: str
    size: int
    mime_type: str
    pieces: tuple[str, ...]
    content: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, content: bytes, mime_type: str) -> Attachment:
        """Make the attachment that holds ``content``."""
        return cls(
            digest=hashlib.sha256(content).hexdigest(),
            size=len(content),
            mime_type=mime_type,
            pieces=tuple(hashlib.sha256(piece).hexdigest() for piece in pieces_of(content)),
            content=content,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The one outcome of one call.

    ``outcome`` is ``ok``, ``error`` (the tool or its arguments), ``deadline``, ``killed``, ``denied``,
    ``unavailable``, ``unknown`` (it may have run; it was not repeated) or ``cancelled``.
    An error's text stands in ``content`` as the model will read it. ``output`` is what the tool printed, head and
    tail; ``attachments`` hold the whole of what was cut from ``content``. Neither is ever shown to a model, and no
    tool sets them.
    """

    content: tuple[Block, ...] = ()
    is_error: bool = False
    outcome: str = "ok"
    citations: tuple[Citation, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    output: str = ""
    attachments: tuple[Attachment, ...] = ()


def pieces_of(content: bytes) -> list[bytes]:
    """Give the parts in which a content is stored, in order; at least one."""
    return [content[at : at + PIECE_BYTES] for at in range(0, max(1, len(content)), PIECE_BYTES)]


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


def attachment_to_json(attachment: Attachment) -> dict[str, JsonValue]:
    """Give the attachment's JSON form; its content, where it is there, is base64 text under ``base64``."""
    form: dict[str, JsonValue] = {
        "digest": attachment.digest,
        "size": attachment.size,
        "mime_type": attachment.mime_type,
        "pieces": list(attachment.pieces),
    }
    if attachment.content is not None:
        form["base64"] = binascii.b2a_base64(attachment.content, newline=False).decode("ascii")
    return form


def attachment_from_json(value: Mapping[str, JsonValue]) -> Attachment:
    """Read an attachment; one that has its content is made anew from that. Raises ContentError on anything else."""
    try:
        mime_type, content = value["mime_type"], value.get("base64")
        if isinstance(mime_type, str) and isinstance(content, str):
            return Attachment.of(binascii.a2b_base64(content, strict_mode=True), mime_type)
        digest, size, pieces = value["digest"], value["size"], value["pieces"]
    except (KeyError, TypeError, AttributeError, ValueError) as fault:
        raise ContentError(f"not an attachment: {fault}") from fault
    names = (digest, mime_type, *pieces) if isinstance(pieces, list) else (None,)
    if type(size) is not int or not all(isinstance(name, str) for name in names):
        raise ContentError("an attachment has a digest, a size, a mime_type and a list of pieces")
    return Attachment(digest=digest, size=size, mime_type=mime_type, pieces=tuple(pieces))


def result_to_json(result: ToolResult) -> dict[str, JsonValue]:
    """Give the result's JSON form."""
    return {
        "content": [block_to_json(block) for block in result.content],
        "is_error": result.is_error,
        "outcome": result.outcome,
        "citations": [citation_to_json(citation) for citation in result.citations],
        "metadata": dict(result.metadata),
        "output": result.output,
        "attachments": [attachment_to_json(attachment) for attachment in result.attachments],
    }


def result_from_json(form: Mapping[str, JsonValue]) -> ToolResult:
    """Read a result from its JSON form; raises ContentError, KeyError or TypeError on anything else."""
    output = form.get("output", "")
    if not isinstance(output, str):
        raise ContentError("output must be text")
    return ToolResult(
        content=tuple(block_from_json(block) for block in form["content"]),
        is_error=form["is_error"],
        outcome=form["outcome"],
        citations=tuple(citation_from_json(citation) for citation in form["citations"]),
        metadata=form["metadata"],
        output=output,
        attachments=tuple(attachment_from_json(value) for value in form.get("attachments", ())),
    )
