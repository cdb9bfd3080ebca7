"""How much of a result is kept: what the model, the log and every process in between can carry.

Pure. It cuts and says how much it cut; it never decides whether a call succeeded, but for a result that no log
could hold, which becomes an error. Called by the client for every finished call, local or external, and by
``tools/execute.py`` for its checks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
FULL_CHARS = 16 * 1024 * 1024
OUTPUT_CHARS = 64 * 1024
BLOB_BYTES = 4 * 1024 * 1024
MAX_BLOCKS = 64
MAX_CITATIONS = 64
MAX_DEPTH = 100
FIELD_CHARS = 4096
METADATA_BYTES = 64 * 1024
_NOTE_CHARS = 32


def bounded(result: ToolResult, limit_bytes: int = LIMIT_BYTES) -> ToolResult:
    """Give the result with at most ``limit_bytes`` (UTF-8) of text and JSON over all its blocks, notes apart.

    Images and blobs have 4 MiB together, blocks and citations are at most 64, metadata at most 64 KiB. What is
    cut is counted in a note in its place, and the whole text is kept in ``full``, up to 16 Mi characters (head and
    tail beyond). The same object comes back when nothing had to be cut. The result must be storable.
    """
    citations = tuple(_short_citation(citation) for citation in result.citations[:MAX_CITATIONS])
    content = _bounded_content(result, limit_bytes)
    metadata = _bounded_metadata(result.metadata)
    output = _shortened(result.output, OUTPUT_CHARS)
    full = result.full
    if full is None and not _same(content, result.content):
        full = "\n".join(text for block in result.content if (text := _text_of(block))) or None
    full = full and _shortened(full, FULL_CHARS)
    unchanged = (
        (
            metadata is result.metadata
            and _same(content, result.content)
            and _same(citations, result.citations)
        )
        and output is result.output
        and full is result.full
    )
    if unchanged:
        return result
    return replace(result, content=content, citations=citations, metadata=metadata, output=output, full=full)


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
            return _from_form(json.loads(text.encode("utf-8", "replace")))
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


def _from_form(form: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
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


def _bounded_content(result: ToolResult, limit_bytes: int) -> tuple[Block, ...]:
    notes: list[Block] = []
    lost_citations = len(result.citations) - MAX_CITATIONS
    if lost_citations > 0:
        notes.append(TextBlock(f"[… {lost_citations} citations left out …]"))
    if len(result.content) + len(notes) > MAX_BLOCKS:
        kept = MAX_BLOCKS - len(notes) - 1
        notes.insert(0, TextBlock(f"[… {len(result.content) - kept} blocks left out …]"))
    else:
        kept = len(result.content)
    text_left, blob_left = limit_bytes, BLOB_BYTES
    content: list[Block] = []
    for block in result.content[:kept]:
        fitted = _fitted(block, text_left, blob_left)
        text_left = max(0, text_left - _size(_text_of(fitted)))
        blob_left -= len(_blob_of(fitted))
        content.append(fitted)
    return (*content, *notes)


def _fitted(block: Block, text_left: int, blob_left: int) -> Block:
    match block:
        case TextBlock(text):
            return block if _size(text) <= text_left else TextBlock(_cut(text, text_left))
        case JsonBlock():
            text = _text_of(block)
            return block if _size(text) <= text_left else TextBlock(_cut(text, text_left))
        case ImageBlock(data, mime_type):
            if len(data) > blob_left:
                return TextBlock(f"[an image of type {_short(mime_type)}, {_decoded(data)} bytes, left out]")
            return block if len(mime_type) <= FIELD_CHARS else replace(block, mime_type=_short(mime_type))
        case ResourceBlock():
            return _fitted_resource(block, text_left, blob_left)


def _fitted_resource(block: ResourceBlock, text_left: int, blob_left: int) -> Block:
    mime_type = _short(block.mime_type or "unknown")
    if block.blob is not None and len(block.blob) > blob_left:
        size = _decoded(block.blob)
        return TextBlock(f"[resource {_short(block.uri)} of type {mime_type}, {size} bytes, left out]")
    if max(len(block.uri), len(block.mime_type or "")) > FIELD_CHARS:
        block = replace(block, uri=_short(block.uri), mime_type=block.mime_type and mime_type)
    if block.text is not None and _size(block.text) > text_left:
        return replace(block, text=_cut(block.text, text_left))
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


def _cut(text: str, limit_bytes: int) -> str:
    encoded = text.encode("utf-8", "replace")
    half = limit_bytes // 2
    head = encoded[:half].decode("utf-8", "ignore")
    tail = encoded[len(encoded) - half :].decode("utf-8", "ignore")
    left_out = len(text) - len(head) - len(tail)
    note = f"[… {left_out} characters left out …]"
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
