"""A call that nobody speaks of any more is ended; one that waits for its place is not given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from callboard import tool_call
from callboard.actors.messages import CallQueued, RunTool, StopTool, ToolRan
from callboard.api import System
from callboard.errors import Unavailable
from callboard.tools.content import TextBlock, ToolResult

RAN = ToolRan(
    result=ToolResult(content=(TextBlock("done"),)), duration_s=0.1, decision="permitted", layers=()
)


class Silent:
    """A system, its mailbox and an exchange in one: each wait takes half a second of its clock."""

    def __init__(self, folder: Path, answers: dict[int, Any]) -> None:
        self._folder = folder
        self._mailbox = self
        self._answers = answers
        self.waits = 0
        self.asked: RunTool | None = None
        self.requested: list[Any] = []

    def _check_alive(self, patience_is_over: bool) -> None:
        """It is."""

    @contextmanager
    def exchange(self, body: Callable[[], RunTool], **_: Any) -> Iterator[Silent]:
        self.asked = body()
        yield self

    def next(self, timeout_s: float) -> Any:
        self.waits += 1
        return self._answers.get(self.waits)

    def request(self, body: Any, **_: Any) -> Any:
        self.requested.append(body)
        return True

    def monotonic(self) -> float:
        return self.waits * 0.5


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, Any]], Silent]:
    def make(answers: dict[int, Any]) -> Silent:
        silent = Silent(tmp_path, answers)
        monkeypatch.setattr(tool_call, "time", silent)
        return silent

    return make


def test_a_call_of_which_nothing_is_heard_is_given_up_and_ended(
    begin: Callable[[dict[int, Any]], Silent],
) -> None:
    silent = begin({})
    with pytest.raises(Unavailable, match="does not say what became of the call of note"):
        tool_call.call(cast(System, silent), "note")
    assert silent.waits == 120
    assert silent.asked is not None
    assert silent.requested == [StopTool(silent.asked.call_id)]


def test_a_call_that_waits_for_its_place_is_waited_for(begin: Callable[[dict[int, Any]], Silent]) -> None:
    silent = begin({100: CallQueued(), 200: CallQueued(), 300: RAN})
    heard: list[Any] = []
    assert tool_call.call(cast(System, silent), "note", heard=heard.append) == RAN
    assert (heard, silent.requested) == ([], [])
