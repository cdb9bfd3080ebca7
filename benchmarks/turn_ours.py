"""Callboard's side of ``benchmarks/turns.py``: a private system, started through the public API, and turns in it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import turn_cpu
import turn_work

import callboard
from callboard.api import Conversation
from callboard.config import Config, default_config

ASKER = "who asks (this process)"
_START_S = 60.0
_SETTLE_S = 0.3


class Ours:
    """Turns of a private system. ``streamed``: replies come in pieces, as the product does by itself."""

    name = "callboard"

    def __init__(self, base_url: str, *, streamed: bool) -> None:
        _show_tools()
        self._system = callboard.connect(config=_config(base_url, streamed), private=True)
        self._top = self._system.status().pid
        self.cpu_ms: dict[str, dict[str, float]] = {}

    def close(self) -> None:
        """End the system."""
        self._system.close()

    def turns(self, count: int, *, same: bool) -> list[float]:
        """Take turns one after the other, each in a conversation of its own or all in one, opened before.

        Gives the seconds of each. The CPU time that they took is added to ``cpu_ms``, by kind of process.
        """
        took = []
        shared = self._open("same") if same else None
        with self._counting("same" if same else "new"):
            for _ in range(count):
                began = time.perf_counter()
                conversation = shared or self._open("new")
                _ask(conversation, turn_work.LIGHT)
                took.append(time.perf_counter() - began)
        return took

    def crowd(self, at_once: int, each: int) -> float:
        """Let so many open conversations take so many turns each, all at once; give turns a second."""
        conversations = [self._open("crowd") for _ in range(at_once)]

        def take(conversation: Conversation) -> None:
            for _ in range(each):
                _ask(conversation, turn_work.LIGHT)

        with self._counting("crowd"), ThreadPoolExecutor(at_once) as threads:
            began = time.perf_counter()
            list(threads.map(take, conversations))
            return at_once * each / (time.perf_counter() - began)

    def noisy(self, tool: str | None, count: int, within_s: float) -> list[float]:
        """Take light turns beside heavy conversations that run ``tool`` (None: a quiet system); seconds of each."""
        if tool is None:
            return self._light(count, within_s)
        with self._heavy(turn_work.HEAVY[tool]):
            return self._light(count, within_s)

    def _light(self, count: int, within_s: float) -> list[float]:
        conversation, give_up_at = self._open("light"), time.perf_counter() + within_s
        took: list[float] = []
        _ask(conversation, turn_work.LIGHT)
        while len(took) < count and time.perf_counter() < give_up_at:
            began = time.perf_counter()
            _ask(conversation, turn_work.LIGHT)
            took.append(time.perf_counter() - began)
        return took

    @contextmanager
    def _heavy(self, text: str) -> Iterator[None]:
        """Keep twelve conversations of another team busy; inside, each has its calls running."""
        over = threading.Event()
        conversations = [self._open("heavy") for _ in range(turn_work.HEAVY_CONVERSATIONS)]
        running = threading.Barrier(len(conversations) + 1)
        with ThreadPoolExecutor(len(conversations)) as threads:
            busy = [threads.submit(_keep_busy, each, text, over, running.wait) for each in conversations]
            try:
                running.wait(_START_S)
                time.sleep(turn_work.UNDER_WAY_S)
                yield
            finally:
                over.set()
                for conversation in conversations:
                    conversation.cancel()
                for each in busy:
                    each.result()

    @contextmanager
    def _counting(self, what: str) -> Iterator[None]:
        before, own_s = turn_cpu.census(self._system, self._top), time.process_time()
        yield
        own_ms = (time.process_time() - own_s) * 1000
        time.sleep(_SETTLE_S)  # what the last turn leaves to be cleared away belongs to it
        spent = turn_cpu.spent(before, turn_cpu.census(self._system, self._top))
        total = self.cpu_ms.setdefault(what, {})
        for kind, ms in {**spent, ASKER: own_ms}.items():
            total[kind] = total.get(kind, 0.0) + ms

    def _open(self, team: str) -> Conversation:
        return self._system.conversation(user="bench", team=team, linked=False)


def _show_tools() -> None:
    """Let the system's processes import ``turn_tools``, besides what they are shown already."""
    folder, shown = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *(each for each in shown if each and each != folder)])


def _keep_busy(
    conversation: Conversation, text: str, over: threading.Event, running: Callable[[float], object]
) -> None:
    has_begun = False
    while not over.is_set():
        for event in conversation.ask(text):
            if event.type == "tool_call_started" and not has_begun:
                has_begun = True
                running(_START_S)


def _ask(conversation: Conversation, text: str) -> None:
    *_, ending = conversation.ask(text)
    if getattr(ending, "text", None) != turn_work.ANSWER:
        raise RuntimeError(f"a turn went wrong: {ending}")


def _config(base_url: str, streamed: bool) -> Config:
    config = default_config({}).with_flags(base_url=base_url, model="scripted", api_key="k")
    own = {
        "model": config.model.model_copy(update={"stream": streamed}),
        "tools": config.tools.model_copy(update={"modules": ("turn_tools",)}),
        "templates": {
            "default": config.templates["default"].model_copy(
                update={"tools": ("echo", "nap", "burn"), "system_prompt": turn_work.INSTRUCTIONS}
            )
        },
    }
    return config.model_copy(update=own)
