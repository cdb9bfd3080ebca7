"""Exposed names are legal, unique, and depend on nothing but the set."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from callboard.tools.names import expose

ODD = st.text(alphabet="ab_- .é", max_size=5)
PAIRS = st.lists(st.tuples(ODD | st.text(max_size=80), ODD | st.text(max_size=80)), max_size=30)


@given(PAIRS, st.sets(st.sampled_from(["a__b", "calculate", "a___b", "b__a"])))
def test_names_are_legal_unique_and_not_reserved(pairs: list[tuple[str, str]], reserved: set[str]) -> None:
    exposed = expose(pairs, reserved)
    assert set(exposed) == set(pairs)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in exposed.values())
    assert len(set(exposed.values())) == len(exposed)
    assert not reserved & set(exposed.values())


@given(PAIRS, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order(pairs: list[tuple[str, str]], random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert expose(pairs) == expose(shuffled)


@given(PAIRS)
def test_hardly_any_name_depends_on_the_rest_of_the_set(pairs: list[tuple[str, str]]) -> None:
    exposed = expose(pairs)
    assert all(expose([pair])[pair] == name for pair, name in exposed.items())
