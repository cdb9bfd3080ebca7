"""Ctrl-C while a turn runs: the first cancels the turn, the second leaves.

It decides nothing about the turn; it holds SIGINT for the duration of a ``with`` block and gives it back
after. The chat and ``callboard ask`` use it around their event loops, in the main thread.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self


@contextmanager
def raising_interrupts() -> Iterator[None]:
    """While entered, a SIGINT raises KeyboardInterrupt, whoever holds it otherwise. Main thread only."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


class CancelOnInterrupt:
    """While entered, call ``cancel`` at the first SIGINT and raise KeyboardInterrupt at the second.

    ``cancel`` runs in a thread of its own, for the main thread may be holding the very lock that it needs.
    ``pressed`` counts. Outside the main thread it does nothing: signals do not arrive there.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._former: object = None
        self.pressed = 0

    def __enter__(self) -> Self:
        """Take SIGINT."""
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give SIGINT back."""
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.pressed += 1
        if self.pressed > 1:
            raise KeyboardInterrupt
        threading.Thread(target=self._cancel, name="cancel", daemon=True).start()
