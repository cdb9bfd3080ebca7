"""News from a thread of an actor's own to the actor: a queue, and a pipe that says there is something in it.

The thread puts, the actor watches ``ready_fd`` and takes. Neither waits for the other. Used by the journal's writer and
the model actor's streams.
"""

from __future__ import annotations

import os
import queue
from typing import Generic, TypeVar

from callboard.supervisor.process import PRIVATE_FDS, close_private

T = TypeVar("T")


class ThreadNews(Generic[T]):
    """First in, first out; ``ready_fd`` is readable when there is news. It is not bounded: who puts must be."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._has_rung = False
        self.ready_fd, self._ring_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        PRIVATE_FDS.update((self.ready_fd, self._ring_fd))

    def put(self, *news: T) -> None:
        """Hand over, from the thread; it rings once until that is heard."""
        for item in news:
            self._news.put(item)
        if news and not self._has_rung:
            self._has_rung = True
            os.write(self._ring_fd, b".")

    def take(self) -> list[T]:
        """Give the news since the last time, in order, in the actor's own thread."""
        try:
            while os.read(self.ready_fd, 4096):
                continue
        except BlockingIOError:
            pass
        self._has_rung = False  # before the queue is looked into: what comes in later rings anew
        news = []
        while not self._news.empty():
            news.append(self._news.get())
        return news

    def close(self) -> None:
        """Release the pipe, once nobody puts any more."""
        close_private(self.ready_fd)
        close_private(self._ring_fd)
