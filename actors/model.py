"""The model actor: takes model calls, holds them back where the endpoint must be spared, and answers each once.

It never forks: the calls run in a thread (``actors/model_streams.py``). Which model it is, and whether an endpoint may
be asked now, are decided in ``actors/model_choice.py`` and ``actors/limits_core.py``. A request that comes again while
it runs is the same request.
"""

from __future__ import annotations

import random
from collections import OrderedDict

from callboard.actors import names
from callboard.actors.chat_model import Capabilities, ChatModel
from callboard.actors.custom_model import ModelLoadError
from callboard.actors.limits_copy import LimitsCopy
from callboard.actors.limits_core import UP, Go, Probe, Refuse, Wait, outcome_of
from callboard.actors.messages import (
    Chat,
    ChatAnswer,
    ChatDone,
    EmbeddedAt,
    GetEmbedded,
    LimitsAre,
    ModelFault,
    ModelText,
    StopChat,
)
from callboard.actors.model_choice import endpoint_key, make_model, make_window
from callboard.actors.model_streams import Streams
from callboard.actors.settings import EMBEDDED_START_S, ModelSettings
from callboard.actors.tokens import TokenCounter
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure

MAX_CHATS = 2_000
HOLD_BACK_S = 5.0
_JITTER_S = 1.0
_JITTER_SHARE = 0.1
_KEPT_ANSWERS = 64


class ModelActor(Child):
    """``args``: ``settings``."""

    holds_secrets = True

    def start(self) -> None:
        """Start the loop's thread, watch its pipe, and make the model as soon as that is possible."""
        self._settings: ModelSettings = self.init.args["settings"].model
        self._running: dict[str, Envelope] = {}
        self._answers: OrderedDict[str, ChatAnswer] = OrderedDict()
        self._model: ChatModel | None = None
        self._broken: ModelFault | None = None
        self._waiting: list[Envelope] = []
        self._streams = Streams()
        self.watch(self._streams.ready_fd, lambda _events: self._take_news())
        self._limits = LimitsCopy(self, endpoint_key(self._settings))
        self.then_continue(self._limits.join)
        self._counter = TokenCounter(self._settings.name)
        self._said_how_counted = False
        self._window = make_window(self._settings, Capabilities(), self._counter)
        if self._settings.kind != "embedded":
            self.then_continue(lambda: self._use(self._settings))

    def handle(self, envelope: Envelope) -> None:
        """Start a call, or stop one."""
        match envelope.body:
            case Chat() if envelope.request_id in self._answers:
                self.reply(envelope, self._answers[envelope.request_id])
            case Chat() if envelope.request_id in self._running:
                return
            case Chat() if len(self._running) >= MAX_CHATS:
                message = f"{MAX_CHATS} model calls run in this process already"
                self.reply(envelope, ModelFault(kind="overloaded", message=message, retryable=True))
            case Chat():
                self._running[envelope.request_id] = envelope
                self._admit(envelope, self.now() + HOLD_BACK_S)
            case StopChat(request_id):
                self._running.pop(request_id, None)
                self._streams.stop(request_id)

    def handle_notice(self, message: object, sender: object) -> None:
        """Take what the limits actor tells."""
        if isinstance(message, LimitsAre):
            self._limits.take(message)

    def stopping(self) -> None:
        """End the thread with its streams."""
        self.unwatch(self._streams.ready_fd)
        self._streams.close()

    # ------------------------------------------------------------ may it be asked
    def _admit(self, envelope: Envelope, patient_until: float) -> None:
        """Begin the call when the endpoint may be asked; hold it back for a moment, or fail it with the wait."""
        if envelope.request_id not in self._running:
            return
        match self._limits.verdict():
            case Go():
                self._carry_out(envelope)
            case Probe():
                self._limits.take_probe(lambda granted: self._probe(envelope, granted, patient_until))
            case Wait(for_s, reason):
                jitter_s = random.random() * min(_JITTER_S, _JITTER_SHARE * for_s)
                if self.now() + for_s <= patient_until:
                    self.after(for_s + jitter_s, lambda: self._admit(envelope, patient_until))
                else:
                    self._hold_off(envelope, reason, for_s)
            case Refuse(for_s):
                self._hold_off(envelope, "unavailable", for_s)

    def _probe(self, envelope: Envelope, granted: bool, patient_until: float) -> None:
        if granted and envelope.request_id in self._running:
            self._carry_out(envelope)
        else:
            self._admit(envelope, patient_until)

    def _hold_off(self, envelope: Envelope, kind: str, for_s: float) -> None:
        why = {
            "rate_limited": "it asked to be left alone",
            "unavailable": "it failed several times in a row",
        }[kind]
        name, where = self._settings.name, endpoint_key(self._settings)
        message = f"model {name!r} ({where}) is not asked for another {for_s:.1f} s: {why}"
        fault = ModelFault(kind=kind, message=message, retryable=True, retry_after_s=for_s)
        self._finish(envelope.request_id, fault)

    # ------------------------------------------------------------ the model
    def _carry_out(self, envelope: Envelope) -> None:
        if self._broken is not None:
            self._finish(envelope.request_id, self._broken)
        elif self._model is not None:
            self._streams.begin(envelope.request_id, self._model, self._window, envelope.body)
        else:
            self._waiting.append(envelope)
            if len(self._waiting) == 1 and self._settings.kind == "embedded":
                self.ask(names.EMBEDDED, GetEmbedded(), self._embedded_is, deadline_s=EMBEDDED_START_S)

    def _embedded_is(self, answer: EmbeddedAt | Failure) -> None:
        if isinstance(answer, EmbeddedAt):
            self._use(self._settings.at(answer.base_url, answer.api_key))
            return
        fault = ModelFault(kind="unreachable", message=answer.message, retryable=answer.retryable)
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self._finish(envelope.request_id, fault)

    def _use(self, settings: ModelSettings) -> None:
        """Make the model; a user's own is imported here, after the start, for it may take its time."""
        if settings.kind == "custom":
            self.busy(EMBEDDED_START_S)
        try:
            self._model = make_model(settings)
            self._window = make_window(settings, self._model.capabilities, self._counter)
        except ModelLoadError as fault:
            self.log.error("model_not_loaded", reason=str(fault))
            self._broken = ModelFault(kind="not_loaded", message=str(fault), retryable=False)
        else:
            if self._window.context_tokens is not None:
                self._counter.prepare()
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            if envelope.request_id in self._running:
                self._carry_out(envelope)

    # ------------------------------------------------------------ what came of it
    def _take_news(self) -> None:
        for request_id, news in self._streams.take():
            envelope = self._running.get(request_id)
            if envelope is None:
                continue
            if isinstance(news, str):
                self._limits.report(UP)
                self.send(envelope.reply_to, ModelText(request_id, news))
            else:
                fault = news if isinstance(news, ModelFault) else None
                self._say_how_counted(news)
                self._limits.report(outcome_of(fault.kind, fault.retry_after_s) if fault else UP)
                self._finish(request_id, news)

    def _say_how_counted(self, answer: ChatAnswer) -> None:
        """Once, when it first mattered: whether the window is kept by exact counts or by an estimate."""
        mattered = answer.left_out if isinstance(answer, ChatDone) else answer.kind == "context_window"
        if mattered and not self._said_how_counted:
            self._said_how_counted = True
            self.log.info("context_counted", how=self._counter.note, window=self._window.context_tokens)

    def _finish(self, request_id: str, answer: ChatAnswer) -> None:
        envelope = self._running.pop(request_id, None)
        if envelope is None:
            return
        if isinstance(answer, ModelFault) and self._settings.kind == "embedded":
            self._model = None
        self._answers[request_id] = answer
        while len(self._answers) > _KEPT_ANSWERS:
            self._answers.popitem(last=False)
        self.reply(envelope, answer)
