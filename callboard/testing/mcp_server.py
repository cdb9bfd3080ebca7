"""An MCP server over stdio that misbehaves on request, to test clients (and this product's own).

    python -m callboard.testing.mcp_server --mode legacy,banner,slow-start=2

It needs nothing but the standard library, so it may also be run by its path. Without ``--mode`` it is a good
server of both eras: the first request decides. Modes combine; each is one fault or one trait:

    legacy, modern            speak one era only
    version=V                 the legacy version to agree on, whatever is offered
    exit-on-probe             exit with 1 when the first request is not initialize
    silent-on-probe           do not answer unknown methods, server/discover among them
    crash-at-start            exit with 3 and a line on stderr, before reading
    slow-start=S              read nothing for S seconds
    deaf                      read stdin, answer nothing
    banner, glued-banner      text on stdout before the first message, with and without an end of line
    garbage                   before each answer lines that are no messages, JSON and not
    invalid-utf8              a notification with a byte that is not UTF-8 before each answer
    byte-by-byte              write every byte on its own
    batch                     send each answer in an array
    string-ids                answer with the id as a string
    twice                     send each answer twice, and one that nobody asked for
    crlf                      end lines with CR LF
    asks                      send the client a ping and an unknown request before each tool's answer
    huge-line=N               the tool echo answers with N characters
    bad-schema                two more tools, with inputSchema null and of type array
    paginate                  one tool per page; the second cursor is the empty string
    endless-pages             every page has the same cursor
    no-tools                  declare no tools capability
    half-line-then-die        write half of a tool's answer, then exit with 4
    close-stdout              close stdout on the first tool call and live on
    grandchild                start a process of the same group that sleeps (the tool pids tells its id)
    ignore-eof                live on when stdin ends
    ignore-sigterm            do not die of SIGTERM

Tools: echo(text) add(a, b) sleep(seconds) progress(steps) fail() kill_self() exit(code) flood_stderr(bytes)
write_file(path, text) pids() environment() cancelled() answers() unlock(). write_file appends, so a test can
count calls by lines; cancelled gives the ids of the cancelled requests, answers the client's answers to
``asks``; unlock adds a tool and announces it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODERN_VERSION = "2026-07-28"
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META = "io.modelcontextprotocol/"
SERVER_INFO = {"name": "adversary", "version": "1.0"}

MODES = (
    *(
        "legacy",
        "modern",
        "version",
        "exit-on-probe",
        "silent-on-probe",
        "crash-at-start",
        "slow-start",
        "deaf",
    ),
    *(
        "banner",
        "glued-banner",
        "garbage",
        "invalid-utf8",
        "byte-by-byte",
        "batch",
        "string-ids",
        "twice",
        "crlf",
    ),
    *("asks", "huge-line", "bad-schema", "paginate", "endless-pages", "no-tools", "half-line-then-die"),
    *("close-stdout", "grandchild", "ignore-eof", "ignore-sigterm"),
)
SLOW_TOOLS = ("sleep", "progress")
PROPERTIES: dict[str, dict[str, str]] = {
    "echo": {"text": "string"},
    "add": {"a": "number", "b": "number"},
    "sleep": {"seconds": "number"},
    "progress": {"steps": "integer"},
    "exit": {"code": "integer"},
    "flood_stderr": {"bytes": "integer"},
    "write_file": {"path": "string", "text": "string"},
}


def command(*modes: str) -> list[str]:
    """Give the command line that starts this server in the given modes, with this interpreter."""
    return [sys.executable, str(Path(__file__).resolve()), *(["--mode", ",".join(modes)] if modes else [])]


class RpcError(Exception):
    """The request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message, **({} if data is None else {"data": data})}


class Wire:
    """Stdout, with all the faults that a byte stream can have."""

    def __init__(self, modes: dict[str, str]) -> None:
        self._modes = modes
        self._lock = threading.Lock()
        self._started = False

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        body: Any = [message] if "batch" in self._modes and "method" not in message else message
        self.write(json.dumps(body, ensure_ascii=False).encode() + self._end())

    def answer(self, message: dict[str, Any]) -> None:
        """Write one answer, between whatever the modes put around it."""
        if "garbage" in self._modes:
            self.write(b'\n  \nDEBUG: hello\n{"level":"info"}\nnull\n123\n[]\n')
            self.write(b'{"jsonrpc":"2.0","id":true}\n')
        if "invalid-utf8" in self._modes:
            self.write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xff"}}\n')
        self.send(message)
        if "twice" in self._modes:
            self.send(message)
            self.send({"jsonrpc": "2.0", "id": 987654, "result": {}})

    def half(self, message: dict[str, Any]) -> None:
        """Write the first half of a message."""
        data = json.dumps(message).encode()
        self.write(data[: len(data) // 2])

    def write(self, data: bytes) -> None:
        """Write bytes, all of them, after the banner."""
        with self._lock:
            if not self._started:
                self._started = True
                data = self._banner() + data
            step = 1 if "byte-by-byte" in self._modes else len(data)
            for start in range(0, len(data), step):
                write_all(1, data[start : start + step])

    def _banner(self) -> bytes:
        if "glued-banner" in self._modes:
            return b"Server v1 listening on stdio "
        return b"Welcome to the adversary!\n\n" if "banner" in self._modes else b""

    def _end(self) -> bytes:
        return b"\r\n" if "crlf" in self._modes else b"\n"


class Toolbox:
    """The tools: functions from arguments to text or a JSON value. ``notify`` tells the client something."""

    def __init__(self, modes: dict[str, str], notify: Callable[[str, dict[str, Any]], None]) -> None:
        self._notify = notify
        self._huge_line = int(modes.get("huge-line", 0))
        self._grandchild = _start_grandchild() if "grandchild" in modes else None
        self.cancelled: list[Any] = []
        self.answers: list[Any] = []
        self.functions: dict[str, Callable[..., Any]] = {
            "echo": self._echo,
            "add": lambda a, b: a + b,
            "sleep": self._sleep,
            "progress": self._progress,
            "fail": self._fail,
            "kill_self": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "exit": lambda code=0: os._exit(int(code)),
            "flood_stderr": lambda bytes=2 << 20: write_all(2, b"x" * int(bytes)),
            "write_file": _append,
            "pids": lambda: {"server": os.getpid(), "grandchild": self._grandchild},
            "environment": lambda: dict(os.environ),
            "cancelled": lambda: self.cancelled,
            "answers": lambda: self.answers,
            "unlock": self._unlock,
        }

    def call(self, name: str, arguments: dict[str, Any], request_id: Any, token: Any) -> dict[str, Any]:
        """Run a tool and give its MCP result; what it raises is an error for the model."""
        more = {"request_id": request_id, "token": token} if name in SLOW_TOOLS else {}
        try:
            value = self.functions[name](**arguments, **more)
        except Exception as fault:
            text = f"{type(fault).__name__}: {fault}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        if value is None or isinstance(value, str):
            return {"content": [{"type": "text", "text": value or ""}]}
        content = [{"type": "text", "text": json.dumps(value)}]
        return {"content": content, "structuredContent": {"value": value}}

    def _echo(self, text: str = "") -> str:
        return "x" * self._huge_line if self._huge_line else text

    def _sleep(self, seconds: float, request_id: Any, token: Any) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until and request_id not in self.cancelled:
            time.sleep(min(0.02, seconds))
        return f"slept {seconds} s"

    def _progress(self, request_id: Any, token: Any, steps: int = 3) -> str:
        for step in range(1, steps + 1) if token is not None else ():
            reading = {"progress": step, "total": steps, "message": f"step {step}"}
            self._notify("notifications/progress", {"progressToken": token, **reading})
        return "done"

    def _fail(self) -> str:
        raise RuntimeError("this tool always fails")

    def _unlock(self) -> str:
        self.functions["unlocked"] = lambda: "open"
        self._notify("notifications/tools/list_changed", {})
        return "unlocked"


class Server:
    """The protocol: methods and eras. Slow tools run on a thread each, so that a cancel is read meanwhile."""

    def __init__(self, modes: dict[str, str]) -> None:
        self._modes = modes
        self._wire = Wire(modes)
        self._tools = Toolbox(modes, self._notify)
        self._era = "legacy" if "legacy" in modes else "modern" if "modern" in modes else None
        self._met = False
        self._listen_id: Any = None

    def receive(self, line: bytes) -> None:
        """Take one line from stdin."""
        if "deaf" in self._modes:
            return
        try:
            message = json.loads(line)
        except ValueError:
            error = {"code": -32700, "message": "parse error"}
            self._wire.send({"jsonrpc": "2.0", "id": None, "error": error})
            return
        if "method" not in message:
            self._tools.answers.append(message)
        elif "id" in message:
            self._request(message)
        elif message["method"] == "notifications/cancelled":
            self._tools.cancelled.append(message.get("params", {}).get("requestId"))

    def _request(self, message: dict[str, Any]) -> None:
        self._meet(message["method"], message.get("params") or {})
        is_slow = message["method"] == "tools/call" and message["params"].get("name") in SLOW_TOOLS
        if is_slow:
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        else:
            self._answer(message)

    def _meet(self, method: str, params: dict[str, Any]) -> None:
        if self._met:
            return
        self._met = True
        if "exit-on-probe" in self._modes and method != "initialize":
            write_all(2, b"adversary: expected initialize\n")
            os._exit(1)
        old = "silent-on-probe" in self._modes or "exit-on-probe" in self._modes
        if self._era is None:
            self._era = "modern" if _is_modern(params) and not old else "legacy"

    def _answer(self, message: dict[str, Any]) -> None:
        method, request_id = message["method"], message["id"]
        try:
            result = self._result(request_id, method, message.get("params") or {})
        except RpcError as fault:
            self._reply(method, request_id, {"error": fault.body})
            return
        if result is not None and request_id not in self._tools.cancelled:
            typed = {"resultType": "complete", **result} if self._era == "modern" else result
            self._reply(method, request_id, {"result": typed})

    def _reply(self, method: str, request_id: Any, outcome: dict[str, Any]) -> None:
        answer_id = str(request_id) if "string-ids" in self._modes else request_id
        answer = {"jsonrpc": "2.0", "id": answer_id, **outcome}
        if method == "tools/call" and "half-line-then-die" in self._modes:
            self._wire.half(answer)
            os._exit(4)
        if method == "tools/call" and "asks" in self._modes:
            self._wire.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            self._wire.send({"jsonrpc": "2.0", "id": "x", "method": "roots/list"})
        self._wire.answer(answer)

    def _result(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        modern, tools = self._era == "modern", "no-tools" not in self._modes
        if modern and not _is_modern(params):
            raise RpcError(-32022, "unsupported protocol version", {"supported": [MODERN_VERSION]})
        match method:
            case "initialize" if not modern:
                return self._initialize(params)
            case "ping" if not modern:
                return {}
            case "server/discover" if modern:
                return self._discover()
            case "subscriptions/listen" if modern:
                self._listen(request_id, params)
                return None
            case "tools/list" if tools:
                return self._list(params.get("cursor"))
            case "tools/call" if tools:
                return self._call(request_id, params)
        if "silent-on-probe" in self._modes:
            return None
        raise RpcError(-32601, f"unknown method {method}")

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        offered = params.get("protocolVersion")
        agreed = self._modes.get("version") or (offered if offered in LEGACY_VERSIONS else LEGACY_VERSIONS[0])
        return {"protocolVersion": agreed, "serverInfo": SERVER_INFO, **self._description()}

    def _discover(self) -> dict[str, Any]:
        meta = {META + "serverInfo": SERVER_INFO}
        versions = {"supportedVersions": [MODERN_VERSION], "ttlMs": 0, "cacheScope": "private"}
        return {**versions, **self._description(), "_meta": meta}

    def _description(self) -> dict[str, Any]:
        capabilities = {} if "no-tools" in self._modes else {"tools": {"listChanged": True}}
        return {"capabilities": capabilities, "instructions": "Be careful."}

    def _listen(self, request_id: Any, params: dict[str, Any]) -> None:
        self._listen_id = request_id
        self._notify("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})

    def _list(self, cursor: str | None) -> dict[str, Any]:
        tools: list[dict[str, Any]] = [_describe(name) for name in self._tools.functions]
        if "bad-schema" in self._modes:
            bad = {"bad_null": None, "bad_type": {"type": "array"}}
            tools[1:1] = [{"name": name, "inputSchema": schema} for name, schema in bad.items()]
        caching = {"ttlMs": 0, "cacheScope": "private"} if self._era == "modern" else {}
        if "endless-pages" in self._modes:
            return {**caching, "tools": tools[:1], "nextCursor": "again"}
        if "paginate" not in self._modes:
            return {**caching, "tools": tools}
        match cursor:
            case None:
                return {**caching, "tools": tools[:1], "nextCursor": "one"}
            case "one":
                return {**caching, "tools": tools[1:2], "nextCursor": ""}
            case _:
                return {**caching, "tools": tools[2:]}

    def _call(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any]:
        name = str(params.get("name"))
        if name not in self._tools.functions:
            raise RpcError(-32602, f"unknown tool {name}")
        if "close-stdout" in self._modes:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        token = params.get("_meta", {}).get("progressToken")
        return self._tools.call(name, params.get("arguments") or {}, request_id, token)

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        if self._listen_id is not None and method != "notifications/progress":
            params = {**params, "_meta": {META + "subscriptionId": self._listen_id}}
        self._wire.send({"jsonrpc": "2.0", "method": method, "params": params})


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, however the pipe takes it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_modern(params: dict[str, Any]) -> bool:
    return META + "protocolVersion" in params.get("_meta", {})


def _describe(name: str) -> dict[str, Any]:
    properties = {field: {"type": kind} for field, kind in PROPERTIES.get(name, {}).items()}
    description = f"The tool {name} of the adversarial server."
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


def _append(path: str, text: str) -> str:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)
    return f"appended {len(text)} characters to {path}"


def _start_grandchild() -> int:
    # It inherits stdout and stderr, as a careless server's would: they stay open when the server is gone.
    return subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL).pid


def _parse_modes(text: str) -> dict[str, str]:
    modes = dict(part.partition("=")[::2] for part in text.split(",") if part and part != "normal")
    unknown = modes.keys() - set(MODES)
    if unknown:
        raise SystemExit(f"unknown modes {', '.join(sorted(unknown))}; there are: {', '.join(sorted(MODES))}")
    return modes


def serve(modes: dict[str, str]) -> None:
    """Serve stdin until it ends."""
    if "ignore-sigterm" in modes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "crash-at-start" in modes:
        write_all(2, b"adversary: no configuration found\n")
        os._exit(3)
    time.sleep(float(modes.get("slow-start") or 0))
    server = Server(modes)
    while line := sys.stdin.buffer.readline():
        server.receive(line)
    while "ignore-eof" in modes:
        signal.pause()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="callboard.testing.mcp_server", description="An adversarial MCP server."
    )
    parser.add_argument("--mode", default="", help="modes, separated by commas; see the module's docstring")
    serve(_parse_modes(parser.parse_args().mode))
