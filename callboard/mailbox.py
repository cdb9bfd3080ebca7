"""The API's way to a system's actors: send a command to the directory, wait for what belongs to it.

An endpoint serves one request at a time; several threads get several. Commands are repeated under their request id
until answered, so neither a lost message nor a restarted directory is the caller's concern. It forks and hooks nothing.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callboard.actors.names import DIRECTORY
from callboard.errors import Unavailable
from callboard.supervisor.envelope import Envelope, Failure, Principal, Reply
from callboard.supervisor.table import ProcessTable

if TYPE_CHECKING:
    from callboard.transports.mail import Endpoint

REPEAT_S = 1.0
_FIRST_REPEAT_S = 0.25
_LOOK_AGAIN_S = 0.02
_SPARE_ENDPOINTS = 64


class Mailbox:
    """Mail to the system in one runtime folder."""

    def __init__(self, runtime_dir: Path) -> None:
        self._runtime_dir = runtime_dir
        self._table = ProcessTable(runtime_dir)
        self._spare: list[Endpoint] = []
        self._lock = threading.Lock()
        self._closed = False

    def request(
        self, body: Any, *, timeout_s: float, principal: Principal | None = None, to: str = DIRECTORY
    ) -> Any:
        """Send one command and give its answer; a Failure of kind ``unanswered`` after ``timeout_s`` seconds."""
        with self.exchange(lambda: body, principal=principal, to=to) as exchange:
            answer = exchange.next(timeout_s)
        if answer is None:
            return Failure(kind="unanswered", message=f"the {to} did not answer within {timeout_s:g} s")
        return answer

    @contextmanager
    def exchange(
        self,
        body: Callable[[], Any],
        *,
        request_id: str | None = None,
        principal: Principal | None = None,
        to: str = DIRECTORY,
    ) -> Iterator[Exchange]:
        """Hold a request that has many answers; ``body()`` is asked anew at each repetition."""
        endpoint = self._take()
        try:
            yield Exchange(self._table, endpoint, body, request_id or uuid.uuid4().hex, principal, to)
        finally:
            self._give_back(endpoint)

    def close(self) -> None:
        """Close the spare endpoints."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, []
        for endpoint in spare:
            endpoint.close()

    def _take(self) -> Endpoint:
        with self._lock:
            if self._closed:
                raise Unavailable("this connection was closed; connect again")
            if self._spare:
                return self._spare.pop()
        from callboard.transports import mail

        mail.prepare_environment(self._runtime_dir)
        try:
            return mail.Endpoint(self._runtime_dir)
        except mail.MailError as fault:
            raise Unavailable(f"the system in {self._runtime_dir} cannot be reached: {fault}") from fault

    def _give_back(self, endpoint: Endpoint) -> None:
        with self._lock:
            if not self._closed and len(self._spare) < _SPARE_ENDPOINTS:
                self._spare.append(endpoint)
                return
        endpoint.close()


class Exchange:
    """One request under way, and the answers to it."""

    def __init__(
        self,
        table: ProcessTable,
        endpoint: Endpoint,
        body: Callable[[], Any],
        request_id: str,
        principal: Principal | None,
        to: str,
    ) -> None:
        self._table = table
        self._endpoint = endpoint
        self._body = body
        self._request_id = request_id
        self._principal = principal
        self._to = to
        self._repeat_at = 0.0
        self._sent = 0
        self._has_heard = False

    def next(self, timeout_s: float) -> Any | None:
        """Give the next answer, repeating the request as needed; None after ``timeout_s`` seconds without one."""
        give_up_at = time.monotonic() + timeout_s
        while (now := time.monotonic()) < give_up_at:
            if now >= self._repeat_at:
                self._repeat_at = now + self._send()
            message = self._endpoint.receive(max(0.001, min(self._repeat_at, give_up_at) - now))
            if isinstance(message, Reply) and message.request_id == self._request_id:
                self._has_heard = True
                return message.body
        return None

    def repeat(self) -> None:
        """Send the request again with the next ``next``: there is something to tell."""
        self._repeat_at = 0.0

    def _send(self) -> float:
        """Send the request; give the seconds until it should be sent again."""
        found = self._table.find(self._to)
        if found is None:
            return _LOOK_AGAIN_S
        envelope = Envelope(
            request_id=self._request_id,
            body=self._body(),
            reply_to=self._endpoint.address,
            principal=self._principal,
        )
        self._endpoint.send(found[0], envelope)
        self._sent += 1
        return _FIRST_REPEAT_S if self._sent < 3 and not self._has_heard else REPEAT_S
