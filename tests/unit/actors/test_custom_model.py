"""A user's own model: whatever it does wrong is told, and costs one call."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.chat_model import Capabilities, ModelError, ModelReply, ModelTextDelta
from callboard.actors.custom_model import ModelBug, ModelLoadError, WatchedModel, load_model
from callboard.actors.items import ChatMessage, FunctionCall
from callboard.actors.patience import ModelTimeouts
from callboard.tools.content import TextBlock
from callboard.tools.contract import ToolSpec

SOURCE = """
from callboard.actors.chat_model import Capabilities, ModelReply, ModelTextDelta

class Echo:
    capabilities = Capabilities(context_tokens=100)

    def __init__(self, prefix=""):
        self.prefix = prefix

    async def chat(self, context, tools):
        yield ModelTextDelta(self.prefix)
        yield ModelReply(text=self.prefix + context[-1].content[0].text)

class NoCapabilities:
    capabilities = {}
    chat = None

class Raises:
    def __init__(self):
        raise SystemExit("no licence")
"""
USER = ChatMessage(role="user", content=(TextBlock("hi"),))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "my_own_models.py"
    path.write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("my_own_models", None)
    sys.modules.pop("_callboard_model", None)


class Scripted:
    """Yields what it is given; a callable is called, and awaited where it gives a coroutine."""

    def __init__(self, *script: Any, streaming: bool = True, tools: bool = True) -> None:
        self.capabilities = Capabilities(streaming=streaming, tools=tools)
        self.script = script
        self.offered: Any = None
        self.closed = False

    async def chat(self, context: Any, tools: Any) -> AsyncIterator[Any]:
        self.offered = tools
        try:
            for step in self.script:
                given = step() if callable(step) else step
                if asyncio.iscoroutine(given):
                    given = await given
                yield given
        finally:
            self.closed = True


def events_of(model: Any, tools: tuple[ToolSpec, ...] = (), **timeouts: float) -> list[Any]:
    watched = WatchedModel(model, ModelTimeouts(**timeouts))

    async def collect() -> list[Any]:
        return [event async for event in watched.chat([USER], tools)]

    return asyncio.run(collect())


def test_the_documentations_example_works(tmp_path: Path) -> None:
    documentation = Path(__file__).parents[3] / "docs" / "model.md"
    source = documentation.read_text("utf-8").split("<!-- model -->\n```python\n")[1].split("```")[0]
    path = tmp_path / "shouting.py"
    path.write_text(source, encoding="utf-8")
    model = load_model(f"{path}:Shouting", {"mark": "!!"})
    assert events_of(model)[-1] == ModelReply(text="HI!!")
    sys.modules.pop("_callboard_model", None)


def test_it_is_loaded_by_name_and_made_with_its_options(source: Path) -> None:
    for reference in ("my_own_models:Echo", f"{source}:Echo"):
        events = events_of(load_model(reference, {"prefix": "> "}))
        assert events == [ModelTextDelta("> "), ModelReply(text="> hi")]


@pytest.mark.parametrize(
    ("reference", "options", "says"),
    [
        ("no_such_package:Echo", {}, "cannot import 'no_such_package': ModuleNotFoundError"),
        ("my_own_models:Nope", {}, "has no class 'Nope'"),
        ("my_own_models:Echo", {"wrong": 1}, "could not be made: TypeError"),
        ("my_own_models:NoCapabilities", {}, "expected an attribute 'capabilities'"),
        ("my_own_models:Raises", {}, "SystemExit: no licence"),
    ],
)
def test_what_cannot_be_loaded_says_why(
    source: Path, reference: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ModelLoadError, match="model class") as caught:
        load_model(reference, options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        None,
        ModelTextDelta(5),  # type: ignore[arg-type]
        ModelReply(text=None),  # type: ignore[arg-type]
        ModelReply(calls=[]),  # type: ignore[arg-type]
        ModelReply(calls=(FunctionCall(call_id="a", tool="t", arguments={}),)),  # type: ignore[arg-type]
        ModelReply(usage={"input": 1}),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_an_event_of_the_wrong_type_is_a_bug_that_is_named(wrong: Any) -> None:
    with pytest.raises(ModelBug, match="expected ModelTextDelta"):
        events_of(Scripted(wrong))


def test_a_chat_that_is_no_iterator_is_a_bug_that_is_named() -> None:
    class Plain:
        capabilities = Capabilities()

        def chat(self, context: Any, tools: Any) -> Any:
            return "hello"

    with pytest.raises(ModelBug, match="not an async iterator"):
        events_of(Plain())


def test_what_comes_after_the_reply_is_not_waited_for() -> None:
    model = Scripted(ModelReply(text="a"), lambda: asyncio.sleep(60))
    assert events_of(model) == [ModelReply(text="a")]
    assert model.closed


@pytest.mark.parametrize(
    ("script", "timeouts", "says", "retryable"),
    [
        ((lambda: asyncio.sleep(60),), {"first_token_s": 0.05}, "no first token within 0.05 s", True),
        (
            (ModelTextDelta("a"), lambda: asyncio.sleep(60)),
            {"between_tokens_s": 0.05},
            "nothing more came for 0.05 s",
            True,
        ),
        (
            (ModelTextDelta("a"), lambda: asyncio.sleep(60)),
            {"total_s": 0.1},
            "not complete within 0.1 s",
            False,
        ),
    ],
)
def test_its_silence_is_bounded(
    script: tuple[Any, ...], timeouts: dict[str, float], says: str, retryable: bool
) -> None:
    model = Scripted(*script)
    began = time.monotonic()
    with pytest.raises(ModelError, match=says) as caught:
        events_of(model, **timeouts)
    assert (caught.value.kind, caught.value.retryable) == ("timeout", retryable)
    assert time.monotonic() - began < 5
    assert model.closed


def _raise(fault: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise fault

    return do


def test_a_timeout_of_its_own_is_not_taken_for_ours() -> None:
    with pytest.raises(TimeoutError, match="mine"):
        events_of(Scripted(_raise(TimeoutError("mine"))))


def test_its_model_errors_go_through_as_they_are() -> None:
    error = ModelError("sulking", "not today", retryable=True, retry_after_s=2.0)
    with pytest.raises(ModelError) as caught:
        events_of(Scripted(_raise(error)))
    assert caught.value is error


def test_a_model_without_tools_is_offered_none() -> None:
    model = Scripted(ModelReply(), tools=False)
    events_of(model, (ToolSpec(name="t", description="", parameters={}),))
    assert model.offered == ()
