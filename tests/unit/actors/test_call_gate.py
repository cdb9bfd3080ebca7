"""The gate before a call: the decision falls after the last wait, and a kill is heard wherever the call is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from callboard.actors.call_gate import CallGate
from callboard.actors.events import ConversationOpened, ToolDisabled
from callboard.actors.items import FunctionCall
from callboard.actors.messages import Registry
from callboard.actors.registry_view import RegistryView
from callboard.actors.toolbox import Toolbox
from callboard.actors.turn_effects import StartCall
from callboard.tools.content import JsonBlock, ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decision import Rules
from callboard.tools.permissions import Permissions

SPEC = ToolSpec(name="x", description="", parameters={"type": "object"})
START = StartCall(call=FunctionCall(call_id="1", tool="x", arguments="{}"), arguments={})
YES = ToolResult(content=(JsonBlock({"allowed": True, "reason": ""}),))
NO = ToolResult(content=(JsonBlock({"allowed": False, "reason": "closed"}),))


class World:
    """A gate whose registry answers when ``look`` is called, and whose workers do nothing by themselves."""

    def __init__(self, hook: str = "") -> None:
        self.toolbox = Toolbox(Rules(permissions=Permissions(hook=hook)))
        self.toolbox.apply(ConversationOpened(conversation_id="c", user="ann", team="", enabled=("*",)))
        self.registry = Registry(tools={"x": SPEC})
        self.asked: list[Callable[[Registry], None]] = []
        self.hooks: dict[str, Mapping[str, Any]] = {}
        self.killed: list[str] = []
        self.ran: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.gate = CallGate(
            self.toolbox, cast(RegistryView, self), self, self._context, self._run, self._refuse
        )

    def look(self, then: Callable[[Registry], None]) -> None:
        self.asked.append(then)

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for then in asked:
            then(self.registry)

    def start(
        self, call_id: str, spec: ToolSpec, arguments: Any, context: ToolContext, deadline_s: float
    ) -> None:
        assert (spec.name, deadline_s, context.user) == ("permission_hook", 5.0, "ann")
        self.hooks[call_id] = arguments

    def kill(self, call_id: str) -> None:
        self.killed.append(call_id)

    def _context(self, call_id: str, settings: Mapping[str, Any]) -> ToolContext:
        return ToolContext(call_id=call_id, user="ann", settings=settings)

    def _run(self, effect: StartCall, spec: ToolSpec) -> None:
        self.ran.append(effect.call.call_id)

    def _refuse(self, call_id: str, result: ToolResult, decision: str) -> None:
        assert result.is_error
        self.refused.append((call_id, decision.partition(":")[0]))


def test_a_call_runs_once_the_registry_was_looked_at() -> None:
    world = World()
    world.gate.start(START)
    assert world.ran == []
    world.answer()
    world.answer()
    assert (world.ran, world.refused) == (["1"], [])


def test_a_toggle_while_the_registry_is_asked_is_honoured() -> None:
    world = World()
    world.gate.start(START)
    world.toolbox.apply(ToolDisabled(tool="x"))
    world.answer()
    assert (world.ran, world.refused) == ([], [("1", "not_enabled")])


@pytest.mark.parametrize("answer", [NO, error_result("hung", "deadline"), error_result("died", "killed")])
def test_a_hook_that_does_not_say_yes_denies(answer: ToolResult) -> None:
    world = World("authz:check")
    world.gate.start(START)
    world.answer()
    ((hook_id, arguments),) = world.hooks.items()
    assert arguments == {"hook": "authz:check", "tool": "x", "arguments": {}, "server": None}
    assert world.gate.take(hook_id, answer)
    world.answer()
    assert (world.ran, world.refused) == ([], [("1", "not_permitted")])


def test_a_toggle_while_the_hook_thinks_is_honoured() -> None:
    world = World("authz:check")
    world.gate.start(START)
    world.answer()
    world.toolbox.apply(ToolDisabled(tool="x"))
    assert world.gate.take(next(iter(world.hooks)), YES)
    world.answer()
    assert (world.ran, world.refused) == ([], [("1", "not_enabled")])


def test_a_yes_lets_the_call_run() -> None:
    world = World("authz:check")
    world.gate.start(START)
    world.answer()
    assert world.gate.take(next(iter(world.hooks)), YES)
    world.answer()
    assert (world.ran, world.refused) == (["1"], [])


def test_what_the_rules_refuse_is_not_brought_before_the_hook() -> None:
    world = World("authz:check")
    world.toolbox.apply(ToolDisabled(tool="x"))
    world.gate.start(START)
    world.answer()
    assert (world.hooks, world.refused) == ({}, [("1", "not_enabled")])


@pytest.mark.parametrize("answers", [0, 1])
def test_a_killed_call_is_heard_of_no_more(answers: int) -> None:
    world = World("authz:check")
    world.gate.start(START)
    for _ in range(answers):
        world.answer()
    world.gate.kill("1")
    assert world.killed == list(world.hooks)
    world.answer()
    for hook_id in world.hooks:
        assert not world.gate.take(hook_id, YES)
    assert (world.ran, world.refused) == ([], [])


def test_another_workers_result_is_not_the_gates() -> None:
    assert not World().gate.take("1", YES)
