"""Is a chat request one that a model accepts: has each call its result, once, in call order? A pure check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Messages: TypeAlias = Sequence[Mapping[str, Any]]


def message_faults(messages: Messages) -> list[str]:
    """Give what is wrong with the calls and results in a chat request: each call's result follows, in order."""
    wrong: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            id = str(message.get("tool_call_id"))
            if waiting[:1] == [id]:
                waiting.pop(0)
            else:
                wrong.append(f"a result of {id} where {waiting[:1]} was due")
            continue
        if waiting:
            wrong.append(f"no result of {', '.join(waiting)}")
        waiting = [str(call["id"]) for call in message.get("tool_calls") or ()]
    return wrong + ([f"no result of {', '.join(waiting)}"] if waiting else [])
