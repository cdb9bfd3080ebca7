"""The chat's slash commands: which there are, and what a line means.

Pure. ``parse`` decides whether a line is for the model or for the chat itself; the chat carries it out.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

COMMANDS: Mapping[str, tuple[str, str]] = {
    "/tools": ("", "the tools: enabled, available, disabled and why"),
    "/enable": ("NAME", "let this conversation use a tool, from the next step on"),
    "/disable": ("NAME", "take a tool away from this conversation"),
    "/servers": ("", "the external servers"),
    "/tree": ("", "the supervision tree"),
    "/history": ("", "the conversation so far"),
    "/cancel": ("", "cancel the running turn (so does Ctrl-C)"),
    "/help": ("", "this list"),
    "/quit": ("", "leave (so does Ctrl-D, or Ctrl-C at an empty prompt)"),
}
_ALIASES = {"/exit": "/quit", "/q": "/quit", "/?": "/help"}


@dataclass(frozen=True, slots=True)
class Say:
    """The line goes to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Do:
    """The line is a command, with its one argument or none."""

    command: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Complain:
    """The line begins like a command but is none; the message says what is."""

    message: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """The line is empty."""


Meaning: TypeAlias = Say | Do | Complain | Nothing


def parse(line: str) -> Meaning:
    """Say what a line means. One that begins with a space is never a command."""
    text = line.strip()
    if not text:
        return Nothing()
    if not line.startswith("/"):
        return Say(text)
    word, *rest = text.split()
    command = _ALIASES.get(word.lower(), word.lower())
    if command not in COMMANDS:
        return Complain(_unknown(word))
    wanted = COMMANDS[command][0]
    if wanted and len(rest) != 1:
        return Complain(f"expected {command} {wanted}, as in '{command} calculate'")
    if not wanted and rest:
        return Complain(f"{command} takes nothing after it")
    return Do(command, rest[0] if rest else "")


def help_lines() -> list[str]:
    """Give the list of commands, one a line."""
    return [f"{command + ' ' + wanted:<14} {told}" for command, (wanted, told) in COMMANDS.items()]


def nearest(word: str, known: list[str]) -> str | None:
    """Give the known name nearest to ``word``, None when none is near."""
    return next(iter(difflib.get_close_matches(word, known, n=1)), None)


def _unknown(word: str) -> str:
    near = nearest(word.lower(), list(COMMANDS))
    hint = f"did you mean {near}?" if near else "/help lists them all."
    return f"{word} is not a command; {hint} To say it to the model, put a space before it."
