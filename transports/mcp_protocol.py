"""The Model Context Protocol's constants, and the reading of its objects: tools, pages, results, discovery.

Pure functions over plain dicts. They decide what of a server's answer can be used; they never raise on what a
server sends, and keep no state. The session machine calls them. The models of ``mcp-types`` are not used
here: importing them costs a quarter of a second in every process that owns a server.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from callboard.transports.jsonrpc import excerpt
from callboard.transports.mcp_effects import CallFailed, CallResult, Json

MODERN_VERSION = "2026-07-28"
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
BATCH_VERSION = "2025-03-26"

HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022
MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})

_META = "io.modelcontextprotocol/"
MAX_TOOL_NAME_CHARS = 256


def modern_meta(client_info: Json) -> dict[str, Any]:
    """Make the ``_meta`` that every modern request carries."""
    return {
        _META + "protocolVersion": MODERN_VERSION,
        _META + "clientCapabilities": {},
        _META + "clientInfo": dict(client_info),
    }


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself, in either era."""

    protocol_version: str
    server_info: Json
    instructions: str | None
    has_tools: bool
    announces_tool_changes: bool


def read_initialize(result: Any) -> Identity | str:
    """Read an ``initialize`` result; a string says why it cannot be used."""
    if not isinstance(result, dict):
        return "the initialize result is not an object"
    version = result.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        offered, *others = LEGACY_VERSIONS
        return f"the server speaks protocol {version!r}; we offered {offered} and accept {', '.join(others)}"
    return _identity(result, version, result.get("serverInfo"))


def read_discover(result: Any) -> Identity | str:
    """Read a ``server/discover`` result; a string says why it is not a modern server's."""
    versions = result.get("supportedVersions") if isinstance(result, dict) else None
    if not isinstance(versions, list):
        return "the server/discover result names no versions"
    if MODERN_VERSION not in versions:
        return f"the server supports {excerpt(str(versions))}, not {MODERN_VERSION}"
    return _identity(result, MODERN_VERSION, _object(result.get("_meta")).get(_META + "serverInfo"))


def supported_versions(error_data: Any) -> tuple[str, ...]:
    """Give the versions that an UnsupportedProtocolVersion error names."""
    supported = _object(error_data).get("supported")
    if not isinstance(supported, list):
        return ()
    return tuple(version for version in supported if isinstance(version, str))


def _identity(result: dict[str, Any], version: str, server_info: Any) -> Identity:
    capabilities = _object(result.get("capabilities"))
    instructions = result.get("instructions")
    return Identity(
        protocol_version=version,
        server_info=_object(server_info),
        instructions=instructions if isinstance(instructions, str) else None,
        has_tools=capabilities.get("tools") is not None,
        announces_tool_changes=_object(capabilities.get("tools")).get("listChanged") is True,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def read_tool(tool: Any) -> dict[str, Any] | str:
    """Check one element of a tools list: the tool as it can be used, or a string that says why not.

    A schema without ``type`` is completed to ``object``; no keyword is ever removed.
    """
    if not isinstance(tool, dict):
        return "an element of the tools list is not an object"
    name = tool.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TOOL_NAME_CHARS:
        return f"a tool without a usable name ({excerpt(repr(name))})"
    schema = tool.get("inputSchema")
    problem = _schema_problem(schema)
    if problem is not None:
        return f"tool {excerpt(name)!r}: {problem}"
    return {**tool, "inputSchema": {"type": "object", **_object(schema)}}


def _schema_problem(schema: Any) -> str | None:
    match schema:
        case {"type": kind} if kind != "object":
            return f"its inputSchema has type {excerpt(repr(kind))}, not 'object'"
        case {"properties": properties} if not isinstance(properties, dict) or not all(
            isinstance(value, (dict, bool)) for value in properties.values()
        ):
            return "its inputSchema has properties that are not schemas"
        case {"required": required} if not isinstance(required, list) or not all(
            isinstance(value, str) for value in required
        ):
            return "its inputSchema's required is not a list of names"
        case dict():
            return None
    return f"its inputSchema is not an object schema ({excerpt(repr(schema))})"


def read_call_result(ref: Hashable, result: Any) -> CallResult | CallFailed:
    """Read a ``tools/call`` result of either era."""
    if not isinstance(result, dict):
        return CallFailed(ref, "bad_result", f"the server's result is not an object: {excerpt(repr(result))}")
    kind = result.get("resultType") or "complete"
    if kind == "input_required":
        return CallFailed(
            ref, "bad_result", "the server asks for input from the user, which is not supported"
        )
    if kind != "complete":
        return CallFailed(
            ref, "bad_result", f"the server's result has the unknown type {excerpt(str(kind))!r}"
        )
    content = result.get("content")
    structured = result.get("structuredContent")
    if not isinstance(content, list) and "structuredContent" not in result:
        return CallFailed(ref, "bad_result", "the server's result has neither content nor structuredContent")
    blocks = tuple(block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()
    return CallResult(ref, blocks, structured, result.get("isError") is True, _object(result.get("_meta")))


def read_page(result: Any) -> tuple[list[Any], str | None] | str:
    """Read one page of ``tools/list``: its elements and the next cursor (the empty string is one)."""
    if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
        return "the tools/list result has no list of tools"
    cursor = result.get("nextCursor")
    return result["tools"], cursor if isinstance(cursor, str) else None


def read_progress(params: Mapping[str, Any]) -> tuple[float, float | None, str | None] | None:
    """Read a progress notification: how far, of how much, and in words; None when it has no number."""
    progress, total, message = params.get("progress"), params.get("total"), params.get("message")
    if not _is_number(progress):
        return None
    return (
        float(progress),
        float(total) if _is_number(total) else None,
        message if isinstance(message, str) else None,
    )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
