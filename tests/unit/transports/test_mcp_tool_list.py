"""ToolListing: pages, cursors and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.transports.mcp_tool_list import ToolListing


def page(*names: str, cursor: Any = None) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools, **({} if cursor is None else {"nextCursor": cursor})}


def names(listing: ToolListing) -> list[str]:
    return [tool["name"] for tool in listing.tools]


def test_pages_are_joined_in_order() -> None:
    listing = ToolListing(max_pages=10, max_tools=10)
    assert listing.add(page("a", cursor="1")) == "1"
    assert listing.add(page("b", cursor="")) == ""
    assert listing.add(page("c")) is None
    assert names(listing) == ["a", "b", "c"] and listing.notes == []


def test_a_repeated_cursor_ends_it() -> None:
    listing = ToolListing(max_pages=10, max_tools=10)
    listing.add(page("a", cursor="1"))
    assert listing.add(page("b", cursor="1")) is None
    assert names(listing) == ["a", "b"] and "repeats the cursor" in listing.notes[0]


def test_pages_and_tools_are_bounded() -> None:
    pages = ToolListing(max_pages=2, max_tools=10)
    assert pages.add(page("a", cursor="1")) == "1"
    assert pages.add(page("b", cursor="2")) is None
    tools = ToolListing(max_pages=10, max_tools=2)
    assert tools.add(page("a", "b", "c", "d", cursor="1")) is None
    assert names(tools) == ["a", "b"] and len(tools.notes) == 2


def test_what_is_no_page_raises() -> None:
    with pytest.raises(ValueError, match="no list of tools"):
        ToolListing(max_pages=1, max_tools=1).add({"tools": 7})
