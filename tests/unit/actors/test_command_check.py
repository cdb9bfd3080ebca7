"""What a command may carry."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.command_check import fault_of_command
from callboard.actors.messages import Ask, Cancel, ConfigureTool, DecideCall, EnableTool, Follow, GetHistory


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (Follow(after=3), None),
        (Cancel(), None),
        (Ask(text="hi"), None),
        (ConfigureTool("search", {"top": 3}), None),
        (ConfigureTool("search", None), None),
        (DecideCall(call_id="c", approved=True, arguments={"n": 1}, scope="conversation"), None),
        (Follow(after=-1), "after must be 0 or the number of an event, got -1"),
        (Follow(after=1.5), "after must be 0 or the number of an event, got 1.5"),  # type: ignore[arg-type]
        (Follow(after=True), "after must be 0 or the number of an event, got True"),
        (Follow(after=None), "after must be 0 or the number of an event, got None"),  # type: ignore[arg-type]
        (GetHistory(0, "x"), "limit must be a count, got 'x'"),  # type: ignore[arg-type]
        (EnableTool(5), "tool must be a tool's name, got 5"),  # type: ignore[arg-type]
        (DecideCall(call_id="c", approved=False, reason=5), "reason must be a text, got 5"),  # type: ignore[arg-type]
        (DecideCall(call_id="c", approved=1), "approved must be true or false, got 1"),  # type: ignore[arg-type]
        (DecideCall(call_id="c", approved=True, scope="no"), "scope must be 'once' or"),  # type: ignore[arg-type]
    ],
)
def test_a_command_with_a_wrong_value_is_told_which(command: Any, fault: str | None) -> None:
    found = fault_of_command(command)
    assert found == fault or (fault is not None and found is not None and found.startswith(fault))
