"""What only a file can suffer: other processes, full and read-only disks, flipped bits, a cut write-ahead log."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.storage import journal_store
from callboard.storage.journal import Journal, open_journal
from callboard.storage.journal_terms import Append, JournalError

OWNER = """
import sys
from callboard.storage.journal import open_journal
from callboard.storage.journal_terms import Append
journal = open_journal(sys.argv[1])
epochs = {name: journal.open(name, "red").epoch for name in "ab"}
for number in range(int(sys.argv[2])):
    type = "turn_started" if number == 0 else "note"
    records = [{"seq": number + 1, "type": type, "text": "t" * 500}]
    for name, epoch in epochs.items():
        append = Append(conversation=name, team="red", epoch=epoch, records=records)
        assert journal.commit([append]) == [number + 1]
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite3"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    made = open_journal(f"sqlite:///{path}")
    yield made
    made.close()


def add(journal: Journal, epoch: int, *seqs: int, text: str = "", name: str = "c") -> int | JournalError:
    records = [{"seq": seq, "type": "note", "text": text} for seq in seqs]
    (answer,) = journal.commit([Append(conversation=name, team="red", epoch=epoch, records=records)])
    return answer


def kind_of(answer: int | JournalError) -> str:
    assert isinstance(answer, JournalError), answer
    return answer.kind


def refused(kind: str, match: str | None = None) -> Any:
    return pytest.raises(JournalError, match=match, check=lambda error: error.kind == kind)


def seqs(journal: Journal, name: str = "c") -> list[int]:
    return [record["seq"] for record in journal.read(name, "red")[0]]


@contextmanager
def owned_by_another(path: Path, appends: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has the journal open, and has appended so often to two logs; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, f"sqlite:///{path}", str(appends)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "written\n"
            yield process
        finally:
            process.kill()


def killed_after(path: Path, appends: int) -> None:
    """Leave behind what a killed process leaves: a write-ahead log that nobody has closed."""
    with owned_by_another(path, appends):
        pass
    assert path.with_name(path.name + "-wal").stat().st_size > 0


# ------------------------------------------------------------ one process
def test_a_second_process_is_refused_until_the_first_is_gone(path: Path, journal: Journal) -> None:
    with owned_by_another(path, 1):
        with refused("storage_locked", "another process"):
            journal.open("a", "red")
        assert kind_of(add(journal, 1, 1)) == "storage_locked"
        reader = open_journal(f"sqlite:///{path}", read_only=True)
        assert seqs(reader, "a") == [1]
        reader.close()
    assert len(journal.open("a", "red").records) == 1


def test_the_lock_goes_when_the_journal_is_closed(path: Path, journal: Journal) -> None:
    journal.open("c", "red")
    other = open_journal(f"sqlite:///{path}")
    with refused("storage_locked"):
        other.open("c", "red")
    journal.close()
    assert other.open("c", "red").records == ()
    other.close()


def test_files_are_for_the_user_only(path: Path, journal: Journal) -> None:
    journal.open("c", "red")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_every_commit_is_synced_to_a_write_ahead_log(journal: Journal) -> None:
    journal.open("c", "red")
    raw = journal._store.sqlite()
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert raw.execute("PRAGMA synchronous").fetchone() == (2,)
    assert raw.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_what_a_killed_process_had_acknowledged_is_there(path: Path, journal: Journal) -> None:
    killed_after(path, 5)
    assert seqs(journal, "a") == seqs(journal, "b") == [1, 2, 3, 4, 5]
    assert journal.unfinished() == [("a", "red"), ("b", "red")]
    assert journal.open("a", "red").damaged is False
    assert journal.take_findings() == []


def test_a_reader_can_look_at_what_a_killed_process_left(path: Path) -> None:
    killed_after(path, 3)
    reader = open_journal(f"sqlite:///{path}", read_only=True)
    assert seqs(reader, "a") == [1, 2, 3]
    reader.close()


# ------------------------------------------------------------ faults that come and go
@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file may grow beyond the limit: SQLite calls that a full disk, or an I/O error."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_when_a_file_cannot_grow_nothing_is_written_and_the_next_append_works(
    path: Path, journal: Journal
) -> None:
    epoch = journal.open("c", "red").epoch
    assert add(journal, epoch, 1) == 1
    with small_files(path.with_name(path.name + "-wal").stat().st_size + 1000):
        assert kind_of(add(journal, epoch, 2, text="x" * 10_000)).startswith("storage_")
        assert kind_of(add(journal, epoch, 2, text="x" * 10_000)).startswith("storage_")
    assert seqs(journal) == [1]
    assert add(journal, epoch, 2) == 2
    assert seqs(journal) == [1, 2]


def test_a_full_disk_is_named_and_room_mends_it(path: Path, journal: Journal) -> None:
    epoch = journal.open("c", "red").epoch
    raw = journal._store.sqlite()
    (pages,) = raw.execute("PRAGMA page_count").fetchone()
    raw.execute(f"PRAGMA max_page_count = {pages + 2}")  # SQLite's own word for a disk without room
    answer = add(journal, epoch, 1, text="x" * 60_000)
    assert kind_of(answer) == "storage_full"
    assert "make room" in str(answer)
    raw.execute("PRAGMA max_page_count = 1000000")
    assert add(journal, epoch, 1, text="x" * 60_000) == 1


def test_a_database_that_another_process_holds_is_waited_for_and_then_named(
    path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "LOCK_WAIT_S", 0.2)
    epoch = journal.open("c", "red").epoch
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert kind_of(add(journal, epoch, 1)) == "storage_locked"
    with refused("storage_locked"):
        journal.open("c", "red")
    assert journal.listing("red") == []  # readers do not wait
    holder.execute("ROLLBACK")
    holder.close()
    assert add(journal, epoch, 1) == 1


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
def test_a_folder_that_cannot_be_written_is_named(path: Path, journal: Journal) -> None:
    path.parent.mkdir(mode=0o700)
    path.parent.chmod(0o500)
    try:
        with refused("storage_read_only", "writable"):
            journal.open("c", "red")
    finally:
        path.parent.chmod(0o700)
    assert journal.open("c", "red").records == ()


def test_a_folder_that_cannot_be_made_is_an_io_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = open_journal(f"sqlite:///{tmp_path}/file/journal.sqlite3")
    with refused("storage_io", "file"):
        journal.open("c", "red")
    journal.close()


def test_a_file_that_is_taken_away_is_noticed_at_the_next_append(path: Path, journal: Journal) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, 1)
    for file in path.parent.glob("journal.sqlite3*"):
        file.unlink()
    assert kind_of(add(journal, epoch, 2)) == "unknown"
    assert ["removed or replaced" in finding for finding in journal.take_findings()] == [True]
    assert journal.open("c", "red").records == ()


def test_rows_that_somebody_else_changed_are_read_again(path: Path, journal: Journal) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, 1)
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE journal_streams SET last_seq = 5")
    assert kind_of(add(journal, epoch, 2)) == "conflict"
    with other:
        other.execute("UPDATE journal_streams SET last_seq = 1")
    other.close()
    journal.close()
    assert add(journal, epoch, 2) == 2


# ------------------------------------------------------------ damage while stopped
def closed_with(journal: Journal, records: int) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, *range(1, records + 1), text="t" * 300)
    journal.close()


def flip(path: Path, place: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ (1 << bit)]))


@pytest.mark.parametrize("spoil", [lambda p: flip(p, 3), lambda p: os.truncate(p, p.stat().st_size // 2),
                                   lambda p: p.write_bytes(b"not a database" * 1000)])  # fmt: skip
def test_a_malformed_file_refuses_every_operation_by_name_until_it_is_restored(
    path: Path, journal: Journal, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, *range(1, 200), text="t" * 300)
    journal.backup(tmp_path / "backup")
    journal.close()
    spoil(path)
    for _ in range(2):
        assert kind_of(add(journal, epoch, 200)) == "storage_corrupt"
        for attempt in (
            lambda: journal.open("c", "red"),
            journal.unfinished,
            lambda: journal.read("c", "red"),
        ):
            with refused("storage_corrupt", "journal check"):
                attempt()
    assert journal.check() != []
    os.replace(tmp_path / "backup", path)
    assert len(journal.open("c", "red").records) == 199


@pytest.mark.parametrize("bit", [0, 7])
def test_a_bit_that_flips_in_a_record_is_found(path: Path, journal: Journal, bit: int) -> None:
    closed_with(journal, 50)
    flip(path, path.read_bytes().rindex(b"t" * 300) + 100, bit)
    assert [c.conversation for c in journal.check()] == ["c"]
    opened = journal.open("c", "red")
    assert opened.damaged
    assert [r["text"] for r in opened.records] == ["t" * 300] * len(opened.records)


def test_no_bit_that_flips_is_ever_read_as_good(path: Path, journal: Journal) -> None:
    """One bit in each 997th byte of the file: a log is whole, or cut and said, or the store says what is wrong."""
    closed_with(journal, 30)
    whole = path.read_bytes()
    good = [{"seq": seq, "type": "note", "text": "t" * 300} for seq in range(1, 31)]
    for place in range(0, len(whole), 997):
        path.write_bytes(whole)
        flip(path, place, place % 8)
        try:
            opened = journal.open("c", "red")
        except JournalError as error:
            assert error.is_fault, place
        else:
            assert list(opened.records) == good[: len(opened.records)], place
            assert opened.damaged or len(opened.records) in (0, 30), place
        journal.close()
        for file in path.parent.glob("journal.sqlite3-*"):
            file.unlink()


# ------------------------------------------------------------ the write-ahead log
def frame_at(path: Path, part: float) -> int:
    """Give the place of the page of the frame that lies so far in the log."""
    size = 4096 + 24
    frames = (path.stat().st_size - 32) // size
    return 32 + int(frames * part) * size + 24 + 100


WAL_DAMAGE: dict[str, Callable[[Path], None]] = {
    "a bit in the middle": lambda wal: flip(wal, frame_at(wal, 0.5)),
    "a bit in the first frame": lambda wal: flip(wal, frame_at(wal, 0.0)),
    "a bit in the last frame": lambda wal: flip(wal, wal.stat().st_size - 2000),
    "a bit in the header": lambda wal: flip(wal, 12),
    "a bit in the header's salt": lambda wal: flip(wal, 17),
    "cut in the middle": lambda wal: os.truncate(wal, frame_at(wal, 0.5)),
    "cut at a frame's end": lambda wal: os.truncate(wal, frame_at(wal, 0.9) - 124),
    "emptied": lambda wal: os.truncate(wal, 0),
    "taken away": lambda wal: wal.unlink(),
}


@pytest.mark.parametrize("damage", WAL_DAMAGE)
def test_a_damaged_write_ahead_log_is_said_and_unfinished_logs_are_damaged(
    path: Path, journal: Journal, damage: str
) -> None:
    first = open_journal(f"sqlite:///{path}")
    for name in ("a", "b", "done"):
        epoch = first.open(name, "red").epoch
        kinds = ["turn_started"] if name != "done" else ["turn_started", "turn_answered"]
        records = [{"seq": n, "type": kind} for n, kind in enumerate(kinds, start=1)]
        first.commit([Append(conversation=name, team="red", epoch=epoch, records=records)])
    first.close()
    grow(path, 20)
    reader = open_journal(f"sqlite:///{path}", read_only=True)
    assert reader.check() == []
    reader.close()
    WAL_DAMAGE[damage](path.with_name(path.name + "-wal"))
    assert ["write-ahead log" in c.problem for c in reader.check()][:1] == [True]
    reader.close()
    opened = journal.open("a", "red")
    assert opened.damaged, damage
    assert [record["seq"] for record in opened.records] == list(range(1, len(opened.records) + 1))
    assert ["write-ahead log" in finding for finding in journal.take_findings()] == [True]
    assert journal.open("b", "red").damaged
    assert not journal.open("done", "red").damaged
    assert add(journal, journal.open("a", "red").epoch, len(opened.records) + 1, name="a") is not None
    assert journal.open("a", "red").damaged is False


def grow(path: Path, appends: int) -> None:
    """Have another process append to "a" and "b", and kill it."""
    script = OWNER.replace('journal.open(name, "red").epoch', 'journal.open(name, "red")')
    script = script.replace('"turn_started" if number == 0 else ', "").replace(
        "epoch=epoch", "epoch=epoch.epoch"
    )
    script = script.replace("number + 1", "number + 2")
    process = subprocess.run(
        [sys.executable, "-c", script.replace("sys.stdin.read()", "import os; os.kill(os.getpid(), 9)"),
         f"sqlite:///{path}", str(appends)],
        check=False,
        capture_output=True,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_torn_transaction_that_nobody_was_told_of_is_no_damage(
    path: Path, journal: Journal, index: str
) -> None:
    killed_after(path, 5)
    wal = path.with_name(path.name + "-wal")
    with wal.open("ab") as file:
        file.write(b"\1" * 3000)  # a frame that was being written
    if index == "lost":
        path.with_name(path.name + "-shm").unlink()
    assert journal.open("a", "red").damaged is False
    assert seqs(journal, "a") == [1, 2, 3, 4, 5]
    assert journal.take_findings() == []


def test_without_the_index_two_lost_transactions_are_still_noticed(path: Path, journal: Journal) -> None:
    killed_after(path, 10)
    wal = path.with_name(path.name + "-wal")
    path.with_name(path.name + "-shm").unlink()
    flip(wal, frame_at(wal, 0.5))
    assert journal.open("a", "red").damaged
    assert len(journal.take_findings()) == 1


def test_a_log_that_was_written_back_and_begun_again_is_no_damage(path: Path, journal: Journal) -> None:
    for _ in range(3):
        epoch = journal.open("c", "red").epoch
        last = len(journal.read("c", "red")[0]) if journal.listing("red") else 0
        for seq in range(last + 1, last + 4):
            add(journal, epoch, seq)
        raw = journal._store.sqlite()
        raw.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        add(journal, epoch, last + 4)
        journal.close()
        assert journal.open("c", "red").damaged is False
    assert journal.take_findings() == []


# ------------------------------------------------------------ care
def test_a_backup_is_a_journal_of_its_own_taken_while_others_write(
    path: Path, journal: Journal, tmp_path: Path
) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, 1, 2)
    reader = open_journal(f"sqlite:///{path}", read_only=True)
    reader.backup(tmp_path / "copy")
    reader.close()
    add(journal, epoch, 3)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    copy = open_journal(f"sqlite:///{tmp_path}/copy")
    assert seqs(copy) == [1, 2]
    assert copy.check() == []
    copy.close()
    with refused("invalid", "exists"):
        journal.backup(tmp_path / "copy")
    with refused("storage_io"):
        journal.backup(tmp_path / "no" / "folder")
    assert not list(tmp_path.glob("*.part"))


def test_deleted_text_is_gone_from_the_files(path: Path, journal: Journal) -> None:
    epoch = journal.open("c", "red").epoch
    add(journal, epoch, 1, text="the secret word")
    add(journal, epoch, 2, text="a large secret " * 5000)
    add(journal, journal.open("d", "red").epoch, 1, name="d")
    journal.delete("c", "red")
    for file in path.parent.iterdir():
        assert b"secret" not in file.read_bytes(), file
    assert seqs(journal, "d") == [1]


def test_a_path_of_odd_characters_is_just_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20ü#c"
    journal = open_journal(f"sqlite:///{folder}/j.sqlite3")
    add(journal, journal.open("c", "red").epoch, 1)
    journal.close()
    assert (folder / "j.sqlite3").is_file()
    reader = open_journal(f"sqlite:///{folder}/j.sqlite3", read_only=True)
    assert seqs(reader) == [1]
    reader.close()
