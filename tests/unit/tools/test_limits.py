"""What a tool states, what the operator states, and that the stricter holds."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.tools.contract import ToolSpec, as_configured
from callboard.tools.decorator import Tool, tool
from callboard.tools.errors import ToolDefinitionError
from callboard.tools.limits import (
    PROFILES,
    ConfiguredLimits,
    Limits,
    fault_of_limits,
    limits_from_json,
    limits_of,
    tightened,
)

_SIZES = st.integers(min_value=1, max_value=10_000)


@given(
    stated=st.none() | _SIZES,
    configured=st.lists(st.none() | _SIZES, max_size=3),
    profile=st.sampled_from(PROFILES),
    wanted=st.lists(st.sampled_from(PROFILES), max_size=3),
)
def test_configuration_only_makes_stricter(
    stated: int | None, configured: list[int | None], profile: str, wanted: list[str]
) -> None:
    limits = Limits(memory_mb=stated, sandbox=profile)  # type: ignore[arg-type]
    rows = [ConfiguredLimits(memory_mb=size, deadline_s=size) for size in configured]
    rows += [ConfiguredLimits(sandbox=name) for name in wanted]  # type: ignore[arg-type]
    deadline_s, held = tightened(100.0, limits, rows)
    given_sizes = [size for size in (stated, *configured) if size is not None]
    assert held.memory_mb == min(given_sizes, default=None)
    assert deadline_s == min([100.0, *(size for size in configured if size is not None)])
    assert PROFILES.index(held.sandbox) == max(map(PROFILES.index, [profile, *wanted]))


def test_the_row_of_every_tool_holds_for_each_and_its_own_besides() -> None:
    specs = [ToolSpec(name=name, description="", parameters={}) for name in ("a", "b")]
    rows = {
        "*": ConfiguredLimits(memory_mb=512, env=("ALL",)),
        "b": ConfiguredLimits(memory_mb=64, deadline_s=5.0, env=("TOKEN",), readable=("/data",)),
        "c": ConfiguredLimits(sandbox="isolated"),
    }
    a, b = as_configured(specs, rows)
    assert (a.limits.memory_mb, a.deadline_s, a.limits.env) == (512, 300.0, ("ALL",))
    assert (b.limits.memory_mb, b.deadline_s, b.limits.env) == (64, 5.0, ("ALL", "TOKEN"))
    assert (b.limits.readable, b.limits.sandbox) == (("/data",), "none")
    assert as_configured(specs, {}) == tuple(specs)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memory_mb": 0}, ["memory_mb is 0", "above 0"]),
        ({"cpu_s": -1.0}, ["cpu_s"]),
        ({"cpu_s": float("nan")}, ["cpu_s"]),
        ({"open_files": None}, ["open_files is None"]),
        ({"processes": True}, ["processes is True"]),
        ({"sandbox": "strong"}, ["'strong'", "none, confined, isolated"]),
        ({"env": ("A B",)}, ["'A B'", "environment"]),
        ({"readable": ("data",)}, ["'data'", "absolute"]),
        ({"writable": ("/data/../etc",)}, ["absolute"]),
        ({"env": (3,)}, ["env is", "texts"]),
    ],
)
def test_limits_that_cannot_be_meant_are_refused_by_name(fields: dict[str, object], words: list[str]) -> None:
    fault = fault_of_limits(dataclasses.replace(Limits(), **fields))  # type: ignore[arg-type]
    assert fault is not None
    assert all(word in fault for word in words), fault


def test_the_decorator_and_the_class_state_limits_alike() -> None:
    @tool(memory_mb=64, cpu_s=2.0, sandbox="confined", env=["TOKEN"], readable=["/data"])
    def one() -> None: ...

    class Other(Tool):
        name = "other"
        memory_mb = 64
        cpu_s = 2.0
        sandbox = "confined"
        env = ["TOKEN"]
        readable = ["/data"]

    assert limits_of(one) == limits_of(Other())
    assert limits_of(one) == Limits(
        memory_mb=64, cpu_s=2.0, sandbox="confined", env=("TOKEN",), readable=("/data",)
    )
    with pytest.raises(ToolDefinitionError, match="sandbox is 'strong'"):
        tool(sandbox="strong")(one.function)  # type: ignore[call-overload]


def test_limits_survive_json() -> None:
    limits = Limits(memory_mb=3, env=("A",), writable=("/x",), sandbox="isolated")
    assert limits_from_json(json.loads(json.dumps(dataclasses.asdict(limits)))) == limits
    with pytest.raises(ValueError, match="processes"):
        limits_from_json({"processes": 0})
