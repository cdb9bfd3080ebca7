"""A client's one model call: finds a model actor, watches its life, and brings back one reply or one failure.

A model actor that is lost or silent is a retryable failure; the turn machine decides whether to ask again. Where there
is a fallback, it is asked at once when the model cannot be had, unless text of this call was shown already.
"""

from __future__ import annotations

import random
import uuid
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

from callboard.actors.context_window import ContextPolicy
from callboard.actors.items import Item
from callboard.actors.messages import Chat, ChatAnswer, ChatDone, ModelFault, StopChat
from callboard.actors.names import FALLBACK_MODEL, model_actor
from callboard.actors.settings import EMBEDDED_START_S, ModelSettings, Settings
from callboard.actors.turn import ModelFailed, ModelReplied
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure
from callboard.supervisor.timers import Timer
from callboard.tools.contract import ToolSpec

Answered: TypeAlias = Callable[[ModelReplied | ModelFailed], None]
_FIND_S = 10.0
_LOOK_AGAIN_S = 0.03
_WHOLE_REPLY_S = 3600.0
_MARGIN_S = 10.0
_CANNOT_BE_HAD = frozenset(
    {
        "unreachable",
        "unavailable",
        "timeout",
        "rate_limited",
        "overloaded",
        "server_error",
        "interrupted",
        "not_loaded",
    }
)


class ModelCall:
    """At most one call at a time; starting one gives up the former."""

    def __init__(self, host: Child, settings: Settings, conversation_id: str) -> None:
        self._host = host
        self._settings = settings
        self._turn = zlib.crc32(conversation_id.encode())
        self._number = 0
        self._chat: Chat | None = None
        self._uses_fallback = False
        self._has_shown_text = False
        self._request_id: str | None = None
        self._address: Any = None
        self._unwatch: Callable[[], None] | None = None
        self._silence: Timer | None = None

    def is_present(self, request_id: str) -> bool:
        """True while this request's reply is wanted; called for each piece of text, it is also a sign of life."""
        if request_id != self._request_id or self._address is None:
            return False
        self._has_shown_text = True
        self._watch_silence()
        return True

    def start(
        self,
        items: tuple[Item, ...],
        tools: tuple[ToolSpec, ...],
        answered: Answered,
        *,
        turn_at: int | None = None,
        policy: ContextPolicy = "trim",
    ) -> None:
        """Ask for one reply; ``answered`` is called once, unless the call is stopped.

        ``turn_at`` and ``policy`` are those of ``Chat``.
        """
        self.stop()
        self._number += 1
        self._answered = answered
        self._uses_fallback = self._has_shown_text = False
        self._begin(Chat(items=items, tools=tools, turn_at=turn_at, policy=policy))

    def _begin(self, chat: Chat) -> None:
        self._chat, self._request_id = chat, uuid.uuid4().hex
        self._find(self._request_id, chat, self._host.now() + _FIND_S)

    def stop(self) -> None:
        """Give up the call, if there is one."""
        if self._request_id is not None and self._address is not None:
            self._host.forget(self._request_id)
            self._host.tell(self._address, StopChat(self._request_id))
        self._clear()

    def _find(self, request_id: str, chat: Chat, give_up_at: float) -> None:
        if request_id != self._request_id:
            return
        name = model_actor((self._turn + self._number) % self._settings.model_actors)
        found = self._host.table.find(FALLBACK_MODEL if self._uses_fallback else name)
        if found is not None:
            self._send(request_id, chat, *found)
        elif self._host.now() >= give_up_at:
            self._fail(ModelFailed(kind="unreachable", message="no model actor is running", retryable=False))
        else:
            self._host.after(_LOOK_AGAIN_S, lambda: self._find(request_id, chat, give_up_at))

    def _send(self, request_id: str, chat: Chat, address: Any, pid: int) -> None:
        self._address = address
        lost = ModelFailed(kind="interrupted", message="the model's process was lost", retryable=True)
        self._unwatch = self._host.monitor(pid, lambda: self._fail(lost))
        self._watch_silence()
        self._host.ask(address, chat, self._is, deadline_s=_WHOLE_REPLY_S, retry_s=2.0, request_id=request_id)

    def _watch_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        model = self._asked
        streamed_s = max(model.first_token_s, model.between_tokens_s)
        limit_s = (streamed_s if model.stream else model.total_s) + _MARGIN_S
        if model.kind == "embedded":
            limit_s += EMBEDDED_START_S
        silent = ModelFailed(
            kind="timeout", message=f"the model was silent for {limit_s:g} s", retryable=True
        )
        self._silence = self._host.after(limit_s, lambda: self._fail(silent))

    @property
    def _asked(self) -> ModelSettings:
        model = self._settings.model
        return model.fallback if self._uses_fallback and model.fallback is not None else model

    def _settle(self, came_of_it: ModelReplied | ModelFailed) -> None:
        """Answer; or ask the fallback instead of failing, where that is possible."""
        chat, answered, model = self._chat, self._answered, self._settings.model
        self._chat = None
        fallback = None if self._uses_fallback or self._has_shown_text else model.fallback
        kind = came_of_it.kind if isinstance(came_of_it, ModelFailed) else ""
        if chat is None or fallback is None or kind not in _CANNOT_BE_HAD:
            answered(came_of_it)
            return
        self._host.log.warning("model_fallback", model=model.name, fallback=fallback.name, reason=kind)
        self._uses_fallback = True
        self._begin(chat)

    def _is(self, answer: ChatAnswer | Failure) -> None:
        self._clear()
        match answer:
            case ChatDone(reply=reply, left_out=left_out):
                self._settle(ModelReplied(reply=reply, left_out=left_out))
            case ModelFault():
                failed = ModelFailed(
                    kind=answer.kind,
                    message=answer.message,
                    retryable=answer.retryable,
                    retry_after_s=answer.retry_after_s,
                    chance=random.random(),
                )
                self._settle(failed)
            case Failure(message=message):
                self._settle(ModelFailed(kind="unreachable", message=message, retryable=True))

    def _fail(self, failed: ModelFailed) -> None:
        if self._request_id is not None:
            self.stop()
            self._settle(failed)

    def _clear(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        if self._silence is not None:
            self._silence.cancel()
        self._request_id = self._address = self._unwatch = self._silence = None
