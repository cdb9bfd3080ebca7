"""How much of a result is kept: what the model, the log and every process in between can carry.

Pure. It cuts and says how much it cut; it never decides whether a call succeeded, but for a result that no log
could hold, which becomes an error. Called in the call's process, by the client for every finished call, local or
external, and by ``tools/execute.py`` for its checks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from callboard.tools.attached import Attached
from callboard.tools.content import (
    Block,
    Citation,
    ImageBlock,
    JsonBlock,
    ResourceBlock,
    TextBlock,
    ToolResult,
    block_from_json,
    block_to_json,
    citation_from_json,
    citation_to_json,
    error_result,
)

LIMIT_BYTES = 256 * 1024
OUTPUT_CHARS = 64 * 1024
BLOB_BYTES = 4 * 1024 * 1024
MAX_BLOCKS = 64
MAX_CITATIONS = 64
MAX_DEPTH = 100
FIELD_CHARS = 4096
METADATA_BYTES = 64 * 1024
_NOTE_CHARS = 32
_NOTE_BYTES = 128


def bounded(result: ToolResult, limit_bytes: int = LIMIT_BYTES) -> ToolResult:
    """Give the result with at most ``limit_bytes`` (UTF-8) of text and JSON over all its blocks, notes apart.

    Images and blobs have 4 MiB together, blocks and citations are at most 64, metadata at most 64 KiB. What is
    cut or left out is counted in a note in its place, and kept whole as an attachment, up to 64 MiB for all of them;
    the note says where that was not enough. The same object comes back when nothing had to be cut, so a result that
    was bounded before stays as it is. The result must be storable.
    """
    attached = Attached(result.attachments)
    content = _bounded_content(result, limit_bytes, attached)
    citations = tuple(_short_citation(citation) for citation in result.citations[:MAX_CITATIONS])
    metadata = _bounded_metadata(result.metadata)
    output = _shortened(result.output, OUTPUT_CHARS)
    if (
        metadata is result.metadata
        and output is result.output
        and _same(content, result.content)
        and _same(citations, result.citations)
    ):
        return result
    return replace(
        result,
        content=content,
        citations=citations,
        metadata=metadata,
        output=output,
        attachments=attached.attachments,
    )


def storable(result: ToolResult) -> ToolResult:
    """Give the result as JSON can hold it; one that cannot be put in JSON is an error that says so.

    Never raises. Half characters (lone surrogates) are replaced; otherwise the same object comes back.
    """
    try:
        form = _form(result)
        text = json.dumps(form, ensure_ascii=False, allow_nan=False)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return _with_form(result, json.loads(text.encode("utf-8", "replace")))
    except Exception as error:  # whatever it holds, its caller must get an answer for the model
        return error_result(
            f"the tool's result cannot be put in JSON ({_said(error)}): nothing of it was kept"
        )
    return result


def is_too_deep(value: object) -> bool:
    """True when lists and objects lie in one another more than ``MAX_DEPTH`` levels deep, or in themselves."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return False
    return True


def _parts(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [part for part in inner if isinstance(part, dict | list | tuple)]


def _form(result: ToolResult) -> dict[str, Any]:
    if type(result.is_error) is not bool or type(result.outcome) is not str:
        raise TypeError("is_error must be a bool and outcome a text")
    if not all(
        isinstance(block, TextBlock | JsonBlock | ImageBlock | ResourceBlock) for block in result.content
    ):
        raise TypeError("content must be content blocks")
    if not all(isinstance(citation, Citation) for citation in result.citations):
        raise TypeError("citations must be Citation objects")
    form = {
        "content": [_checked(block_to_json(block)) for block in result.content],
        "citations": [citation_to_json(citation) for citation in result.citations],
        "metadata": dict(result.metadata),
        "is_error": result.is_error,
        "outcome": result.outcome,
    }
    if is_too_deep(form):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return form


def _checked(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if block["type"] == "json":
        return block
    optional = ("text", "blob", "mime_type") if block["type"] == "resource" else ()
    for name, value in block.items():
        if not (isinstance(value, str) or (value is None and name in optional)):
            raise TypeError(f"{name} of a block of type {block['type']} must be text")
    return block


def _with_form(result: ToolResult, form: Mapping[str, Any]) -> ToolResult:
    return replace(
        result,
        content=tuple(block_from_json(block) for block in form["content"]),
        citations=tuple(citation_from_json(citation) for citation in form["citations"]),
        metadata=form["metadata"],
        is_error=form["is_error"],
        outcome=form["outcome"],
    )


def _said(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:200].encode("utf-8", "replace").decode("utf-8")
    except Exception:  # an exception of somebody else's, whose __str__ may itself fail
        return type(error).__name__


def _bounded_content(result: ToolResult, limit_bytes: int, attached: Attached) -> tuple[Block, ...]:
    notes: list[Block] = []
    lost_citations = len(result.citations) - MAX_CITATIONS
    if lost_citations > 0:
        notes.append(TextBlock(f"[… {lost_citations} citations left out …]"))
    kept = len(result.content)
    if kept + len(notes) > MAX_BLOCKS:
        kept = MAX_BLOCKS - len(notes) - 1
        left_out = result.content[kept:]
        notes.insert(0, TextBlock(f"[… {len(left_out)} blocks left out{attached.keep_blocks(left_out)} …]"))
    text_left, blob_left = limit_bytes, BLOB_BYTES
    content: list[Block] = []
    for block in result.content[:kept]:
        fitted = _fitted(block, text_left, blob_left, attached)
        text_left = max(0, text_left - _size(_text_of(fitted)))
        blob_left -= len(_blob_of(fitted))
        content.append(fitted)
    return (*content, *notes)


def _fitted(block: Block, text_left: int, blob_left: int, attached: Attached) -> Block:
    match block:
        case TextBlock(text):
            cut = _cut(text, text_left, "text/plain", attached)
            return block if cut is None else TextBlock(cut)
        case JsonBlock():
            cut = _cut(_text_of(block), text_left, "application/json", attached)
            return block if cut is None else TextBlock(cut)
        case ImageBlock(data, mime_type):
            if len(data) > blob_left:
                lost = attached.keep_blob(data, mime_type)
                return TextBlock(
                    f"[an image of type {_short(mime_type)}, {_decoded(data)} bytes, left out{lost}]"
                )
            return block if len(mime_type) <= FIELD_CHARS else replace(block, mime_type=_short(mime_type))
        case ResourceBlock():
            return _fitted_resource(block, text_left, blob_left, attached)


def _fitted_resource(block: ResourceBlock, text_left: int, blob_left: int, attached: Attached) -> Block:
    mime_type = _short(block.mime_type or "unknown")
    if block.blob is not None and len(block.blob) > blob_left:
        lost = attached.keep_blob(block.blob, block.mime_type or "application/octet-stream")
        size = _decoded(block.blob)
        return TextBlock(f"[resource {_short(block.uri)} of type {mime_type}, {size} bytes, left out{lost}]")
    if max(len(block.uri), len(block.mime_type or "")) > FIELD_CHARS:
        block = replace(block, uri=_short(block.uri), mime_type=block.mime_type and mime_type)
    if block.text is not None:
        cut = _cut(block.text, text_left, block.mime_type or "text/plain", attached)
        return block if cut is None else replace(block, text=cut)
    return block


def _text_of(block: Block) -> str:
    match block:
        case TextBlock(text):
            return text
        case JsonBlock(value):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case ResourceBlock():
            return block.text or ""
        case ImageBlock():
            return ""


def _blob_of(block: Block) -> str:
    match block:
        case ImageBlock(data):
            return data
        case ResourceBlock(blob=str(blob)):
            return blob
        case _:
            return ""


def _cut(text: str, limit_bytes: int, mime_type: str, attached: Attached) -> str | None:
    """Give head, note and tail of a text over the limit, and attach it whole; None for one that may stay.

    A note may go over the limit, so that what was cut is not cut again.
    """
    if len(text) * 4 <= limit_bytes:
        return None
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit_bytes + _NOTE_BYTES:
        return None
    half = limit_bytes // 2
    head = encoded[:half].decode("utf-8", "ignore")
    tail = encoded[len(encoded) - half :].decode("utf-8", "ignore")
    left_out = len(text) - len(head) - len(tail)
    note = f"[… {left_out} characters left out{attached.keep_text(encoded, mime_type)} …]"
    return f"{head}\n{note}\n{tail}" if half else note


def _shortened(text: str, limit_chars: int) -> str:
    if len(text) <= limit_chars:
        return text
    half = limit_chars // 2 - _NOTE_CHARS
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _decoded(base64_text: str) -> int:
    return len(base64_text) * 3 // 4


def _short(text: str) -> str:
    return text if len(text) <= FIELD_CHARS else f"{text[: FIELD_CHARS - 1]}…"


def _short_citation(citation: Citation) -> Citation:
    fields = {name: getattr(citation, name) for name in Citation.__slots__}
    cut: dict[str, Any] = {
        name: _short(value)
        for name, value in fields.items()
        if isinstance(value, str) and len(value) > FIELD_CHARS
    }
    return replace(citation, **cut) if cut else citation


def _bounded_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if not metadata:
        return metadata
    size = _size(json.dumps(dict(metadata), ensure_ascii=False))
    return metadata if size <= METADATA_BYTES else {"left_out": f"{size} bytes of metadata"}


def _same(ours: tuple[object, ...], theirs: tuple[object, ...]) -> bool:
    return len(ours) == len(theirs) and all(one is other for one, other in zip(ours, theirs, strict=True))
