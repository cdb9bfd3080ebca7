"""One call of one tool in a running system, for its operator: what ``callboard tools call`` does.

The call takes the path of a model's call (``actors/caller.py``), but no conversation's: nothing permits or logs it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from callboard.actors.messages import RunTool, ToolRan
from callboard.actors.names import CALLER
from callboard.errors import CallboardError, ToolNotFound, Unavailable
from callboard.supervisor.envelope import Failure, Principal
from callboard.tools.content import JsonBlock, ResourceBlock, TextBlock, ToolResult

if TYPE_CHECKING:
    from callboard.api import System

_LOOK_S = 0.5
_MARGIN_S = 30.0
_LONGEST_S = 7 * 86400.0


def call(
    system: System, tool: str, arguments: str = "", *, deadline_s: float | None = None, user: str = ""
) -> ToolRan:
    """Run the tool with ``arguments`` (JSON text) and give what came of it.

    ``deadline_s`` shortens the tool's own. Raises ToolNotFound, or Unavailable when the system does not answer.
    """
    found = {listing.name: listing for listing in system.tools()}
    if tool not in found:
        raise ToolNotFound(f"there is no tool {tool!r}; 'callboard tools' lists them")
    own_s = float(found[tool].limits.get("deadline_s", _LONGEST_S))
    command = RunTool(tool=tool, arguments=arguments, deadline_s=deadline_s)
    give_up_at = time.monotonic() + min(own_s, deadline_s or own_s) + _MARGIN_S
    with system._mailbox.exchange(lambda: command, principal=Principal(user=user), to=CALLER) as exchange:
        while time.monotonic() < give_up_at:
            answer = exchange.next(_LOOK_S)
            if answer is not None:
                return _checked(answer)
    raise Unavailable(f"the system did not say what became of the call of {tool}")


def shown(result: ToolResult) -> str:
    """Give the result as text: what the model reads, or the whole of it where that was cut."""
    if result.full is not None:
        return result.full
    lines = []
    for block in result.content:
        match block:
            case TextBlock(text):
                lines.append(text)
            case JsonBlock(value):
                lines.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
            case ResourceBlock(uri=uri, text=text):
                lines.append(text or f"[resource {uri}]")
            case _:
                lines.append(f"[an image of type {block.mime_type}]")
    return "\n".join(lines)


def _checked(answer: object) -> ToolRan:
    if isinstance(answer, ToolRan):
        return answer
    if isinstance(answer, Failure):
        kind = ToolNotFound if answer.kind == "no_such_tool" else Unavailable
        raise kind(answer.message)
    raise CallboardError(f"the caller answered with {type(answer).__name__}")
