"""A pytest plugin that puts our system base in the place of ``multiprocTCPBase``, for Thespian's own test suite.

The suite names its bases and gives them ports; here a port stands for an admin's name in one folder of sockets.
Tests of other bases are deselected; those in ``not_applicable`` are skipped, each with its reason.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import types
from typing import Any

import pytest
from thespian.actors import ActorAddress

from callboard.transports.unix_address import UnixAddress
from callboard.transports.unix_base import ActorSystemBase
from callboard.transports.unix_transport import UnixTransport

sys.path.insert(0, os.path.dirname(__file__))
from not_applicable import NOT_APPLICABLE

_REPLACED = "multiprocTCPBase"
_OTHER_BASES = (
    "simpleSystemBase",
    "multiprocQueueBase",
    "multiprocUDPBase",
    "multiprocTCPBase-AdminRouting",
    "multiprocTCPBase-AdminRoutingTXOnly",
)
_FOLDER = tempfile.mkdtemp(prefix="thespian-suite-")


class SuiteTransport(UnixTransport):
    """Our transport, with the suite's ports and ``host:port`` strings for names."""

    @classmethod
    def getAdminAddr(cls, capabilities: dict[str, Any]) -> Any:  # noqa: N802
        return cls.getAddressFromString(("", capabilities.get("Admin Port", 1900)))

    @classmethod
    def getAddressFromString(cls, spec: Any) -> Any:  # noqa: N802
        port = (spec if isinstance(spec, tuple) else spec.split(":"))[1]
        return ActorAddress(UnixAddress(f"{_FOLDER}/admin-{int(port)}"))


class SuiteBase(ActorSystemBase):
    """Our system base, in the suite's folder."""

    transportType = SuiteTransport  # noqa: N815


def pytest_configure(config: pytest.Config) -> None:
    module = types.ModuleType(f"thespian.system.{_REPLACED}")
    module.ActorSystemBase = SuiteBase  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    # Two tests take the host out of an address that is printed as "(T|host:port)".
    UnixAddress.__str__ = lambda address: f"(U|{address.path})"  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    other = [item for item in items if _is_of_another_base(item)]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in other]
    for item in items:
        reason = NOT_APPLICABLE.get(item.nodeid.rpartition("/")[2].partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _is_of_another_base(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    named = [] if parameters is None else [p for p in parameters.params.values() if p in _OTHER_BASES]
    return bool(named)


def pytest_unconfigure(config: pytest.Config) -> None:
    left = os.listdir(_FOLDER)
    if left:
        print(f"sockets left: {left}")
    shutil.rmtree(_FOLDER, ignore_errors=True)
