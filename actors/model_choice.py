"""From the settings to the model that a model actor uses, its context window, and the name of its endpoint.

Called by the model actor only: it imports openai, or a user's own model.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from callboard.actors.chat_model import Capabilities, ChatModel
from callboard.actors.custom_model import WatchedModel, load_model
from callboard.actors.model_window import ModelWindow
from callboard.actors.patience import ModelTimeouts
from callboard.actors.settings import ModelSettings
from callboard.actors.tokens import TokenCounter


def make_model(settings: ModelSettings) -> ChatModel:
    """Make the model that the settings name, ready for its first call. Raises ModelLoadError for a user's own."""
    timeouts = ModelTimeouts(
        connect_s=settings.connect_s,
        first_token_s=settings.first_token_s,
        between_tokens_s=settings.between_tokens_s,
        total_s=settings.total_s,
    )
    if settings.kind == "custom":
        return WatchedModel(load_model(settings.custom_class, settings.options), timeouts)
    from callboard.actors.openai_model import OpenAIModel

    capabilities = Capabilities(
        streaming=settings.stream,
        vision=settings.vision,
        context_tokens=settings.context_tokens,
    )
    model = OpenAIModel(
        settings.base_url,
        settings.api_key,
        settings.name,
        timeouts=timeouts,
        capabilities=capabilities,
        extra={} if settings.temperature is None else {"temperature": settings.temperature},
    )
    model.prepare()
    return model


def make_window(settings: ModelSettings, capabilities: Capabilities, counter: TokenCounter) -> ModelWindow:
    """Make the window: as configured, else as the model says."""
    return ModelWindow(
        counter,
        context_tokens=settings.context_tokens or capabilities.context_tokens,
        reserve_tokens=settings.reserve_tokens,
        vision=capabilities.vision,
    )


def endpoint_key(settings: ModelSettings) -> str:
    """Name what is spared when it fails: endpoint and model, without user, password and query."""
    if settings.kind != "endpoint":
        return f"{settings.custom_class or settings.kind} {settings.name}"
    parts = urlsplit(settings.base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path} {settings.name}"
