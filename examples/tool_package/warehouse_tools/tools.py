"""The tools: one that reads, one that destroys and therefore asks, one that hides behind a feature flag.

The stock is a JSON file, named in the configuration: ``[tools.settings.count_stock] file = "stock.json"`` (and so on).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from callboard import Tool, ToolContext, tool
from callboard.tools.contract import Annotations
from callboard.tools.errors import ToolFault


@tool(read_only=True)
def count_stock(
    context: ToolContext, article: Annotated[str, Field(pattern="^[a-z]+$")] | None = None
) -> dict[str, int]:
    """Count what is in stock.

    Args:
        article: The article, in lower case; all articles if left out.
    """
    stock = _read(context)
    return stock if article is None else {article: stock.get(article, 0)}


@tool(feature="forecast", read_only=True)
def forecast(context: ToolContext, days: Annotated[int, Field(ge=1, le=30)] = 7) -> str:
    """Say what will be in stock (a guess).

    Args:
        days: How many days ahead.
    """
    return f"in {days} days: {sum(_read(context).values()) * 9 // 10} pieces"


class ScrapArticle(Tool):
    """Take pieces of an article out of the stock, for ever."""

    name = "scrap_article"
    annotations = Annotations(destructive=True)
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "article": {"type": "string", "description": "The article, in lower case."},
            "pieces": {"type": "integer", "minimum": 1, "description": "How many pieces are lost."},
        },
        "required": ["article", "pieces"],
        "additionalProperties": False,
    }

    def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Write the file anew; a person has approved of exactly these arguments."""
        stock = _read(context)
        left = stock.get(arguments["article"], 0) - arguments["pieces"]
        if left < 0:
            raise ToolFault(f"there are only {left + arguments['pieces']} pieces of {arguments['article']}")
        Path(context.settings["file"]).write_text(json.dumps({**stock, arguments["article"]: left}))
        return f"{left} pieces of {arguments['article']} are left"


def _read(context: ToolContext) -> dict[str, int]:
    file = context.settings.get("file")
    if file is None:
        raise ToolFault("the stock's file is not configured: set [tools.settings.<this tool>] file")
    stock: dict[str, int] = json.loads(Path(file).read_text())
    return stock
