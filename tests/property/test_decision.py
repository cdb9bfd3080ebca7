"""Whatever the layers say: a call runs only when none of them refuses it, and the decision depends on nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisor.envelope import Principal
from callboard.tools.approval import ApprovalPolicy
from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.decision import (
    Allowed,
    NeedsApproval,
    Refused,
    Rules,
    Situation,
    Standing,
    decide,
    listing,
    usable,
)
from callboard.tools.features import Features, Flag
from callboard.tools.permissions import Condition, Permissions, Rule
from callboard.tools.pins import Pin

NAMES = ("a", "b", "s__x", "s__y")
PATTERNS = st.lists(st.sampled_from(["*", "a", "b", "s__*", "s__x", "?"]), max_size=2).map(tuple)
WHO = st.builds(
    Principal,
    user=st.sampled_from(["ann", "bob"]),
    team=st.sampled_from(["blue", "red"]),
    roles=st.lists(st.sampled_from(["r1", "r2"]), unique=True, max_size=2).map(tuple),
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["p", "n"]), st.one_of(st.integers(0, 9), st.text(max_size=3)), max_size=2
)
CONDITIONS = st.one_of(
    st.builds(Condition, argument=st.just("/n"), operator=st.just("at_least"), value=st.integers(0, 9)),
    st.builds(
        Condition, argument=st.just("/p"), operator=st.just("prefix"), value=st.sampled_from(["", "x"])
    ),
)
CONDITION_SETS = st.lists(CONDITIONS, max_size=1).map(tuple)
RULES = st.builds(
    Rule,
    effect=st.sampled_from(["allow", "deny"]),
    tools=PATTERNS,
    users=st.sampled_from([(), ("ann",), ("*",)]),
    teams=st.sampled_from([(), ("blue",)]),
    roles=st.sampled_from([(), ("r1",)]),
    when=CONDITION_SETS,
    unless=CONDITION_SETS,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        name: st.builds(
            ToolSpec,
            name=st.just(name),
            description=st.just(""),
            parameters=st.just({}),
            server=st.just("s" if name.startswith("s__") else None),
            digest=st.sampled_from(["1", "2"]),
            feature=st.sampled_from(["", "f", "g"]),
            annotations=st.builds(Annotations, destructive=st.booleans()),
        )
        for name in NAMES
    },
)
SITUATIONS = st.builds(
    Situation,
    registry=SPECS,
    enabled=st.frozensets(st.sampled_from(NAMES)),
    unavailable=st.dictionaries(st.sampled_from(NAMES), st.just("away"), max_size=2),
    rules=st.builds(
        Rules,
        features=st.builds(
            Features,
            flags=st.dictionaries(
                st.sampled_from(["f", "g"]),
                st.builds(Flag, enabled=st.booleans(), tools=PATTERNS),
                max_size=2,
            ),
        ),
        permissions=st.builds(
            Permissions,
            rules=st.lists(RULES, max_size=3).map(tuple),
            default=st.sampled_from(["allow", "deny"]),
        ),
        approval=st.one_of(
            st.none(),
            st.builds(
                ApprovalPolicy,
                always=PATTERNS,
                never=PATTERNS,
                servers=st.dictionaries(
                    st.just("s"), st.sampled_from(["ask", "allow", "annotations"]), max_size=1
                ),
            ),
        ),
        templates=st.dictionaries(st.sampled_from(["t", "u"]), PATTERNS, max_size=1),
        teams=st.dictionaries(st.just("s"), st.sampled_from([("blue",), ("*",), ()]), max_size=1),
    ),
    principal=WHO,
    template=st.sampled_from(["t", "u"]),
    switches=st.dictionaries(
        st.tuples(st.sampled_from(["f", "g"]), st.sampled_from(["", "blue"])), st.booleans(), max_size=2
    ),
    approved=st.frozensets(st.tuples(st.sampled_from(NAMES), st.sampled_from(["1", "2"])), max_size=2),
    pins=st.dictionaries(
        st.sampled_from(NAMES), st.builds(Pin, version=st.sampled_from(["1", "2"])), max_size=2
    ),
)


def _objections(name: str, here: Situation, arguments: dict[str, Any]) -> list[str]:
    """Ask each layer by itself, naively."""
    spec = here.registry.get(name)
    if spec is None:
        return ["registered"]
    found = []
    rules, who = here.rules, here.principal
    if spec.server and not ({"*", who.team} & set(rules.teams.get(spec.server, ("*",)))):
        found.append("registered")
    flags = {spec.feature} - {""}
    flags |= {f for f, flag in rules.features.flags.items() if {"*", name} & _meant(flag.tools, name)}
    if not all(rules.features.is_on(flag, who, here.switches) for flag in flags):
        found.append("feature")
    if not rules.permissions.of(name, who, arguments).allowed:
        found.append("permission")
    if rules.templates and not _meant(rules.templates.get(here.template, ()), name):
        found.append("template")
    if name not in here.enabled:
        found.append("enabled")
    if name in here.unavailable:
        found.append("available")
    return found


def _meant(patterns: tuple[str, ...], name: str) -> set[str]:
    fits = {"*": True, "?": len(name) == 1, "s__*": name.startswith("s__")}
    return {name for pattern in patterns if fits.get(pattern, pattern == name)}


def _is_changed(name: str, here: Situation) -> bool:
    """Ask, naively, whether an external tool is not what was pinned, and nobody approved of that."""
    spec, pin, policy = here.registry.get(name), here.pins.get(name), here.rules.approval
    if spec is None or spec.server is None or pin is None or policy is None or pin.version == spec.digest:
        return False
    is_exempt = bool({"*", name} & _meant(policy.never, name)) and not (
        {"*", name} & _meant(policy.always, name)
    )
    return (
        policy.servers.get("s", "ask") != "allow"
        and not is_exempt
        and (name, spec.digest) not in here.approved
    )


@given(st.sampled_from(NAMES), SITUATIONS, ARGUMENTS, st.one_of(st.none(), st.just("ann")))
def test_nothing_runs_that_any_layer_refused(
    name: str, here: Situation, arguments: dict[str, Any], approved_by: str | None
) -> None:
    decision = decide(name, here, arguments, approved_by=approved_by)
    objections = _objections(name, here, arguments)
    assert isinstance(decision, Refused) is bool(objections)
    if isinstance(decision, Allowed):
        policy = here.rules.approval
        need = None if policy is None else policy.need(decision.spec)
        granted = (name, decision.spec.digest) in here.approved
        is_known = not _is_changed(name, here)
        assert (need is None and is_known) or granted or approved_by is not None
    if isinstance(decision, NeedsApproval):
        assert approved_by is None
        assert decision.reason
        assert decision.changed is _is_changed(name, here) is decision.reason.startswith("tool_changed: ")


@given(SITUATIONS, ARGUMENTS)
def test_what_is_offered_and_listed_agrees_with_what_is_decided(
    here: Situation, arguments: dict[str, Any]
) -> None:
    rows = {row.name: row for row in listing(here)}
    offered = set(usable(here))
    for name in NAMES:
        if not isinstance(decide(name, here, arguments), Refused):
            assert name in offered
            assert (rows[name].standing is Standing.ENABLED) is not _is_changed(name, here)
    assert all(rows[name].reason for name in rows if rows[name].standing is not Standing.ENABLED)


@given(RULES, st.lists(RULES, max_size=3), WHO, ARGUMENTS)
def test_one_more_denial_never_allows_more(
    rule: Rule, others: list[Rule], who: Principal, arguments: dict[str, Any]
) -> None:
    denial = Rule(effect="deny", tools=rule.tools, users=rule.users, when=rule.when, unless=rule.unless)
    without = Permissions(rules=tuple(others), default="allow").of("a", who, arguments)
    with_it = Permissions(rules=(*others, denial), default="allow").of("a", who, arguments)
    assert with_it.allowed <= without.allowed
