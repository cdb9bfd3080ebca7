"""Which era does a server speak, and is there a session at all? The handshake's decisions, as a table.

MCP 2026-07-28 has no handshake: its ``server/discover`` is the probe. Servers of the field answer it with a
discovery, with any error code whatever, with silence, or by exiting; only the three codes of the modern
revision mean "modern". Each method takes what happened and gives the next ``Step``; the session machine
performs it. Nothing is sent here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.transports.jsonrpc import ErrorResponse, excerpt
from callboard.transports.mcp_effects import Era
from callboard.transports.mcp_protocol import (
    LEGACY_VERSIONS,
    MODERN_ERRORS,
    MODERN_VERSION,
    UNSUPPORTED_PROTOCOL_VERSION,
    Identity,
    read_discover,
    read_initialize,
    supported_versions,
)


@dataclass(frozen=True, slots=True)
class Discover:
    """Send ``server/discover``."""


@dataclass(frozen=True, slots=True)
class Initialize:
    """Send ``initialize``; ``why`` says what speaks for a legacy server."""

    why: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """The server is known: go on in its era."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No session with this process. ``respawn``: a fresh one, not probed, may do better."""

    reason: str
    respawn: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing follows from it."""


Step: TypeAlias = Discover | Initialize | Adopt | GiveUp | Wait


class Handshake:
    """The handshake with one process. ``wanted`` is AUTO, or the era that is known beforehand."""

    def __init__(self, wanted: Era) -> None:
        self._wanted = wanted
        self._probed = False
        self._initializing = False
        self._modern_for_sure = wanted is Era.MODERN

    def opening(self) -> Step:
        """Choose the first message."""
        if self._wanted is Era.LEGACY:
            return self._initialize("known from before")
        return self._discover()

    def discovered(self, result: Any) -> Step:
        """Take an answer to the probe; a late one, after ``initialize`` was sent, still counts."""
        identity = read_discover(result)
        if isinstance(identity, Identity):
            return Adopt(identity)
        return self._fall_back(identity)

    def probe_refused(self, error: ErrorResponse) -> Step:
        """Take an error to the probe. Any code but the modern three means legacy."""
        if error.code == UNSUPPORTED_PROTOCOL_VERSION:
            return self._choose_version(error)
        if error.code in MODERN_ERRORS:
            return Adopt(
                Identity(
                    MODERN_VERSION,
                    server_info={},
                    instructions=None,
                    has_tools=True,
                    announces_tool_changes=False,
                )
            )
        return self._fall_back(f"server/discover was refused: {error_text(error)}")

    def probe_silent(self, probe_s: float) -> Step:
        """Take the probe's time-out."""
        return self._fall_back(f"no answer to server/discover within {probe_s:g} s")

    def initialized(self, result: Any) -> Step:
        """Take the answer to ``initialize``."""
        identity = read_initialize(result)
        return Adopt(identity) if isinstance(identity, Identity) else GiveUp(identity)

    def initialize_refused(self, error: ErrorResponse) -> Step:
        """Take an error to ``initialize``: a server that has gone modern refuses it by a code of its own."""
        if error.code == UNSUPPORTED_PROTOCOL_VERSION and not self._modern_for_sure:
            self._modern_for_sure = True
            return self._discover()
        return self.lost(f"initialize was refused: {error_text(error)}")

    def lost(self, reason: str) -> Step:
        """Take the end of the process, of its stdout, or of our patience, before there was a session."""
        return GiveUp(reason, respawn=self._probed and self._wanted is Era.AUTO)

    def _choose_version(self, error: ErrorResponse) -> Step:
        versions = supported_versions(error.data)
        if MODERN_VERSION in versions and not self._modern_for_sure:
            self._modern_for_sure = True
            return self._discover()
        if not versions or not set(versions).isdisjoint(LEGACY_VERSIONS):
            return self._fall_back(f"server/discover was refused: {error_text(error)}")
        ours = ", ".join((MODERN_VERSION, *LEGACY_VERSIONS))
        return GiveUp(
            f"no common protocol version: the server supports {excerpt(', '.join(versions))}, we {ours}"
        )

    def _discover(self) -> Step:
        self._probed = True
        self._initializing = False
        return Discover()

    def _initialize(self, why: str) -> Step:
        self._initializing = True
        return Initialize(why)

    def _fall_back(self, why: str) -> Step:
        if self._initializing:
            return Wait()
        if self._modern_for_sure:
            return GiveUp(why)
        return self._initialize(why)


def error_text(error: ErrorResponse) -> str:
    """Say a JSON-RPC error in one line for people: the server's words, bounded, and the code."""
    return f"{excerpt(error.message) or 'no message'} (code {error.code})"
