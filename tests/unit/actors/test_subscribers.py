"""Readers are cursors: nothing missing, nothing twice, a window ahead at the most, live text in between."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.client_log import ConversationLog
from callboard.actors.events import (
    ConversationOpened,
    Event,
    StepFinished,
    TextDelta,
    TextDiscarded,
    ToolEnabled,
    ToolProgress,
    TurnAnswered,
    TurnResumed,
    TurnStarted,
)
from callboard.actors.messages import News
from callboard.actors.subscribers import LIVE_WINDOW, SILENT_S, WINDOW, Reader, Subscribers
from callboard.cursor import Cursor


class Room:
    """A conversation's readers, their log, and what is on its way to each."""

    def __init__(self) -> None:
        self.log = ConversationLog()
        self.now = 0.0
        self.is_idle = True
        self.sent: dict[str, list[News]] = {}
        self.subscribers = Subscribers(self.log, self._send, lambda: self.is_idle)
        self.add(ConversationOpened(conversation_id="c", user="u", team="t"))

    def _send(self, reader: Reader, news: News) -> None:
        self.sent.setdefault(reader.request_id, []).append(news)

    def add(self, *events: Event) -> None:
        numbered = tuple(_numbered(events, self.log.last_seq))
        self.log.remember(numbered)
        self.subscribers.publish(numbered, self.now)

    def join(self, name: str, **said: object) -> None:
        self.subscribers.join(name, "there", self.now, **said)  # type: ignore[arg-type]

    def live(self, event: Event, turn_id: str = "t1") -> None:
        self.subscribers.live(turn_id, event, self.now)

    def given(self, name: str) -> list[Event]:
        return [event for news in self.sent.get(name, ()) for event in news.events]

    def numbers(self, name: str) -> list[int]:
        return [event.seq for event in self.given(name) if event.seq is not None]

    def text(self, name: str) -> str:
        text = ""
        for event in self.given(name):
            text = "" if isinstance(event, TextDiscarded | StepFinished) else text
            text += event.text if isinstance(event, TextDelta) else ""
        return text


def _numbered(events: tuple[Event, ...], last: int) -> Iterator[Event]:
    for seq, event in enumerate(events, start=last + 1):
        yield dataclasses.replace(event, seq=seq)


def fact(n: int) -> Event:
    return ToolEnabled(tool=f"t{n}")


START = TurnStarted(turn_id="t1", text="x")
END = TurnAnswered(turn_id="t1", text="y")
STEP = StepFinished(turn_id="t1", step=1, text="all of it")


def delta(text: str) -> TextDelta:
    return TextDelta(turn_id="t1", text=text)


def test_a_follower_gets_what_it_has_not_seen_and_then_what_comes() -> None:
    room = Room()
    room.add(fact(1), fact(2), fact(3))
    room.join("f", after=2)
    room.add(fact(4))
    assert room.numbers("f") == [3, 4, 5]


def test_who_asks_gets_its_turn_from_start_to_end_and_no_more() -> None:
    room = Room()
    room.add(fact(1))
    room.join("t1", turn_id="t1")
    room.add(START, fact(2), END)
    room.add(fact(3))
    assert room.numbers("t1") == [3, 4, 5]
    assert len(room.subscribers) == 0


def test_a_turn_that_is_over_is_given_again_to_who_asks_again() -> None:
    room = Room()
    room.add(START, END)
    room.join("t1", turn_id="t1", after=2)
    assert room.numbers("t1") == [3]
    room.join("t1", turn_id="t1")
    assert room.numbers("t1") == [3, 2, 3]


def test_nobody_is_sent_more_than_a_window_ahead() -> None:
    room = Room()
    room.join("f", after=1)
    for n in range(3 * WINDOW):
        room.add(fact(n))
    assert room.numbers("f") == list(range(2, WINDOW + 2))
    room.join("f", after=WINDOW // 2)
    assert room.numbers("f")[-1] == WINDOW // 2 + WINDOW
    assert len(set(room.numbers("f"))) == len(room.numbers("f"))


def test_who_says_the_same_number_twice_is_sent_again_what_came_after() -> None:
    room = Room()
    room.join("f", after=1)
    room.add(fact(1), fact(2))
    room.join("f", after=1)
    assert room.numbers("f") == [2, 3, 2, 3]


def test_a_silent_reader_is_forgotten() -> None:
    room = Room()
    room.join("f", after=1)
    room.now = SILENT_S + 1
    room.add(fact(1))
    assert room.numbers("f") == []
    assert len(room.subscribers) == 0


def test_live_text_comes_between_the_events() -> None:
    room = Room()
    room.join("f", after=1)
    room.add(START)
    room.live(delta("al"))
    room.live(delta("l of it"))
    room.add(STEP, END)
    types = [event.type for event in room.given("f")]
    assert types == ["turn_started", "text_delta", "text_delta", "step_finished", "turn_answered"]


def test_who_comes_in_the_middle_of_a_step_is_given_its_text_so_far() -> None:
    room = Room()
    room.add(START)
    room.live(delta("one "))
    room.live(delta("two "))
    room.join("f", after=0)
    room.join("t1", turn_id="t1")
    room.live(delta("three"))
    assert room.text("f") == room.text("t1") == "one two three"


def test_the_text_of_a_former_step_is_nobodys_text() -> None:
    room = Room()
    room.add(START)
    room.live(delta("first"))
    room.add(STEP)
    room.join("f", after=0)
    assert room.text("f") == ""


def test_a_reader_that_falls_behind_gets_the_rest_in_one_piece() -> None:
    room = Room()
    room.join("f", after=1)
    room.add(START)
    for n in range(LIVE_WINDOW + 50):
        room.live(delta(f"{n} "))
    assert len(room.sent["f"]) == LIVE_WINDOW
    room.join("f", after=2, heard=LIVE_WINDOW)
    room.live(delta("end"))
    assert room.text("f") == "".join(f"{n} " for n in range(LIVE_WINDOW + 50)) + "end"
    assert len(room.sent["f"]) == LIVE_WINDOW + 3


def test_text_that_does_not_count_is_discarded_also_for_who_is_behind() -> None:
    room = Room()
    room.join("f", after=1)
    room.add(START)
    for _ in range(LIVE_WINDOW):
        room.live(delta("wrong "))
    room.live(TextDiscarded(turn_id="t1", reason="interrupted"))
    room.live(delta("right"))
    room.join("f", after=2, heard=LIVE_WINDOW)
    assert room.text("f") == "right"


def test_progress_is_shown_to_who_keeps_up_only() -> None:
    room = Room()
    room.join("f", after=1)
    room.join("other", turn_id="t2")
    room.add(START)
    room.live(ToolProgress(turn_id="t1", call_id="c1", text="half", fraction=0.5))
    assert [event.type for event in room.given("f")] == ["turn_started", "tool_progress"]
    assert room.given("other") == []


def test_news_say_whether_more_is_to_come() -> None:
    room = Room()
    room.join("f")
    assert room.sent["f"][-1].state == "idle"
    room.is_idle = False
    room.add(START)
    assert room.sent["f"][-1].state == "active"
    room.is_idle = True
    room.subscribers.tell_state("idle", room.now)
    assert room.sent["f"][-1] == News((), 3, 2, "idle")


def test_a_follower_is_behind_until_it_says_that_it_has_everything() -> None:
    room = Room()
    room.join("f")
    assert room.subscribers.are_behind(room.now)
    room.join("f", after=1)
    assert not room.subscribers.are_behind(room.now)
    assert not room.subscribers.is_awaited(room.now)
    room.join("t1", turn_id="t1")
    assert room.subscribers.is_awaited(room.now)
    assert not room.subscribers.is_awaited(SILENT_S + 1)


def test_readers_of_a_turn_that_is_refused_are_given_back() -> None:
    room = Room()
    room.join("t1", turn_id="t1")
    assert [reader.request_id for reader in room.subscribers.drop("t1")] == ["t1"]
    room.add(START)
    assert room.numbers("t1") == []


def test_resumed_text_does_not_count() -> None:
    cursor = Cursor(after=0)
    resumed = TurnResumed(turn_id="t1", attempt=1, seq=2)
    first = News((_seq(START, 1), delta("lost")), 2, 1)
    given = [*cursor.take(first), *cursor.take(News((resumed,), 1, 2))]
    assert [event.type for event in given] == ["turn_started", "text_delta", "text_discarded", "turn_resumed"]


def test_a_cursor_asks_again_for_what_is_missing() -> None:
    cursor = Cursor(after=0)
    assert list(cursor.take(News((_seq(fact(2), 2),), 2, 2))) == []
    assert cursor.has_to_tell
    cursor.told()
    assert [e.seq for e in cursor.take(News((_seq(fact(1), 1), _seq(fact(2), 2)), 3, 2))] == [1, 2]
    assert not cursor.has_to_tell


def _seq(event: Event, seq: int) -> Event:
    return dataclasses.replace(event, seq=seq)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_loss_of_news_and_no_order_of_acknowledgements_makes_a_gap(data: st.DataObject) -> None:
    """News are lost, readers come back, the client is replaced: what comes out is the log, each event once."""
    room, cursor, given_out, count = Room(), Cursor(after=0), list[int](), 1

    def hear() -> None:
        for news in room.sent.pop("f", []):
            if data.draw(st.integers(0, 4)) > 0:
                given_out.extend(e.seq for e in cursor.take(news) if e.seq is not None)

    def tell() -> None:
        room.join("f", after=cursor.seq, heard=cursor.heard)
        cursor.told()

    for step in data.draw(st.lists(st.sampled_from(("add", "many", "tell", "hear", "lose")), max_size=40)):
        match step:
            case "add" | "many":
                for _ in range(1 if step == "add" else WINDOW):
                    room.add(fact(count))
                    count += 1
            case "tell":
                tell()
            case "hear":
                hear()
            case "lose":
                events = room.log.events
                room = Room()
                room.log.remember(tuple(events[1:]))
    for _ in range(count):
        tell()
        for news in room.sent.pop("f", []):
            given_out.extend(e.seq for e in cursor.take(news) if e.seq is not None)
    assert given_out == list(range(1, count + 1))


def test_a_log_without_events_has_nothing_to_give() -> None:
    assert ConversationLog().after(0, 10) == ()
