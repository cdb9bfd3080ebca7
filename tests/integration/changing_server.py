"""An MCP server whose definitions are what a file says, and whose progress is what a test wants; standard library only.

    python changing_server.py DEFINITIONS EFFECTS

DEFINITIONS holds JSON: tools by name, each with what is to stand over ``{"name", "inputSchema"}``, and ``version``. It
is read at the start and when a ``tools/list`` comes. A call appends the tool's name to EFFECTS. ``renew`` announces a
changed list, ``tell`` sends the progress in its arguments and then sleeps, ``flood`` sends so many readings.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def progress(token: Any, **reading: Any) -> None:
    """Tell how far a call is."""
    say({"method": "notifications/progress", "params": {"progressToken": token, **reading}})


def definitions() -> dict[str, Any]:
    """Read what the tools are now."""
    found: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return found


def listed() -> list[dict[str, Any]]:
    """Give the tools as the protocol has them."""
    plain = {"inputSchema": {"type": "object"}}
    return [{"name": name, **plain, **form} for name, form in definitions()["tools"].items()]


def called(name: str, arguments: dict[str, Any], token: Any) -> str:
    """Carry out a call."""
    with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    match name:
        case "renew":
            say({"method": "notifications/tools/list_changed"})
        case "tell":
            for reading in arguments["readings"]:
                progress(reading.pop("token", token), **reading)
                time.sleep(arguments.get("between_s", 0.0))
            time.sleep(arguments.get("sleep_s", 0.0))
        case "flood":
            for number in range(1, arguments["count"] + 1):
                progress(token, progress=number, total=arguments["count"], message=f"reading {number}")
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Give the result of a request; None for an unknown one."""
    match method:
        case "initialize":
            info = {"name": "changing", "version": definitions().get("version", "1")}
            capabilities = {"tools": {"listChanged": True}}
            version = {"protocolVersion": "2025-11-25", "serverInfo": info}
            return {**version, "capabilities": capabilities}
        case "tools/list":
            return {"tools": listed()}
        case "tools/call":
            token = params.get("_meta", {}).get("progressToken")
            text = called(params["name"], params["arguments"], token)
            return {"content": [{"type": "text", "text": text}]}
    return None


def serve() -> None:
    """Serve standard input until it ends."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params", {}))
        unknown = {"error": {"code": -32601, "message": "unknown method"}}
        say({"id": request["id"], **(unknown if result is None else {"result": result})})


if __name__ == "__main__":
    serve()
