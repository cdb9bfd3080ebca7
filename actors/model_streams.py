"""The streams of a model actor: many model calls at once, on one asyncio loop in a thread of its own.

Each call comes to exactly one answer, whatever its model does; text is coalesced to one piece per ``COALESCE_S`` and
request. What the calls bring goes through a queue and a pipe to the actor's own thread. It knows no actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

from callboard.actors.chat_model import ChatModel, ModelError, ModelEvent, ModelReply, ModelTextDelta
from callboard.actors.context_window import Fitted
from callboard.actors.messages import Chat, ChatAnswer, ChatDone, ModelFault
from callboard.actors.model_window import ModelWindow
from callboard.actors.thread_news import ThreadNews

COALESCE_S = 0.02
_BUG_CHARS = 500
_CLOSE_S = 1.0


class Streams:
    """The thread with the loop. All methods but the coroutines run in the actor's own thread."""

    def __init__(self) -> None:
        self._news: ThreadNews[tuple[str, str | ChatAnswer]] = ThreadNews()
        self.ready_fd = self._news.ready_fd
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
        self._thread.start()

    def begin(self, request_id: str, model: ChatModel, window: ModelWindow, chat: Chat) -> None:
        """Run one call; its news come out of ``take``, the last one being its answer."""

        def start() -> None:
            task = self._loop.create_task(self._carry(request_id, model, window, chat))
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
        return self._news.take()

    def close(self) -> None:
        """Stop the loop and its thread, and release the pipe; a call that does not let go is left behind."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_CLOSE_S)
        if not self._thread.is_alive():
            self._news.close()

    def _run(self) -> None:
        self._loop.run_forever()
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_CLOSE_S / 2))
        self._loop.close()

    async def _carry(self, request_id: str, model: ChatModel, window: ModelWindow, chat: Chat) -> None:
        """Whatever a user's model raises is its bug, an exit included: it would end the loop and all streams."""
        text = _Coalescer(lambda piece: self._news.put((request_id, piece)))
        try:
            answer = await _answer(model, window, chat, text)
        except ModelError as error:
            answer = fault_of(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            answer = _bug("the model cancelled its own call")
        except BaseException as bug:
            answer = _bug(f"{type(bug).__name__}: {bug}")
        finally:
            text.drop()
        self._news.put((request_id, answer))


def fault_of(error: ModelError) -> ModelFault:
    """Give a ModelError as the value that travels."""
    return ModelFault(
        kind=error.kind,
        message=error.message,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
    )


def _bug(message: str) -> ModelFault:
    return ModelFault(kind="bug", message=f"a bug in the model: {message}"[:_BUG_CHARS], retryable=False)


async def _answer(model: ChatModel, window: ModelWindow, chat: Chat, text: _Coalescer) -> ChatAnswer:
    fitted = await window.fit(chat)
    try:
        return await _reply(model, fitted, chat, text)
    except ModelError as error:
        if chat.policy != "trim" or not window.learn(error):
            raise
    return await _reply(model, await window.fit(chat), chat, text)


async def _reply(model: ChatModel, fitted: Fitted, chat: Chat, text: _Coalescer) -> ChatAnswer:
    async with _closing(model.chat(fitted.items, chat.tools)) as events:
        async for event in events:
            match event:
                case ModelTextDelta(piece):
                    text.add(piece)
                case ModelReply():
                    text.flush()
                    return ChatDone(reply=event, left_out=fitted.left_out)
    return ModelFault(kind="bad_reply", message="the stream ended without a reply", retryable=True)


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
