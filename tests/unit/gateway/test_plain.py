"""Foreign text on a terminal: nothing that it would obey comes through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.gateway.terminal.plain import cells, clean, cut, one_line, pad

HOSTILE = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b[2J\x1b[H", ""),
    ("a\x1b]0;title\x07b", "ab"),
    ("a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"),
    ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
    ('a\x1bP$q"p\x1b\\b', "ab"),
    ("a\x9b31mb", "ab"),
    ("a\x9d0;t\x9cb", "ab"),
    ("a\x1bcb", "ab"),
    ("a\x1b(0b", "ab"),
    ("a\x1b", "a"),
    ("a\x1b[", "a"),
    ("a\x1b]0;never ended", "a0;never ended"),
    ("a\bb\x07\x00\x7f", "ab"),
    ("good\rbad", "good\nbad"),
    ("a\r\nb\x0bc\x0cd\x85e\u2028f", "a\nb\nc\nd\ne\nf"),
    ("\u202eevil\u202c \u2066x\u2069\u200f\u061c", "evil x"),
    ("a\u200bb\ufeffc\U000e0041", "abc"),
    ("a\ud800b", "a?b"),
    ("tab\tand\nline stay, Zoë 漢字 👍🏽", "tab\tand\nline stay, Zoë 漢字 👍🏽"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_control_sequences_do_not_reach_the_terminal(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(
    st.text(
        alphabet=st.characters(max_codepoint=0x2070) | st.sampled_from("\x1b\x9b\x9d[]m;\x07\\"), max_size=60
    )
)
def test_no_text_at_all_brings_a_control_character_through(text: str) -> None:
    shown = clean(text)
    assert not any((c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" for c in shown)
    assert clean(shown) == shown
    assert "\n" not in one_line(text)


def test_a_sequence_cut_in_two_is_harmless() -> None:
    assert clean("\x1b") + clean("[31mred") == "[31mred"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("漢字漢字", 8, "漢字漢字"),
        ("漢字漢字", 6, "漢字…"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
    ],
)
def test_text_is_cut_by_what_it_takes_on_the_screen(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert cells(shown) <= max(width, 0)


def test_text_is_padded_by_what_it_takes_on_the_screen() -> None:
    assert pad("漢", 4) == "漢  "
    assert pad("long", 2) == "long"
