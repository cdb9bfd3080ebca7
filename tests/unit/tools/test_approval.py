"""Which calls need a person's word."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.tools.approval import ApprovalPolicy
from callboard.tools.contract import Annotations, ToolSpec


def _spec(server: str | None = None, **hints: bool) -> ToolSpec:
    return ToolSpec(name="t", description="", parameters={}, server=server, annotations=Annotations(**hints))


@pytest.mark.parametrize(
    ("policy", "spec", "need"),
    [
        ({}, _spec(), None),
        ({}, _spec(destructive=True), "each"),
        ({"never": ("t",)}, _spec(destructive=True), None),
        ({"always": ("t*",)}, _spec(), "each"),
        ({"always": ("t",), "never": ("t",)}, _spec(), "each"),
        ({}, _spec("files", read_only=True), "first"),
        ({"servers": {"files": "ask"}}, _spec("files", destructive=True), "first"),
        ({"servers": {"files": "allow"}}, _spec("files", destructive=True), None),
        ({"servers": {"files": "annotations"}}, _spec("files"), None),
        ({"servers": {"files": "annotations"}}, _spec("files", destructive=True), "each"),
        ({"servers": {"files": "allow"}, "always": ("t",)}, _spec("files"), "each"),
    ],
)
def test_who_asks(policy: dict[str, Any], spec: ToolSpec, need: str | None) -> None:
    found = ApprovalPolicy(**policy).need(spec)
    assert (found and ("first" if found.first_use else "each")) == need


@pytest.mark.parametrize(
    ("policy", "spec", "pinned"),
    [
        ({}, _spec(destructive=True), False),
        ({"always": ("t",)}, _spec(), False),
        ({}, _spec("files"), True),
        ({"servers": {"files": "annotations"}}, _spec("files", read_only=True), True),
        ({"servers": {"files": "allow"}}, _spec("files"), False),
        ({"never": ("t",)}, _spec("files"), False),
        ({"never": ("t",), "always": ("t",)}, _spec("files"), True),
    ],
)
def test_whose_changes_need_a_person(policy: dict[str, Any], spec: ToolSpec, pinned: bool) -> None:
    assert ApprovalPolicy(**policy).pins(spec) is pinned
