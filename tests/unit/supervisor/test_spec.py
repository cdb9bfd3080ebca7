"""Specs and flags: what the list of OTP does not say."""

from __future__ import annotations

import pickle

import pytest

from callboard.supervisor import spec_errors
from callboard.supervisor.backoff import Backoff
from callboard.supervisor.spec import ChildSpec, SpecError


def test_unknown_keys_are_named_with_what_is_known() -> None:
    with pytest.raises(spec_errors.UnknownKey) as raised:
        ChildSpec.from_mapping({"id": "a", "actor": "some.Actor", "shutdown": 5, "modules": []})
    assert "a child spec knows no modules, shutdown; it knows actor, args," in str(raised.value)


def test_a_backoff_may_be_a_mapping() -> None:
    spec = ChildSpec.from_mapping({"id": "a", "actor": "some.Actor", "backoff": {"min_s": 1, "max_s": 2}})
    assert spec.backoff == Backoff(min_s=1, max_s=2)


def test_every_error_is_a_spec_error_with_a_kind_of_its_own() -> None:
    errors = [e for e in vars(spec_errors).values() if isinstance(e, type) and issubclass(e, SpecError)]
    assert len({error.kind for error in errors}) == len(errors) >= 17
    assert all(issubclass(error, ValueError) for error in errors)


def test_a_spec_travels() -> None:
    spec = ChildSpec(id="a", actor="some.Actor", args={"x": (1, 2)}, backoff=Backoff())
    assert pickle.loads(pickle.dumps(spec)) == spec
