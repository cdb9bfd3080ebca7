"""The fixed names of the long-lived actors in the process table, and what may be a conversation's id."""

from __future__ import annotations

import hashlib
import re

DIRECTORY = "directory"
JOURNAL = "journal"
CATALOGUE = "catalogue"
LIMITS = "limits"
MODELS = "models"
EMBEDDED = "models.embedded"
SERVERS = "servers"
CONVERSATIONS = "conversations"
CALLER = "caller"

_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN_TEAM = re.compile(r"[A-Za-z0-9_-]{1,32}")


FALLBACK_MODEL = f"{MODELS}.fallback"


def model_actor(number: int) -> str:
    """Give the name of the model actor with this number, counted from 0."""
    return f"{MODELS}.m{number}"


def is_conversation_id(text: object) -> bool:
    """True for 1 to 64 characters of ``[A-Za-z0-9_-]``: it becomes a file's name."""
    return isinstance(text, str) and _CONVERSATION_ID.fullmatch(text) is not None


def client_actor(conversation_id: str, team: str) -> str:
    """Give the name, among the clients, of the conversation's client: an id counts within its team."""
    if not team:
        return conversation_id
    shown = team if _PLAIN_TEAM.fullmatch(team) else f"~{hashlib.sha256(team.encode()).hexdigest()[:16]}"
    return f"{conversation_id}@{shown}"
