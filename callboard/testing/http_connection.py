"""One HTTP/1.1 connection of a test server: reads requests, sends JSON, or a stream of server-sent events.

Knows bytes and nothing of models. Only as much HTTP as chat clients speak: bodies with a content length,
answers with one or in chunks, keep-alive. Used by ``callboard.testing.model_server``; it is no server for
the open world.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_BODY_BYTES = 64 * 1024 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


class BadRequest(ValueError):
    """The client sent what is no HTTP request, or one that is too large."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request: ``path`` without its query, header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    """One accepted connection. Its methods raise ConnectionError when the client has left."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_request(self) -> HttpRequest:
        """Read the next request; raises BadRequest, or IncompleteReadError at the connection's end."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request_line, *lines = head.rstrip("\r\n").split("\r\n")
            method, target, _ = request_line.split(" ", 2)
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            length = int(headers.get("content-length", "0"))
        except (ValueError, asyncio.LimitOverrunError) as fault:
            raise BadRequest(f"not an HTTP request: {fault}") from fault
        if length > MAX_BODY_BYTES:
            raise BadRequest(f"a body of {length} bytes is longer than {MAX_BODY_BYTES}")
        body = await self._reader.readexactly(length)
        return HttpRequest(method, target.partition("?")[0], headers, body)

    async def send_json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer."""
        body = json.dumps(value).encode()
        own = {"content-type": "application/json", "content-length": str(len(body))}
        self._send_head(status, own | dict(headers or {}))
        self._writer.write(body)
        await self._writer.drain()

    async def send_half_json(self, value: Any) -> None:
        """Send the head and the first half of a whole answer."""
        body = json.dumps(value).encode()
        self._send_head(200, {"content-type": "application/json", "content-length": str(len(body))})
        self._writer.write(body[: len(body) // 2])
        await self._writer.drain()

    async def begin_events(self) -> None:
        """Send the head of a stream of server-sent events."""
        self._send_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def send_event(self, data: str) -> None:
        """Send one event of the stream."""
        event = f"data: {data}\n\n".encode()
        self._writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await self._writer.drain()

    async def end_events(self) -> None:
        """End the stream; the connection can carry another request."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def wait_until_left(self) -> None:
        """Return when the client has closed its side."""
        while await self._reader.read(65536):
            pass

    def close(self) -> None:
        """Close, whatever was sent so far."""
        self._writer.close()

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Scripted')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
