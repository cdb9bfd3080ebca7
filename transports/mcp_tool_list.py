"""Gather ``tools/list``, page by page (MCP, "Pagination").

It decides which tools are kept and whether another page is wanted; it sends nothing. One listing serves one
round; the session machine makes and feeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callboard.transports.mcp_effects import Json
from callboard.transports.mcp_protocol import read_page, read_tool


class ToolListing:
    """The pages of one round. A repeated cursor, ``max_pages`` or ``max_tools`` end it; tools so far stay."""

    def __init__(self, *, max_pages: int, max_tools: int) -> None:
        self._max_pages = max_pages
        self._max_tools = max_tools
        self._tools: dict[str, Json] = {}
        self._cursors: set[str] = set()
        self._pages = 0
        self.notes: list[str] = []

    @property
    def tools(self) -> tuple[Json, ...]:
        """Give the usable tools so far, in the server's order."""
        return tuple(self._tools.values())

    def add(self, result: Any) -> str | None:
        """Take one page and give the cursor of the next one, None when this was the last (or must be).

        Raises ValueError when the result is no page at all. What was left out is told in ``notes``.
        """
        page = read_page(result)
        if isinstance(page, str):
            raise ValueError(page)
        elements, cursor = page
        self._pages += 1
        self._keep(elements)
        if cursor is None:
            return None
        problem = self._no_more(cursor)
        if problem is not None:
            self.notes.append(f"tools/list: {problem}; the {len(self._tools)} tools so far are used")
            return None
        self._cursors.add(cursor)
        return cursor

    def _keep(self, elements: Sequence[Any]) -> None:
        for element in elements:
            tool = read_tool(element)
            if isinstance(tool, str):
                self.notes.append(f"left out {tool}")
            elif tool["name"] in self._tools:
                self.notes.append(f"left out a second tool named {tool['name']!r}")
            elif len(self._tools) >= self._max_tools:
                self.notes.append(f"tools/list: more than {self._max_tools} tools; the rest is left out")
                return
            else:
                self._tools[tool["name"]] = tool

    def _no_more(self, cursor: str) -> str | None:
        if cursor in self._cursors:
            return f"the server repeats the cursor {cursor[:40]!r}"
        if self._pages >= self._max_pages:
            return f"more than {self._max_pages} pages"
        if len(self._tools) >= self._max_tools:
            return f"{self._max_tools} tools reached"
        return None
