"""A conversation's history as items: messages, function calls and their outputs, in order.

Pure data. The turn machine builds it from events; a model turns it into its own wire format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from callboard.tools.content import Block

Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message. ``interrupted`` marks an answer that was cut off (cancelled, or its model was lost)."""

    role: Role
    content: tuple[Block, ...]
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """The model asks for a tool. ``arguments`` is the JSON text as the model wrote it, valid or not."""

    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCallOutput:
    """The one output of the call with the same ``call_id``."""

    call_id: str
    content: tuple[Block, ...]
    is_error: bool = False


Item: TypeAlias = ChatMessage | FunctionCall | FunctionCallOutput
