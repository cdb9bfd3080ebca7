"""Thespian's system base over the Unix-domain mail: what ``ActorSystem`` opens in ``mail.open_system``.

It also takes two costs off Thespian's sending that this mail does not need: the rate limit made for a network link
(it would sleep, in the actor, above some 4,500 messages a second), and the printing of every message for a debug
line that is not written.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from thespian.actors import ThespianGeneration
from thespian.system import systemCommon
from thespian.system.multiprocCommon import get_multiproc_context, multiprocessCommon
from thespian.system.systemBase import systemBase
from thespian.system.transport import ExternalInterfaceTransportInit, TransmitIntent

from callboard.transports.lean_fork import LeanForkContext
from callboard.transports.unix_transport import UnixTransport

_NO_LIMIT = 1 << 60


class ActorSystemBase(multiprocessCommon):  # type: ignore[misc]
    """The system base. The capability ``Mail Folder`` names the folder of the sockets, which is made if missing."""

    transportType = UnixTransport  # noqa: N815

    def __init__(self, system: Any, logDefs: Any = None) -> None:  # noqa: N803
        _lighten()
        system.capabilities.update(self._capabilities())
        context = get_multiproc_context(system.capabilities)
        self.mpcontext = LeanForkContext() if context.get_start_method() == "fork" else context
        init = ExternalInterfaceTransportInit()
        self.transport = self.transportType(init, system.capabilities, logDefs, self.mpcontext)
        try:
            # Not multiprocessCommon's: it would open a transport of its own, with multiprocessing's pipes.
            systemBase.__init__(self, system, logDefs)
        except BaseException:
            self.transport.close()
            raise

    @staticmethod
    def _capabilities() -> dict[str, Any]:
        return {
            "Thespian ActorSystem Name": "callboardUnixBase",
            "Thespian ActorSystem Version": 1,
            "Thespian Watch Supported": True,
            "Thespian Generation": ThespianGeneration,
            "Thespian Version": str(int(time.time() * 1000)),
            "Python Version": tuple(sys.version_info),
        }


def _lighten() -> None:
    systemCommon.RATE_THROTTLE = _NO_LIMIT
    TransmitIntent.identify = _identify


def _identify(intent: Any) -> str:
    return f"TransmitIntent({intent.targetAddr}, {type(intent.message).__name__}, {intent.result})"
