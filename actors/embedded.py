"""The embedded model's actor: owns the process that serves the local model, started at its first use.

The endpoint is on loopback, with a random port and a random key: the one exception to "no TCP port". When its process
is lost this actor ends, is started again, and serves whoever asks next.
"""

from __future__ import annotations

import json
import secrets
import sys

from callboard.actors.child_io import ChildIO
from callboard.actors.messages import EmbeddedAt, GetEmbedded
from callboard.actors.settings import Settings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.transports.errors import TransportError

KEY_VARIABLE = "CALLBOARD_EMBEDDED_KEY"


class EmbeddedActor(Child):
    """``args``: ``settings``."""

    holds_secrets = True

    def start(self) -> None:
        """Nothing runs until it is asked for."""
        settings: Settings = self.init.args["settings"]
        self._weights = settings.model.weights
        self._io: ChildIO | None = None
        self._at: EmbeddedAt | None = None
        self._key = secrets.token_urlsafe(24)
        self._waiting: dict[str, Envelope] = {}

    def handle(self, envelope: Envelope) -> None:
        """Say where the model answers, once it does."""
        if not isinstance(envelope.body, GetEmbedded):
            return
        if self._at is not None:
            self.reply(envelope, self._at)
            return
        self._waiting[envelope.request_id] = envelope
        if self._io is None:
            self._open()

    def stopping(self) -> bool:
        """End the process first."""
        if self._io is None:
            return True
        self._io.stop(lambda: self.finish("shutdown"))
        return False

    def _open(self) -> None:
        if not self._weights:
            self._fail("the embedded model's weights are missing: run 'callboard model pull'")
            return
        argv = (sys.executable, "-m", "callboard.embedded.serve", "--weights", self._weights, "--port", "0")
        try:
            self._io = ChildIO(self, argv, {KEY_VARIABLE: self._key}, None, self._line, self._lost)
        except TransportError as fault:
            self._fail(str(fault))

    def _line(self, line: bytes) -> None:
        """Its one line of output says on which port it answers; other output is the runtime's chatter."""
        try:
            said = json.loads(line)
            port = int(said["port"])
        except (ValueError, TypeError, KeyError):
            self.log.info("embedded_said", line=line[:200].decode("utf-8", "replace"))
            return
        self._at = EmbeddedAt(base_url=f"http://127.0.0.1:{port}/v1", api_key=self._key)
        self.log.info("embedded_ready", port=port)
        for envelope in self._waiting.values():
            self.reply(envelope, self._at)
        self._waiting.clear()

    def _lost(self, why: str) -> None:
        self._fail(f"the embedded model ended: {why}")
        self.finish(f"crashed: {why}")

    def _fail(self, message: str) -> None:
        self.log.error("embedded_failed", reason=message)
        failure = Failure(kind="unreachable", message=message, origin=self.init.id)
        for envelope in self._waiting.values():
            self.reply(envelope, failure)
        self._waiting.clear()
