"""A scripted, OpenAI-compatible model server that speaks real HTTP and server-sent events on the loopback.

For tests, examples and benchmarks: ``ScriptedModelServer`` in a thread of the test, or a process of its own
by ``python -m callboard.testing.model_server``. It decides nothing about replies
(``callboard.testing.model_script`` does) and is no model: it never leaves 127.0.0.1, and its HTTP is just
what chat clients send.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from callboard.testing.http_connection import BadRequest, HttpConnection, HttpRequest
from callboard.testing.model_script import (
    DEFAULT_CHUNK_CHARS,
    MODEL_NAME,
    Call,
    ModelScript,
    RecordedRequest,
    Reply,
    Rule,
    ScriptError,
    completion,
    error_object,
    obey,
    stream_chunks,
)

__all__ = ["Call", "ModelScript", "RecordedRequest", "Reply", "Rule", "ScriptedModelServer", "main", "obey"]

HOST = "127.0.0.1"
MAX_RECORDED = 10_000
STOP_WITHIN_S = 10.0


class ModelServerError(RuntimeError):
    """The scripted server could not start or stop."""


class ModelService:
    """The server's asyncio side: answers on the loop that it was started on, and records requests.

    ``requests`` keeps the last MAX_RECORDED chat requests, oldest first. ``gap_s`` is the pause between
    chunks, in seconds; ``chunk_chars`` the characters per text chunk. With ``api_key`` other keys are
    answered 401.
    """

    def __init__(
        self,
        script: ModelScript,
        *,
        gap_s: float = 0.0,
        chunk_chars: int = DEFAULT_CHUNK_CHARS,
        api_key: str | None = None,
    ) -> None:
        self.script = script
        self.requests: list[RecordedRequest] = []
        self._gap_s = gap_s
        self._chunk_chars = chunk_chars
        self._api_key = api_key
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> int:
        """Listen on the loopback; give the port. Port 0 takes a free one."""
        self._server = await asyncio.start_server(self._connected, HOST, port, limit=2**20)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def stop(self) -> None:
        """Stop listening and drop every connection, hanging ones too."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = HttpConnection(reader, writer)
        try:
            while await self._serve_one(connection):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left or the server stops: either way this connection is over
        finally:
            self._connections.discard(task)
            connection.close()

    async def _serve_one(self, connection: HttpConnection) -> bool:
        """Answer one request; True when the connection may carry another."""
        try:
            request = await connection.read_request()
        except BadRequest as fault:
            await _refuse(connection, 400, str(fault))
            return False
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            await _refuse(connection, 401, "wrong API key")
            return True
        match request.method, request.path.removeprefix("/v1"):
            case "POST", "/chat/completions":
                return await self._chat(request, connection)
            case "GET", "/models":
                models = [{"id": MODEL_NAME, "object": "model"}]
                await connection.send_json(200, {"object": "list", "data": models})
            case "GET", "/health":
                await connection.send_json(200, {"status": "ok"})
            case _:
                await _refuse(connection, 404, f"no {request.method} {request.path} here")
        return True

    async def _chat(self, http_request: HttpRequest, connection: HttpConnection) -> bool:
        try:
            request = RecordedRequest(body=json.loads(http_request.body), headers=http_request.headers)
        except ValueError as fault:
            await _refuse(connection, 400, f"the body is not JSON: {fault}")
            return True
        self.requests.append(request)
        del self.requests[:-MAX_RECORDED]
        reply = self.script.reply_to(request)
        await asyncio.sleep(reply.delay_s)
        if reply.status != 200:
            headers = {} if reply.retry_after is None else {"retry-after": reply.retry_after}
            await connection.send_json(reply.status, error_object(reply), headers)
            return True
        reply_id = f"chatcmpl-{next(self._numbers)}"
        if request.body.get("stream") and not reply.whole:
            return await self._stream(request, reply, reply_id, connection)
        return await self._send_whole(request, reply, reply_id, connection)

    async def _send_whole(
        self, request: RecordedRequest, reply: Reply, reply_id: str, connection: HttpConnection
    ) -> bool:
        """Send the reply as one object, with the interruption that the script asks for."""
        if reply.error_after is not None:
            await connection.send_json(200, error_object(reply))
            return True
        whole = completion(request, reply, reply_id)
        if reply.cut_after is None and reply.hang_after is None:
            await connection.send_json(200, whole)
            return True
        await connection.send_half_json(whole)
        if reply.hang_after is not None:
            await connection.wait_until_left()
        return False

    async def _stream(
        self, request: RecordedRequest, reply: Reply, reply_id: str, connection: HttpConnection
    ) -> bool:
        """Send the reply as events, with the interruption that the script asks for."""
        await connection.begin_events()
        chunks = list(stream_chunks(request, reply, reply_id, self._chunk_chars))
        gap_s = self._gap_s if reply.gap_s is None else reply.gap_s
        for sent in range(len(chunks) + 1):
            if sent == reply.cut_after:
                return False
            if sent == reply.hang_after:
                await connection.wait_until_left()
                return False
            if sent == reply.error_after:
                await connection.send_event(json.dumps(error_object(reply)))
                break
            if sent < len(chunks):
                await connection.send_event(json.dumps(chunks[sent]))
                await asyncio.sleep(gap_s)
        await connection.send_event("[DONE]")
        await connection.end_events()
        return True


class ScriptedModelServer:
    """A scripted model server on a thread of its own, as a context manager.

    ``script`` is a ModelScript, or a sequence of replies that are given in order; ``rule`` picks the reply
    where none is listed (``obey`` by default). ``requests`` holds the chat requests that came, oldest
    first. Leaving the block closes every socket and ends the thread.
    """

    def __init__(
        self,
        script: ModelScript | Sequence[Reply] = (),
        *,
        rule: Rule = obey,
        gap_s: float = 0.0,
        chunk_chars: int = DEFAULT_CHUNK_CHARS,
        api_key: str | None = None,
        port: int = 0,
    ) -> None:
        script = script if isinstance(script, ModelScript) else ModelScript(script, rule)
        self._service = ModelService(script, gap_s=gap_s, chunk_chars=chunk_chars, api_key=api_key)
        self._port = port
        self._started = threading.Event()
        self._fault: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)

    @property
    def base_url(self) -> str:
        """Give the URL for an OpenAI client; valid once the server has started."""
        return f"http://{HOST}:{self._port}/v1"

    @property
    def requests(self) -> list[RecordedRequest]:
        """Give the chat requests so far, as a list of its own."""
        return list(self._service.requests)

    def __enter__(self) -> ScriptedModelServer:
        """Start; raises ModelServerError when the port cannot be had."""
        self._thread.start()
        if not self._started.wait(STOP_WITHIN_S) or self._fault is not None:
            raise ModelServerError(f"the scripted model server did not start: {self._fault}") from self._fault
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and wait until the thread has ended."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_WITHIN_S)
        if self._thread.is_alive():
            raise ModelServerError(f"the scripted model server did not stop within {STOP_WITHIN_S:g} s")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as fault:
            self._fault = fault
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._port = await self._service.start(self._port)
        self._started.set()
        await self._stopping.wait()
        await self._service.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; print the base URL, and write it to the ready file, once it answers."""
    options = _parser().parse_args(arguments)
    try:
        script = ModelScript.from_json(json.loads(options.script.read_text())) if options.script else None
    except (OSError, ScriptError, json.JSONDecodeError) as fault:
        sys.stderr.write(f"cannot use the script {options.script}: {fault}\n")
        return 2
    asyncio.run(_serve_until_signal(options, script or ModelScript()))
    return 0


async def _serve_until_signal(options: argparse.Namespace, script: ModelScript) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    service = ModelService(script, gap_s=options.gap, chunk_chars=options.chunk, api_key=options.api_key)
    base_url = f"http://{HOST}:{await service.start(options.port)}/v1"
    sys.stdout.write(base_url + "\n")
    sys.stdout.flush()
    if options.ready_file:
        _write_whole(options.ready_file, base_url + "\n")
    await stopping.wait()
    await service.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m callboard.testing.model_server", description=main.__doc__
    )
    add = parser.add_argument
    add("--script", type=Path, help="a JSON file of replies; without it the user's text is obeyed")
    add("--port", type=int, default=0, help="the port; 0 takes a free one")
    add("--ready-file", type=Path, help="is written with the base URL once the server answers")
    add("--gap", type=float, default=0.0, help="seconds between two chunks of a stream")
    add("--chunk", type=int, default=DEFAULT_CHUNK_CHARS, help="characters in a chunk of text")
    add("--api-key", help="the only key that is accepted; without it any")
    return parser


def _write_whole(path: Path, text: str) -> None:
    """Write by renaming, so that whoever waits for the file never reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


async def _refuse(connection: HttpConnection, status: int, message: str) -> None:
    await connection.send_json(status, error_object(Reply(error=message)))


if __name__ == "__main__":
    sys.exit(main())
