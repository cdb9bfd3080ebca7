"""Tool specs in the form that OpenAI-compatible chat endpoints take.

Pure. It decides the wire form of a tool and the order of a set; it never decides which tools a conversation
may use. Called by the models.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callboard.tools.contract import ToolSpec


def openai_tool(spec: ToolSpec) -> dict[str, Any]:
    """Give the chat-completions form of one tool: an object with ``type`` and ``function``.

    ``properties`` is always there, for some endpoints refuse an object schema without it; ``$schema``, which
    others refuse, is not.
    """
    parameters = {key: value for key, value in spec.parameters.items() if key != "$schema"}
    return {
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": {"type": "object", "properties": {}, **parameters},
        },
    }


def openai_tools(specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Give the form of a set, by name: the same set is the same text, so prompt caches stay warm."""
    return [openai_tool(spec) for spec in sorted(specs, key=lambda spec: spec.name)]
