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

import json
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from callboard.actors.chat_messages import functions_from_tools, messages_from_items
from callboard.actors.chat_model import Capabilities, ModelError, ModelEvent, ModelTextDelta
from callboard.actors.endpoint_errors import error_of_object, error_of_status
from callboard.actors.items import FunctionCall, Item
from callboard.actors.patience import DEFAULT_TIMEOUTS, ModelTimeouts, Patience
from callboard.actors.stream_assembly import StreamAssembly
from callboard.tools.contract import ToolSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["DEFAULT_CAPABILITIES", "DEFAULT_TIMEOUTS", "ModelTimeouts", "OpenAIModel"]

MAX_MESSAGE_CHARS = 1000
MIN_KEY_CHARS = 4
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BROKEN_OFF = ("ReadError", "RemoteProtocolError", "WriteError", "CloseError", "DecodingError")
_END = object()


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
        return request | self._extra

    async def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Give the reply's chunks as plain objects; a reply that was not streamed is one chunk."""
        self.prepare()
        patience = Patience(self.timeouts, self._capabilities.streaming)
        foreign = _foreign_errors()
        try:
            async with patience.wait():
                reply = await self._ask(request)
            patience.stage = "answered"
            if not request["stream"]:
                yield _whole(reply)
                return
            async with aclosing(reply):
                if _is_whole(reply.response.headers):
                    async with patience.wait():
                        yield _whole(json.loads(await reply.response.aread()))
                    return
                while True:
                    async with patience.wait():
                        received = await anext(reply, _END)
                    if received is _END:
                        return
                    chunk = received if isinstance(received, Mapping) else {}
                    if _carries_tokens(chunk):
                        patience.stage = "streaming"
                    yield chunk
        except foreign as error:
            raise self._mapped(error, patience) from (None if self._mentions_key(error) else error)

    async def _ask(self, request: dict[str, Any]) -> Any:
        import openai

        if not (self._reports_usage and request["stream"]):
            return await self._post(request)
        try:
            return await self._post({"stream_options": {"include_usage": True}} | request)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if "stream_options" not in str(error):
                raise
            self._reports_usage = False
            return await self._post(request)

    async def _post(self, body: dict[str, Any]) -> Any:
        """Post the request as it is, and have what comes back as it is.

        The typed ``chat.completions.create`` checks every message against the whole API each time: half a
        second for a conversation of 500 turns, in which no other stream of this process moves.
        """
        import openai

        assert self._client is not None
        streamed = bool(body["stream"])
        stream_class = openai.AsyncStream[object] if streamed else None
        return await self._client.post(
            "/chat/completions", cast_to=object, body=body, stream=streamed, stream_cls=stream_class
        )

    def _mapped(self, error: Exception, patience: Patience) -> ModelError:
        """Map a foreign exception to its ModelError; the clauses go from special to general."""
        import openai

        match error:
            case _ if isinstance(error, _http_errors()):
                return ModelError("interrupted", f"the connection broke off: {error}", retryable=True)
            case openai.APITimeoutError() if type(error.__cause__).__name__ == "ConnectTimeout":
                text = f"no connection within {self.timeouts.connect_s:g} s"
                return ModelError("unreachable", text, retryable=True)
            case openai.APITimeoutError() | TimeoutError():
                return ModelError("timeout", patience.complaint(), retryable=not patience.is_over())
            case openai.APIConnectionError():
                was_made = type(error.__cause__).__name__ in _BROKEN_OFF
                kind, what = ("interrupted", "broke off") if was_made else ("unreachable", "failed")
                return ModelError(kind, f"the connection {what}: {error.__cause__ or error}", retryable=True)
            case openai.APIStatusError():
                return error_of_status(
                    error.status_code, error.body, error.message, error.response.headers, time.time()
                )
            case openai.APIResponseValidationError() | ValueError():
                return ModelError("bad_reply", f"the endpoint sent what is no reply: {error}", retryable=True)
            case openai.APIError(body=body) if body:
                return error_of_object(body)
        return ModelError("rejected", str(error), retryable=False)

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
            context_tokens=error.context_tokens,
        )


def _foreign_errors() -> tuple[type[Exception], ...]:
    import openai

    return (openai.OpenAIError, *_http_errors(), TimeoutError, json.JSONDecodeError, UnicodeDecodeError)


def _http_errors() -> tuple[type[Exception], ...]:
    """The roots of the HTTP library's own errors: openai maps them up to a whole reply's head, not in its body."""
    return tuple(sys.modules[name].HTTPError for name in ("httpx2", "httpx") if name in sys.modules)


def _whole(reply: Any) -> Mapping[str, Any]:
    if isinstance(reply, Mapping):
        return reply
    raise _no_endpoint("what is no JSON object")


def _is_whole(headers: Mapping[str, str]) -> bool:
    """True when the answer to a request for a stream is one JSON object: some endpoints cannot stream, or fail so."""
    content_type = headers.get("content-type", "")
    if content_type.startswith("text/html"):
        raise _no_endpoint("a web page")
    return content_type.startswith("application/json")


def _no_endpoint(what: str) -> ModelError:
    text = f"the endpoint answered with {what}; check base_url, which often ends in /v1"
    return ModelError("bad_reply", text, retryable=False)


def _carries_tokens(chunk: Mapping[str, Any]) -> bool:
    """True when the chunk has more than the role that some endpoints send before they think."""
    choices = chunk.get("choices")
    deltas = [choice.get("delta") for choice in choices or () if isinstance(choice, Mapping)]
    return any(value for delta in deltas if delta for name, value in delta.items() if name != "role")


def _public_url(url: str) -> str:
    """Give the URL without user, password, query and fragment, any of which may be a secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
