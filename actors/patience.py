"""How long a model call may take: to its first token, between two of them, and in all.

Used in the event loop that carries the call, by the shipped model and around a user's own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["asked", "answered", "streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimeouts:
    """How long to wait, in seconds: to connect, for the first token, between two chunks after it, and in all.

    A reply that is not streamed comes whole, so only ``connect_s`` and ``total_s`` hold for it.
    """

    connect_s: float = 10.0
    first_token_s: float = 60.0
    between_tokens_s: float = 60.0
    total_s: float = 600.0


DEFAULT_TIMEOUTS = ModelTimeouts()


class Patience:
    """The time limit for the next sign of life, by how far the reply has come. Made in the call's own loop."""

    def __init__(self, timeouts: ModelTimeouts, is_streamed: bool) -> None:
        self.stage: Stage = "asked"
        self._timeouts = timeouts
        self._clock = asyncio.get_running_loop().time
        began = self._clock()
        self._first_at = began + (timeouts.first_token_s if is_streamed else timeouts.total_s)
        self._total_at = began + timeouts.total_s

    def wait(self) -> asyncio.Timeout:
        """Give the time limit for what is awaited next."""
        is_streaming = self.stage == "streaming"
        until = self._clock() + self._timeouts.between_tokens_s if is_streaming else self._first_at
        return asyncio.timeout_at(min(until, self._total_at))

    def is_over(self) -> bool:
        """True when the whole call's time is up."""
        return self._clock() >= self._total_at

    def complaint(self) -> str:
        """Say what did not come in time."""
        if self.is_over():
            return f"the reply was not complete within {self._timeouts.total_s:g} s"
        if self.stage == "streaming":
            return f"nothing more came for {self._timeouts.between_tokens_s:g} s"
        return f"no first token within {self._timeouts.first_token_s:g} s"
