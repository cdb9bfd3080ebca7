"""Three small tools of your own, to start from.

Try them: ``callboard ask --tools-from examples/my_tools.py "Is port 22 open on localhost?"``
Each call runs in a process of its own: a tool may crash, exit or hang without harm to anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from callboard import ToolContext, tool


@tool(read_only=True, idempotent=True, deadline_s=5.0, memory_mb=128)
def text_statistics(text: str, top: Annotated[int, Field(ge=1, le=50)] = 5) -> dict[str, object]:
    """Count the lines, words and characters of a text, and its most frequent words.

    Args:
        text: The text to look at.
        top: How many of the most frequent words to give.
    """
    words = [word.strip(".,;:!?()\"'").casefold() for word in text.split()]
    frequent = Counter(word for word in words if len(word) > 3).most_common(top)
    return {
        "lines": len(text.splitlines()),
        "words": len(words),
        "characters": len(text),
        "frequent": dict(frequent),
    }


@tool(read_only=True, open_world=True, deadline_s=15.0)
async def is_port_open(
    host: str, port: Annotated[int, Field(ge=1, le=65535)], wait_s: Annotated[float, Field(gt=0, le=10)] = 3.0
) -> str:
    """Find out whether a TCP port answers.

    Args:
        host: A host name or an IP address.
        port: The port's number.
        wait_s: How many seconds to wait for an answer.
    """
    try:
        async with asyncio.timeout(wait_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} does not answer within {wait_s} s"
    except OSError as error:
        return f"{host}:{port} is closed ({error.strerror or error})"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return f"{host}:{port} is open"


@tool(deadline_s=5.0)
def save_note(text: Annotated[str, Field(min_length=1, max_length=2000)], context: ToolContext) -> str:
    """Write a note down for the user, to be found again later.

    Args:
        text: The note.
    """
    file = Path(context.settings.get("file", "notes.txt")).expanduser()
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    with file.open("a", encoding="utf-8") as notes:
        notes.write(f"{stamp} {context.user or 'somebody'}: {text}\n")
    return f"saved in {file}"
