"""The front desk, case by case: what is kept, what is handed over, who may leave, what is deleted."""

from __future__ import annotations

from typing import Any

from callboard.actors.directory_desk import MAIL_LIMIT, REVIVALS_AT_ONCE, Desks
from callboard.actors.directory_terms import (
    Answer,
    Arrived,
    ClientFailed,
    ClientGone,
    ClientStopped,
    ClientUp,
    Delete,
    DeleteAsked,
    Effect,
    HandOver,
    Key,
    LeaveAsked,
    LeaveOverdue,
    LogDeleted,
    Look,
    Looked,
    Revive,
    Start,
    Stop,
    Unfinished,
    Watch,
)
from callboard.actors.events import ConversationOpened
from callboard.actors.messages import Mark, MayLeave, News, StayHere
from callboard.supervisor.envelope import Envelope, Failure

KEY: Key = ("red", "c")
OPENED = ConversationOpened(conversation_id="c", user="ann", team="red")
GONE_WRONG = Failure(kind="max_children", message="no room")


def letter(name: str = "r1", to: str = "caller") -> Envelope:
    return Envelope(request_id=name, body="command", reply_to=to)


def arrived(name: str = "r1", **more: Any) -> Arrived:
    return Arrived(key=KEY, letter=letter(name), **more)


def up(incarnation: int = 1) -> ClientUp:
    return ClientUp(key=KEY, address=f"client {incarnation}", pid=100, incarnation=incarnation)


def leave(mark: Mark | None, incarnation: int = 1) -> LeaveAsked:
    return LeaveAsked(key=KEY, letter=letter("leave"), incarnation=incarnation, pid=100, mark=mark)


def answers(effects: list[Effect]) -> list[Any]:
    return [effect.body for effect in effects if isinstance(effect, Answer)]


def desks_with_a_client() -> Desks:
    """One client is up, and was handed one letter: its mark is (1, 1)."""
    desks = Desks(1)
    desks.handle(arrived())
    desks.handle(up())
    return desks


def test_the_first_letter_has_a_client_started_and_is_handed_over_with_the_others_when_it_is_up() -> None:
    desks = Desks(1)
    assert desks.handle(arrived("r1", create=OPENED)) == [Start(KEY, OPENED)]
    assert desks.handle(arrived("r2")) == []
    assert desks.handle(up()) == [
        Watch(KEY, 1, 100),
        HandOver("client 1", letter("r1"), (1, 1)),
        HandOver("client 1", letter("r2"), (1, 2)),
    ]
    assert desks.handle(arrived("r3")) == [HandOver("client 1", letter("r3"), (1, 3))]
    assert desks.active == 1


def test_the_same_request_is_kept_once() -> None:
    desks = Desks(1)
    for _ in range(3):
        desks.handle(arrived("r1"))
    assert len([e for e in desks.handle(up()) if isinstance(e, HandOver)]) == 1


def test_mail_that_waits_is_bounded_and_another_teams_takes_none_of_the_room() -> None:
    desks = Desks(1)
    other: Key = ("blue", "c")
    for n in range(MAIL_LIMIT):
        desks.handle(Arrived(key=other, letter=letter(f"b{n}")))
        assert answers(desks.handle(arrived(f"r{n}"))) == []
    assert [a.kind for a in answers(desks.handle(arrived("one more")))] == ["overloaded"]
    assert answers(desks.handle(arrived("r0"))) == []


def test_a_start_that_fails_is_told_to_all_who_wait_and_forgotten() -> None:
    desks = Desks(1)
    desks.handle(arrived("r1"))
    desks.handle(arrived("r2"))
    assert answers(desks.handle(ClientFailed(KEY, GONE_WRONG))) == [GONE_WRONG, GONE_WRONG]
    assert len(desks) == 0


def test_an_idle_client_leaves_and_mail_that_comes_meanwhile_waits_for_its_successor() -> None:
    desks = desks_with_a_client()
    assert answers(desks.handle(leave((1, 1)))) == [MayLeave()]
    assert desks.active == 0
    assert desks.handle(arrived("r2")) == []
    assert answers(desks.handle(leave((1, 1)))) == [MayLeave()]
    assert desks.handle(ClientGone(KEY, 1)) == [Start(KEY, None)]
    assert desks.handle(up(2))[1:] == [HandOver("client 2", letter("r2"), (1, 2))]


def test_a_client_that_left_is_forgotten() -> None:
    desks = desks_with_a_client()
    desks.handle(leave((1, 1)))
    assert desks.handle(ClientGone(KEY, 1)) == []
    assert len(desks) == 0


def test_a_client_with_mail_on_its_way_stays() -> None:
    desks = desks_with_a_client()
    desks.handle(arrived("r2"))
    assert answers(desks.handle(leave((1, 1)))) == [StayHere((1, 2))]
    assert answers(desks.handle(leave((1, 2)))) == [MayLeave()]


def test_the_marks_of_a_former_life_of_the_directory_do_not_count() -> None:
    desks = Desks(2)
    desks.handle(arrived())
    desks.handle(up())
    assert answers(desks.handle(leave((1, 1)))) == [StayHere((2, 1))]


def test_a_client_that_nobody_knows_may_leave_and_is_waited_for() -> None:
    desks = Desks(2)
    effects = desks.handle(leave((1, 7)))
    assert answers(effects) == [MayLeave()]
    assert effects[0] == Watch(KEY, 1, 100)
    assert desks.handle(arrived()) == []
    assert desks.handle(ClientGone(KEY, 1)) == [Start(KEY, None)]


def test_a_client_that_is_being_looked_for_stays() -> None:
    desks = Desks(2)
    desks.handle(arrived())
    assert answers(desks.handle(leave((1, 7)))) == [StayHere(None)]


def test_a_former_client_may_always_go_and_a_later_one_stays() -> None:
    desks = Desks(1)
    desks.handle(arrived())
    desks.handle(up(5))
    assert answers(desks.handle(leave(None, incarnation=4))) == [MayLeave()]
    assert answers(desks.handle(leave(None, incarnation=6))) == [StayHere(None)]
    assert desks.active == 1


def test_who_may_leave_and_does_not_is_stopped() -> None:
    desks = desks_with_a_client()
    desks.handle(leave((1, 1)))
    assert desks.handle(LeaveOverdue(KEY, 2)) == []
    assert desks.handle(LeaveOverdue(KEY, 1)) == [Stop(KEY)]


def test_a_client_that_is_lost_makes_the_journal_be_asked() -> None:
    desks = desks_with_a_client()
    assert desks.handle(ClientGone(KEY, 7)) == []
    assert desks.handle(ClientGone(KEY, 1)) == [Revive()]
    assert len(desks) == 0


def test_a_followers_sign_of_life_starts_nobody() -> None:
    desks = Desks(1)
    assert desks.handle(arrived(wakes=False)) == [Look(KEY, letter())]
    assert answers(desks.handle(Looked(KEY, letter(), False))) == [News(state="resting")]
    assert len(desks) == 0
    assert desks.handle(Looked(KEY, letter(), True)) == [Start(KEY, None)]
    desks.handle(up())
    assert desks.handle(arrived("r2", wakes=False)) == [HandOver("client 1", letter("r2"), (1, 2))]
    desks.handle(leave((1, 2)))
    assert answers(desks.handle(arrived("r3", wakes=False))) == [News(state="resting")]


def test_unfinished_conversations_are_revived_a_few_at_a_time() -> None:
    desks = Desks(1)
    keys = tuple(("red", f"c{n}") for n in range(REVIVALS_AT_ONCE + 2))
    assert desks.handle(Unfinished(keys)) == [Start(key) for key in keys[:REVIVALS_AT_ONCE]]
    assert desks.handle(Unfinished(keys)) == []
    first = ClientUp(key=keys[0], address="a", pid=1, incarnation=1)
    assert desks.handle(first) == [Watch(keys[0], 1, 1), Start(keys[-2])]
    assert desks.handle(ClientFailed(keys[1], GONE_WRONG)) == [Start(keys[-1])]


def test_deleting_stops_the_client_first_and_what_came_meanwhile_starts_anew() -> None:
    desks = desks_with_a_client()
    asked = letter("delete")
    assert desks.handle(DeleteAsked(KEY, asked)) == [Stop(KEY)]
    assert desks.handle(DeleteAsked(KEY, asked)) == []
    assert desks.handle(ClientGone(KEY, 1)) == []
    assert desks.handle(arrived("r2", create=OPENED)) == []
    assert desks.handle(ClientStopped(KEY)) == [Delete(KEY)]
    assert desks.handle(LogDeleted(KEY, True)) == [Answer(asked, True), Start(KEY, OPENED)]


def test_deleting_looks_for_a_client_also_where_none_is_known_and_waits_for_one_that_starts() -> None:
    desks = Desks(1)
    assert desks.handle(DeleteAsked(KEY, letter("d"))) == [Stop(KEY)]
    desks.handle(ClientStopped(KEY))
    assert answers(desks.handle(LogDeleted(KEY, True))) == [True]
    assert len(desks) == 0
    desks.handle(arrived())
    assert desks.handle(DeleteAsked(KEY, letter("d"))) == []
    assert desks.handle(up()) == [Stop(KEY)]


def test_a_client_that_cannot_be_stopped_keeps_its_log() -> None:
    desks = desks_with_a_client()
    desks.handle(DeleteAsked(KEY, letter("d")))
    effects = desks.handle(ClientStopped(KEY, GONE_WRONG))
    assert effects == [Answer(letter("d"), GONE_WRONG), Revive()]


def test_a_desk_is_as_small_as_its_conversation_is_quiet() -> None:
    """Ten thousand conversations are opened and left; what is kept of them is nothing."""
    import tracemalloc

    desks = Desks(1)

    def open_and_leave(first: int, count: int) -> None:
        for n in range(first, first + count):
            key: Key = ("red", f"c{n}")
            desks.handle(Arrived(key=key, letter=letter(f"r{n}"), create=OPENED))
            [_, handed] = desks.handle(ClientUp(key=key, address="a", pid=1, incarnation=1))
            assert isinstance(handed, HandOver)
            desks.handle(LeaveAsked(key=key, letter=letter("leave"), incarnation=1, pid=1, mark=handed.mark))
            desks.handle(ClientGone(key, 1))

    open_and_leave(0, 100)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    open_and_leave(100, 10_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 10_000
    assert len(desks) == 0
