"""What a child was given is kept out of what is told of it."""

from __future__ import annotations

import sys

from callboard.testing.turns import eventually
from callboard.transports.child_process import ChildProcess
from callboard.transports.redaction import redacted


def test_values_are_replaced_by_their_names_the_longest_first() -> None:
    named = {"A_TOKEN": "secret-1", "LONG_TOKEN": "secret-1-and-2", "SHORT": "1"}
    text = redacted("no access with secret-1-and-2, nor with secret-1", named)
    assert text == "no access with [LONG_TOKEN], nor with [A_TOKEN]"


def test_the_last_words_of_a_child_hide_what_it_was_given_even_where_they_are_cut() -> None:
    code = "import sys; sys.stderr.write('a-secret-of-length ' * 200)"
    hidden = {"TOKEN": "a-secret-of-length"}
    with ChildProcess([sys.executable, "-c", code], env={}, hidden=hidden) as child:
        eventually(lambda: child.poll() is not None, 30, "it has ended")
        told = child.describe_end()
    assert "[TOKEN]" in told
    assert "secret" not in told
