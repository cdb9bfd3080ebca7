"""The journal's writer thread: what goes into one transaction, and that nothing is lost, whatever the store does."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from callboard.actors import journal_thread
from callboard.actors.events import ConversationOpened, ToolCallFinished, ToolEnabled, TurnStarted
from callboard.actors.journal_commands import Expire
from callboard.actors.journal_thread import Answer, JournalThread
from callboard.actors.messages import (
    AppendEvents,
    DeleteLog,
    GetUnfinished,
    History,
    ImportLog,
    ListLogs,
    LogList,
    LogOpened,
    OpenLog,
    ReadLog,
    UnfinishedLog,
)
from callboard.storage.journal import open_journal
from callboard.storage.journal_terms import Append, JournalError
from callboard.supervisor.envelope import Failure
from callboard.tools.content import TextBlock

WAIT_S = 10.0


class SlowStore:
    """A store whose commits wait for the test."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.order: list[str] = []
        self.gate = threading.Event()
        self.entered = threading.Event()

    def commit(self, appends: Sequence[Append]) -> list[int | JournalError]:
        self.order.append(f"commit {len(appends)}")
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        self.commits.append(len(appends))
        return [append.records[-1]["seq"] for append in appends]

    def unfinished(self) -> list[tuple[str, str]]:
        self.order.append("unfinished")
        return []

    def take_findings(self) -> list[str]:
        return []

    def close(self) -> None:
        self.order.append("close")


@contextmanager
def running(load: Callable[[], Any]) -> Iterator[JournalThread]:
    thread = JournalThread(load)
    try:
        yield thread
    finally:
        assert thread.close()
        thread.answers.close()


def collect(thread: JournalThread, count: int) -> dict[str | None, Answer]:
    found: dict[str | None, Answer] = {}
    while len(found) < count:
        ready, _, _ = select.select([thread.ready_fd], [], [], WAIT_S)
        assert ready, f"{count - len(found)} answers are missing"
        found.update((answer.ticket, answer) for answer in thread.take())
    return found


def append(name: str, seq: int = 1, text: str = "") -> AppendEvents:
    event = ToolCallFinished(
        seq=seq,
        turn_id="t",
        call_id="c",
        tool="x",
        is_error=False,
        outcome="ok",
        content=(TextBlock(text=text),),
    )
    return AppendEvents(conversation_id=name, team="red", epoch=1, events=(event,))


def test_what_comes_during_a_commit_goes_into_the_next_one() -> None:
    store = SlowStore()
    with running(lambda: store) as thread:
        thread.put("0", append("c0"), True)
        assert store.entered.wait(WAIT_S)
        for number in range(1, 50):
            thread.put(str(number), append(f"c{number}"), True)
        thread.put("list", GetUnfinished(), False)
        store.gate.set()
        answers = collect(thread, 51)
    assert store.commits == [1, 49]
    assert answers["7"].body == 1
    assert answers["list"].body == ()
    assert store.order[-1] == "close"


@pytest.mark.parametrize(("limit", "value"), [("MAX_APPENDS", 10), ("MAX_BYTES", 10 * 1500)])
def test_a_transaction_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(journal_thread, limit, value)
    store = SlowStore()
    with running(lambda: store) as thread:
        thread.put("0", append("c0"), True)
        assert store.entered.wait(WAIT_S)
        for number in range(1, 26):
            thread.put(str(number), append(f"c{number}", text="x" * 1000), True)
        store.gate.set()
        collect(thread, 26)
    assert store.commits == [1, 10, 10, 5]


def test_neither_appends_nor_others_wait_for_ever() -> None:
    store = SlowStore()
    with running(lambda: store) as thread:
        thread.put("0", append("c0"), True)
        assert store.entered.wait(WAIT_S)
        for number in range(20):
            thread.put(f"u{number}", GetUnfinished(), False)
        thread.put("a", append("c1"), True)
        store.gate.set()
        collect(thread, 22)
    assert store.order.index("commit 1", 1) < store.order.index("unfinished") + 9


def test_a_fault_that_the_store_raises_is_each_ones_answer() -> None:
    class Faulty(SlowStore):
        def commit(self, appends: Sequence[Append]) -> list[int | JournalError]:
            raise JournalError("storage_io", "the disk says no")

        def unfinished(self) -> list[tuple[str, str]]:
            raise JournalError("storage_corrupt", "malformed")

    with running(Faulty) as thread:
        thread.put("a", append("c"), True)
        thread.put("b", GetUnfinished(), False)
        answers = collect(thread, 2)
    assert [(answers[t].body.kind, answers[t].body.retryable) for t in "ab"] == [
        ("storage_io", True), ("storage_corrupt", True)
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["load", "commit"])
def test_a_bug_is_told_to_the_actor(where: str) -> None:
    class Buggy(SlowStore):
        def commit(self, appends: Sequence[Append]) -> list[int | JournalError]:
            raise ZeroDivisionError("a bug")

    def load() -> Any:
        if where == "load":
            raise ZeroDivisionError("a bug")
        return Buggy()

    with running(load) as thread:
        thread.put("a", append("c"), True)
        (answer,) = collect(thread, 1).values()
    assert "a bug" in str(answer.bug)
    assert answer.ticket == ("a" if where == "commit" else None)


# ------------------------------------------------------------ with a real store
@pytest.fixture
def ask(journal_url: str) -> Iterator[Callable[[Any], Any]]:
    with running(lambda: open_journal(journal_url)) as thread:

        def asked(command: Any) -> Any:
            thread.put("x", command, isinstance(command, AppendEvents))
            answer = collect(thread, 1)["x"]
            assert answer.bug is None
            return answer.body

        yield asked


def opened(name: str = "c", team: str = "red") -> ConversationOpened:
    return ConversationOpened(conversation_id=name, user="ann", team=team)


def test_a_log_is_opened_written_read_listed_and_deleted(ask: Callable[[Any], Any]) -> None:
    is_open = ask(OpenLog(conversation_id="c", team="red", create=opened()))
    assert isinstance(is_open, LogOpened)
    assert is_open.events == ()
    events = (
        ConversationOpened(seq=1, conversation_id="c", user="ann", team="red"),
        TurnStarted(seq=2, turn_id="t", text="What now?"),
        ToolEnabled(seq=3, tool="x"),
    )
    command = AppendEvents(conversation_id="c", team="red", epoch=is_open.epoch, events=events)
    assert ask(command) == 3
    assert ask(command) == 3
    assert ask(GetUnfinished()) == (UnfinishedLog(conversation_id="c", team="red"),)
    assert ask(ReadLog(conversation_id="c", team="red", after=1, limit=1)) == History(
        events=events[1:2], more=True
    )
    page = ask(ListLogs(team="red"))
    assert isinstance(page, LogList)
    assert [(s.conversation, s.title, s.turns, s.state) for s in page.conversations] == [
        ("c", "What now?", 1, "unfinished")
    ]
    again = ask(OpenLog(conversation_id="c", team="red"))
    assert (again.events, again.epoch > is_open.epoch) == (events, True)
    assert ask(command).kind == "stale_epoch"
    assert ask(DeleteLog(conversation_id="c", team="red")) is True
    for gone in (
        DeleteLog(conversation_id="c", team="red"),
        OpenLog(conversation_id="c", team="red"),
        ReadLog(conversation_id="c", team="red"),
    ):
        assert ask(gone).kind == "not_found"
    assert ask(ListLogs(team="red")) == LogList(conversations=(), more=False)


def test_a_conversation_that_must_exist_is_not_made_by_asking(ask: Callable[[Any], Any]) -> None:
    for _ in range(2):
        assert ask(OpenLog(conversation_id="c", team="red")).kind == "not_found"
    ask(OpenLog(conversation_id="c", team="red", create=opened()))  # its owner died before its first event
    assert ask(OpenLog(conversation_id="c", team="red")).kind == "not_found"


def test_a_log_is_imported_once(ask: Callable[[Any], Any]) -> None:
    events = (opened(), TurnStarted(turn_id="t", text="x"))
    assert ask(ImportLog(conversation_id="c", team="red", events=events)) == 2
    assert ask(ImportLog(conversation_id="c", team="red", events=events)).kind == "conflict"
    assert [e.seq for e in ask(ReadLog(conversation_id="c", team="red")).events] == [1, 2]


def test_old_logs_are_deleted_on_command(ask: Callable[[Any], Any]) -> None:
    old = ConversationOpened(conversation_id="c", user="ann", team="red", at="2001-01-01T00:00:00+00:00")
    ask(ImportLog(conversation_id="c", team="red", events=(old,)))
    assert ask(Expire(None, {"blue": 1.0})) == 0
    assert ask(Expire(3600.0, {})) == 1


def test_an_unknown_command_is_refused(ask: Callable[[Any], Any]) -> None:
    assert isinstance(ask("what?"), Failure)
