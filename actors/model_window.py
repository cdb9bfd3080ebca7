"""The context window of one model, applied to each request just before it is sent.

It holds what the model actor knows of the window (configured, or learnt from an endpoint that refused a request) and
counts with ``actors/tokens.py``; what is left out is decided by ``actors/context_window.py``. While everything surely
fits, nothing is counted at all. Lives in the model actor's event loop.
"""

from __future__ import annotations

import asyncio
import json

from callboard.actors.chat_messages import functions_from_tools
from callboard.actors.chat_model import ModelError
from callboard.actors.context_window import Fitted, TooLong, fit, surely_fits
from callboard.actors.messages import Chat
from callboard.actors.tokens import TokenCounter

_REQUEST_TOKENS = 16
_MIN_MARGIN = 0.4
_STEP = 0.8


class ModelWindow:
    """``context_tokens`` is the window, request and answer together (None: not known, so nothing is left out).

    ``reserve_tokens`` of it are kept for the answer, but never more than a quarter.
    """

    def __init__(
        self,
        counter: TokenCounter,
        *,
        context_tokens: int | None = None,
        reserve_tokens: int = 1024,
        vision: bool = False,
    ) -> None:
        self.context_tokens = context_tokens
        self._counter = counter
        self._reserve = reserve_tokens
        self._vision = vision
        self._margin = 1.0

    async def fit(self, chat: Chat) -> Fitted:
        """Give the items of the request that fit. Raises ModelError (``context_window``) when there is no way."""
        if self.context_tokens is None:
            return Fitted(items=chat.items)
        tools = json.dumps(functions_from_tools(chat.tools), default=str) if chat.tools else ""
        if surely_fits(chat.items, self._room(self.context_tokens, len(tools.encode())), vision=self._vision):
            return Fitted(items=chat.items)
        return await asyncio.to_thread(self._fit_now, chat, tools, self.context_tokens)

    def learn(self, error: ModelError) -> bool:
        """Take in that the endpoint found a request too long; True when the next request can be shorter."""
        if error.kind != "context_window":
            return False
        known, said = self.context_tokens, error.context_tokens
        if said is not None and (known is None or said < known):
            self.context_tokens = said
            return True
        if known is None or self._margin * _STEP < _MIN_MARGIN:
            return False
        self._margin *= _STEP
        return True

    def _room(self, context_tokens: int, tools_tokens: int) -> int:
        reserve = min(self._reserve, context_tokens // 4)
        return int((context_tokens - reserve) * self._margin) - tools_tokens - _REQUEST_TOKENS

    def _fit_now(self, chat: Chat, tools: str, context_tokens: int) -> Fitted:
        room = self._room(context_tokens, self._counter.count(tools))
        fitted = fit(
            chat.items,
            self._counter.count,
            room,
            policy=chat.policy,
            turn_at=chat.turn_at,
            vision=self._vision,
        )
        if isinstance(fitted, TooLong):
            raise ModelError("context_window", self._complaint(fitted, context_tokens), retryable=False)
        return fitted

    def _complaint(self, too_long: TooLong, context_tokens: int) -> str:
        return (
            f"the conversation takes {too_long.tokens} tokens ({self._counter.note}), and {max(0, too_long.limit)} of "
            f"the model's {context_tokens} are left beside the tools and the answer"
        )
