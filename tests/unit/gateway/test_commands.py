"""What a line in the chat means."""

from __future__ import annotations

import pytest

from callboard.gateway.terminal.commands import (
    COMMANDS,
    Complain,
    Do,
    Meaning,
    Nothing,
    Say,
    help_lines,
    parse,
)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("", Nothing()),
        ("  \t", Nothing()),
        ("hello there", Say("hello there")),
        (" /etc/hosts, what is it?", Say("/etc/hosts, what is it?")),
        ("/tools", Do("/tools")),
        ("/TOOLS ", Do("/tools")),
        ("/exit", Do("/quit")),
        ("/enable calculate", Do("/enable", "calculate")),
        ("/enable", Complain("expected /enable NAME, as in '/enable calculate'")),
        ("/enable a b", Complain("expected /enable NAME, as in '/enable calculate'")),
        ("/tree all", Complain("/tree takes nothing after it")),
    ],
)
def test_a_line_means_one_thing(line: str, meaning: Meaning) -> None:
    assert parse(line) == meaning


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    meaning = parse("/tols")
    assert isinstance(meaning, Complain)
    assert "/tols is not a command; did you mean /tools?" in meaning.message
    meaning = parse("/xyzzy")
    assert isinstance(meaning, Complain) and "/help lists them all" in meaning.message


def test_the_help_tells_of_every_command_within_80_columns() -> None:
    assert len(help_lines()) == len(COMMANDS)
    assert all(len(line) <= 80 for line in help_lines())
