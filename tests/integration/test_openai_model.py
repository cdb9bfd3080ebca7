"""The shipped model against the scripted server, over real HTTP."""

from __future__ import annotations

import asyncio
import email.utils
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from callboard.actors.asked_calls import parse_arguments
from callboard.actors.chat_model import Capabilities, ChatModel, ModelError, ModelReply, ModelTextDelta, Usage
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.actors.openai_model import ModelTimeouts, OpenAIModel
from callboard.testing.model_server import Call, RecordedRequest, Reply, ScriptedModelServer
from callboard.tools.content import ImageBlock, TextBlock
from callboard.tools.contract import ToolSpec

pytestmark = pytest.mark.integration

KEY = "sk-very-secret"
ECHO = ToolSpec(name="echo", description="Say it again.", parameters={"type": "object", "properties": {}})
LONG_TEXT = "the quick brown fox jumps over the lazy dog"


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=(TextBlock(text),))


def use(base_url: str, act: Callable[[OpenAIModel], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
    """Run ``act`` with a model on ``base_url`` and close the model."""

    async def run() -> Any:
        model = OpenAIModel(base_url, KEY, "scripted", **settings)
        try:
            return await asyncio.wait_for(act(model), 20)
        finally:
            await model.aclose()

    return asyncio.run(run())


def ask(base_url: str, *items: Item | str, tools: tuple[ToolSpec, ...] = (), **settings: Any) -> list[Any]:
    """Give all events of one chat."""
    context = [user(item) if isinstance(item, str) else item for item in items]

    async def act(model: OpenAIModel) -> list[Any]:
        return [event async for event in model.chat(context, tools)]

    events: list[Any] = use(base_url, act, **settings)
    return events


def fail(reply: Reply, **settings: Any) -> ModelError:
    """Give the error of a chat that the server answers with ``reply``."""
    with ScriptedModelServer([reply]) as server, pytest.raises(ModelError) as caught:
        ask(server.base_url, "hi", **settings)
    return caught.value


def test_text_streams_in_pieces_and_ends_in_one_reply() -> None:
    with ScriptedModelServer([Reply(text=LONG_TEXT)]) as server:
        *deltas, reply = ask(server.base_url, "hi")
    assert len(deltas) > 3
    assert "".join(delta.text for delta in deltas if isinstance(delta, ModelTextDelta)) == LONG_TEXT
    assert reply == ModelReply(
        text=LONG_TEXT, usage=Usage(input_tokens=1, output_tokens=11), model="scripted"
    )


def test_a_turn_with_parallel_calls_and_their_results() -> None:
    with ScriptedModelServer() as server:
        question = user('call echo {"a": 1}\ncall echo {"b": 2}')
        reply = ask(server.base_url, question, tools=(ECHO,))[-1]
        outputs = [
            FunctionCallOutput(call_id=call.call_id, content=(TextBlock(call.arguments),))
            for call in reply.calls
        ]
        answer = ask(server.base_url, question, *reply.calls, *outputs, tools=(ECHO,))[-1]
        first, second = server.requests
    assert [call.arguments for call in reply.calls] == ['{"a": 1}', '{"b": 2}']
    assert answer.text == 'done: {"a": 1} | {"b": 2}'
    assert first.tool_names == ("echo",)
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool", "tool"]


def test_what_is_configured_is_in_the_request() -> None:
    with ScriptedModelServer(api_key=KEY) as server:
        ask(server.base_url, "hi", extra={"temperature": 0, "made_up": [1]})
        request = server.requests[0]
    assert (request.body["temperature"], request.body["made_up"]) == (0, [1])
    assert request.body["stream_options"] == {"include_usage": True}
    assert "tools" not in request.body


def test_one_connection_carries_several_chats() -> None:
    with ScriptedModelServer() as server:

        async def act(model: OpenAIModel) -> list[str]:
            async def one(text: str) -> str:
                replies = [event async for event in model.chat([user(text)], [])]
                return str(replies[-1].text)

            return [await one("a"), *await asyncio.gather(*(one(str(n)) for n in range(20)))]

        texts = use(server.base_url, act)
    assert texts == ["you said: a", *(f"you said: {n}" for n in range(20))]


def test_call_ids_are_new_to_the_conversation() -> None:
    former = FunctionCall(call_id="x", tool="echo", arguments="{}")
    output = FunctionCallOutput(call_id="x", content=(TextBlock("1"),))
    with ScriptedModelServer([Reply(calls=(Call(name="echo", call_id="x"),))]) as server:
        reply = ask(server.base_url, "hi", former, output, "again", tools=(ECHO,))[-1]
    assert [call.call_id for call in reply.calls] == ["x_2"]


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (Reply(status=400, error="no such field"), "rejected", False),
        (Reply(status=400, error_code="context_length_exceeded"), "context_window", False),
        (Reply(status=401, error="wrong key"), "rejected", False),
        (Reply(status=404, error="no such model"), "rejected", False),
        (Reply(status=408), "timeout", True),
        (Reply(status=429), "rate_limited", True),
        (Reply(status=429, error_code="insufficient_quota"), "rate_limited", False),
        (Reply(status=500), "server_error", True),
        (Reply(status=503), "overloaded", True),
        (Reply(status=529), "overloaded", True),
        (Reply(text=LONG_TEXT, cut_after=3), "interrupted", True),
        (Reply(cut_after=0), "interrupted", True),
        (Reply(calls=(Call(name="echo", arguments='{"a": 1}'),), cut_after=1), "interrupted", True),
        (Reply(calls=(Call(name="echo", arguments='{"a": 1}'),), cut_after=2), "interrupted", True),
        (Reply(calls=(Call(name="echo", arguments='{"a": 1}'),), cut_after=3), "interrupted", True),
        (Reply(text=LONG_TEXT, error_after=3), "server_error", True),
        (Reply(text=LONG_TEXT, error_after=3, error_code=429), "rate_limited", True),
        (Reply(text=LONG_TEXT, error_after=0, error_type="overloaded_error"), "overloaded", True),
        (Reply(error_after=0, error_type="invalid_request_error"), "rejected", False),
        (Reply(error_after=0, error_code="context_length_exceeded"), "context_window", False),
    ],
    ids=str,
)
def test_each_failure_has_its_kind_streamed_or_not(
    reply: Reply, kind: str, retryable: bool, streaming: bool
) -> None:
    error = fail(reply, capabilities=Capabilities(streaming=streaming))
    assert (error.kind, error.retryable) == (kind, retryable)
    assert "model 'scripted' at http://127.0.0.1:" in error.message


@pytest.mark.parametrize("chunks", [(), ({"choices": [{"delta": {"content": "half"}}]},)])
def test_a_stream_that_ends_before_its_reply_is_interrupted(chunks: tuple[dict[str, Any], ...]) -> None:
    assert fail(Reply(raw_chunks=chunks)).kind == "interrupted"


def test_one_object_instead_of_a_stream_is_taken_as_the_reply_or_as_its_error() -> None:
    with ScriptedModelServer([Reply(text="hi", whole=True)]) as server:
        assert ask(server.base_url, "hi")[-1].text == "hi"
    assert fail(Reply(whole=True, error_after=0, error_code=429)).kind == "rate_limited"
    assert fail(Reply(text=LONG_TEXT, whole=True, cut_after=0)).kind == "interrupted"


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "unstreamed"])
def test_an_endpoint_without_usage_counts_as_none_used(streaming: bool) -> None:
    with ScriptedModelServer([Reply(text="hi", usage=False)]) as server:
        reply = ask(server.base_url, "hi", capabilities=Capabilities(streaming=streaming))[-1]
    assert (reply.text, reply.usage) == ("hi", Usage())


def test_a_call_cut_off_by_the_length_limit_is_never_one_without_arguments() -> None:
    cut = Reply(calls=(Call(name="echo", arguments=""),), finish_reason="length")
    with ScriptedModelServer([cut]) as server:
        (called,) = ask(server.base_url, "hi", tools=(ECHO,))[-1].calls
    assert parse_arguments(called.arguments) is None


def test_the_whole_call_has_a_limit_of_its_own() -> None:
    timeouts = ModelTimeouts(total_s=0.4)
    for streaming in (True, False):
        error = fail(
            Reply(text=LONG_TEXT, gap_s=0.15, delay_s=0.0 if streaming else 5.0),
            timeouts=timeouts,
            capabilities=Capabilities(streaming=streaming),
        )
        assert (error.kind, error.retryable) == ("timeout", False)
        assert "not complete within 0.4 s" in error.message


def test_a_reply_that_is_not_streamed_may_take_longer_than_a_first_token() -> None:
    timeouts = ModelTimeouts(first_token_s=0.1)
    with ScriptedModelServer([Reply(text="hi", delay_s=0.4)]) as server:
        events = ask(server.base_url, "hi", timeouts=timeouts, capabilities=Capabilities(streaming=False))
    assert events[-1].text == "hi"


def test_a_long_conversation_is_asked_quickly() -> None:
    """The typed client took half a second for this one; a tenth of that is far above what it takes now."""
    items: list[Item] = []
    for number in range(500):
        items += [user(f"question {number}"), FunctionCall(call_id=f"c{number}", tool="t", arguments="{}")]
        items += [FunctionCallOutput(call_id=f"c{number}", content=(TextBlock("result " * 20),))]
        items += [ChatMessage(role="assistant", content=(TextBlock("answer " * 20),))]
    context = [*items, user("now")]
    with ScriptedModelServer(rule=lambda request: Reply(text="ok")) as server:

        async def act(model: OpenAIModel) -> float:
            took = []
            for _ in range(5):
                began = time.process_time()
                async for _event in model.chat(context, []):
                    pass
                took.append(time.process_time() - began)
            return min(took)

        assert use(server.base_url, act) < 0.2


def test_the_wish_to_be_left_alone_is_passed_on() -> None:
    assert fail(Reply(status=429, retry_after="7")).retry_after_s == 7.0
    assert fail(Reply(status=503, retry_after="0.5")).retry_after_s == 0.5
    assert fail(Reply(status=429)).retry_after_s is None
    until = email.utils.format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    wish = fail(Reply(status=429, retry_after=until)).retry_after_s
    assert wish is not None
    assert 25 < wish <= 30


@pytest.mark.parametrize("reply", [Reply(hang_after=0), Reply(hang_after=1), Reply(delay_s=5)], ids=str)
def test_silence_before_the_first_token_is_a_timeout(reply: Reply) -> None:
    error = fail(reply, timeouts=ModelTimeouts(first_token_s=0.2))
    assert (error.kind, error.retryable) == ("timeout", True)
    assert "no first token within 0.2 s" in error.message


def test_silence_between_tokens_is_a_timeout_of_its_own() -> None:
    error = fail(Reply(text=LONG_TEXT, hang_after=3), timeouts=ModelTimeouts(between_tokens_s=0.2))
    assert (error.kind, error.message.split(": ")[1]) == ("timeout", "nothing more came for 0.2 s")


def test_a_slow_but_steady_stream_is_no_timeout() -> None:
    timeouts = ModelTimeouts(first_token_s=0.5, between_tokens_s=0.5)
    with ScriptedModelServer([Reply(text=LONG_TEXT, gap_s=0.15)]) as server:
        started = time.monotonic()
        assert ask(server.base_url, "hi", timeouts=timeouts)[-1].text == LONG_TEXT
    assert time.monotonic() - started > 0.6


def test_a_refused_connection_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ModelError) as caught:
        ask(f"http://127.0.0.1:{port}/v1", "hi")
    assert (caught.value.kind, caught.value.retryable) == ("unreachable", True)


def test_an_endpoint_that_does_not_know_stream_options_is_asked_without() -> None:
    def fussy(request: RecordedRequest) -> Reply:
        if "stream_options" in request.body:
            return Reply(status=400, error="unknown field stream_options")
        return Reply(text="fine")

    with ScriptedModelServer(rule=fussy) as server:

        async def act(model: OpenAIModel) -> list[str]:
            return [(await anext(aiter(model.chat([user("hi")], [])))).text for _ in range(2)]

        assert use(server.base_url, act) == ["fine", "fine"]
        assert ["stream_options" in request.body for request in server.requests] == [True, False, False]


def test_a_model_that_does_not_stream_gives_its_reply_whole() -> None:
    with ScriptedModelServer([Reply(text="hi", calls=(Call(name="echo"),))]) as server:
        delta, reply = ask(server.base_url, "hi", capabilities=Capabilities(streaming=False))
        assert server.requests[0].body["stream"] is False
    assert (delta, reply.text, len(reply.calls)) == (ModelTextDelta("hi"), "hi", 1)


def test_a_model_with_eyes_is_sent_the_image() -> None:
    picture = ChatMessage(role="user", content=(ImageBlock("aGk=", "image/png"),))
    with ScriptedModelServer() as server:
        ask(server.base_url, picture, capabilities=Capabilities(vision=True))
        assert server.requests[0].messages[0]["content"][0]["type"] == "image_url"


def test_no_error_text_contains_the_key() -> None:
    for reply in (Reply(status=401, error=f"wrong key {KEY}"), Reply(error=f"odd key {KEY}", error_after=1)):
        error = fail(reply)
        assert "***" in error.message
        assert KEY not in "".join(traceback.format_exception(error))
    model: ChatModel = OpenAIModel("http://host/v1", KEY, "m")
    assert KEY not in repr(model)


def test_an_error_does_not_show_what_is_secret_in_the_url() -> None:
    with pytest.raises(ModelError) as caught:
        ask("http://me:hush@127.0.0.1:1/v1?token=hush", "hi")
    assert "hush" not in caught.value.message


def test_a_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="base_url of model 'm'"):
        OpenAIModel("localhost:8000", KEY, "m")


def test_the_loopback_is_reached_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with ScriptedModelServer() as server:
        assert ask(server.base_url, "hi")[-1].text == "you said: hi"


def test_a_caller_who_stops_early_releases_the_connection() -> None:
    endless = Reply(text="word " * 5000, gap_s=0.01)
    with ScriptedModelServer([endless, Reply(text="next")]) as server:

        async def act(model: OpenAIModel) -> str:
            async with aclosing(model.chat([user("hi")], [])) as events:
                await anext(events)
            return str([event async for event in model.chat([user("hi")], [])][-1].text)

        assert use(server.base_url, act) == "next"


def test_cancelling_the_task_ends_the_chat_at_once() -> None:
    with ScriptedModelServer([Reply(hang_after=2, text=LONG_TEXT)]) as server:

        async def act(model: OpenAIModel) -> float:
            started = asyncio.get_running_loop().time()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    async for _ in model.chat([user("hi")], []):
                        pass
            return asyncio.get_running_loop().time() - started

        assert use(server.base_url, act) < 1.0


def test_importing_the_module_does_not_import_openai() -> None:
    code = "import sys, callboard.actors.openai_model; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def test_a_closed_model_can_be_used_again() -> None:
    with ScriptedModelServer() as server:

        async def act(model: OpenAIModel) -> str:
            await model.aclose()
            [event async for event in model.chat([user("a")], [])]
            await model.aclose()
            return str([event async for event in model.chat([user("b")], [])][-1].text)

        assert use(server.base_url, act) == "you said: b"


def test_a_web_page_is_no_endpoint() -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p>!"

    async def act() -> ModelError:
        async def show(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(page)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(show, "127.0.0.1", 0)
        model = OpenAIModel(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", KEY, "m")
        try:
            with pytest.raises(ModelError) as caught:
                await anext(aiter(model.chat([user("hi")], [])))
        finally:
            await model.aclose()
            server.close()
            await server.wait_closed()
        return caught.value

    error = asyncio.run(act())
    assert (error.kind, error.retryable) == ("bad_reply", False)
    assert "check base_url" in error.message
