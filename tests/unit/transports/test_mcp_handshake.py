"""The handshake's decisions, row by row (MCP 2026-07-28, era detection on stdio)."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.transports.jsonrpc import ErrorResponse
from callboard.transports.mcp_effects import Era
from callboard.transports.mcp_handshake import Adopt, Discover, GiveUp, Handshake, Initialize, Wait

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}


def refused(code: int, data: Any = None) -> ErrorResponse:
    return ErrorResponse(1, code, "no", data)


def probing(wanted: Era = Era.AUTO) -> Handshake:
    handshake = Handshake(wanted)
    assert handshake.opening() == Discover()
    return handshake


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32700, -32603, -32000, -32001, 1, 0])
def test_any_other_error_to_the_probe_means_legacy(code: int) -> None:
    assert isinstance(probing().probe_refused(refused(code)), Initialize)
    assert isinstance(probing(Era.MODERN).probe_refused(refused(code)), GiveUp)


@pytest.mark.parametrize("code", [-32020, -32021])
def test_the_modern_errors_mean_modern(code: int) -> None:
    step = probing().probe_refused(refused(code))
    assert isinstance(step, Adopt) and step.identity.protocol_version == "2026-07-28"


@pytest.mark.parametrize(
    ("data", "step"),
    [
        ({"supported": ["2026-07-28"]}, Discover),
        ({"supported": ["2025-11-25", "2031-01-01"]}, Initialize),
        ({"supported": ["2031-01-01"]}, GiveUp),
        ({"supported": "2031-01-01"}, Initialize),
        (None, Initialize),
    ],
)
def test_an_unsupported_version_is_answered_with_a_common_one(data: Any, step: type) -> None:
    assert isinstance(probing().probe_refused(refused(-32022, data)), step)


def test_a_second_unsupported_version_ends_it() -> None:
    handshake = probing()
    data = {"supported": ["2026-07-28"]}
    assert handshake.probe_refused(refused(-32022, data)) == Discover()
    assert isinstance(handshake.probe_refused(refused(-32022, data)), GiveUp)


def test_silence_means_legacy_and_a_late_discovery_still_counts() -> None:
    handshake = probing()
    assert isinstance(handshake.probe_silent(10), Initialize)
    step = handshake.discovered(DISCOVERED)
    assert isinstance(step, Adopt) and step.identity.announces_tool_changes
    assert handshake.probe_refused(refused(-32601)) == Wait()
    assert handshake.discovered({}) == Wait()


def test_an_initialize_refused_as_unsupported_turns_to_the_modern_era_once() -> None:
    handshake = probing()
    handshake.probe_silent(10)
    assert handshake.initialize_refused(refused(-32022)) == Discover()
    assert isinstance(handshake.probe_silent(10), GiveUp)


@pytest.mark.parametrize("result", [None, 7, {}, [], {"supportedVersions": "x"}, {"supportedVersions": []}])
def test_an_answer_that_is_no_discovery_means_legacy(result: Any) -> None:
    assert isinstance(probing().discovered(result), Initialize)


def test_a_known_legacy_server_is_not_probed() -> None:
    handshake = Handshake(Era.LEGACY)
    assert isinstance(handshake.opening(), Initialize)
    assert isinstance(handshake.initialized(INITIALIZED), Adopt)


@pytest.mark.parametrize(("wanted", "respawn"), [(Era.AUTO, True), (Era.LEGACY, False), (Era.MODERN, False)])
def test_only_a_probed_process_is_started_again(wanted: Era, respawn: bool) -> None:
    handshake = Handshake(wanted)
    handshake.opening()
    assert handshake.lost("gone") == GiveUp("gone", respawn)


def test_a_refused_initialize_after_a_probe_gets_a_fresh_process() -> None:
    handshake = probing()
    handshake.probe_refused(refused(-32601))
    assert handshake.initialize_refused(refused(-32000)) == GiveUp(
        "initialize was refused: no (code -32000)", respawn=True
    )


@pytest.mark.parametrize(
    "result", [None, {}, {"protocolVersion": "1999-01-01"}, {"protocolVersion": ["2025-11-25"]}]
)
def test_an_unknown_version_ends_it_and_names_both_sides(result: Any) -> None:
    handshake = probing()
    handshake.probe_silent(1)
    step = handshake.initialized(result)
    assert isinstance(step, GiveUp) and not step.respawn
    if isinstance(result, dict) and result.get("protocolVersion") == "1999-01-01":
        assert "1999-01-01" in step.reason and "2025-11-25" in step.reason
