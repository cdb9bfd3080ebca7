"""One decision per call, with a reason that the model can use."""

from __future__ import annotations

import pytest

from callboard.tools.contract import ToolSpec
from callboard.tools.decision import (
    Allowed,
    RefusalKind,
    Refused,
    Standing,
    decide,
    listing,
    match_patterns,
    unmatched_patterns,
)

REGISTRY = {
    name: ToolSpec(name=name, description=f"Does {name}.", parameters={"type": "object"})
    for name in ("calculate", "time__now", "time__zones", "broken")
}
ENABLED = frozenset({"calculate", "broken", "gone"})
UNAVAILABLE = {"broken": "its server is parked", "gone": "its server is starting"}


def test_an_enabled_registered_tool_is_allowed() -> None:
    assert decide("calculate", REGISTRY, ENABLED, UNAVAILABLE) == Allowed(REGISTRY["calculate"])


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
    refused = decide(name, REGISTRY, ENABLED, UNAVAILABLE)
    assert isinstance(refused, Refused)
    assert refused.kind is kind
    assert all(word in refused.message for word in words), refused.message
    assert "broken," not in refused.message


def test_an_unavailable_tool_that_is_not_enabled_stays_hidden() -> None:
    refused = decide("gone", REGISTRY, frozenset(), UNAVAILABLE)
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.UNKNOWN
    assert "No tool is enabled" in refused.message


def test_a_refusal_stays_short_with_many_tools_and_a_long_name() -> None:
    many = {f"tool_{n}": REGISTRY["calculate"] for n in range(1000)}
    refused = decide("x" * 10_000, many, frozenset(many), {})
    assert isinstance(refused, Refused)
    assert "960 more" in refused.message
    assert len(refused.message) < 2000


def test_the_listing_gives_each_tool_one_state_with_its_reason() -> None:
    rows = [
        (row.name, row.standing, row.in_enabled_set, row.reason)
        for row in listing(REGISTRY, ENABLED, UNAVAILABLE)
    ]
    assert rows == [
        ("broken", Standing.DISABLED, True, "its server is parked"),
        ("calculate", Standing.ENABLED, True, ""),
        ("gone", Standing.DISABLED, True, "its server is starting"),
        ("time__now", Standing.AVAILABLE, False, "not enabled in this conversation"),
        ("time__zones", Standing.AVAILABLE, False, "not enabled in this conversation"),
    ]


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
