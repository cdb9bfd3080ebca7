"""A decision, layer by layer: those before the one that objected passed, those behind it were not asked."""

from __future__ import annotations

import pytest

from callboard.tools.approval import ApprovalPolicy
from callboard.tools.contract import Annotations, ToolContext, ToolSpec
from callboard.tools.decision import RefusalKind, Rules
from callboard.tools.decision_layers import BAD_ARGUMENTS, Grounds, Layer, denied, layers_of
from callboard.tools.permissions import Permissions

SPEC = ToolSpec(
    name="x",
    description="",
    parameters={"type": "object"},
    module="m",
    feature="beta",
    annotations=Annotations(destructive=True),
)
GROUNDS = Grounds(
    spec=SPEC,
    rules=Rules(permissions=Permissions(hook="a:b"), approval=ApprovalPolicy()),
    principal=ToolContext(user="ann"),
    template="plain",
    arguments={},
    approved_by="ann",
    hook_agreed=True,
)


def reasons(layers: tuple[Layer, ...]) -> dict[str, str]:
    return {layer.name: layer.reason for layer in layers}


def test_what_was_let_through_says_why_each_layer_did_so() -> None:
    layers = layers_of("permitted (by default)", GROUNDS)
    assert {layer.verdict for layer in layers} == {"passed"}
    told = reasons(layers)
    assert told["registered"] == "a local tool, in m"
    assert told["feature flag"] == "its feature 'beta' is on"
    assert told["permitted"] == "by default; the permission hook agrees"
    assert told["template"] == "'plain' allows it"
    assert told["enabled"] == "'plain' enables it"
    assert told["approved"] == "approved by ann: the tool says that it is destructive"


@pytest.mark.parametrize("kind", [*RefusalKind, BAD_ARGUMENTS])
def test_the_layer_that_objects_has_the_reason_and_those_behind_it_were_not_asked(kind: str) -> None:
    layers = layers_of(f"{kind}: because", GROUNDS)
    verdicts = [layer.verdict for layer in layers]
    at = verdicts.index("refused")
    assert (layers[at].reason, verdicts[:at], verdicts[at + 1 :]) == (
        "because",
        ["passed"] * at,
        ["not asked"] * (len(layers) - at - 1),
    )
    assert len({layer.name for layer in layers}) == len(RefusalKind) + 1


def test_arguments_that_do_not_fit_are_told_in_the_results_words() -> None:
    layers = layers_of(BAD_ARGUMENTS, GROUNDS, "at /a: 3 is not of type string")
    assert next(layer for layer in layers if layer.verdict == "refused") == Layer(
        name="arguments", verdict="refused", reason="at /a: 3 is not of type string"
    )
    assert layers[-1].verdict == "not asked", "nobody is bothered with what cannot run"


def test_a_tool_that_does_not_exist_has_no_reasons_to_give() -> None:
    layers = layers_of(
        "unknown_tool: there is no tool 'y'",
        Grounds(spec=None, rules=Rules(), principal=ToolContext(), template=""),
    )
    assert [layer.verdict for layer in layers][:2] == ["refused", "not asked"]


def test_a_person_who_says_no_refuses_at_the_last_layer() -> None:
    layers = denied(layers_of("permitted; a person is asked", GROUNDS), "not on a Friday")
    assert (layers[-1].name, layers[-1].verdict, layers[-1].reason) == (
        "approved",
        "refused",
        "not on a Friday",
    )
    assert {layer.verdict for layer in layers[:-1]} == {"passed"}
