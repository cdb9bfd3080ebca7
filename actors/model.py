"""The model actor: carries many model calls at once, on one asyncio loop in a thread of its own.

It never forks. What the streams bring goes through a queue and a pipe into the mailbox; text is coalesced to one
notice per ``COALESCE_S`` and request. A request that comes again while it runs is the same request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from callboard.actors import names
from callboard.actors.chat_model import ChatModel, ModelError, ModelEvent, ModelReply, ModelTextDelta
from callboard.actors.messages import (
    Chat,
    ChatAnswer,
    EmbeddedAt,
    GetEmbedded,
    ModelFault,
    ModelText,
    StopChat,
)
from callboard.actors.settings import EMBEDDED_START_S, ModelSettings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.supervisor.process import PRIVATE_FDS

COALESCE_S = 0.02
_KEPT_ANSWERS = 64


class ModelActor(Child):
    """``args``: ``settings``."""

    holds_secrets = True

    def start(self) -> None:
        """Start the loop's thread and watch its pipe."""
        self._settings: ModelSettings = self.init.args["settings"].model
        self._running: dict[str, Envelope] = {}
        self._answers: OrderedDict[str, ChatAnswer] = OrderedDict()
        self._model: ChatModel | None = None
        self._waiting: list[Envelope] = []
        self._streams = Streams()
        self.watch(self._streams.ready_fd, lambda _events: self._take_news())
        if self._settings.kind == "endpoint":
            self._use(self._settings.base_url, self._settings.api_key)

    def handle(self, envelope: Envelope) -> None:
        """Start a call, or stop one."""
        match envelope.body:
            case Chat() if envelope.request_id in self._answers:
                self.reply(envelope, self._answers[envelope.request_id])
            case Chat() if envelope.request_id in self._running:
                return
            case Chat() as chat:
                self._running[envelope.request_id] = envelope
                self._carry_out(envelope, chat)
            case StopChat(request_id):
                self._running.pop(request_id, None)
                self._streams.stop(request_id)

    def stopping(self) -> None:
        """End the thread with its streams."""
        self.unwatch(self._streams.ready_fd)
        self._streams.close()

    def _carry_out(self, envelope: Envelope, chat: Chat) -> None:
        if self._model is not None:
            self._streams.begin(envelope.request_id, self._model, chat)
            return
        self._waiting.append(envelope)
        if len(self._waiting) == 1:
            self.ask(names.EMBEDDED, GetEmbedded(), self._embedded_is, deadline_s=EMBEDDED_START_S)

    def _embedded_is(self, answer: EmbeddedAt | Failure) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(answer, Failure):
            fault = ModelFault(kind="unreachable", message=answer.message, retryable=answer.retryable)
            for envelope in waiting:
                self._finish(envelope.request_id, fault)
            return
        self._use(answer.base_url, answer.api_key)
        for envelope in waiting:
            if envelope.request_id in self._running:
                self._carry_out(envelope, envelope.body)

    def _use(self, base_url: str, api_key: str) -> None:
        from callboard.actors.openai_model import ModelTimeouts, OpenAIModel

        settings = self._settings
        extra = {} if settings.temperature is None else {"temperature": settings.temperature}
        timeouts = ModelTimeouts(
            connect_s=settings.connect_s,
            first_token_s=settings.first_token_s,
            between_tokens_s=settings.between_tokens_s,
        )
        model = OpenAIModel(base_url, api_key, settings.name, timeouts=timeouts, extra=extra)
        self._model = model
        self.then_continue(model.prepare)

    def _take_news(self) -> None:
        for request_id, news in self._streams.take():
            envelope = self._running.get(request_id)
            if envelope is None:
                continue
            if isinstance(news, str):
                self.send(envelope.reply_to, ModelText(request_id, news))
            else:
                self._finish(request_id, news)

    def _finish(self, request_id: str, answer: ChatAnswer) -> None:
        envelope = self._running.pop(request_id, None)
        if envelope is None:
            return
        if isinstance(answer, ModelFault) and self._settings.kind == "embedded":
            self._model = None
        self._answers[request_id] = answer
        while len(self._answers) > _KEPT_ANSWERS:
            self._answers.popitem(last=False)
        self.reply(envelope, answer)


class Streams:
    """The thread with the loop. All methods but ``begin``'s coroutine run in the actor's own thread."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[tuple[str, str | ChatAnswer]] = queue.SimpleQueue()
        self.ready_fd, self._ring_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        PRIVATE_FDS.update((self.ready_fd, self._ring_fd))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="streams", daemon=True)
        self._thread.start()

    def begin(self, request_id: str, model: ChatModel, chat: Chat) -> None:
        """Run one call; its news come out of ``take``."""

        def start() -> None:
            task = self._loop.create_task(self._carry(request_id, model, chat))
            self._tasks[request_id] = task
            task.add_done_callback(lambda _task: self._tasks.pop(request_id, None))

        self._loop.call_soon_threadsafe(start)

    def stop(self, request_id: str) -> None:
        """Break off the call, if it still runs."""

        def cancel() -> None:
            task = self._tasks.get(request_id)
            if task is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    def take(self) -> list[tuple[str, str | ChatAnswer]]:
        """Give the news since the last time, in order."""
        while True:
            try:
                if not os.read(self.ready_fd, 4096):
                    break
            except BlockingIOError:
                break
        news = []
        while not self._news.empty():
            news.append(self._news.get())
        return news

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1.0)

    def _put(self, request_id: str, news: str | ChatAnswer) -> None:
        self._news.put((request_id, news))
        try:
            os.write(self._ring_fd, b".")
        except BlockingIOError:
            return

    async def _carry(self, request_id: str, model: ChatModel, chat: Chat) -> None:
        text = _Coalescer(lambda piece: self._put(request_id, piece))
        try:
            async with _closing(model.chat(chat.items, chat.tools)) as events:
                async for event in events:
                    match event:
                        case ModelTextDelta(piece):
                            text.add(piece)
                        case ModelReply():
                            text.flush()
                            self._put(request_id, event)
                            return
            fault = ModelFault(kind="bad_reply", message="the stream ended without a reply", retryable=True)
        except ModelError as error:
            fault = ModelFault(
                kind=error.kind,
                message=error.message,
                retryable=error.retryable,
                retry_after_s=error.retry_after_s,
            )
        except Exception as bug:
            fault = ModelFault(kind="bug", message=f"{type(bug).__name__}: {bug}", retryable=False)
        finally:
            text.drop()
        self._put(request_id, fault)


@contextlib.asynccontextmanager
async def _closing(events: AsyncIterator[ModelEvent]) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """Release the stream's connection at once when it is left early; a plain iterator has nothing to release."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class _Coalescer:
    """Gathers text and gives it on at most once per ``COALESCE_S``; lives in the loop's thread."""

    def __init__(self, give: Callable[[str], None]) -> None:
        self._give = give
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._timer is None:
            wait = max(0.0, self._last + COALESCE_S - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self.flush)

    def flush(self) -> None:
        self.drop_timer()
        if self._pieces:
            self._last = time.monotonic()
            self._give("".join(self._pieces))
            self._pieces.clear()

    def drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self) -> None:
        self.drop_timer()
        self._pieces.clear()
