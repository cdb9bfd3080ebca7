"""The journal on SQLite and on PostgreSQL: epochs, numbering, teams, damage, lists, deletion. One suite for both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from callboard.storage.journal import Journal, open_journal
from callboard.storage.journal_pieces import MAX_PIECE
from callboard.storage.journal_rows import LARGE
from callboard.storage.journal_terms import Append, JournalError, Opened
from callboard.testing.postgres import NoPostgres, PostgresServer

DAY_S = 86_400.0
NOON = datetime(2030, 1, 2, 12, tzinfo=UTC).timestamp()
ODD_NAMES = ["a/b", "..", "ünïcode ✓", "with space", "c%2Fd", "A", "a", "new\nline", "'; DROP TABLE x; --"]


class Clock:
    """Unix seconds that a test sets."""

    now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(journal_url: str, clock: Clock) -> Iterator[Journal]:
    made = open_journal(journal_url, clock=clock)
    yield made
    made.close()


def record(seq: int, type: str = "note", **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "type": type, **fields}


def began(seq: int = 1, user: str = "ann", **fields: Any) -> dict[str, Any]:
    return record(seq, "conversation_opened", user=user, template="default", **fields)


def add(journal: Journal, epoch: int, *records: dict[str, Any], name: str = "c", team: str = "red") -> int:
    """Append, and raise the refusal if there is one."""
    (answer,) = journal.commit([Append(conversation=name, team=team, epoch=epoch, records=records)])
    if isinstance(answer, JournalError):
        raise answer
    return answer


def make(journal: Journal, name: str, *types: str, team: str = "red", user: str = "ann") -> Opened:
    """Make a log that begins with its opening, and goes on with records of these types."""
    opened = journal.open(name, team)
    rest = [record(seq, type, text=f"{name} says") for seq, type in enumerate(types, start=2)]
    add(journal, opened.epoch, began(user=user), *rest, name=name, team=team)
    return opened


def refused(kind: str, match: str | None = None) -> Any:
    return pytest.raises(JournalError, match=match, check=lambda error: error.kind == kind)


def spoil(url: str, statement: str, **values: Any) -> int:
    """Do to the database what the journal never would."""
    engine = create_engine(url)
    with engine.begin() as connection:
        count = connection.execute(text(statement), values).rowcount
    engine.dispose()
    return count


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def damage(url: str, content: bytes) -> None:
    """Have other bytes in the place of a content."""
    statement = "UPDATE journal_attachments SET content = :x WHERE digest = :d"
    assert spoil(url, statement, x=content[::-1], d=digest_of(content)) == 1


def count(url: str, table: str) -> int:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
    engine.dispose()
    return int(found)


# ------------------------------------------------------------ owners and numbers
def test_each_owner_gets_a_higher_epoch_and_the_records_so_far(journal: Journal) -> None:
    first = journal.open("c", "red")
    assert (first.records, first.damaged) == ((), False)
    assert add(journal, first.epoch, record(1), record(2)) == 2
    second = journal.open("c", "red")
    assert second.epoch > first.epoch
    assert second.records == (record(1), record(2))


def test_epochs_and_records_survive_the_process(journal_url: str) -> None:
    journal = open_journal(journal_url)
    first = journal.open("c", "red")
    add(journal, first.epoch, record(1, value={"deep": [1, None, "ü"]}))
    journal.close()
    again = open_journal(journal_url)
    found = again.open("c", "red")
    again.close()
    assert found.epoch > first.epoch
    assert found.records == (record(1, value={"deep": [1, None, "ü"]}),)


def test_a_former_owner_is_refused_also_after_the_log_was_deleted_and_made_again(journal: Journal) -> None:
    old = journal.open("c", "red").epoch
    new = journal.open("c", "red").epoch
    with refused("stale_epoch"):
        add(journal, old, record(1))
    assert add(journal, new, record(1)) == 1
    journal.delete("c", "red")
    with refused("unknown"):
        add(journal, new, record(2))
    journal.open("c", "red")
    with refused("stale_epoch"):
        add(journal, new, record(1))


def test_an_append_may_be_repeated_also_with_more_behind_it_and_keys_in_another_order(
    journal: Journal,
) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, record(1, a=1, b=(2, 3)), record(2))
    assert add(journal, epoch, {"b": [2, 3], "a": 1, "type": "note", "seq": 1}, record(2)) == 2
    assert add(journal, epoch, record(2), record(3)) == 3
    assert [r["seq"] for r in journal.read("c", "red")[0]] == [1, 2, 3]


@pytest.mark.parametrize(
    "records",
    [
        [record(2)], [record(4), record(5)], [record(0)], [record(1), record(1)], [record(1), record(3)],
        [{"type": "note"}], [record(1, other="content")], [{"seq": "1"}], [{"seq": True}],
    ],
)  # fmt: skip
def test_gaps_other_content_and_numbers_out_of_order_conflict(
    journal: Journal, records: list[dict[str, Any]]
) -> None:
    epoch = journal.open("c", "red").epoch
    if records[0].get("other"):
        add(journal, epoch, record(1))
    with refused("conflict"):
        add(journal, epoch, *records)


@pytest.mark.parametrize("bad", [{1, 2}, object(), b"bytes"])
def test_what_is_not_json_is_refused_and_leaves_the_log_usable(journal: Journal, bad: object) -> None:
    epoch = journal.open("c", "red").epoch
    with refused("invalid"):
        add(journal, epoch, record(1, value=bad))
    assert add(journal, epoch, record(1)) == 1
    with refused("invalid"):
        add(journal, epoch, record(1, value=bad))


@pytest.mark.parametrize(
    "value", ["nul \0", "lone \ud800", "z" * LARGE + "\0\ud800", "", {"": ""}, 10**30, 1e300]
)
def test_any_json_comes_back_as_it_was(journal: Journal, value: object) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, began(), record(2, "turn_started", text=value))
    assert journal.read("c", "red")[0][1]["text"] == value


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_has_a_log_of_its_own(journal: Journal, name: str) -> None:
    for other in ODD_NAMES:
        make(journal, other)
    make(journal, f"{name}+", "note")
    assert len(journal.read(name, "red")[0]) == 1


@pytest.mark.parametrize(
    ("name", "team"), [("", "red"), ("x" * 1000, "red"), ("a\0", "red"), ("a\ud800", "red"), ("a", "\0")]
)
def test_a_name_that_cannot_be_stored_is_refused(journal: Journal, name: str, team: str) -> None:
    with refused("invalid"):
        journal.open(name, team)


# ------------------------------------------------------------ many in one transaction
def test_a_refused_append_does_not_spoil_the_others_in_its_transaction(journal: Journal) -> None:
    epochs = {name: journal.open(name, "red").epoch for name in "abcde"}
    answers = journal.commit(
        [
            Append(conversation="a", team="red", epoch=epochs["a"], records=[record(1)]),
            Append(conversation="b", team="red", epoch=epochs["b"] - 1, records=[record(1)]),
            Append(conversation="c", team="red", epoch=epochs["c"], records=[record(2)]),
            Append(conversation="nobody", team="red", epoch=1, records=[record(1)]),
            Append(conversation="a", team="red", epoch=epochs["a"], records=[record(1), record(2)]),
            Append(conversation="d", team="red", epoch=epochs["d"], records=[record(1, value=object())]),
            Append(conversation="a", team="red", epoch=epochs["a"], records=[record(2, other=1)]),
            Append(conversation="e", team="red", epoch=epochs["e"], records=[record(1)]),
        ]
    )
    kinds = [a.kind if isinstance(a, JournalError) else a for a in answers]
    assert kinds == [1, "stale_epoch", "conflict", "unknown", 2, "invalid", "conflict", 1]
    assert journal.read("a", "red")[0] == (record(1), record(2))
    assert journal.read("e", "red")[0] == (record(1),)
    assert journal.commit([]) == []


# ------------------------------------------------------------ teams
def test_another_teams_conversation_is_unknown(journal: Journal) -> None:
    mine = make(journal, "c", "turn_started")
    for attempt in (
        lambda: journal.read("c", "blue"),
        lambda: journal.delete("c", "blue"),
        lambda: add(journal, mine.epoch, record(3), team="blue"),
    ):
        with refused("unknown"):
            attempt()
    assert journal.listing("blue") == []
    theirs = journal.open("c", "blue")
    assert theirs.records == ()
    add(journal, theirs.epoch, began(user="bob"), team="blue")
    journal.delete("c", "blue")
    assert len(journal.read("c", "red")[0]) == 2


def test_a_stream_of_another_kind_is_another_stream(journal: Journal) -> None:
    make(journal, "c", "turn_started")
    flow = journal.open("c", "red", "workflow")
    assert flow.records == ()
    journal.commit(
        [Append(conversation="c", team="red", epoch=flow.epoch, records=[record(1)], kind="workflow")]
    )
    assert [s.conversation for s in journal.listing("red", kind="workflow")] == ["c"]
    assert len(journal.read("c", "red")[0]) == 2


# ------------------------------------------------------------ reading
def test_a_log_is_read_page_by_page(journal: Journal) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, *(record(seq) for seq in range(1, 8)))
    assert journal.read("c", "red", 0, 3) == ((record(1), record(2), record(3)), True)
    assert journal.read("c", "red", 3, 4) == (tuple(record(seq) for seq in (4, 5, 6, 7)), False)
    assert journal.read("c", "red", 7) == ((), False)
    assert journal.read("c", "red", 99) == ((), False)


def test_a_conversation_without_records_is_unknown_to_readers(journal: Journal) -> None:
    journal.open("c", "red")
    for name in ("c", "other"):
        with refused("unknown"):
            journal.read(name, "red")
    assert journal.listing("red") == []


# ------------------------------------------------------------ large strings
def test_a_large_string_is_stored_once_and_is_back_on_reading(journal: Journal, journal_url: str) -> None:
    image = "i" * (LARGE + 1)
    epoch = journal.open("c", "red").epoch
    for seq in (1, 2):
        blocks = [{"type": "text", "text": "small"}, {"type": "image", "data": image}]
        add(journal, epoch, record(seq, content=blocks, text=image))
    other = journal.open("d", "red").epoch
    add(journal, other, record(1, text=image), name="d")
    assert count(journal_url, "journal_attachments") == 1
    for records in (journal.read("c", "red")[0], journal.open("c", "red").records):
        assert [r["content"][1]["data"] == image and r["text"] == image for r in records] == [True, True]
    assert add(journal, journal.open("d", "red").epoch, record(1, text=image), name="d") == 1


def test_an_attachment_goes_with_the_last_log_that_uses_it(journal: Journal, journal_url: str) -> None:
    image = "i" * (LARGE + 1)
    for name, team in (("c", "red"), ("d", "red"), ("c", "blue")):
        epoch = journal.open(name, team).epoch
        add(journal, epoch, record(1, text=image), name=name, team=team)
    assert count(journal_url, "journal_attachments") == 2  # each team has its own
    journal.delete("c", "red")
    assert journal.read("d", "red")[0][0]["text"] == image
    journal.delete("d", "red")
    assert count(journal_url, "journal_attachments") == 1
    assert journal.read("c", "blue")[0][0]["text"] == image


def test_a_record_cannot_name_anothers_attachment(journal: Journal) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, record(1, text="secret" * LARGE))
    forged = {"attached": [[["text"], "0" * 64]], "text": None, "$ref": "0" * 64}
    add(journal, epoch, record(2, **forged))
    assert journal.read("c", "red", 1)[0][0] == record(2, **forged)


# ------------------------------------------------------------ lists
def test_a_list_has_the_last_changed_first_and_goes_on_behind_its_cursor(
    journal: Journal, clock: Clock
) -> None:
    for number in range(5):
        clock.now = NOON + number
        make(journal, f"c{number}", user="ann" if number % 2 else "bob")
    clock.now = NOON + 10
    add(journal, journal.open("c0", "red").epoch, record(2), name="c0")
    first = journal.listing("red", limit=2)
    assert [s.conversation for s in first] == ["c0", "c4"]
    rest = journal.listing("red", before=first[-1].cursor)
    assert [s.conversation for s in rest] == ["c3", "c2", "c1"]
    assert [s.conversation for s in journal.listing("red", user="ann")] == ["c3", "c1"]
    with refused("invalid", "cursor"):
        journal.listing("red", before="yesterday")


def test_a_summary_says_whose_it_is_and_how_it_stands(journal: Journal, clock: Clock) -> None:
    epoch = journal.open("c", "red").epoch
    opened = began(at="2030-01-01T00:00:00.000+00:00")
    asked = record(
        2, "turn_started", text="  What is\n the " + "long " * 40, at="2030-01-01T00:00:01.000+00:00"
    )
    add(journal, epoch, opened, asked)
    (summary,) = journal.listing("red")
    assert (summary.user, summary.template, summary.events, summary.turns) == ("ann", "default", 2, 1)
    assert summary.title.startswith("What is the long long")
    assert len(summary.title) == 80
    assert summary.updated_at == "2030-01-01T00:00:01.000+00:00"
    assert summary.state == "unfinished"
    add(journal, epoch, record(3, "turn_answered", at="2099-01-01T00:00:00+00:00"))
    (summary,) = journal.listing("red")
    assert summary.updated_at == "2030-01-02T12:00:00.000+00:00"  # never in the future
    assert summary.state == "open"


@pytest.mark.parametrize(
    ("types", "state"),
    [
        (["turn_started"], "unfinished"),
        (["turn_started", "turn_answered"], "open"),
        (["turn_started", "turn_suspended"], "suspended"),
        (["turn_started", "turn_suspended", "turn_continued"], "unfinished"),
        (["turn_started", "turn_suspended", "turn_continued", "turn_failed"], "open"),
        (["turn_started", "turn_suspended", "turn_cancelled"], "open"),
        (["turn_started", "turn_suspended", "turn_cancelled", "turn_started"], "unfinished"),
        (["turn_started", "turn_cancelled", "conversation_closed"], "closed"),
        (["turn_started", "conversation_closed"], "unfinished"),
        ([], "open"),
    ],
)
def test_only_an_open_turn_leaves_a_conversation_unfinished(
    journal: Journal, types: list[str], state: str
) -> None:
    make(journal, "c", *types)
    make(journal, "other", "turn_started", "turn_answered")
    assert journal.listing("red")[-1].state == state or journal.listing("red")[0].state == state
    assert journal.unfinished() == ([("c", "red")] if state == "unfinished" else [])


# ------------------------------------------------------------ deleting
def test_a_deleted_log_leaves_no_row(journal: Journal, journal_url: str) -> None:
    make(journal, "c", "turn_started")
    journal.delete("c", "red")
    for table in ("streams", "events", "attachments", "uses", "quarantine"):
        assert count(journal_url, f"journal_{table}") == 0
    with refused("unknown"):
        journal.delete("c", "red")


def test_old_logs_expire_by_their_teams_age_but_never_a_turn_under_way(
    journal: Journal, clock: Clock
) -> None:
    for team in ("red", "blue", "kept"):
        make(journal, "old", "turn_started", "turn_answered", team=team)
        make(journal, "busy", "turn_started", team=team)
    clock.now += 5 * DAY_S
    for team in ("red", "blue", "kept"):
        make(journal, "new", team=team)
    ages = {"blue": 10 * DAY_S, "kept": float("inf")}
    assert journal.expire(clock.now, None, {}) == 0
    assert journal.expire(clock.now, 3 * DAY_S, ages) == 1
    assert [s.conversation for s in journal.listing("red")] == ["new", "busy"]
    assert journal.expire(clock.now + 6 * DAY_S, None, ages) == 1
    assert [s.conversation for s in journal.listing("blue")] == ["new", "busy"]
    assert journal.expire(clock.now + 900 * DAY_S, 3 * DAY_S, ages) == 2
    assert {s.conversation for s in journal.listing("kept")} == {"new", "busy", "old"}


# ------------------------------------------------------------ damage
BROKEN = "UPDATE journal_events SET body = replace(body, 'note', 'nota') WHERE seq = 3"


@pytest.mark.parametrize(
    "statement",
    [
        BROKEN,
        "DELETE FROM journal_events WHERE seq = 3",
        "UPDATE journal_events SET epoch = epoch + 1 WHERE seq = 3",
        "UPDATE journal_events SET crc = 0 WHERE seq = 3",
        "UPDATE journal_events SET seq = 30 WHERE seq = 3",
        'UPDATE journal_events SET attached = \'[[["x"],"00"]]\' WHERE seq = 3',
    ],
)
def test_a_damaged_record_cuts_the_log_and_the_rest_is_kept_aside(
    journal: Journal, journal_url: str, statement: str
) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, began(), *(record(seq) for seq in (2, 3, 4, 5)))
    make(journal, "other")
    journal.close()
    assert spoil(journal_url, statement) == 1
    assert [c.conversation for c in journal.check()] == ["c"]
    assert journal.read("c", "red") == ((began(), record(2)), True)
    with refused("storage_corrupt", "record 3"):
        journal.read("c", "red", 2)
    opened = journal.open("c", "red")
    assert (opened.records, opened.damaged) == ((began(), record(2)), True)
    assert count(journal_url, "journal_quarantine") == (2 if "DELETE" in statement else 3)
    assert journal.open("other", "red").damaged is False
    assert journal.open("c", "red").damaged is True  # until its owner has gone on
    assert add(journal, journal.open("c", "red").epoch, record(3)) == 3
    assert journal.open("c", "red").damaged is False
    assert any("quarantine" in c.problem for c in journal.check())
    journal.delete("c", "red")
    assert journal.check() == []


def test_a_log_that_lost_its_end_is_damaged(journal: Journal, journal_url: str) -> None:
    make(journal, "c", "turn_started", "note")
    journal.close()
    spoil(journal_url, "DELETE FROM journal_events WHERE seq = 3")
    assert [c.conversation for c in journal.check()] == ["c"]
    with refused("storage_corrupt", "record 3"):
        journal.read("c", "red", 2)
    opened = journal.open("c", "red")
    assert (len(opened.records), opened.damaged) == (2, True)
    assert add(journal, opened.epoch, record(3)) == 3


def test_a_log_that_lost_everything_stays_damaged(journal: Journal, journal_url: str) -> None:
    make(journal, "c", "turn_started")
    journal.close()
    spoil(journal_url, "DELETE FROM journal_events")
    for _ in range(2):
        opened = journal.open("c", "red")
        assert (opened.records, opened.damaged) == ((), True)
    with refused("storage_corrupt"):
        journal.read("c", "red")
    with refused("conflict"):
        journal.insert("c", "red", [began()])


def test_a_damaged_attachment_cuts_the_log_before_its_record(journal: Journal, journal_url: str) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, began(), record(2, text="x" * (LARGE + 1)), record(3))
    journal.close()
    spoil(journal_url, "UPDATE journal_attachments SET digest = 'other'")
    assert {c.conversation for c in journal.check()} == {"c", ""}
    opened = journal.open("c", "red")
    assert (opened.records, opened.damaged) == ((began(),), True)


@pytest.mark.parametrize("column", ["epoch = 0", "last_seq = 1", "state = 'open'", "turns = 9, title = 'x'"])
def test_a_damaged_row_of_a_stream_is_made_anew_from_its_log(
    journal: Journal, journal_url: str, column: str
) -> None:
    before = make(journal, "c", "turn_started").epoch
    (summary,) = journal.listing("red")
    journal.close()
    spoil(journal_url, f"UPDATE journal_streams SET {column}")
    spoil(journal_url, "UPDATE journal_epochs SET last = 0")
    opened = journal.open("c", "red")
    assert opened.epoch > before
    assert len(opened.records) == 2
    assert journal.unfinished() == [("c", "red")]
    assert journal.listing("red") == [summary]


# ------------------------------------------------------------ moving
def test_an_export_is_imported_elsewhere_as_it_was(journal: Journal, tmp_path: Any) -> None:
    make(journal, "a", "turn_started", "turn_answered")
    make(journal, "b", "turn_started", team="blue")
    image = record(2, data="x" * (LARGE + 1))
    add(journal, journal.open("c", "red").epoch, began(), image)
    lines = list(journal.export())
    assert [line["team"] for line in journal.export("blue")] == ["blue", "blue"]
    other = open_journal(f"sqlite:///{tmp_path}/elsewhere.sqlite3", clock=Clock())
    assert other.import_(lines) == 3
    assert list(other.export()) == lines
    assert other.listing("red")[0].state == journal.listing("red")[0].state
    assert other.unfinished() == [("b", "blue")]
    with refused("conflict", "already"):
        other.import_(lines)
    other.close()


@pytest.mark.parametrize("line", [{}, {"team": "t"}, {"team": "t", "conversation": "c", "record": 1}, 5])
def test_a_line_that_is_no_export_is_refused_by_its_number(journal: Journal, line: Any) -> None:
    good = {"team": "t", "conversation": "c", "record": began()}
    with refused("invalid", "line 2"):
        journal.import_([good, line])


def test_a_damaged_log_is_exported_up_to_its_damage_and_then_said(journal: Journal, journal_url: str) -> None:
    make(journal, "a", "note", "note", "note")
    make(journal, "b")
    journal.close()
    spoil(journal_url, BROKEN)
    got = []
    with refused("storage_corrupt", "a"):
        got.extend(journal.export())
    assert [(line["conversation"], line["record"]["seq"]) for line in got] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
    ] or got


def test_a_sound_journal_has_no_complaints(journal: Journal) -> None:
    assert journal.check() == []
    make(journal, "c", "turn_started")
    add(journal, journal.open("c", "red").epoch, record(3, text="x" * (LARGE + 1)))
    assert journal.check() == []


def test_a_reader_beside_the_owner_sees_what_is_committed_and_writes_nothing(
    journal: Journal, journal_url: str
) -> None:
    epoch = make(journal, "c", "turn_started").epoch
    reader = open_journal(journal_url, read_only=True)
    assert len(reader.read("c", "red")[0]) == 2
    add(journal, epoch, record(3))
    assert len(reader.read("c", "red")[0]) == 3
    for attempt in (
        lambda: reader.open("c", "red"),
        lambda: reader.delete("c", "red"),
        lambda: add(reader, epoch, record(4)),
    ):
        with refused("storage_read_only"):
            attempt()
    assert reader.check() == []
    assert add(journal, epoch, record(4)) == 4
    reader.close()


def test_a_journal_that_nobody_has_made_yet_is_unknown_to_a_reader(
    journal_url: str, postgres: PostgresServer | NoPostgres
) -> None:
    url = journal_url if isinstance(postgres, NoPostgres) else postgres.empty("untouched")
    for place in (journal_url, url):
        if place.startswith("sqlite") or place.endswith("untouched"):
            reader = open_journal(place, read_only=True)
            with refused("unknown", "journal"):
                reader.listing("red")
            reader.close()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://u:secret@h/d", "sqlite://", "sqlite:///", "postgres"]
)
def test_a_url_of_no_database_we_know_is_refused_without_its_password(url: str) -> None:
    with refused("invalid") as caught:
        open_journal(url)
    assert "secret" not in caught.value.message


def test_what_is_kept_beside_a_log_is_had_by_its_digest(journal: Journal, journal_url: str) -> None:
    opened = make(journal, "c")
    pieces = [b"\x00" * LARGE, b"\xff" * LARGE]
    journal.keep("c", "red", opened.epoch, pieces)
    journal.keep("c", "red", opened.epoch, pieces)
    for piece in pieces:
        assert journal.piece("c", "red", digest_of(piece)) == piece
    assert count(journal_url, "journal_attachments") == 2
    assert len(journal.read("c", "red")[0]) == 1, "it is no record"


def test_a_kept_content_is_had_only_through_the_logs_that_use_it(journal: Journal) -> None:
    opened, _, blue = make(journal, "c"), make(journal, "d"), make(journal, "c", team="blue")
    journal.keep("c", "red", opened.epoch, [b"one"])
    journal.keep("c", "blue", blue.epoch, [b"two"])
    for name, team, content in [("d", "red", b"one"), ("c", "red", b"two"), ("none", "red", b"one")]:
        with refused("unknown"):
            journal.piece(name, team, digest_of(content))


def test_only_the_owner_keeps_contents(journal: Journal) -> None:
    opened = make(journal, "c")
    journal.open("c", "red")
    with refused("stale_epoch"):
        journal.keep("c", "red", opened.epoch, [b"one"])
    with refused("unknown"):
        journal.keep("d", "red", opened.epoch, [b"one"])


def test_a_piece_has_a_largest_size(journal: Journal) -> None:
    opened = make(journal, "c")
    journal.keep("c", "red", opened.epoch, [b"x" * MAX_PIECE])
    with refused("invalid"):
        journal.keep("c", "red", opened.epoch, [b"x" * (MAX_PIECE + 1)])


def test_what_is_kept_goes_with_the_last_log_that_uses_it(journal: Journal, journal_url: str) -> None:
    for name in ("c", "d"):
        journal.keep(name, "red", make(journal, name).epoch, [b"one"])
    journal.delete("c", "red")
    assert journal.piece("d", "red", digest_of(b"one")) == b"one"
    journal.delete("d", "red")
    assert count(journal_url, "journal_attachments") == 0


def test_what_is_kept_is_exported_and_imported(journal: Journal) -> None:
    opened = make(journal, "c", "note")
    journal.keep("c", "red", opened.epoch, [b"one", b"\x00two"])
    make(journal, "d")
    lines = [json.loads(json.dumps(line)) for line in journal.export()]
    for name in ("c", "d"):
        journal.delete(name, "red")
    assert journal.import_(lines) == 2
    assert journal.piece("c", "red", digest_of(b"\x00two")) == b"\x00two"
    assert journal.check() == []
    with refused("invalid", "line 1: 'piece' is not base64"):
        journal.import_([{"team": "red", "conversation": "e", "piece": 7}])


def test_a_damaged_content_costs_itself_and_is_found_by_a_check(journal: Journal, journal_url: str) -> None:
    opened = make(journal, "c", "note")
    journal.keep("c", "red", opened.epoch, [b"one", b"two"])
    damage(journal_url, b"one")
    spoil(journal_url, "DELETE FROM journal_attachments WHERE digest = :d", d=digest_of(b"two"))
    with refused("storage_corrupt", "is damaged"):
        journal.piece("c", "red", digest_of(b"one"))
    assert len(journal.open("c", "red").records) == 2, "the log is whole"
    problems = [complaint.problem for complaint in journal.check()]
    assert problems == [
        f"the attachment {digest_of(b'two')[:12]} is missing",
        f"the attachment {digest_of(b'one')[:12]} is damaged",
    ]


def test_a_damaged_content_is_mended_by_keeping_it_again(journal: Journal, journal_url: str) -> None:
    opened = make(journal, "c", "note")
    journal.keep("c", "red", opened.epoch, [b"one", b"two"])
    damage(journal_url, b"one")
    journal.keep("c", "red", opened.epoch, [b"one", b"two"])
    assert journal.piece("c", "red", digest_of(b"one")) == b"one"
    assert journal.check() == []


def test_an_export_lacks_damaged_contents_and_says_so_at_its_end(journal: Journal, journal_url: str) -> None:
    opened = make(journal, "c", "note")
    journal.keep("c", "red", opened.epoch, [b"one", b"two", b"three"])
    make(journal, "d")
    damage(journal_url, b"one")
    spoil(journal_url, "DELETE FROM journal_attachments WHERE digest = :d", d=digest_of(b"two"))
    lines = []
    with refused("storage_corrupt", "2 pieces of attachments are damaged, and not exported: .* of c"):
        lines.extend(journal.export())
    assert [line.get("piece") for line in lines] == [None, None, "dGhyZWU=", None]


def test_between_two_rows_of_an_export_the_journal_can_be_used(journal: Journal) -> None:
    opened = make(journal, "c")
    journal.keep("c", "red", opened.epoch, [b"one", b"two"])
    rows = 0
    for _row in journal.export():
        rows += 1
        journal.keep("c", "red", opened.epoch, [b"three"])
        assert journal.piece("c", "red", digest_of(b"two")) == b"two"
    assert rows == 3
