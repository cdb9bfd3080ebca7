from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from callboard.actors.context_window import Fitted, TooLong, fit, item_tokens, surely_fits
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item, Role
from callboard.tools.content import TextBlock

WORDS = st.integers(0, 400).map(lambda n: "word " * n)


def count(text: str) -> int:
    """Half a byte pair: a counter that is quick, monotonic, and never above the bytes."""
    return (len(text.encode()) + 1) // 2


def message(role: Role, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=(TextBlock(text),))


def output(call_id: str, text: str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, content=(TextBlock(text),))


@st.composite
def steps(draw: st.DrawFn, turn: int) -> list[Item]:
    """Some steps: text or none, then calls, then their results in call order."""
    items: list[Item] = []
    for step in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            items.append(message("assistant", draw(WORDS)))
        ids = [f"{turn}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
        items += [FunctionCall(call_id=i, tool="echo", arguments="{}") for i in ids]
        items += [output(i, draw(WORDS)) for i in ids]
    return items


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Item], int]:
    """A history, and where its present turn begins."""
    items: list[Item] = [message("system", draw(WORDS))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(0, 4))):
        items += [message("user", draw(WORDS)), *draw(steps(turn)), message("assistant", draw(WORDS))]
    at = len(items)
    items += [message("user", draw(WORDS)), *draw(steps(99))]
    if draw(st.booleans()):
        items.append(message("user", "a note for this request"))
    return items, at


def size(items: tuple[Item, ...]) -> int:
    return sum(item_tokens(item, count) for item in items)


@given(conversations(), st.integers(-50, 4000), st.sampled_from(["trim", "error"]))
@example(([message("user", "")], 0), 0, "trim")
def test_what_comes_out_fits_and_is_still_a_conversation(
    conversation: tuple[list[Item], int], limit: int, policy: str
) -> None:
    items, at = conversation
    fitted = fit(items, count, limit, policy=policy, turn_at=at)  # type: ignore[arg-type]
    if isinstance(fitted, TooLong):
        assert fitted.tokens > limit
        return
    kept = fitted.items
    assert size(kept) <= limit
    calls = [item.call_id for item in kept if isinstance(item, FunctionCall)]
    outputs = [item.call_id for item in kept if isinstance(item, FunctionCallOutput)]
    assert calls == outputs, "a call and its result stay or go together"
    places = {item.call_id: n for n, item in enumerate(kept) if isinstance(item, FunctionCall)}
    for number, item in enumerate(kept):
        if isinstance(item, FunctionCallOutput):
            assert places[item.call_id] < number
    places_before = {id(item): n for n, item in enumerate(items)}
    order = [places_before[id(item)] for item in kept if not isinstance(item, FunctionCallOutput)]
    assert order == sorted(order)


@given(conversations(), st.integers(0, 4000))
def test_system_and_present_user_messages_are_never_left_out(
    conversation: tuple[list[Item], int], limit: int
) -> None:
    items, at = conversation
    fitted = fit(items, count, limit, policy="trim", turn_at=at)
    if isinstance(fitted, TooLong):
        return
    must = [i for i in items if isinstance(i, ChatMessage) and i.role == "system"]
    must += [i for i in items[at:] if isinstance(i, ChatMessage) and i.role == "user"]
    assert all(item in fitted.items for item in must)


@given(conversations(), st.integers(0, 4000))
def test_what_was_left_out_is_told_exactly(conversation: tuple[list[Item], int], limit: int) -> None:
    items, at = conversation
    fitted = fit(items, count, limit, policy="trim", turn_at=at)
    if isinstance(fitted, TooLong):
        return
    if fitted.left_out is None:
        assert fitted.items == tuple(items)
        return
    assert fitted.left_out.items == len(items) - len(fitted.items)
    assert fitted.left_out.tokens == size(tuple(items)) - size(fitted.items) > 0
    assert fitted.left_out.limit == limit
    assert fitted.left_out.items + fitted.left_out.cut_results > 0


@given(conversations(), st.integers(0, 4000))
def test_the_error_policy_changes_nothing(conversation: tuple[list[Item], int], limit: int) -> None:
    items, at = conversation
    fitted = fit(items, count, limit, policy="error", turn_at=at)
    whole = size(tuple(items))
    assert fitted == (Fitted(items=tuple(items)) if whole <= limit else TooLong(tokens=whole, limit=limit))


@given(conversations(), st.integers(0, 4000))
def test_what_surely_fits_fits(conversation: tuple[list[Item], int], limit: int) -> None:
    items, at = conversation
    if surely_fits(items, limit):
        assert fit(items, count, limit, policy="error", turn_at=at) == Fitted(items=tuple(items))


@given(conversations(), st.integers(0, 2000), st.integers(0, 2000))
def test_what_fits_a_window_fits_a_larger_one(
    conversation: tuple[list[Item], int], limit: int, more: int
) -> None:
    items, at = conversation
    small = fit(items, count, limit, policy="trim", turn_at=at)
    large = fit(items, count, limit + more, policy="trim", turn_at=at)
    if isinstance(small, Fitted):
        assert isinstance(large, Fitted)
