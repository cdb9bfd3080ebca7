"""From MCP's forms to ours: a server's tools to ToolSpecs, its content to blocks.

Pure; called by the external-server actor.
All of it is a third party's text: bounded here, and never trusted beyond what the configuration says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.tools.content import (
    Block,
    ImageBlock,
    JsonBlock,
    Progress,
    ResourceBlock,
    TextBlock,
    ToolResult,
)
from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.definitions import cleaned
from callboard.tools.names import expose
from callboard.transports import mcp_effects

_MAX_PROGRESS_CHARS = 200


def specs_of_server(
    server: str,
    tools: Sequence[Mapping[str, Any]],
    *,
    call_deadline_s: float,
    trusted: bool,
    origin: Sequence[str] = (),
) -> tuple[ToolSpec, ...]:
    """Make the specs of a server's tools, which have been screened, under the names that the model sees.

    ``origin`` says what program they are of (its command, its version): of another one, they are other tools.
    """
    names = expose((server, str(tool["name"])) for tool in tools)
    return tuple(
        ToolSpec(
            name=names[(server, str(tool["name"]))],
            description=_description(tool),
            parameters=dict(tool["inputSchema"]),
            annotations=_annotations(tool.get("annotations")),
            deadline_s=call_deadline_s,
            digest=_digest(tool, origin),
            server=server,
            remote_name=str(tool["name"]),
            trusted=trusted,
        )
        for tool in tools
    )


def change_since(specs: Sequence[ToolSpec], tool: str, version: str) -> str | None:
    """Say why a call that was decided on for this ``version`` of the server's ``tool`` is not made now; None: it is."""
    present = next((spec.digest for spec in specs if spec.remote_name == tool), "")
    if version in ("", present):
        return None
    return f"tool_changed: the server changed {tool} since the call was decided on; it was not made"


def result_of(content: Sequence[Mapping[str, Any]], structured: Any, is_error: bool) -> ToolResult:
    """Make our result of a server's; structured content stands in where there is no other."""
    blocks = tuple(_block(item) for item in content)
    if not blocks and structured is not None:
        blocks = (JsonBlock(structured),)
    return ToolResult(content=blocks, is_error=is_error, outcome="error" if is_error else "ok")


def progress_of(told: mcp_effects.Progress) -> Progress:
    """Make our progress of a server's: its message, or how much of how much; a fraction where it gives a total."""
    total = told.total if told.total is not None and told.total > 0 else None
    count = f"{told.progress:g}" if total is None else f"{told.progress:g}/{total:g}"
    text = cleaned(told.message[: 4 * _MAX_PROGRESS_CHARS], _MAX_PROGRESS_CHARS) if told.message else ""
    fraction = None if total is None else min(1.0, max(0.0, told.progress / total))
    return Progress(text or count, fraction)


def _block(item: Mapping[str, Any]) -> Block:
    match item:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text)
        case {"type": "image", "data": str(data), "mimeType": str(mime)}:
            return ImageBlock(data, mime)
        case {"type": "resource_link", "uri": str(uri)}:
            return ResourceBlock(uri, item.get("mimeType"))
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return ResourceBlock(uri, resource.get("mimeType"), resource.get("text"), resource.get("blob"))
        case {"type": "audio"}:
            return TextBlock(f"[audio, {item.get('mimeType', 'unknown format')}: not shown]")
    return TextBlock(f"[content of type {str(item.get('type'))[:40]!r}: not understood]")


def _description(tool: Mapping[str, Any]) -> str:
    return str(tool.get("description") or tool.get("title") or "")


def _annotations(hints: Any) -> Annotations:
    """MCP's own defaults hold where a server says nothing: not read-only, destructive, not idempotent, open."""
    if not isinstance(hints, Mapping):
        hints = {}
    return Annotations(
        read_only=hints.get("readOnlyHint") is True,
        destructive=hints.get("destructiveHint", True) is not False and hints.get("readOnlyHint") is not True,
        idempotent=hints.get("idempotentHint") is True,
        open_world=hints.get("openWorldHint", True) is not False,
    )


def _digest(tool: Mapping[str, Any], origin: Sequence[str]) -> str:
    canonical = json.dumps([tool, list(origin)], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()
