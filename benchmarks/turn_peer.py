"""A peer's side of ``benchmarks/turns.py``: its process, under a Python of its own, and the orders to it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

_PROCESS = "its one process"
_ADAPTER = Path(__file__).parent / "peer_openai_agents.py"


class PeerError(RuntimeError):
    """The peer's process did not start, or ended; its own words went to the standard error."""


class Theirs:
    """Turns of openai-agents, in a process of its own; the same methods as ``turn_ours.Ours``."""

    name = "openai-agents"

    def __init__(self, python: str, base_url: str, *, streamed: bool) -> None:
        self._command = [python, str(_ADAPTER), base_url, "streamed" if streamed else "whole"]
        self.cpu_ms: dict[str, dict[str, float]] = {}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version: str = self._hear()["version"]

    def close(self) -> None:
        """End it by force: it may have threads that nothing ends."""
        self._process.kill()
        self._process.communicate()

    def turns(self, count: int, *, same: bool) -> list[float]:
        """Take turns one after the other; give the seconds of each."""
        took: list[float] = self._order("same" if same else "new", {"turns": count, "same": same})
        return took

    def crowd(self, at_once: int, each: int) -> float:
        """Let so many conversations take so many turns each, all at once; give turns a second."""
        rate: float = self._order("crowd", {"crowd": at_once, "each": each})
        return rate

    def noisy(self, tool: str | None, count: int, within_s: float) -> list[float]:
        """Take light turns beside heavy conversations, at least one; seconds of each. What is left of them is ended."""
        took: list[float] = self._order("noisy", {"noisy": tool, "turns": count, "within_s": within_s})
        if tool is not None:
            self.close()
            self._start()
        return took

    def _order(self, what: str, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        heard = self._hear()
        total = self.cpu_ms.setdefault(what, {_PROCESS: 0.0})
        total[_PROCESS] += heard["cpu_s"] * 1000
        return heard["answer"]

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{' '.join(self._command[:2])} ended, exit code {self._process.wait()}")
        heard: dict[str, Any] = json.loads(line)
        return heard
