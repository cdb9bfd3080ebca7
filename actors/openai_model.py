"""The shipped model: any OpenAI-compatible chat-completion endpoint, through the ``openai`` package.

Decides how a step is asked for, how long to wait, and which kind of ModelError each failure is: this is the
one seam at which openai's exceptions become ours. It never retries a failed call (the caller has the policy
and the budget); the single exception is an endpoint that does not know ``stream_options``, which is asked
again without.

Importing this module is cheap: ``openai`` is imported by ``prepare()``, or by the first ``chat``. So
configuration and parents that fork may name the class; only a model actor, a process that never forks,
should call those two.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from callboard.actors.chat_messages import functions_from_tools, messages_from_items
from callboard.actors.chat_model import Capabilities, ModelError, ModelEvent, ModelTextDelta
from callboard.actors.items import FunctionCall, Item
from callboard.actors.stream_assembly import StreamAssembly, error_of_object
from callboard.tools.contract import ToolSpec

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

MAX_MESSAGE_CHARS = 1000
MIN_KEY_CHARS = 4
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OVERLOADED = (503, 529)
_END = object()
_Stage: TypeAlias = Literal["asked", "answered", "streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimeouts:
    """How long to wait, in seconds: to connect, for the first token, and between two chunks after it."""

    connect_s: float = 10.0
    first_token_s: float = 60.0
    between_tokens_s: float = 60.0


DEFAULT_TIMEOUTS = ModelTimeouts()
DEFAULT_CAPABILITIES = Capabilities()


class OpenAIModel:
    """A ChatModel on one endpoint and one model name.

    ``base_url`` ends where ``/chat/completions`` begins (``https://host/v1``). ``extra`` are further fields
    of every request, as the endpoint names them (``temperature``, ``max_tokens`` …). One HTTP client, made
    at first use, lives as long as the object and belongs to the event loop that used it first; several
    ``chat`` may run at once on that loop. Raises ValueError when ``base_url`` is not an http or https URL.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        name: str,
        *,
        timeouts: ModelTimeouts = DEFAULT_TIMEOUTS,
        capabilities: Capabilities = DEFAULT_CAPABILITIES,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"base_url of model {name!r} is not an http or https URL: {_public_url(base_url)!r}"
            )
        self.name = name
        self.base_url = base_url
        self.timeouts = timeouts
        self._capabilities = capabilities
        self._api_key = api_key
        self._extra = dict(extra or {})
        self._client: AsyncOpenAI | None = None
        self._reports_usage = True

    def __repr__(self) -> str:
        return f"OpenAIModel({_public_url(self.base_url)!r}, name={self.name!r})"

    @property
    def capabilities(self) -> Capabilities:
        """Say what this model can do, as it was configured."""
        return self._capabilities

    def prepare(self) -> None:
        """Import openai and make the client now (0.7 s), so that the first ``chat`` need not wait for it."""
        if self._client is not None:
            return
        import openai

        # A proxy set for the outer world must not see, and cannot reach, an endpoint on this host.
        direct = urlsplit(self.base_url).hostname in _LOOPBACK
        timeout = openai.Timeout(None, connect=self.timeouts.connect_s)
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._api_key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, trust_env=False) if direct else None,
        )

    async def chat(
        self, context: Sequence[Item], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[ModelEvent, None]:
        """Stream one reply: text deltas as they come, then one ModelReply.

        Raises ModelError. A caller that may stop early wraps the iterator in ``contextlib.aclosing``, so
        that the connection is released at once. Call ids are unique in the reply and in ``context``.
        """
        assembly = StreamAssembly(
            known_names=[tool.name for tool in tools],
            taken_ids=[item.call_id for item in context if isinstance(item, FunctionCall)],
        )
        try:
            async with aclosing(self._chunks(self._request(context, tools))) as chunks:
                async for chunk in chunks:
                    text = assembly.feed(chunk)
                    if text:
                        yield ModelTextDelta(text)
            reply = assembly.finish()
        except ModelError as error:
            raise self._named(error) from error.__cause__
        yield reply

    async def aclose(self) -> None:
        """Close the client and its connections. The model can be used again; it then makes a new client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _request(self, context: Sequence[Item], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.name,
            "messages": messages_from_items(context, vision=self._capabilities.vision),
            "stream": self._capabilities.streaming,
        }
        if tools and self._capabilities.tools:
            request["tools"] = functions_from_tools(tools)
        if self._extra:
            request["extra_body"] = self._extra
        return request

    async def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Give the reply's chunks as plain objects; a reply that was not streamed is one chunk."""
        self.prepare()
        from openai import OpenAIError

        give_up_at = asyncio.get_running_loop().time() + self.timeouts.first_token_s
        stage: _Stage = "asked"
        try:
            async with asyncio.timeout_at(give_up_at):
                reply = await self._ask(request)
            stage = "answered"
            if not request["stream"]:
                yield _plain(reply)
                return
            _refuse_web_page(reply.response.headers)
            async with aclosing(reply):
                while True:
                    async with self._patience(stage, give_up_at):
                        received = await anext(reply, _END)
                    if received is _END:
                        return
                    chunk = _plain(received)
                    stage = "streaming" if _carries_tokens(chunk) else stage
                    yield chunk
        except (OpenAIError, TimeoutError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise self._mapped(error, stage) from (None if self._mentions_key(error) else error)

    def _patience(self, stage: _Stage, give_up_at: float) -> asyncio.Timeout:
        if stage == "streaming":
            return asyncio.timeout(self.timeouts.between_tokens_s)
        return asyncio.timeout_at(give_up_at)

    async def _ask(self, request: dict[str, Any]) -> Any:
        import openai

        assert self._client is not None
        create = self._client.chat.completions.create
        if not (self._reports_usage and request["stream"]):
            return await create(**request)
        try:
            return await create(**request, stream_options={"include_usage": True})
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if "stream_options" not in str(error):
                raise
            self._reports_usage = False
            return await create(**request)

    def _mapped(self, error: Exception, stage: _Stage) -> ModelError:
        """Map a foreign exception to its ModelError; the clauses go from special to general."""
        import openai

        match error:
            case openai.APITimeoutError() if type(error.__cause__).__name__ == "ConnectTimeout":
                text = f"no connection within {self.timeouts.connect_s:g} s"
                return ModelError("unreachable", text, retryable=True)
            case openai.APITimeoutError() | TimeoutError():
                return ModelError("timeout", self._silence(stage), retryable=True)
            case openai.APIConnectionError():
                kind, what = ("unreachable", "failed") if stage == "asked" else ("interrupted", "broke off")
                return ModelError(kind, f"the connection {what}: {error.__cause__ or error}", retryable=True)
            case openai.APIStatusError():
                return _from_status(error)
            case openai.APIResponseValidationError() | ValueError():
                return ModelError("bad_reply", f"the endpoint sent what is no reply: {error}", retryable=True)
            case openai.APIError(body=body) if body:
                return error_of_object(body)
        return ModelError("rejected", str(error), retryable=False)

    def _silence(self, stage: _Stage) -> str:
        if stage == "streaming":
            return f"nothing more came for {self.timeouts.between_tokens_s:g} s"
        return f"no first token within {self.timeouts.first_token_s:g} s"

    def _mentions_key(self, error: Exception) -> bool:
        return bool(self._api_key) and self._api_key in f"{error} {error.__cause__}"

    def _named(self, error: ModelError) -> ModelError:
        """Say which model it was, without its key, in bounded length."""
        text = f"model {self.name!r} at {_public_url(self.base_url)}: {error.message}"
        if len(self._api_key) >= MIN_KEY_CHARS:
            text = text.replace(self._api_key, "***")
        return ModelError(
            error.kind,
            text[:MAX_MESSAGE_CHARS],
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
        )


def retry_after_s(headers: Mapping[str, str], wall_now_s: float) -> float | None:
    """Read the endpoint's wish to be left alone, in seconds from now, never negative; None when it has none.

    Understands ``retry-after-ms``, and ``retry-after`` in seconds or as an HTTP date; ``wall_now_s`` is
    Unix time.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wish = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        return max(0.0, wish) if math.isfinite(wish) else None
    try:
        until = email.utils.parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, until.timestamp() - wall_now_s)


def _from_status(error: APIStatusError) -> ModelError:
    status, code = error.status_code, str(error.code or "")
    said = error.body.get("message") if isinstance(error.body, Mapping) else None
    text = f"HTTP {status}: {said or error.message}"
    wish = retry_after_s(error.response.headers, time.time())
    if status == 429:
        return ModelError("rate_limited", text, retryable="quota" not in code, retry_after_s=wish)
    if status in _OVERLOADED:
        return ModelError("overloaded", text, retryable=True, retry_after_s=wish)
    if status == 408:
        return ModelError("timeout", text, retryable=True, retry_after_s=wish)
    if status < 500:
        return ModelError("rejected", text, retryable=False)
    return ModelError("server_error", text, retryable=True, retry_after_s=wish)


def _refuse_web_page(headers: Mapping[str, str]) -> None:
    if headers.get("content-type", "").startswith("text/html"):
        text = "the endpoint answered with a web page; check base_url, which often ends in /v1"
        raise ModelError("bad_reply", text, retryable=False)


def _plain(received: Any) -> Mapping[str, Any]:
    """Give what openai made of a chunk as the object it was; what was no object has nothing to say."""
    if isinstance(received, Mapping):
        return received
    if hasattr(received, "model_dump"):
        plain: Mapping[str, Any] = received.model_dump(exclude_unset=True, warnings=False)
        return plain
    return {}


def _carries_tokens(chunk: Mapping[str, Any]) -> bool:
    """True when the chunk has more than the role that some endpoints send before they think."""
    choices = chunk.get("choices")
    deltas = [choice.get("delta") for choice in choices or () if isinstance(choice, Mapping)]
    return any(value for delta in deltas if delta for name, value in delta.items() if name != "role")


def _public_url(url: str) -> str:
    """Give the URL without user, password, query and fragment, any of which may be a secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
