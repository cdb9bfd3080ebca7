"""A log from elsewhere becomes one of ours: each repair is made, said once, and nothing else is touched."""

from __future__ import annotations

from dataclasses import replace

from callboard.actors.events import (
    ConversationClosed,
    ConversationOpened,
    Event,
    HistoryRepaired,
    Owner,
    StepFinished,
    TextDelta,
    ToolApproved,
    ToolCallFinished,
    ToolCallStarted,
    ToolPinned,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.history import NO_RESULT, items_of, unfinished_turn
from callboard.actors.history_import import MAX_REPAIRS, adopted, repaired
from callboard.actors.items import FunctionCall, FunctionCallOutput
from callboard.tools.content import Attachment, TextBlock

AT = "2026-01-31T12:00:00.000+00:00"
OPENED = ConversationOpened(conversation_id="c", user="u", team="t", enabled=("sum",), at=AT)


def started(turn_id: str = "t1", text: str = "hi") -> TurnStarted:
    return TurnStarted(turn_id=turn_id, text=text, at=AT)


def step(*call_ids: str, turn_id: str = "t1") -> StepFinished:
    calls = tuple(FunctionCall(call_id=i, tool="sum", arguments="{}") for i in call_ids)
    return StepFinished(turn_id=turn_id, step=1, calls=calls)


def begun(call_id: str, turn_id: str = "t1") -> ToolCallStarted:
    return ToolCallStarted(turn_id=turn_id, call_id=call_id, tool="sum", arguments={})


def finished(call_id: str, text: str = "3", turn_id: str = "t1") -> ToolCallFinished:
    return ToolCallFinished(
        turn_id=turn_id, call_id=call_id, tool="sum", is_error=False, outcome="ok", content=(TextBlock(text),)
    )


def answered(turn_id: str = "t1", text: str = "so it is") -> TurnAnswered:
    return TurnAnswered(turn_id=turn_id, text=text)


def numbered(*events: Event) -> tuple[Event, ...]:
    return tuple(replace(event, seq=seq) for seq, event in enumerate(events, start=1))


def outputs(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    return [
        (item.call_id, block.text)
        for item in items_of(events)
        if isinstance(item, FunctionCallOutput)
        for block in item.content
        if isinstance(block, TextBlock)
    ]


def test_a_whole_log_comes_out_as_it_went_in() -> None:
    log = numbered(OPENED, started(), step("a"), begun("a"), finished("a"), answered())
    assert repaired(log) == (log, ())


def test_a_call_without_a_result_gets_one_before_the_turn_ends() -> None:
    log, repairs = repaired(numbered(OPENED, started(), step("a", "b"), finished("b"), answered()))
    assert outputs(log) == [("a", NO_RESULT), ("b", "3")]
    assert len(repairs) == 1 and "'a'" in repairs[0]
    assert log[-1] == HistoryRepaired(seq=len(log), at=AT, repairs=repairs)
    assert isinstance(log[-2], TurnAnswered)


def test_a_result_without_a_call_and_a_second_result_are_dropped() -> None:
    log, repairs = repaired(
        numbered(
            OPENED, started(), finished("x"), step("a"), finished("a", "1"), finished("a", "2"), answered()
        )
    )
    assert outputs(log) == [("a", "1")]
    assert ["nobody made" in repairs[0], "has its result" in repairs[1], len(repairs)] == [True, True, 2]


def test_calls_that_share_an_id_are_renamed_and_keep_their_results_in_order() -> None:
    log, repairs = repaired(
        numbered(
            OPENED,
            started(),
            step("a", "a", ""),
            *(begun("a"), begun("a"), finished("a", "1"), finished("a", "2"), finished("", "3")),
            answered(),
            started("t2"),
            step("a", turn_id="t2"),
            finished("a", "4", turn_id="t2"),
            answered("t2"),
        )
    )
    assert outputs(log) == [("a", "1"), ("a_2", "2"), ("call_1", "3"), ("a_3", "4")]
    assert [e.call_id for e in log if isinstance(e, ToolCallStarted)] == ["a", "a_2"]
    assert len(repairs) == 3


def test_a_call_that_was_started_twice_after_a_crash_is_no_fault() -> None:
    log = numbered(OPENED, started(), step("a"), begun("a"), begun("a"), finished("a"), answered())
    assert repaired(log) == (log, ())


def test_an_unfinished_turn_ends_as_failed_by_the_import_at_the_last_time_known() -> None:
    log, repairs = repaired(numbered(OPENED, started(), step("a")))
    assert unfinished_turn(log) is None
    failed = log[-2]
    assert isinstance(failed, TurnFailed)
    assert (failed.reason, failed.at) == ("imported", AT)
    assert outputs(log) == [("a", NO_RESULT)]
    assert len(repairs) == 2


def test_a_turn_with_the_id_of_an_ended_one_is_another_turn() -> None:
    log, _ = repaired(
        numbered(
            OPENED, started(text="one"), answered(), started(text="two"), step("a"), finished("a"), answered()
        )
    )
    assert [e.turn_id for e in log if isinstance(e, TurnStarted)] == ["t1", "t1_2"]
    assert outputs(log) == [("a", "3")]


def test_what_belongs_to_no_turn_or_comes_after_its_end_is_dropped() -> None:
    log, repairs = repaired(
        numbered(OPENED, step("a", turn_id="?"), started(), started(), answered(), finished("a"), answered())
    )
    assert log[:3] == numbered(OPENED, started(), answered())
    assert len(repairs) == 4


def test_live_events_are_dropped() -> None:
    log, repairs = repaired([OPENED, started(), TextDelta(turn_id="t1", text="so"), answered()])
    assert log[:3] == numbered(OPENED, started(), answered())
    assert "live" in repairs[0]


def test_numbers_decide_the_order_and_gaps_are_named() -> None:
    one, two, three, four = numbered(OPENED, started(), step(), answered())
    assert repaired([one, three, two, two, four])[0][:4] == (one, two, three, four)
    log, repairs = repaired([one, two, four])
    assert (repairs, log[2]) == (("events 3 to 3 are missing",), replace(four, seq=3))


def test_the_opening_is_put_first_and_made_where_it_is_missing() -> None:
    log, repairs = repaired([started(), OPENED, OPENED, answered()])
    assert (log[0], len(repairs)) == (replace(OPENED, seq=1), 2)
    log, repairs = repaired([started(), answered()])
    assert isinstance(log[0], ConversationOpened)
    assert "opening" in repairs[0]
    assert isinstance(repaired([])[0][0], ConversationOpened)


def test_a_second_import_adds_to_the_list_of_repairs() -> None:
    log, first = repaired(numbered(OPENED, started(), finished("x"), answered()))
    again, second = repaired([event for event in log if not isinstance(event, TurnAnswered)])
    told = again[-1]
    assert isinstance(told, HistoryRepaired)
    assert told.repairs == (*first, *second)
    assert sum(isinstance(event, HistoryRepaired) for event in again) == 1


def test_the_list_of_repairs_is_bounded() -> None:
    _, repairs = repaired([OPENED, *(finished("x" * 1000) for _ in range(MAX_REPAIRS + 5))])
    assert len(repairs) == MAX_REPAIRS + 1
    assert repairs[-1] == "and 5 more repairs"
    assert max(map(len, repairs)) < 200


def test_an_adopted_history_has_its_new_owner_and_no_process() -> None:
    linked = replace(OPENED, owner=Owner(pid=1, start_time=0.0, boot_id="b"), roles=("r",), seq=1)
    log = adopted([linked, started(), answered()], conversation_id="new", user="ann", team="red", at="now")
    assert log[0] == ConversationOpened(
        conversation_id="new", user="ann", team="red", enabled=("sum",), seq=1, at=AT
    )
    assert [event.at for event in log[1:]] == [AT, "now"]


def test_a_history_without_an_opening_is_adopted_with_a_plain_one_and_no_repair() -> None:
    log, repairs = repaired(adopted([started(), answered()], conversation_id="new"))
    assert (log[0].at, repairs) == (AT, ())
    assert isinstance(log[0], ConversationOpened)
    assert log[0].enabled == ("*",)


def test_a_closed_conversation_stays_closed_unless_it_is_reopened() -> None:
    log = numbered(OPENED, started(), answered(), ConversationClosed())
    assert repaired(log) == (log, ())
    reopened, repairs = repaired(log, reopen=True)
    assert reopened == numbered(*log[:3], HistoryRepaired(repairs=repairs, at=AT))
    assert repairs == ("the closing of the conversation was left out",)


def test_approvals_that_nobody_gave_here_are_left_out() -> None:
    foreign = (ToolApproved(tool="wipe", version="v"), ToolPinned(tool="x__y", version="v"))
    log, repairs = repaired(numbered(OPENED, *foreign, started(), answered()))
    assert not any(isinstance(event, ToolApproved | ToolPinned) for event in log)
    assert repairs == (
        "the standing approval of 'wipe' was left out",
        "the pinned definition of 'x__y' was left out",
    )


def test_an_unfinished_turn_of_a_closed_conversation_ends_before_the_closing() -> None:
    log, _ = repaired(numbered(OPENED, started(), ConversationClosed()))
    assert [type(event) for event in log[2:]] == [TurnFailed, ConversationClosed, HistoryRepaired]
    assert repaired(log) == (log, ())


def test_an_attachment_without_its_content_is_left_out_and_named() -> None:
    whole = Attachment.of(b"x" * 10, "text/plain")
    lost = replace(whole, content=None)
    result = replace(finished("c1"), attachments=(whole, lost))
    events = numbered(OPENED, started(), step("c1"), begun("c1"), result, answered())
    log, repairs = repaired(events)
    (taken,) = [event for event in log if isinstance(event, ToolCallFinished)]
    assert taken.attachments == (whole,)
    assert repairs == ("an attachment of call 'c1' came without its content and was left out",)
