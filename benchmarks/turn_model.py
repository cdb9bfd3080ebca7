"""The model of ``benchmarks/turns.py``: OpenAI's chat completions over real HTTP, ready-made replies, no thought.

    python benchmarks/turn_model.py        prints its base URL, and serves until it is killed or its input ends

It obeys the user's text as ``callboard.testing.model_server`` does (whose replies it makes), but makes each reply once:
what it costs is to be small beside what is measured. A reply that streams is sent in one piece.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

from turn_work import ANSWER

from callboard.testing.model_script import RecordedRequest, Reply, completion, obey, stream_chunks

_ID = "chatcmpl-@@@@@@@@"
_DIGITS = 8
_PIECE_CHARS = len(ANSWER.split()[0]) + 1


class Replies:
    """The ready-made replies, each with an id of its own when it is sent."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], list[bytes]] = {}
        self._numbers = itertools.count(1)

    def to(self, body: dict[str, Any]) -> bytes:
        """Give the whole HTTP answer to a chat request."""
        last = max(at for at, message in enumerate(body["messages"]) if message["role"] == "user")
        has_results = len(body["messages"]) > last + 1
        asked = (
            body["messages"][last]["content"],
            has_results,
            body.get("stream"),
            body.get("stream_options"),
        )
        key = tuple(map(str, asked))
        if key not in self._made:
            self._made[key] = _make(body, has_results)
        return f"{next(self._numbers):0{_DIGITS}d}".encode().join(self._made[key])


def _make(body: dict[str, Any], has_results: bool) -> list[bytes]:
    request = RecordedRequest(body=body, headers={})
    reply = Reply(text=ANSWER) if has_results else obey(request)
    if body.get("stream"):
        chunks = [json.dumps(chunk) for chunk in stream_chunks(request, reply, _ID, _PIECE_CHARS)]
        kind, text = "text/event-stream", "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])
    else:
        kind, text = "application/json", json.dumps(completion(request, reply, _ID))
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(text)}\r\n\r\n"
    return (head + text).encode().split(b"@" * _DIGITS)


class _Connection(asyncio.Protocol):
    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (body := self._take()) is not None:
            self._transport.write(self._replies.to(json.loads(body)))

    def _take(self) -> bytes | None:
        """Take one whole request from the buffer, and give its body."""
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(lines[b"content-length"])
        if len(rest) < size:
            return None
        self._buffer = rest[size:]
        return rest[:size]


async def serve() -> None:
    """Serve until the standard input ends: with the process that started this one."""
    replies, loop = Replies(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(replies), "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(serve())
