"""The journal on a real PostgreSQL server: two processes at one database, a server that goes, a whole system."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from callboard.api import System
from callboard.storage.journal import Journal, open_journal
from callboard.storage.journal_pieces import put_pieces
from callboard.storage.journal_terms import Append, JournalError
from callboard.testing.postgres import NoPostgres, PostgresServer
from callboard.testing.turns import eventually


@pytest.fixture
def server(postgres: PostgresServer | NoPostgres) -> PostgresServer:
    if isinstance(postgres, NoPostgres):
        pytest.skip(str(postgres))
    return postgres


@pytest.fixture
def two(server: PostgresServer) -> Iterator[tuple[Journal, Journal]]:
    """Two journals at one database, as two processes have them: neither knows what the other remembers."""
    url = server.empty("journal")
    journals = (open_journal(url), open_journal(url))
    yield journals
    for journal in journals:
        journal.close()


def append(journal: Journal, epoch: int, seq: int, name: str = "c") -> int | str:
    one = Append(
        conversation=name, team="red", epoch=epoch, records=[{"seq": seq, "type": "note", "by": epoch}]
    )
    (answer,) = journal.commit([one])
    return answer.kind if isinstance(answer, JournalError) else answer


def test_an_owner_by_one_journal_is_fenced_off_by_an_owner_by_the_other(two: tuple[Journal, Journal]) -> None:
    left, right = two
    first = left.open("c", "red").epoch
    assert append(left, first, 1) == 1
    second = right.open("c", "red").epoch
    assert second > first
    assert append(left, first, 2) == "stale_epoch"
    assert append(right, second, 2) == 2
    third = left.open("c", "red")
    assert [r["by"] for r in third.records] == [first, second]
    assert append(right, second, 3) == "stale_epoch"


def test_of_two_that_open_and_append_at_the_same_time_one_owns_the_log(two: tuple[Journal, Journal]) -> None:
    both = threading.Barrier(2)

    def race(journal: Journal) -> list[int]:
        written = []
        for _ in range(25):
            both.wait(20)
            opened = journal.open("c", "red")
            seq = len(opened.records) + 1
            while seq < len(opened.records) + 4 and append(journal, opened.epoch, seq) == seq:
                written.append(opened.epoch)
                seq += 1
        return written

    with ThreadPoolExecutor(2) as threads:
        written = [epoch for part in threads.map(race, two) for epoch in part]
    records = two[0].read("c", "red")[0]
    by = [record["by"] for record in records]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert by == sorted(by), "a former owner wrote after a later one"
    assert {epoch: by.count(epoch) for epoch in by} == {epoch: written.count(epoch) for epoch in written}


def test_transactions_that_cross_do_not_hold_each_other_for_ever(two: tuple[Journal, Journal]) -> None:
    names = [f"n{number}" for number in range(20)]
    epochs = {name: two[0].open(name, "red").epoch for name in names}

    def write(journal: Journal, order: list[str]) -> None:
        for seq in range(1, 11):
            appends = [
                Append(
                    conversation=name, team="red", epoch=epochs[name], records=[{"seq": seq, "type": "note"}]
                )
                for name in order
            ]
            last = journal.commit(appends)  # the other may be ahead: the same append again is no append
            assert all(isinstance(answer, int) and answer >= seq for answer in last), last

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, two, (names, names[::-1])))
    assert two[0].check() == []


@pytest.mark.parametrize("way", ["deleted", "expired"])
def test_a_content_stays_that_one_keeps_while_its_former_user_is_removed(
    two: tuple[Journal, Journal], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    left, right = two
    left.keep("old", "red", left.open("old", "red").epoch, [b"one"])
    epoch = left.open("c", "red").epoch
    is_kept, is_removed = threading.Event(), threading.Event()

    def put(connection: Any, stream: Any, pieces: Any) -> None:
        put_pieces(connection, stream, pieces)
        is_kept.set()
        is_removed.wait(0.5)  # it is not, before this is committed

    def remove() -> None:
        assert is_kept.wait(20)
        if way == "deleted":
            right.delete("old", "red")
        else:
            assert right.expire(time.time() + 100, 1.0, {}) == 1, "the one that is in use is passed over"
        is_removed.set()

    monkeypatch.setattr("callboard.storage.journal.put_pieces", put)
    with ThreadPoolExecutor(1) as threads:
        removed = threads.submit(remove)
        left.keep("c", "red", epoch, [b"one"])
        removed.result(20)
    assert left.piece("c", "red", hashlib.sha256(b"one").hexdigest()) == b"one"


def test_a_lost_connection_is_made_again_without_a_word(
    server: PostgresServer, two: tuple[Journal, Journal]
) -> None:
    left, _ = two
    epoch = left.open("c", "red").epoch
    for lost in (
        lambda: append(left, epoch, 1),
        lambda: left.read("c", "red"),
        lambda: left.listing("red"),
        lambda: left.open("c", "red"),
    ):
        server.disconnect_all()
        assert lost()
    server.disconnect_all()
    with pytest.raises(JournalError) as caught:
        left.delete("c", "red")  # this one cannot be done twice
    assert caught.value.kind == "storage_io"
    left.delete("c", "red")


def test_while_the_server_is_away_everything_is_refused_by_name(server: PostgresServer) -> None:
    with PostgresServer() as own:  # one that this test may stop
        journal = open_journal(own.empty("journal"))
        epoch = journal.open("c", "red").epoch
        own.stop()
        for _ in range(2):
            assert append(journal, epoch, 1) == "storage_io"
            with pytest.raises(JournalError, match="database server") as caught:
                journal.unfinished()
            assert caught.value.kind == "storage_io"
        own.start()
        assert append(journal, epoch, 1) == 1
        assert journal.check() == []
        journal.close()


def test_a_backup_is_pg_dumps_business(two: tuple[Journal, Journal]) -> None:
    with pytest.raises(JournalError, match="pg_dump"):
        two[0].backup("/nowhere")


def test_a_system_keeps_its_conversations_in_postgresql(
    server: PostgresServer, start: Callable[..., System]
) -> None:
    url = server.empty("system")
    system = start(storage={"url": url})
    conversation = system.conversation(conversation_id="c", linked=False)
    assert list(conversation.ask("good"))[-1].type == "turn_answered"
    journal = open_journal(url, read_only=True)
    eventually(lambda: [s.state for s in journal.listing("")] == ["open"])
    server.disconnect_all()
    assert list(conversation.ask("again"))[-1].type == "turn_answered"
    assert [s.turns for s in journal.listing("")] == [2]
    journal.close()
    system.close()
