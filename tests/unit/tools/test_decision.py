"""One decision per call, layer by layer, with a reason that the model can use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from callboard.supervisor.envelope import Principal
from callboard.tools.approval import ApprovalPolicy, Trust
from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.decision import (
    Allowed,
    NeedsApproval,
    RefusalKind,
    Refused,
    Rules,
    Situation,
    Standing,
    changed,
    decide,
    listing,
    match_patterns,
    objection,
    unmatched_patterns,
    visible,
)
from callboard.tools.features import Features, Flag
from callboard.tools.permissions import Permissions, Rule
from callboard.tools.pins import Pin

REGISTRY = {
    name: ToolSpec(name=name, description=f"Does {name}.", parameters={"type": "object"})
    for name in ("calculate", "time__now", "time__zones", "broken")
}
ENABLED = frozenset({"calculate", "broken", "gone"})
UNAVAILABLE = {"broken": "its server is parked", "gone": "its server is starting"}
HERE = Situation(registry=REGISTRY, enabled=ENABLED, unavailable=UNAVAILABLE)
DELETE = ToolSpec(
    name="delete", description="", parameters={}, annotations=Annotations(destructive=True), digest="d1"
)
ANN = Principal(user="ann", team="blue", roles=("writer",))


def _with(rules: Rules, **changes: Any) -> Situation:
    registry = {**REGISTRY, "delete": DELETE, "blue__x": replace(DELETE, name="blue__x", server="blue")}
    changes = {"principal": ANN, "enabled": frozenset(registry), **changes}
    return Situation(registry=registry, rules=rules, **changes)


def test_an_enabled_registered_tool_is_allowed() -> None:
    assert decide("calculate", HERE) == Allowed(REGISTRY["calculate"], "permitted (by default)")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("nothing", RefusalKind.UNKNOWN, ["no tool 'nothing'", "calculate"]),
        ("calculat", RefusalKind.UNKNOWN, ["Did you mean 'calculate'?"]),
        ("time__now", RefusalKind.NOT_ENABLED, ["'time__now' is not enabled", "calculate"]),
        ("broken", RefusalKind.UNAVAILABLE, ["parked", "calculate"]),
        ("gone", RefusalKind.UNAVAILABLE, ["starting"]),
    ],
)
def test_a_refusal_says_why_and_what_can_be_used(name: str, kind: RefusalKind, words: list[str]) -> None:
    refused = decide(name, HERE)
    assert isinstance(refused, Refused)
    assert refused.kind is kind
    assert all(word in refused.message for word in words), refused.message
    assert "broken," not in refused.message


def test_an_unavailable_tool_that_is_not_enabled_stays_hidden() -> None:
    refused = decide("gone", replace(HERE, enabled=frozenset()))
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.UNKNOWN
    assert "No tool is enabled" in refused.message


def test_a_refusal_stays_short_with_many_tools_and_a_long_name() -> None:
    many = {f"tool_{n}": REGISTRY["calculate"] for n in range(1000)}
    refused = decide("x" * 10_000, Situation(registry=many, enabled=frozenset(many)))
    assert isinstance(refused, Refused)
    assert "960 more" in refused.message
    assert len(refused.message) < 2000


@pytest.mark.parametrize(
    ("rules", "changes", "kind"),
    [
        (
            Rules(features=Features(flags={"beta": Flag(enabled=False, tools=("calculate",))})),
            {},
            "feature_off",
        ),
        (Rules(permissions=Permissions(rules=(Rule(effect="deny", users=("ann",)),))), {}, "not_permitted"),
        (Rules(permissions=Permissions(default="deny")), {}, "not_permitted"),
        (Rules(templates={"small": ("time__*",)}), {"template": "small"}, "not_in_template"),
        (Rules(templates={"small": ("*",)}), {"template": "gone"}, "not_in_template"),
        (Rules(), {"enabled": frozenset()}, "not_enabled"),
        (Rules(), {"unavailable": {"calculate": "it is away"}}, "unavailable"),
    ],
)
def test_each_layer_refuses_by_itself(rules: Rules, changes: dict[str, Any], kind: str) -> None:
    refused = decide("calculate", _with(rules, **changes))
    assert isinstance(refused, Refused)
    assert refused.kind == kind


def test_the_first_layer_that_objects_gives_the_reason() -> None:
    rules = Rules(
        features=Features(flags={"off": Flag(enabled=False, tools=("*",))}),
        permissions=Permissions(default="deny"),
        templates={"t": ()},
    )
    refused = decide("calculate", _with(rules, enabled=frozenset(), template="t"))
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.FEATURE_OFF


def test_a_destructive_tool_waits_for_a_person_and_runs_by_the_approval() -> None:
    here = _with(Rules(approval=ApprovalPolicy()))
    waiting = decide("delete", here)
    assert isinstance(waiting, NeedsApproval)
    assert "destructive" in waiting.reason
    allowed = decide("delete", here, {}, approved_by="ann")
    assert isinstance(allowed, Allowed)
    assert "approved by ann" in allowed.reason


def test_an_approval_for_the_conversation_holds_for_that_version_of_the_tool_only() -> None:
    rules = Rules(approval=ApprovalPolicy())
    assert isinstance(decide("delete", _with(rules, approved=frozenset({("delete", "d1")}))), Allowed)
    assert isinstance(decide("delete", _with(rules, approved=frozenset({("delete", "d0")}))), NeedsApproval)


def test_an_approval_outweighs_no_other_layer() -> None:
    denied = Rules(approval=ApprovalPolicy(), permissions=Permissions(default="deny"))
    here = _with(denied, approved=frozenset({("delete", "d1")}))
    assert isinstance(decide("delete", here, {}, approved_by="ann"), Refused)


def test_the_tools_of_another_teams_server_do_not_exist() -> None:
    rules = Rules(teams={"blue": ("blue",)})
    mine, theirs = _with(rules), _with(rules, principal=Principal(user="ann", team="red"))
    assert isinstance(decide("blue__x", mine), Allowed)
    refused = decide("blue__x", theirs)
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.UNKNOWN
    assert "blue__x" in visible(mine)
    assert "blue__x" not in visible(theirs)
    assert "blue__x" not in {row.name for row in listing(theirs)}
    nobody = decide("nothing_of_the_kind", theirs)
    assert isinstance(nobody, Refused)
    assert "blue__x" not in nobody.message


def test_what_could_never_be_used_here_cannot_be_enabled() -> None:
    rules = Rules(
        permissions=Permissions(rules=(Rule(effect="deny", tools=("delete",), reason="not yours"),))
    )
    assert "not yours" in str(objection("delete", _with(rules, enabled=frozenset())))
    assert objection("calculate", _with(rules, enabled=frozenset())) is None
    assert "no tool" in str(objection("nothing", _with(rules)))


def test_the_listing_gives_each_tool_one_state_with_its_reason() -> None:
    rows = [(row.name, row.standing, row.in_enabled_set, row.reason) for row in listing(HERE)]
    assert rows == [
        ("broken", Standing.DISABLED, True, "its server is parked"),
        ("calculate", Standing.ENABLED, True, ""),
        ("gone", Standing.DISABLED, True, "its server is starting"),
        ("time__now", Standing.AVAILABLE, False, "not enabled in this conversation"),
        ("time__zones", Standing.AVAILABLE, False, "not enabled in this conversation"),
    ]


def test_the_listing_tells_what_the_configuration_forbids() -> None:
    rules = Rules(features=Features(flags={"beta": Flag(enabled=False, tools=("calculate",))}))
    reasons = {row.name: (row.standing, row.reason) for row in listing(_with(rules))}
    assert reasons["calculate"][0] is Standing.DISABLED
    assert "'beta' is off" in reasons["calculate"][1]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], set()),
        (["*"], set(REGISTRY)),
        (["time__*"], {"time__now", "time__zones"}),
        (["calculate", "time__n?w"], {"calculate", "time__now"}),
        (["Calculate"], set()),
    ],
)
def test_enable_lists_take_wildcards(patterns: list[str], names: set[str]) -> None:
    assert match_patterns(iter(patterns), REGISTRY) == names


def test_patterns_that_mean_nothing_are_told() -> None:
    assert unmatched_patterns(["calc*", "tme__*", "x"], REGISTRY) == ("tme__*", "x")


REMOTE = replace(DELETE, name="blue__x", server="blue", annotations=Annotations(), digest="now")


@pytest.mark.parametrize(
    ("trust", "changes", "asks"),
    [
        ("annotations", {}, False),
        ("annotations", {"pins": {"blue__x": Pin(version="now")}}, False),
        ("annotations", {"pins": {"blue__x": Pin(version="old")}}, True),
        (
            "annotations",
            {"pins": {"blue__x": Pin(version="old")}, "approved": frozenset({("blue__x", "now")})},
            False,
        ),
        (
            "annotations",
            {"pins": {"blue__x": Pin(version="old")}, "approved": frozenset({("blue__x", "old")})},
            True,
        ),
        ("annotations", {"pins": {"time__now": Pin(version="old")}}, False),
        ("ask", {"pins": {"blue__x": Pin(version="old")}}, True),
        ("allow", {"pins": {"blue__x": Pin(version="old")}}, False),
    ],
)
def test_a_changed_tool_of_a_server_needs_a_person(trust: Trust, changes: dict[str, Any], asks: bool) -> None:
    here = replace(_with(Rules(approval=ApprovalPolicy(servers={"blue": trust})), **changes))
    here = replace(here, registry={**here.registry, "blue__x": REMOTE})
    decision = decide("blue__x", here)
    assert isinstance(decision, NeedsApproval) is asks
    (row,) = [row for row in listing(here) if row.name == "blue__x"]
    if isinstance(decision, NeedsApproval):
        assert decision.changed
        assert decision.reason.startswith("tool_changed: ")
        assert (row.standing, row.reason.startswith("tool_changed: ")) == (Standing.DISABLED, True)
        assert isinstance(decide("blue__x", here, approved_by="ann"), Allowed)
    else:
        assert row.standing is Standing.ENABLED


def test_a_local_tool_may_change_and_no_layer_is_outweighed_by_a_pin() -> None:
    pins = {"delete": Pin(version="old"), "blue__x": Pin(version="old")}
    here = _with(Rules(approval=ApprovalPolicy(), permissions=Permissions(default="deny")), pins=pins)
    assert changed("delete", here) is None
    assert isinstance(decide("blue__x", here), Refused)
