"""``search_documents`` and ``read_document``: the folder of documents that the service has named, with
citations.

They decide how passages are shown to the model. Settings of both: ``folder`` (needed), ``index`` (the SQLite
file; without it the folder is indexed in memory for every call, which suits small folders only). Run in a
call's process.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from callboard.storage.documents import DocumentIndex, Passage
from callboard.storage.errors import DocumentsError
from callboard.storage.folder import DocumentFolder
from callboard.storage.passages import split_lines
from callboard.tools.content import Citation, TextBlock, ToolResult
from callboard.tools.contract import ToolContext
from callboard.tools.decorator import tool
from callboard.tools.errors import ToolFault

MAX_LINES = 400
_WHOLE_PASSAGE_CHARS = 1200
_LINE_CHARS = 2000
_READ_CHARS = 24_000


@tool(read_only=True, idempotent=True, deadline_s=120.0)
def search_documents(
    query: Annotated[str, Field(min_length=1, max_length=1000)],
    context: ToolContext,
    limit: Annotated[int, Field(ge=1, le=20)] = 5,
) -> ToolResult:
    """Search the document collection for passages about a subject.

    Gives the best passages, each with its document and line numbers. Use it before you answer questions about
    the documents, cite what you use, and read more with read_document.

    Args:
        query: The words to look for. Several specific words work better than a sentence.
        limit: How many passages to give.
    """
    try:
        with DocumentIndex(_folder(context), context.settings.get("index")) as index:
            refreshed = index.refresh()
            passages = index.search(query, limit)
    except DocumentsError as error:
        raise ToolFault(str(error)) from error
    metadata = {"documents": refreshed.documents, "skipped": list(refreshed.skipped[:10])}
    if not passages:
        nothing = f"Nothing matches {query!r} in {refreshed.documents} documents. Try other words."
        return ToolResult(content=(TextBlock(nothing),), metadata=metadata)
    text = "\n\n".join(_shown(number, passage) for number, passage in enumerate(passages, start=1))
    return ToolResult(
        content=(TextBlock(text),), citations=tuple(map(_citation, passages)), metadata=metadata
    )


@tool(read_only=True, idempotent=True, deadline_s=30.0)
def read_document(
    path: Annotated[str, Field(min_length=1, max_length=1000)],
    context: ToolContext,
    line: Annotated[int, Field(ge=1)] = 1,
    lines: Annotated[int, Field(ge=1, le=MAX_LINES)] = 60,
) -> ToolResult:
    """Read part of one document, with line numbers.

    Args:
        path: The document's path as search_documents gives it.
        line: The first line to read, counted from 1.
        lines: How many lines to read.
    """
    try:
        document = DocumentFolder(_folder(context)).read(path)
    except DocumentsError as error:
        raise ToolFault(f"{error}. Use search_documents to find documents") from error
    if b"\0" in document.data:
        raise ToolFault(f"{path!r} is not text")
    everything = split_lines(document.text)
    if line > max(1, len(everything)):
        raise ToolFault(f"{path!r} has {len(everything)} lines: line {line} is past its end")
    shown = _numbered(everything[line - 1 : line - 1 + lines], line)
    last = line + max(0, len(shown) - 1)
    rest = f"\n(lines {line}-{last} of {len(everything)})" if len(shown) < len(everything) else ""
    cited = Citation(document=path, line=line, line_end=last, retrieved_at=_now())
    return ToolResult(content=(TextBlock("\n".join(shown) + rest),), citations=(cited,))


def _folder(context: ToolContext) -> str:
    folder = context.settings.get("folder")
    if not folder:
        raise ToolFault("no document folder is set: set 'folder' in the settings of this tool")
    return str(folder)


def _numbered(lines: list[str], first: int) -> list[str]:
    shown: list[str] = []
    room = _READ_CHARS
    for number, line in enumerate(lines, start=first):
        text = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} … (line cut)"
        room -= len(text) + 8
        if room < 0:
            break
        shown.append(f"{number:>5}  {text}")
    return shown


def _shown(number: int, passage: Passage) -> str:
    heading = f" ({passage.heading})" if passage.heading else ""
    text = (
        passage.text if len(passage.text) <= _WHOLE_PASSAGE_CHARS else passage.snippet[:_WHOLE_PASSAGE_CHARS]
    )
    return f"[{number}] {passage.document}:{passage.line}-{passage.line_end}{heading}\n{text}"


def _citation(passage: Passage) -> Citation:
    return Citation(
        document=passage.document,
        line=passage.line,
        line_end=passage.line_end,
        score=passage.score,
        retrieved_at=_now(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
