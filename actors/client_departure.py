"""A client's way out: it looks now and then whether it is idle, asks the directory to leave, and says goodbye.

When to ask, and what the answer means, says ``actors/client_leaving.py``; here are its clock and its mail. Used by
``actors/client.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from callboard.actors.client_leaving import Leaving
from callboard.actors.messages import LeaveConversation
from callboard.actors.names import DIRECTORY
from callboard.supervisor.child import Child
from callboard.supervisor.timers import Timer

_ANSWER_S = 5.0


class Departure:
    """``is_idle`` says whether nothing is under way; ``farewell`` is called right before the end."""

    def __init__(
        self,
        host: Child,
        key: tuple[str, str],
        after_s: float,
        is_idle: Callable[[], bool],
        farewell: Callable[[], None],
    ) -> None:
        self._host = host
        self._team, self._conversation_id = key
        self._is_idle = is_idle
        self._farewell = farewell
        self._look: Timer | None = None
        self.leaving = Leaving(after_s, host.now())

    def look_in(self, wait_s: float) -> None:
        """Look once, after so long, whether it is time to go, and from then on as often as needed."""
        if self._look is not None:
            self._look.cancel()
        self._look = self._host.after(wait_s, self._look_whether_idle)

    def hurry(self, after_s: float) -> None:
        """Nothing is to be waited for: go as soon as this is over."""
        self.leaving.hurry(after_s)
        self.look_in(after_s)

    def _look_whether_idle(self) -> None:
        wait_s = self.leaving.wait_s(self._host.now(), is_idle=self._is_idle())
        if wait_s > 0:
            self.look_in(wait_s)
            return
        leave = LeaveConversation(
            conversation_id=self._conversation_id,
            team=self._team,
            incarnation=self._host.init.incarnation,
            pid=os.getpid(),
            mark=self.leaving.ask(),
        )
        self._host.ask(DIRECTORY, leave, self._may_leave, deadline_s=_ANSWER_S)

    def _may_leave(self, answer: Any) -> None:
        goes, wait_s = self.leaving.answered(answer, self._host.now(), is_idle=self._is_idle())
        if goes:
            self._farewell()
            self._host.finish("expired")
        else:
            self.look_in(wait_s)


__all__ = ["Departure"]
