"""The model contract: what a model must offer to be used in a turn (FEATURES M6).

A model is anything with ``capabilities`` and ``chat``. The shipped one (``actors/openai_model.py``) speaks to
OpenAI-compatible endpoints; users may bring their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from callboard.actors.items import FunctionCall, Item
from callboard.tools.contract import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model can do. ``context_tokens``: request and answer together; None where it is not known."""

    streaming: bool = True
    tools: bool = True
    vision: bool = False
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or several model calls, as the endpoint reported them."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Add up two usages."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True)
class ModelTextDelta:
    """A piece of the answer's text, as it streams."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The whole reply; always the last event of a stream that did not fail. Call ids are unique in it."""

    text: str = ""
    calls: tuple[FunctionCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""


ModelEvent: TypeAlias = ModelTextDelta | ModelReply


class ModelError(Exception):
    """A model call failed.

    ``kind`` is one of ``unreachable``, ``timeout``, ``rate_limited``, ``overloaded``, ``rejected`` (a 4xx: wrong key,
    unknown model, bad request), ``context_window`` (the request is longer than the model can read), ``server_error``,
    ``interrupted`` (the stream broke off) or ``bad_reply``; a model of the user's own may have others. Anything else
    that a model raises is a bug in it, and fails the turn (``model_bug``).
    ``retry_after_s`` is the endpoint's own wish, in seconds; ``context_tokens`` how long it says its window is.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool,
        retry_after_s: float | None = None,
        context_tokens: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.context_tokens = context_tokens


class ChatModel(Protocol):
    """Anything that can take a step of a turn."""

    @property
    def capabilities(self) -> Capabilities:
        """Say what this model can do."""
        ...

    def chat(self, context: Sequence[Item], tools: Sequence[ToolSpec]) -> AsyncIterator[ModelEvent]:
        """Stream one reply to ``context``; raises ModelError. ``tools`` empty means that none may be called."""
        ...
