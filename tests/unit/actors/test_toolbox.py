"""The decision on a conversation's calls: folded from its log, taken again when a call starts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationOpened,
    Event,
    ToolApproved,
    ToolDisabled,
    ToolEnabled,
    ToolPinned,
    TurnAnswered,
)
from callboard.actors.items import FunctionCall
from callboard.actors.messages import DecideCall, Registry, ServerReport
from callboard.actors.toolbox import Toolbox
from callboard.actors.turn_approval import approval_digest
from callboard.actors.turn_effects import StartCall
from callboard.supervisor.envelope import Failure, Principal
from callboard.tools.approval import ApprovalPolicy
from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.decision import Allowed, Refused, Rules
from callboard.tools.features import Features, Flag
from callboard.tools.permissions import Condition, Permissions, Rule

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec(name="read", description="", parameters=PATH, digest="r1")
WIPE = ToolSpec(
    name="wipe", description="", parameters=PATH, digest="w1", annotations=Annotations(destructive=True)
)
REMOTE = ToolSpec(name="disk__x", description="", parameters={"type": "object"}, digest="x1", server="disk")
REGISTRY = Registry(
    tools={spec.name: spec for spec in (READ, WIPE, REMOTE)},
    servers={"disk": ServerReport(server="disk", state="ready")},
)
ANN = Principal(user="ann", team="red", roles=("r",))
RULES = Rules(
    approval=ApprovalPolicy(),
    permissions=Permissions(
        rules=(Rule(effect="deny", when=(Condition(argument="/path", operator="under", value="/etc"),)),)
    ),
)


def _toolbox(*events: Event, rules: Rules = RULES, enabled: tuple[str, ...] = ("*",)) -> Toolbox:
    toolbox = Toolbox(rules)
    opened = ConversationOpened(conversation_id="c", user="ann", team="red", roles=("r",), enabled=enabled)
    for event in (opened, *events):
        toolbox.apply(event)
    return toolbox


def _call(tool: str, call_id: str = "1", **arguments: Any) -> FunctionCall:
    return FunctionCall(call_id=call_id, tool=tool, arguments=json.dumps(arguments))


def _start(call: FunctionCall, approval: str = "", **edited: Any) -> StartCall:
    return StartCall(call=call, arguments=edited or json.loads(call.arguments), approval=approval)


def _digest(call: FunctionCall, version: str = "w1", principal: Principal = ANN) -> str:
    return approval_digest(call, tool_version=version, principal=principal)


def _asked(call: FunctionCall, version: str = "w1") -> ApprovalRequested:
    return ApprovalRequested(
        turn_id="t",
        call_id=call.call_id,
        tool=call.tool,
        arguments=json.loads(call.arguments),
        digest=_digest(call, version),
    )


def test_each_call_of_a_reply_is_judged_with_its_reason() -> None:
    calls = [
        _call("read", "1", path="/x"),
        _call("read", "2", path="/etc/x"),
        _call("read", "3"),
        _call("wipe", "4", path="/x"),
        _call("disk__x", "5"),
        _call("nothing", "6"),
    ]
    verdicts = _toolbox().judge(REGISTRY, calls)
    assert verdicts.decisions["1"] == "permitted (by default)"
    assert verdicts.decisions["2"].startswith("not_permitted: ")
    assert verdicts.decisions["3"] == "bad_arguments"
    assert verdicts.decisions["6"].startswith("unknown_tool: ")
    assert set(verdicts.refusals) == {"2", "3", "6"}
    assert set(verdicts.approvals) == {"4", "5"}
    assert "first use" in verdicts.approvals["5"]
    digests = {name: version.digest for name, version in verdicts.tool_versions.items()}
    assert digests == {"read": "r1", "wipe": "w1", "disk__x": "x1"}


def test_defaults_of_the_schema_count_as_arguments() -> None:
    parameters = {"type": "object", "properties": {"path": {"default": "/etc/passwd"}}}
    registry = Registry(tools={"read": replace(READ, parameters=parameters)})
    assert "1" in _toolbox().judge(registry, [_call("read")]).refusals


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (ToolDisabled(tool="read"), "not_enabled"),
        (Registry(), "unknown_tool"),
        (replace(REGISTRY, tools={"read": replace(READ, feature="beta")}), "feature_off"),
        (
            replace(REGISTRY, tools={"read": replace(READ, parameters={"required": ["depth"]})}),
            "not_approved",
        ),
        (replace(REGISTRY, tools={"read": replace(READ, annotations=WIPE.annotations)}), "not_approved"),
    ],
)
def test_what_changes_after_the_model_asked_is_honoured_at_the_start(change: Any, kind: str) -> None:
    toolbox, call, registry = _toolbox(), _call("read", path="/x"), REGISTRY
    assert "1" not in toolbox.judge(registry, [call]).refusals
    assert isinstance(toolbox.at_start(registry, _start(call)), Allowed)
    if isinstance(change, Registry):
        registry = change
    else:
        toolbox.apply(change)
    refused = toolbox.at_start(registry, _start(call))
    assert isinstance(refused, Refused)
    assert refused.kind == kind


def test_an_approved_call_runs_pinned_to_what_was_approved() -> None:
    call = _call("wipe", path="/x")
    toolbox = _toolbox(ApprovalDecided(turn_id="t", call_id="1", approved=True, by="ann"))
    allowed = toolbox.at_start(REGISTRY, _start(call, _digest(call)))
    assert isinstance(allowed, Allowed)
    assert allowed.spec == replace(WIPE, pinned=True)
    assert "approved by ann" in allowed.reason


@pytest.mark.parametrize(
    "approval",
    [
        "",
        "forged",
        _digest(_call("wipe", path="/x"), "w0"),
        _digest(_call("wipe", path="/y")),
        _digest(_call("wipe", "2", path="/x")),
        _digest(_call("wipe", path="/x"), principal=Principal(user="ann", team="blue", roles=("r",))),
        _digest(_call("wipe", path="/x"), principal=Principal(user="bob", team="red", roles=("r",))),
    ],
)
def test_no_other_approval_lets_a_call_run(approval: str) -> None:
    refused = _toolbox().at_start(REGISTRY, _start(_call("wipe", path="/x"), approval))
    assert isinstance(refused, Refused)
    assert refused.kind == "not_approved"


def test_an_approval_outlives_neither_a_rule_nor_a_toggle() -> None:
    call = _call("wipe", path="/x")
    edited = _toolbox().at_start(REGISTRY, _start(call, _digest(call), path="/etc/x"))
    assert isinstance(edited, Refused)
    disabled = _toolbox(ToolDisabled(tool="wipe")).at_start(REGISTRY, _start(call, _digest(call)))
    assert isinstance(disabled, Refused)


def test_an_approval_for_the_conversation_is_folded_from_the_log() -> None:
    toolbox = _toolbox(ToolApproved(tool="wipe", version="w1", by="ann"))
    assert toolbox.judge(REGISTRY, [_call("wipe", path="/x")]).approvals == {}
    newer = replace(REGISTRY, tools={"wipe": replace(WIPE, digest="w2")})
    assert set(toolbox.judge(newer, [_call("wipe", path="/x")]).approvals) == {"1"}


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (DecideCall(call_id="1", approved=True), None),
        (DecideCall(call_id="1", approved=False), None),
        (DecideCall(call_id="1", approved=True, scope="conversation"), "approved"),
        (DecideCall(call_id="1", approved=True, arguments={"path": "/y"}), None),
        (DecideCall(call_id="1", approved=True, arguments={"path": 1}), "bad_arguments"),
        (DecideCall(call_id="1", approved=True, arguments={"path": "/etc"}), "bad_arguments"),
    ],
)
def test_a_decision_is_checked_before_it_counts(given: DecideCall, answer: str | None) -> None:
    found = _toolbox().answer(REGISTRY, _asked(_call("wipe", path="/x")), given)
    match found:
        case ToolApproved():
            assert answer == "approved"
            assert (found.tool, found.version, found.by) == ("wipe", "w1", "ann")
        case Failure():
            assert found.kind == answer
        case None:
            assert answer is None


def test_the_first_use_of_a_servers_tool_is_approved_once_for_all() -> None:
    asked = _asked(_call("disk__x"), "x1")
    found = _toolbox().answer(REGISTRY, asked, DecideCall(call_id="1", approved=True))
    assert isinstance(found, ToolApproved)
    assert _toolbox(found).judge(REGISTRY, [_call("disk__x", "2")]).approvals == {}


def test_a_tool_that_changed_cannot_be_approved_but_denied() -> None:
    asked = _asked(_call("wipe", path="/x"), "w0")
    found = _toolbox().answer(REGISTRY, asked, DecideCall(call_id="1", approved=True))
    assert isinstance(found, Failure)
    assert found.kind == "tool_changed"
    assert _toolbox().answer(REGISTRY, asked, DecideCall(call_id="1", approved=False)) is None


def test_who_decided_is_forgotten_with_the_turn() -> None:
    decided = ApprovalDecided(turn_id="t", call_id="1", approved=True, by="ann")
    toolbox = _toolbox(decided, TurnAnswered(turn_id="t", text=""))
    assert toolbox.deciders == {}


@pytest.mark.parametrize(
    ("tool", "kind"),
    [("read", None), ("nothing", "no_such_tool"), ("disk__x", "no_such_tool"), ("beta", "not_permitted")],
)
def test_what_may_be_enabled(tool: str, kind: str | None) -> None:
    rules = replace(
        RULES, teams={"disk": ("blue",)}, features=Features(flags={"b": Flag(enabled=False, tools=("beta",))})
    )
    registry = replace(REGISTRY, tools={**REGISTRY.tools, "beta": replace(READ, name="beta")})
    fault = _toolbox(rules=rules, enabled=()).fault_of_enabling(registry, tool)
    assert (fault and fault.kind) == kind


def test_only_what_could_run_is_offered_to_the_model() -> None:
    rules = replace(RULES, templates={"default": ("read", "wipe")})
    offered = [spec.name for spec in _toolbox(ToolDisabled(tool="wipe"), rules=rules).offered(REGISTRY)]
    assert offered == ["read"]
    assert [spec.name for spec in _toolbox(rules=rules).offered(REGISTRY)] == ["read", "wipe"]


EVENTS = st.lists(
    st.sampled_from(
        [
            ToolEnabled(tool="wipe"),
            ToolDisabled(tool="wipe"),
            ToolApproved(tool="wipe", version="w1"),
            ToolApproved(tool="wipe", version="w2"),
            ApprovalDecided(turn_id="t", call_id="1", approved=True),
            ApprovalDecided(turn_id="t", call_id="1", approved=False),
            TurnAnswered(turn_id="t", text=""),
        ]
    ),
    max_size=6,
)


@given(EVENTS, EVENTS, st.sampled_from(["w1", "w2"]), st.booleans())
def test_nothing_starts_that_is_off_or_unapproved_at_that_moment(
    before: list[Event], between: list[Event], version: str, has_approval: bool
) -> None:
    """Whatever happens between the model's request and the call's start."""
    toolbox, call = _toolbox(*before), _call("wipe", path="/x")
    toolbox.judge(REGISTRY, [call])
    for event in between:
        toolbox.apply(event)
    events = [*before, *between]
    registry = replace(REGISTRY, tools={"wipe": replace(WIPE, digest=version)})
    decision = toolbox.at_start(registry, _start(call, _digest(call) if has_approval else ""))
    toggles = [event for event in events if isinstance(event, ToolEnabled | ToolDisabled)]
    is_on = not toggles or isinstance(toggles[-1], ToolEnabled)
    is_granted = any(isinstance(e, ToolApproved) and e.version == version for e in events)
    is_approved = (version == "w1") if has_approval else is_granted
    assert isinstance(decision, Allowed) is (is_on and is_approved)


# ------------------------------------------------------------ pinned definitions
OLD = replace(
    REMOTE,
    description="Old.",
    digest="x0",
    parameters={"type": "object", "properties": {"a": {}}, "required": ["a"]},
)
NEW = replace(OLD, description="New.", digest="x1", parameters={**OLD.parameters, "required": ["b"]})
TRUSTING = replace(RULES, approval=ApprovalPolicy(servers={"disk": "annotations"}))
PINNED = ToolPinned(tool="disk__x", version="x0", description="Old.", parameters=OLD.parameters)


def _having(spec: ToolSpec) -> Registry:
    return replace(REGISTRY, tools={"disk__x": spec})


def test_the_definition_is_to_be_pinned_before_the_first_use_and_not_again() -> None:
    call = _call("disk__x", a=1)
    (version,) = _toolbox(rules=TRUSTING).judge(_having(OLD), [call]).tool_versions.values()
    assert version.pin == PINNED
    (version,) = _toolbox(PINNED, rules=TRUSTING).judge(_having(OLD), [call]).tool_versions.values()
    assert version.pin is None
    allowing = replace(RULES, approval=ApprovalPolicy(servers={"disk": "allow"}))
    (version,) = _toolbox(rules=allowing).judge(_having(OLD), [call]).tool_versions.values()
    assert version.pin is None


@pytest.mark.parametrize("rules", [RULES, TRUSTING])
def test_a_changed_tool_is_offered_as_it_was_and_its_call_waits(rules: Rules) -> None:
    toolbox = _toolbox(PINNED, ToolApproved(tool="disk__x", version="x0"), rules=rules)
    (offered,) = toolbox.offered(_having(NEW))
    assert (offered.description, offered.parameters) == ("Old.", OLD.parameters)
    verdicts = toolbox.judge(_having(NEW), [_call("disk__x", a=1), _call("disk__x", "2", b=1)])
    assert set(verdicts.approvals) == {"1"}
    assert "x0 is now x1" in verdicts.approvals["1"]
    assert verdicts.decisions["2"] == "bad_arguments"
    assert verdicts.tool_versions["disk__x"].pin == replace(
        PINNED, version="x1", description="New.", parameters=NEW.parameters
    )
    (row,) = toolbox.states(_having(NEW))
    assert (row.state, row.reason[:12]) == ("disabled", "tool_changed")


def test_a_tool_that_changes_between_the_request_and_the_start_is_not_run() -> None:
    toolbox = _toolbox(PINNED, rules=TRUSTING)
    call = _call("disk__x", a=1)
    allowed = toolbox.at_start(_having(OLD), _start(call))
    assert isinstance(allowed, Allowed)
    assert allowed.spec.pinned
    refused = toolbox.at_start(_having(NEW), _start(call))
    assert isinstance(refused, Refused)
    assert refused.kind == "tool_changed"
    assert "x0 is now x1" in refused.reason


def test_a_change_may_be_approved_of_where_the_call_does_not_fit_it() -> None:
    toolbox = _toolbox(PINNED, rules=TRUSTING)
    asked = _asked(_call("disk__x", a=1), "x1")
    assert toolbox.answer(_having(NEW), asked, DecideCall(call_id="1", approved=True)) is None
    edited = toolbox.answer(_having(NEW), asked, DecideCall(call_id="1", approved=True, arguments={"a": 2}))
    assert isinstance(edited, Failure)
    start = _start(_call("disk__x", a=1), _digest(_call("disk__x", a=1), "x1"))
    refused = toolbox.at_start(_having(NEW), start)
    assert isinstance(refused, Refused)
    assert '"b" is required' in refused.message


def test_what_was_approved_of_is_what_is_known_from_then_on() -> None:
    newer = replace(PINNED, version="x1", description="New.", parameters=NEW.parameters)
    toolbox = _toolbox(PINNED, newer, rules=TRUSTING)
    assert toolbox.offered(_having(NEW)) == (NEW,)
    assert toolbox.judge(_having(NEW), [_call("disk__x", b=1)]).approvals == {}
    assert set(toolbox.judge(_having(OLD), [_call("disk__x", a=1, b=1)]).approvals) == {"1"}
