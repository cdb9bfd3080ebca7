"""The shell around the turn machine: what the machine is told, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from callboard.actors import client_turns
from callboard.actors.client_turns import Turns
from callboard.actors.turn import (
    CallFinished,
    Cancel,
    DeadlinePassed,
    Input,
    Interrupt,
    StepTimedOut,
    StorageFailed,
    Turn,
)
from callboard.tools.content import TextBlock, ToolResult


class _Owner:
    """Holds what is being stored, as a slow journal does."""

    def __init__(self) -> None:
        self.waiting: list[tuple[ToolResult, Callable[[ToolResult], None]]] = []

    def store(self, result: ToolResult, then: Callable[[ToolResult], None]) -> None:
        self.waiting.append((result, then))

    def store_no_longer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for result, then in waiting:
            then(result)


class _Machine:
    """Notes what it is told."""

    state = "calling"

    def __init__(self) -> None:
        self.told: list[Input] = []

    def handle(self, given: Input, _now: float) -> list[Any]:
        self.told.append(given)
        return []


@pytest.mark.parametrize(
    "cut_off",
    [
        Cancel(),
        DeadlinePassed(),
        StepTimedOut(1),
        StorageFailed(kind="storage_full", message="no room"),
        Interrupt(),
    ],
)
def test_a_result_that_is_still_being_stored_counts_when_the_turn_is_cut_off(
    cut_off: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = MagicMock()
    monkeypatch.setattr(client_turns, "ClientCalls", calls)
    owner, machine, log = _Owner(), _Machine(), MagicMock()
    log.opened.conversation_id = "c"
    turns = Turns(MagicMock(), cast("Any", owner), MagicMock(), log, MagicMock(), MagicMock())
    turns.present = cast("Turn", machine)
    call_finished = calls.call_args.args[4]
    result = ToolResult(content=(TextBlock("it is done"),))
    call_finished("c", result, 1.0, "")
    assert machine.told == []
    turns.feed(cut_off)
    assert machine.told == [CallFinished(call_id="c", result=result, duration_s=1.0), cut_off]
