"""Feature flags: off unless somebody switched them on."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.envelope import Principal
from callboard.tools.contract import ToolSpec
from callboard.tools.features import Features, Flag

ANN = Principal(user="ann", team="blue", roles=("tester",))


def _spec(name: str = "x", feature: str = "") -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={}, feature=feature)


def test_a_tool_without_a_flag_is_on() -> None:
    assert Features().off(_spec(), ANN, {}) is None


def test_a_flag_that_nobody_knows_is_off() -> None:
    assert Features().off(_spec(feature="beta"), ANN, {}) == "beta"


def test_a_flag_may_name_its_tools() -> None:
    flags = Features(flags={"files": Flag(enabled=False, tools=("files__*",))})
    assert flags.off(_spec("files__read"), ANN, {}) == "files"
    assert flags.off(_spec("time__now"), ANN, {}) is None


def test_every_flag_of_a_tool_must_be_on() -> None:
    flags = Features(flags={"a": Flag(), "b": Flag(enabled=False, tools=("x",))})
    assert flags.off(_spec(feature="a"), ANN, {}) == "b"


@pytest.mark.parametrize(
    ("given", "is_on"),
    [
        ({}, True),
        ({"enabled": False}, False),
        ({"teams": ("blue",)}, True),
        ({"teams": ("red",)}, False),
        ({"teams": ("blue",), "users": ("bob",)}, False),
        ({"roles": ("test*",)}, True),
        ({"roles": ("admin",)}, False),
    ],
)
def test_a_flag_may_be_on_for_some(given: dict[str, Any], is_on: bool) -> None:
    assert Features(flags={"f": Flag(**given)}).is_on("f", ANN, {}) is is_on


@pytest.mark.parametrize(
    ("switches", "is_on"),
    [
        ({("f", ""): False}, False),
        ({("f", "blue"): False}, False),
        ({("f", ""): False, ("f", "blue"): True}, True),
        ({("f", ""): True, ("f", "blue"): False}, False),
        ({("f", "red"): False}, True),
        ({("g", ""): False}, True),
    ],
)
def test_a_switch_outweighs_the_configuration_and_a_teams_outweighs_everybodys(
    switches: dict[tuple[str, str], bool], is_on: bool
) -> None:
    assert Features(flags={"f": Flag()}).is_on("f", ANN, switches) is is_on
