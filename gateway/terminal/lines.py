"""Where the chat's lines come from: a person at a prompt, with history, or a pipe.

The prompt also listens while a turn runs: ``/cancel`` typed then is told at once, any other line waits for
its turn. Nothing here knows what a line means otherwise.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol, TextIO

from callboard.gateway.terminal.interrupts import raising_interrupts

PROMPT = "> "
MAX_LINE = 1 << 20
_HISTORY_LINES = 1000
_WAITING_LINES = 100


class Lines(Protocol):
    """A source of lines."""

    @property
    def interactive(self) -> bool:
        """True when a person sits there."""
        ...

    def read(self) -> str | None:
        """Give the next line without its end, None at the end of input; raises KeyboardInterrupt."""
        ...

    def answer(self, question: str, text: str = "") -> str | None:
        """Ask a question apart from the chat's lines, ``text`` being there to edit; None when nobody answers."""
        ...

    def listening(self, cancel: Callable[[], None]) -> AbstractContextManager[None]:
        """Listen while a turn runs; ``cancel`` is called, from a thread of its own, on ``/cancel``."""
        ...


class PipedLines:
    """Lines of a stream that is not a terminal, one after the other."""

    interactive = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self) -> str | None:
        """Give the next line, None at the end."""
        line = self._stream.readline(MAX_LINE)
        return line.rstrip("\n") if line else None

    def answer(self, question: str, text: str = "") -> str | None:
        """Give None: the lines of a pipe are meant for the model."""
        return None

    @contextmanager
    def listening(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Do not listen: the next line is for after the turn."""
        yield


class PromptedLines:
    """Lines of a person at this process's terminal, with readline and its history in ``history_file``."""

    interactive = True

    def __init__(self, history_file: Path, terminal: int = 0) -> None:
        self._history_file = history_file
        self._terminal = terminal
        self._typed = ""
        self._waiting: deque[str] = deque(maxlen=_WAITING_LINES)
        self._open_history()

    def read(self) -> str | None:
        """Prompt for a line; lines typed during the last turn come first.

        Ctrl-C drops a line that was begun; at an empty prompt it raises KeyboardInterrupt. Main thread only.
        """
        if self._waiting:
            line = self._waiting.popleft()
            os.write(1, f"{PROMPT}{line}\n".encode(errors="replace"))
            return line
        while True:
            self._typed = ""
            former = signal.signal(signal.SIGINT, self._interrupt)
            try:
                return input(PROMPT)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._typed.strip():
                    raise
                os.write(1, b"\n")
            finally:
                signal.signal(signal.SIGINT, former)

    def answer(self, question: str, text: str = "") -> str | None:
        """Ask at the prompt; what was typed before counts for nothing. Not while ``listening``; main thread only.

        Ctrl-C raises KeyboardInterrupt, the end of input gives None. Answers are not kept in the history.
        """
        import readline

        readline.set_startup_hook(lambda: readline.insert_text(text))
        readline.set_auto_history(False)
        try:
            with raising_interrupts():
                return input(question)
        except EOFError:
            return None
        finally:
            readline.set_auto_history(True)
            readline.set_startup_hook(None)

    @contextmanager
    def listening(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Listen for ``/cancel`` until the block ends; keep other lines for ``read``."""
        stop_read, stop_write = os.pipe()
        thread = threading.Thread(target=self._listen, args=(stop_read, cancel), name="typed", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.close(stop_write)
            thread.join()
            os.close(stop_read)

    def close(self) -> None:
        """Save the history, readable by the user only."""
        import readline

        try:
            readline.set_history_length(_HISTORY_LINES)
            readline.write_history_file(self._history_file)
            self._history_file.chmod(0o600)
        except OSError:
            return  # a history that cannot be kept must not spoil the goodbye

    def _listen(self, stop: int, cancel: Callable[[], None]) -> None:
        while True:
            ready, _, _ = select.select([self._terminal, stop], [], [])
            if stop in ready:
                return
            typed = os.read(self._terminal, 65536).decode(errors="replace")
            if not typed:
                return
            for line in typed.splitlines():
                if line.strip().lower() == "/cancel":
                    cancel()
                elif line.strip():
                    self._waiting.append(line)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        # readline forgets the line before input() raises, so it is looked at here
        import readline

        self._typed = readline.get_line_buffer()
        raise KeyboardInterrupt

    def _open_history(self) -> None:
        import readline

        try:
            self._history_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._history_file.touch(mode=0o600)
            readline.read_history_file(self._history_file)
        except OSError:
            readline.clear_history()
