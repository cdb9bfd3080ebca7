"""The fixed names of the long-lived actors in the process table, and what may be a conversation's id."""

from __future__ import annotations

import re

DIRECTORY = "directory"
JOURNAL = "journal"
CATALOGUE = "catalogue"
MODELS = "models"
EMBEDDED = "models.embedded"
SERVERS = "servers"
CONVERSATIONS = "conversations"

_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def model_actor(number: int) -> str:
    """Give the name of the model actor with this number, counted from 0."""
    return f"{MODELS}.m{number}"


def is_conversation_id(text: object) -> bool:
    """True for 1 to 64 characters of ``[A-Za-z0-9_-]``: it becomes a file's name."""
    return isinstance(text, str) and _CONVERSATION_ID.fullmatch(text) is not None
