from __future__ import annotations

import pytest

from callboard.actors.context_window import IMAGE_TOKENS, Fitted, LeftOut, TooLong, fit, item_tokens
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item, Role
from callboard.tools.content import ImageBlock, TextBlock


def message(role: Role, words: int, mark: str = "w") -> ChatMessage:
    return ChatMessage(role=role, content=(TextBlock(" ".join([mark] * words)),))


def count(text: str) -> int:
    return len(text.split())


def step(call_id: str, words: int) -> tuple[Item, Item]:
    text = " ".join(f"{n}" for n in range(words))
    return (
        FunctionCall(call_id=call_id, tool="t", arguments="{}"),
        FunctionCallOutput(call_id=call_id, content=(TextBlock(text),)),
    )


def fitted(items: list[Item], limit: int, turn_at: int | None = None) -> Fitted:
    found = fit(items, count, limit, policy="trim", turn_at=turn_at)
    assert isinstance(found, Fitted)
    return found


def text(item: Item) -> str:
    assert isinstance(item, FunctionCallOutput)
    block = item.content[0]
    assert isinstance(block, TextBlock)
    return block.text


SYSTEM = message("system", 10)
OLD, NEW = (
    [message("user", 100, "old"), message("assistant", 100)],
    [message("user", 100), message("assistant", 100)],
)


def test_whole_turns_go_first_and_the_oldest_before_the_others() -> None:
    now = message("user", 10)
    found = fitted([SYSTEM, *OLD, *NEW, now], 300)
    assert found.items == (SYSTEM, *NEW, now)
    assert found.left_out == LeftOut(items=2, tokens=208, cut_results=0, limit=300)


def test_one_over_long_result_is_cut_before_a_turn_is_given_up() -> None:
    now = message("user", 10)
    found = fitted([SYSTEM, message("user", 10), *step("a", 5000), message("assistant", 5), now], 1000)
    assert len(found.items) == 6
    assert found.left_out is not None
    assert (found.left_out.items, found.left_out.cut_results) == (0, 1)
    shown = text(found.items[3])
    assert shown.startswith("0 1 2 ")
    assert shown.endswith(" 4999")
    assert "left out" in shown


def test_the_present_turns_longest_results_are_cut_to_one_length() -> None:
    items = [message("user", 10), *step("a", 600), *step("b", 900), *step("c", 100)]
    found = fitted(items, 1000, turn_at=0)
    lengths = [count(text(item)) for item in found.items if isinstance(item, FunctionCallOutput)]
    assert lengths[2] == 100, "a short one stays whole"
    assert abs(lengths[0] - lengths[1]) < 30


def test_the_oldest_steps_of_a_long_turn_go_when_cutting_is_not_enough() -> None:
    steps = [item for n in range(20) for item in step(f"c{n}", 400)]
    found = fitted([SYSTEM, message("user", 10), *steps], 1000, turn_at=1)
    assert found.items[0] == SYSTEM
    assert found.items[1] == message("user", 10)
    left = [item.call_id for item in found.items if isinstance(item, FunctionCall)]
    assert left == ["c16", "c17", "c18", "c19"]


def test_text_and_calls_of_one_step_stay_together() -> None:
    first = (message("assistant", 5), *step("a", 400))
    second = (message("assistant", 5), *step("b", 400))
    found = fitted([message("user", 10), *first, *second], 350, turn_at=0)
    assert [type(item) for item in found.items] == [
        ChatMessage,
        ChatMessage,
        FunctionCall,
        FunctionCallOutput,
    ]


@pytest.mark.parametrize("policy", ["trim", "error"])
def test_what_must_stay_and_is_too_long_is_an_error(policy: str) -> None:
    found = fit([SYSTEM, message("user", 500)], count, 100, policy=policy, turn_at=1)  # type: ignore[arg-type]
    assert found == TooLong(tokens=518, limit=100)


def test_without_an_index_the_last_user_message_begins_the_present_turn() -> None:
    assert fitted([*OLD, *NEW, message("user", 1)], 250).items == (*NEW, message("user", 1))


def test_an_image_counts_for_a_model_with_eyes_only() -> None:
    picture = ChatMessage(role="user", content=(ImageBlock("aGk=", "image/png"),))
    assert item_tokens(picture, count, vision=True) > IMAGE_TOKENS
    assert item_tokens(picture, count) < 20
