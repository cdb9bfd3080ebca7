"""One answer per call, whatever its model does; and nothing that one call does is felt by another."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from callboard.actors.chat_model import Capabilities, ModelError, ModelReply, ModelTextDelta
from callboard.actors.context_window import ContextPolicy
from callboard.actors.items import ChatMessage, Item
from callboard.actors.messages import Chat, ChatAnswer, ChatDone, ModelFault
from callboard.actors.model_streams import Streams
from callboard.actors.model_window import ModelWindow
from callboard.actors.tokens import TokenCounter
from callboard.tools.content import TextBlock


def message(role: Any, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=(TextBlock(text),))


def history(turns: int) -> tuple[Item, ...]:
    past = [message(role, "word " * 50) for _ in range(turns) for role in ("user", "assistant")]
    return (message("system", "be brief"), *past, message("user", "now"))


class Model:
    """Does one thing after another, and remembers what it was shown."""

    capabilities = Capabilities()

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.shown: list[int] = []

    async def chat(self, context: Any, tools: Any) -> AsyncIterator[Any]:
        self.shown.append(len(context))
        for step in self.steps.pop(0) if isinstance(self.steps[0], list) else self.steps:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step


@pytest.fixture
def streams() -> Iterator[Streams]:
    made = Streams()
    yield made
    made.close()


def window(context_tokens: int | None = None) -> ModelWindow:
    return ModelWindow(TokenCounter("m"), context_tokens=context_tokens)


def answer_of(
    streams: Streams,
    model: Model,
    items: tuple[Item, ...] = (),
    *,
    limit: ModelWindow | None = None,
    policy: ContextPolicy = "trim",
) -> tuple[list[str], ChatAnswer]:
    streams.begin("r", model, limit or window(), Chat(items=items, tools=(), policy=policy))
    texts: list[str] = []
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        select.select([streams.ready_fd], [], [], 1.0)
        for _id, news in streams.take():
            if not isinstance(news, str):
                return texts, news
            texts.append(news)
    raise AssertionError("no answer came")


def fault_of(streams: Streams, model: Model, **settings: Any) -> ModelFault:
    answer = answer_of(streams, model, **settings)[1]
    assert isinstance(answer, ModelFault)
    return answer


def test_text_is_gathered_and_the_reply_comes_last(streams: Streams) -> None:
    deltas = [ModelTextDelta(piece) for piece in "abcdefgh"]
    texts, answer = answer_of(streams, Model(*deltas, ModelReply(text="abcdefgh")))
    assert "".join(texts) == "abcdefgh"
    assert len(texts) < 5
    assert answer == ChatDone(reply=ModelReply(text="abcdefgh"))


@pytest.mark.parametrize(
    "bug",
    [KeyError("x"), RecursionError(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()],
    ids=repr,
)
def test_a_bug_in_a_model_is_one_failed_call_and_the_loop_goes_on(streams: Streams, bug: Any) -> None:
    fault = fault_of(streams, Model(ModelTextDelta("a"), bug))
    assert (fault.kind, fault.retryable) == ("bug", False)
    assert "a bug in the model" in fault.message
    assert answer_of(streams, Model(ModelReply(text="next")))[1] == ChatDone(reply=ModelReply(text="next"))


def test_a_model_error_travels_as_it_is(streams: Streams) -> None:
    fault = fault_of(streams, Model(ModelError("odd", "m", retryable=True, retry_after_s=3.0)))
    assert fault == ModelFault(kind="odd", message="m", retryable=True, retry_after_s=3.0)


def test_a_stream_without_a_reply_is_a_bad_one(streams: Streams) -> None:
    assert fault_of(streams, Model(ModelTextDelta("a"))).kind == "bad_reply"


def test_a_stopped_call_gives_no_answer(streams: Streams) -> None:
    streams.begin("r", Model(60.0), window(), Chat(items=(), tools=()))
    streams.stop("r")
    answer_of(streams, Model(ModelReply()))
    assert streams.take() == []


def test_what_does_not_fit_is_left_out_and_told(streams: Streams) -> None:
    model = Model(ModelReply(text="a"))
    answer = answer_of(streams, model, history(40), limit=window(1_000))[1]
    assert isinstance(answer, ChatDone)
    assert answer.left_out is not None
    assert answer.left_out.items == len(history(40)) - model.shown[0] > 0


def test_with_the_error_policy_the_model_is_not_asked(streams: Streams) -> None:
    model = Model(ModelReply(text="a"))
    fault = fault_of(streams, model, items=history(40), limit=window(1_000), policy="error")
    assert (fault.kind, fault.retryable, model.shown) == ("context_window", False, [])
    assert "of the model's 1000 are left" in fault.message


def too_long(size: int | None) -> ModelError:
    return ModelError("context_window", "too long", retryable=False, context_tokens=size)


def test_a_window_that_the_endpoint_tells_of_is_learnt(streams: Streams) -> None:
    limit = window(None)
    model = Model([too_long(1_000)], [ModelReply(text="a")], [ModelReply(text="b")])
    assert isinstance(answer_of(streams, model, history(40), limit=limit)[1], ChatDone)
    assert isinstance(answer_of(streams, model, history(40), limit=limit)[1], ChatDone)
    assert limit.context_tokens == 1_000
    assert model.shown[1] == model.shown[2] < model.shown[0]


def test_an_estimate_that_was_too_low_is_corrected(streams: Streams) -> None:
    model = Model([too_long(1_000)], [ModelReply(text="a")])
    assert isinstance(answer_of(streams, model, history(40), limit=window(1_000))[1], ChatDone)
    assert model.shown[1] < model.shown[0]


def test_a_window_that_nobody_knows_is_a_failure(streams: Streams) -> None:
    assert fault_of(streams, Model([too_long(None)], []), items=history(40)).kind == "context_window"
    policy: ContextPolicy = "error"
    assert (
        fault_of(streams, Model([too_long(500)], []), items=history(40), policy=policy).kind
        == "context_window"
    )
