"""A user's own model: loaded by name, watched for silence, and its events checked (FEATURES M6).

Whatever goes wrong in it is one failed turn that says so, never the end of the model actor. Called by the model
actor, the only process that imports a user's model.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any

from callboard.actors.chat_model import (
    Capabilities,
    ChatModel,
    ModelError,
    ModelEvent,
    ModelReply,
    ModelTextDelta,
    Usage,
)
from callboard.actors.items import FunctionCall, Item
from callboard.actors.patience import DEFAULT_TIMEOUTS, ModelTimeouts, Patience
from callboard.tools.contract import ToolSpec

_MODULE_NAME = "_callboard_model"
_END = object()


class ModelLoadError(Exception):
    """A user's model cannot be had; the message says why and what to do."""


class ModelBug(Exception):
    """A user's model broke the contract; the message says how."""


def load_model(reference: str, options: Mapping[str, Any]) -> ChatModel:
    """Import ``package.module:Class`` (or ``/path/to/file.py:Class``) and make it with ``options`` as keywords.

    Runs the user's code. Raises ModelLoadError.
    """
    module_name, _, class_name = reference.rpartition(":")
    try:
        module = _import(module_name)
    except BaseException as fault:  # an interrupt or an exit at import is the module's own doing
        raise ModelLoadError(
            f"model class {reference!r}: cannot import {module_name!r}: {_said(fault)}"
        ) from fault
    made_by = getattr(module, class_name, None)
    if not callable(made_by):
        raise ModelLoadError(f"model class {reference!r}: {module_name!r} has no class {class_name!r}")
    try:
        model = made_by(**options)
        capabilities = model.capabilities
    except BaseException as fault:
        raise ModelLoadError(f"model class {reference!r} could not be made: {_said(fault)}") from fault
    if not isinstance(capabilities, Capabilities) or not callable(getattr(model, "chat", None)):
        raise ModelLoadError(
            f"model class {reference!r}: expected an attribute 'capabilities' of type Capabilities and a method 'chat'"
        )
    loaded: ChatModel = model
    return loaded


class WatchedModel:
    """A user's model behind the promises of the contract: in time, and with events of the right types.

    Raises ModelError as the model does, and for its silence; ModelBug for an event that is none; whatever else
    the model raises goes through.
    """

    def __init__(self, model: ChatModel, timeouts: ModelTimeouts = DEFAULT_TIMEOUTS) -> None:
        self._model = model
        self._timeouts = timeouts

    @property
    def capabilities(self) -> Capabilities:
        """Say what the model says that it can do."""
        return self._model.capabilities

    async def chat(
        self, context: Sequence[Item], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[ModelEvent, None]:
        """Pass the model's events on, up to its ModelReply."""
        patience = Patience(self._timeouts, self._model.capabilities.streaming)
        events = self._model.chat(tuple(context), tuple(tools) if self._model.capabilities.tools else ())
        if not hasattr(events, "__anext__"):
            given = type(events).__name__
            raise ModelBug(f"chat() gave {given}, not an async iterator: is it 'async def' with a 'yield'?")
        async with aclosing(_closable(events)) as closable:
            while True:
                event = await self._next(closable, patience)
                if event is _END:
                    return
                yield _checked(event)
                if isinstance(event, ModelReply):
                    return
                patience.stage = "streaming"

    async def _next(self, events: AsyncIterator[ModelEvent], patience: Patience) -> Any:
        limit = patience.wait()
        try:
            async with limit:
                return await anext(events, _END)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ModelError("timeout", patience.complaint(), retryable=not patience.is_over()) from error


async def _closable(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent, None]:
    """Release at once what the iterator holds when it is left early; a plain one has nothing to release."""
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _checked(event: Any) -> ModelEvent:
    match event:
        case ModelTextDelta(text=str()):
            return event
        case ModelReply(text=str(), calls=tuple() as calls, usage=Usage(), model=str()):
            if all(isinstance(call, FunctionCall) and _is_text(call) for call in calls):
                return event
    raise ModelBug(
        f"chat() gave {event!r:.200}: expected ModelTextDelta(text), and at last a ModelReply, whose calls are "
        "a tuple of FunctionCall with their arguments as JSON text"
    )


def _is_text(call: FunctionCall) -> bool:
    return all(isinstance(value, str) for value in (call.call_id, call.tool, call.arguments))


def _import(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(_MODULE_NAME, Path(name))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is no Python source")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def _said(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}"[:500]
