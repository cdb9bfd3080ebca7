"""Rules on who may use which tool with which arguments: denial wins, doubt counts against the call."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.envelope import Principal
from callboard.tools.permissions import Condition, Permissions, Rule, values_at

ANN = Principal(user="ann", team="blue", roles=("writer", "on_call"))


def _condition(argument: str, operator: str, value: Any) -> Condition:
    return Condition(argument=argument, operator=operator, value=value)


def _allows(rules: list[Rule], arguments: dict[str, Any] | None = None, default: Any = "deny") -> bool:
    return Permissions(rules=tuple(rules), default=default).of("files__read", ANN, arguments).allowed


@pytest.mark.parametrize(
    ("rule", "means"),
    [
        ({}, True),
        ({"tools": ("files__*",)}, True),
        ({"tools": ("files__write", "files__r*")}, True),
        ({"tools": ("time__*",)}, False),
        ({"tools": ()}, False),
        ({"users": ("ann",)}, True),
        ({"users": ("bob", "a*")}, True),
        ({"users": ("bob",)}, False),
        ({"teams": ("blue",), "users": ("ann",)}, True),
        ({"teams": ("red",), "users": ("ann",)}, False),
        ({"roles": ("admin", "on_call")}, True),
        ({"roles": ("admin",)}, False),
    ],
)
def test_a_rule_is_about_tools_users_teams_and_roles(rule: dict[str, Any], means: bool) -> None:
    assert _allows([Rule(effect="allow", **rule)]) is means
    assert _allows([Rule(effect="deny", **rule)], default="allow") is not means


def test_a_rule_that_denies_wins_wherever_it_stands() -> None:
    deny, allow = Rule(effect="deny", users=("ann",)), Rule(effect="allow")
    assert not _allows([deny, allow])
    assert not _allows([allow, deny])


@pytest.mark.parametrize("default", ["allow", "deny"])
def test_where_no_rule_speaks_the_default_does(default: Any) -> None:
    found = Permissions(default=default).of("x", ANN, {})
    assert found.allowed is (default == "allow")
    assert found.reason == "by default"


def test_the_reason_names_the_rule_and_says_its_own() -> None:
    rules = (Rule(effect="allow"), Rule(effect="deny", reason="frozen until Monday"))
    assert Permissions(rules=rules).of("x", ANN, {}).reason == "rule 2: frozen until Monday"


@pytest.mark.parametrize(
    ("operator", "wanted", "holds", "fails", "in_doubt"),
    [
        ("equals", "a", ["a"], ["b", 1, None], []),
        ("equals", 1, [1, 1.0], [True, "1"], []),
        ("one_of", ["a", 2], ["a", 2], ["b", True], []),
        ("pattern", "*.txt", ["x.txt", ".txt"], ["x.txtx", "X.TXT"], [1, None, ["x.txt"]]),
        ("prefix", "/srv/", ["/srv/", "/srv/x"], ["/srv", "srv/x"], [3, {}]),
        (
            "under",
            "/srv",
            ["/srv", "/srv/x", "/srv/a/../b", "//srv/x"[1:], "/tmp/../srv/x"],
            ["/srv-evil", "/srv/../etc/passwd", "/", "/srv/../srvx"],
            ["srv/x", "../srv", "/srv/\0", 7, "~/x", ""],
        ),
        ("at_least", 3, [3, 3.5], [2, -1], ["3", True, None]),
        ("at_most", 3, [3, -1], [3.5], ["1", False]),
    ],
)
def test_operators(operator: str, wanted: Any, holds: Any, fails: Any, in_doubt: Any) -> None:
    condition = _condition("/x", operator, wanted)
    for strict in (True, False):
        assert all(condition.holds({"x": value}, in_doubt=strict) for value in holds)
        assert not any(condition.holds({"x": value}, in_doubt=strict) for value in fails)
        assert all(condition.holds({"x": value}, in_doubt=strict) is strict for value in in_doubt)
        assert not condition.holds({}, in_doubt=strict)


def test_an_allowing_rule_needs_all_values_and_a_denying_one_only_one() -> None:
    inside = _condition("/paths/*", "under", "/srv")
    mixed, good = {"paths": ["/srv/a", "/etc/passwd"]}, {"paths": ["/srv/a"]}
    assert _allows([Rule(effect="allow", when=(inside,))], good)
    assert not _allows([Rule(effect="allow", when=(inside,))], mixed)
    assert not _allows([Rule(effect="allow", when=(inside,))], {"paths": []})
    secret = _condition("/paths/*", "prefix", "/etc")
    assert not _allows([Rule(effect="deny", when=(secret,))], mixed, default="allow")
    assert _allows([Rule(effect="deny", when=(secret,))], good, default="allow")


def test_a_value_that_cannot_be_judged_counts_against_the_call() -> None:
    inside = _condition("/path", "under", "/srv")
    assert not _allows([Rule(effect="allow", when=(inside,))], {"path": 5})
    assert not _allows([Rule(effect="deny", unless=(inside,))], {"path": 5}, default="allow")
    assert not _allows([Rule(effect="deny", unless=(inside,))], {}, default="allow")
    assert _allows([Rule(effect="deny", unless=(inside,))], {"path": "/srv/x"}, default="allow")
    assert not _allows([Rule(effect="allow", unless=(_condition("/path", "prefix", "/etc"),))], {"path": 5})


def test_presence_can_be_asked_for() -> None:
    forced = Rule(effect="deny", when=(_condition("/force", "present", True),))
    assert not _allows([forced], {"force": False}, default="allow")
    assert _allows([forced], {}, default="allow")
    scoped = Rule(effect="deny", when=(_condition("/limit", "present", False),))
    assert not _allows([scoped], {}, default="allow")


def test_without_arguments_the_question_is_whether_any_call_could_be_allowed() -> None:
    sometimes = (_condition("/path", "prefix", "/etc"),)
    assert _allows([Rule(effect="deny", when=sometimes)], None, default="allow")
    assert _allows([Rule(effect="allow", when=sometimes)], None)
    assert not _allows([Rule(effect="deny")], None, default="allow")


@pytest.mark.parametrize(
    ("pointer", "values"),
    [
        ("", [{"a": {"b/c": [1, {"d~": 2}]}}]),
        ("/a/b~1c/0", [1]),
        ("/a/b~1c/1/d~0", [2]),
        ("/a/b~1c/*", [1, {"d~": 2}]),
        ("/*/*/1/*", [2]),
        ("/a/b~1c/7", []),
        ("/a/b~1c/x", []),
        ("/x/y", []),
    ],
)
def test_pointers(pointer: str, values: list[Any]) -> None:
    assert values_at({"a": {"b/c": [1, {"d~": 2}]}}, pointer) == values
