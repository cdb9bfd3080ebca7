"""What the model is told comes from a Google-style docstring."""

from __future__ import annotations

import pytest

from callboard.tools.docstring import parse_docstring


def test_the_description_ends_where_the_first_section_begins() -> None:
    parsed = parse_docstring("""Say hello.

        To everybody: really.

        Args:
            name: Who.

        Returns:
            A greeting.
        """)
    assert parsed.description == "Say hello.\n\nTo everybody: really."
    assert parsed.parameters == {"name": "Who."}


def test_a_parameter_may_have_a_type_and_go_on_over_lines() -> None:
    parsed = parse_docstring("""X.

    Args:
        first (int, optional): One
            and more: with colon.
        second: Two.
    """)
    assert parsed.parameters == {"first": "One and more: with colon.", "second": "Two."}


@pytest.mark.parametrize("text", [None, "", "   "])
def test_no_docstring_is_no_description(text: str | None) -> None:
    assert parse_docstring(text).description == ""


def test_another_style_is_all_description() -> None:
    text = "Do it.\n\n:param x: the x"
    assert parse_docstring(text).description == text
