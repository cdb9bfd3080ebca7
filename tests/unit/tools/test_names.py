"""External tools get names that providers accept."""

from __future__ import annotations

import pytest

from callboard.tools.names import BUILTIN_NAMES, expose


@pytest.mark.parametrize(
    ("pair", "name"),
    [
        (("time", "now"), "time__now"),
        (("git-hub", "list_issues"), "git-hub__list_issues"),
        (("a", "_b"), "a___b"),
        (("s", "x" * 61), "s__" + "x" * 61),
    ],
)
def test_a_name_that_fits_is_server_and_tool(pair: tuple[str, str], name: str) -> None:
    assert expose([pair]) == {pair: name}


@pytest.mark.parametrize(
    ("pair", "stem"),
    [
        (("files", "read file"), "files__read_file_"),
        (("files", "größe"), "files__gr__e_"),
        (("a__b", "c"), "a__b__c_"),
        (("a_", "b"), "a___b_"),
        (("s", "x" * 62), "s__" + "x" * 52 + "_"),
        (("", "x"), "__x_"),
        (("s", ""), "s___"),
    ],
)
def test_a_name_that_does_not_fit_ends_in_a_hash(pair: tuple[str, str], stem: str) -> None:
    name = expose([pair])[pair]
    assert name.startswith(stem)
    assert len(name) == len(stem) + 8


def test_names_that_look_alike_once_changed_stay_apart() -> None:
    pairs = [("s", "a b"), ("s", "a.b"), ("s", "a_b"), ("a__b", "c"), ("a", "b__c")]
    assert len(set(expose(pairs).values())) == len(pairs)


def test_a_reserved_name_is_never_given() -> None:
    assert expose([("a", "b")], reserved={"a__b"})[("a", "b")] != "a__b"
    assert not BUILTIN_NAMES & set(expose([("calc", "ulate")]).values())


def test_a_tool_keeps_its_name_when_others_come() -> None:
    alone = expose([("s", "a b")])
    assert expose([("s", "a b"), ("s", "a.b"), ("t", "x")])[("s", "a b")] == alone[("s", "a b")]


def test_the_same_pair_twice_is_one_name() -> None:
    assert expose([("a", "b"), ("a", "b")]) == {("a", "b"): "a__b"}
