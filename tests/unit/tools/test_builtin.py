"""The built-in tools, called as a worker calls them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from callboard.tools.builtin.calculate import calculate
from callboard.tools.builtin.current_time import current_time
from callboard.tools.builtin.documents import read_document, search_documents
from callboard.tools.content import JsonBlock, TextBlock, ToolResult
from callboard.tools.contract import ToolContext
from callboard.tools.execute import execute

GUIDE = "# Guide\n\nHello.\n\n## Linux\n\nInstall the parrot with apt.\nFeed the parrot daily.\n"


def _text(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextBlock)
    return block.text


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    folder = tmp_path / "documents"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "guide.md").write_text(GUIDE)
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    return ToolContext(settings={"folder": str(folder), "index": str(tmp_path / "index" / "docs.sqlite")})


def test_calculate_gives_a_number_or_an_error() -> None:
    assert execute(calculate, {"expression": "2 ** 10 / 4"}, ToolContext()).content == (JsonBlock(256.0),)
    refused = execute(calculate, {"expression": "__import__('os')"}, ToolContext())
    assert refused.is_error
    assert "unknown function '__import__'" in _text(refused)


def test_the_current_time_is_utc_when_no_zone_is_given() -> None:
    (block,) = execute(current_time, {}, ToolContext()).content
    assert isinstance(block, JsonBlock)
    told = datetime.fromisoformat(block.value["time"])
    assert abs(datetime.now(told.tzinfo) - told) < timedelta(seconds=60)
    assert block.value["utc_offset"] == "+0000"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "europe/berlin", " Europe/Berlin "])
def test_a_zone_is_found_whatever_its_case(zone: str) -> None:
    (block,) = execute(current_time, {"zone": zone}, ToolContext()).content
    assert isinstance(block, JsonBlock)
    assert block.value["zone"] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("zone", "near"),
    [
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("Europe/Berln", "Europe/Berlin"),
        ("../../etc/passwd", ""),
        ("", "IANA"),
    ],
)
def test_an_unknown_zone_is_answered_with_near_matches(zone: str, near: str) -> None:
    result = execute(current_time, {"zone": zone}, ToolContext())
    assert result.is_error
    assert near in _text(result)


def test_a_search_gives_passages_with_citations(context: ToolContext) -> None:
    result = execute(search_documents, {"query": "parrots"}, context)
    assert not result.is_error
    assert _text(result).startswith("[1] sub/guide.md:5-8 (Guide > Linux)\n## Linux")
    (citation,) = result.citations
    assert (citation.document, citation.line, citation.line_end) == ("sub/guide.md", 5, 8)
    assert citation.score is not None and citation.score > 0
    assert citation.retrieved_at is not None and citation.retrieved_at.endswith("+00:00")


def test_a_search_without_a_match_says_how_much_was_searched(context: ToolContext) -> None:
    result = execute(search_documents, {"query": "zebra"}, context)
    assert not result.is_error
    assert _text(result) == "Nothing matches 'zebra' in 2 documents. Try other words."


def test_a_search_works_without_an_index_file(context: ToolContext) -> None:
    in_memory = ToolContext(settings={"folder": context.settings["folder"]})
    assert execute(search_documents, {"query": "parrot"}, in_memory).citations


def test_reading_gives_numbered_lines_and_a_citation(context: ToolContext) -> None:
    result = execute(read_document, {"path": "sub/guide.md", "line": 5, "lines": 3}, context)
    assert _text(result) == (
        "    5  ## Linux\n    6  \n    7  Install the parrot with apt.\n(lines 5-7 of 8)"
    )
    (citation,) = result.citations
    assert (citation.document, citation.line, citation.line_end) == ("sub/guide.md", 5, 7)


def test_reading_past_the_end_says_where_the_end_is(context: ToolContext) -> None:
    result = execute(read_document, {"path": "sub/guide.md", "line": 9}, context)
    assert "has 8 lines" in _text(result)


def test_reading_is_bounded(context: ToolContext) -> None:
    folder = Path(context.settings["folder"])
    (folder / "wide.txt").write_text(("w" * 100_000 + "\n") * 50)
    text = _text(execute(read_document, {"path": "wide.txt", "lines": 50}, context))
    assert len(text) < 30_000
    assert "(line cut)" in text
    assert "of 50)" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"path": "../secret.txt"}, "not the name"),
        ({"path": "/etc/passwd"}, "not the name"),
        ({"path": "gone.txt"}, "No such file"),
        ({"path": "sub"}, "not a document"),
        ({"path": "long.txt", "lines": 100_000}, "lines"),
    ],
)
def test_a_document_that_cannot_be_read_is_an_error(
    context: ToolContext, arguments: dict[str, Any], word: str
) -> None:
    result = execute(read_document, arguments, context)
    assert result.is_error
    assert word in _text(result)


@pytest.mark.parametrize("tool", [search_documents, read_document])
@pytest.mark.parametrize(
    ("settings", "word"), [({}, "set 'folder'"), ({"folder": "/nowhere/at/all"}, "does not exist")]
)
def test_a_missing_folder_is_an_error_that_names_the_setting(
    tool: Any, settings: dict[str, str], word: str
) -> None:
    result = execute(
        tool, {"query": "x"} if tool is search_documents else {"path": "x.md"}, ToolContext(settings=settings)
    )
    assert result.is_error
    assert word in _text(result)
