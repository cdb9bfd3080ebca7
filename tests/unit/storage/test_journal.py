"""The file journal: epochs, numbering, durability, and what it makes of damage and full disks."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.storage.journal import FileJournal, JournalError
from callboard.storage.log_lines import encode_line

ODD_NAMES = ["a/b", "..", ".", "x" * 400, "ünïcode ✓", "with space", "c%2Fd", "A", "a", "new\nline"]


def make(root: Path) -> FileJournal:
    return FileJournal(root, opening_types={"turn_started"}, closing_types={"turn_answered", "turn_failed"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(root: Path) -> Iterator[FileJournal]:
    made = make(root)
    yield made
    made.close()


def record(seq: int, kind: str = "note", **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "type": kind, **fields}


def log_file(root: Path, conversation: str = "c") -> Path:
    return root / "logs" / f"{conversation}.jsonl"


def refused(kind: str) -> Any:
    return pytest.raises(JournalError, check=lambda error: error.kind == kind)


def test_each_owner_gets_the_next_epoch_and_the_records_so_far(journal: FileJournal) -> None:
    first = journal.open("c", "red")
    assert (first.epoch, first.records, first.dropped) == (1, (), 0)
    assert journal.append("c", 1, [record(1), record(2)]) == 2
    second = journal.open("c", "red")
    assert (second.epoch, second.records) == (2, (record(1), record(2)))


def test_epochs_and_records_survive_the_process(root: Path) -> None:
    before = make(root)
    before.open("c", "")
    before.append("c", 1, [record(1, text="lone \ud800 surrogate, ✓, \u2028")])
    before.close()
    after = make(root)
    assert after.append("c", 1, [record(2)]) == 2
    assert after.open("c", "").epoch == 2
    assert after.read("c")[0]["text"] == "lone \ud800 surrogate, ✓, \u2028"
    after.close()


def test_a_former_owner_is_refused(journal: FileJournal) -> None:
    journal.open("c", "")
    journal.open("c", "")
    with refused("stale_epoch"):
        journal.append("c", 1, [record(1)])
    with refused("stale_epoch"):
        journal.append("c", 3, [record(1)])
    assert journal.read("c") == ()


def test_an_append_may_be_repeated_also_with_more_behind_it(journal: FileJournal) -> None:
    journal.open("c", "")
    assert journal.append("c", 1, [record(1), record(2)]) == 2
    assert journal.append("c", 1, [record(1), record(2)]) == 2
    assert journal.append("c", 1, [{"type": "note", "seq": 2}, record(3)]) == 3
    assert journal.append("c", 1, []) == 3
    assert journal.read("c") == (record(1), record(2), record(3))


@pytest.mark.parametrize(
    "records",
    [
        [record(3)],
        [record(2, text="other")],
        [record(3), record(5)],
        [record(3), record(3)],
        [record(0)],
        [{"type": "note"}],
        [record(2), record(2, text="x")],
    ],
)
def test_gaps_and_other_content_are_conflicts_and_write_nothing(
    journal: FileJournal, records: list[dict[str, Any]]
) -> None:
    journal.open("c", "")
    journal.append("c", 1, [record(1)])
    journal.append("c", 1, [record(2)]) if records[0].get("seq") in (2, 0) else None
    before = journal.read("c")
    with refused("conflict"):
        journal.append("c", 1, records)
    assert journal.read("c") == before


def test_what_is_not_json_is_refused_and_leaves_the_log_usable(journal: FileJournal) -> None:
    journal.open("c", "")
    with refused("invalid"):
        journal.append("c", 1, [record(1, text={1, 2})])
    assert journal.append("c", 1, [record(1)]) == 1


def test_a_conversation_without_a_log_is_unknown(journal: FileJournal) -> None:
    assert not journal.exists("c")
    with refused("unknown"):
        journal.append("c", 1, [record(1)])
    with refused("unknown"):
        journal.read("c")
    journal.open("c", "")
    assert journal.exists("c")


def test_another_team_cannot_open_the_conversation(journal: FileJournal) -> None:
    journal.open("c", "red")
    with refused("wrong_team"):
        journal.open("c", "blue")
    assert journal.append("c", 1, [record(1)]) == 1
    assert journal.open("c", "").epoch == 2
    with refused("wrong_team"):
        journal.open("c", "blue")


def test_any_name_gets_a_log_of_its_own_inside_the_folder(journal: FileJournal, root: Path) -> None:
    for position, name in enumerate(ODD_NAMES):
        journal.open(name, "")
        journal.append(name, 1, [record(1, "turn_started", place=position)])
    assert [journal.read(name)[0]["place"] for name in ODD_NAMES] == list(range(len(ODD_NAMES)))
    assert journal.unfinished() == sorted(ODD_NAMES)
    assert len(list((root / "logs").iterdir())) == len(ODD_NAMES)
    for bad in ("", "\ud800"):
        with refused("invalid"):
            journal.open(bad, "")


def test_unfinished_lists_conversations_with_an_open_turn_only(journal: FileJournal) -> None:
    for name in ("idle", "open", "done"):
        journal.open(name, "")
    journal.append("open", 1, [record(1, "turn_started"), record(2)])
    journal.append("done", 1, [record(1, "turn_started")])
    assert journal.unfinished() == ["done", "open"]
    journal.append("done", 1, [record(2), record(3, "turn_answered")])
    assert journal.unfinished() == ["open"]


def test_a_mark_left_over_from_a_crash_is_found_out(journal: FileJournal, root: Path) -> None:
    journal.open("c", "")
    for name in ("c", "gone"):
        (root / "unfinished" / name).touch()
    assert journal.unfinished() == []
    assert list((root / "unfinished").iterdir()) == []


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_append_is_cut_off_whole_and_kept_aside(root: Path, cut: int) -> None:
    journal = make(root)
    journal.open("c", "")
    journal.append("c", 1, [record(1, "turn_started")])
    journal.append("c", 1, [record(2), record(3, "turn_answered")])
    journal.close()
    whole = log_file(root).read_bytes()
    log_file(root).write_bytes(whole[:-cut])
    again = make(root)
    opened = again.open("c", "")
    assert again.unfinished() == ["c"]
    assert opened.records == (record(1, "turn_started"),)
    torn = whole[:-cut].rpartition(b"\n")[2]
    assert opened.dropped == len(torn)
    assert log_file(root).with_suffix(".quarantine").read_bytes() == torn
    assert again.append("c", opened.epoch, [record(2)]) == 2
    again.close()


def test_a_flipped_bit_ends_the_log_there_and_no_epoch_comes_twice(root: Path) -> None:
    journal = make(root)
    for seq in (1, 2, 3):
        journal.append("c", journal.open("c", "").epoch, [record(seq)])
    journal.close()
    data = bytearray(log_file(root).read_bytes())
    data[data.index(b'"seq":2') + 6] ^= 1
    log_file(root).write_bytes(data)
    again = make(root)
    opened = again.open("c", "")
    assert opened.records == (record(1),)
    assert opened.dropped > 0
    assert opened.epoch > 3
    assert again.open("c", "").dropped == 0
    again.close()


def test_a_torn_append_of_a_killed_journal_can_be_sent_again_without_opening(root: Path) -> None:
    journal = make(root)
    journal.open("c", "")
    journal.append("c", 1, [record(1)])
    journal.close()
    with log_file(root).open("ab") as file:
        file.write(encode_line({"epoch": 1, "records": [record(2)]})[:-9])
    again = make(root)
    assert again.append("c", 1, [record(2)]) == 2
    assert again.open("c", "").dropped > 0
    again.close()


def test_a_line_that_does_not_follow_is_not_believed(root: Path) -> None:
    journal = make(root)
    journal.open("c", "")
    journal.close()
    with log_file(root).open("ab") as file:
        file.write(encode_line({"epoch": 1, "records": [record(7)]}))
    again = make(root)
    assert again.open("c", "").records == ()
    again.close()


def test_every_line_is_json(journal: FileJournal, root: Path) -> None:
    journal.open("c", "red")
    journal.append("c", 1, [record(1)])
    epoch, append = (json.loads(line)["body"] for line in log_file(root).read_bytes().splitlines())
    assert epoch == {"epoch": 1, "conversation": "c", "team": "red"}
    assert append == {"epoch": 1, "records": [record(1)]}


def test_after_a_write_that_hit_the_size_limit_the_log_is_as_before(journal: FileJournal, root: Path) -> None:
    journal.open("c", "")
    journal.append("c", 1, [record(1)])
    whole = log_file(root).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 50, hard))
    try:
        with refused("storage"):
            journal.append("c", 1, [record(2, text="x" * 500)])
        assert log_file(root).read_bytes() == whole
        with refused("storage"):
            journal.open("new", "y" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not journal.exists("new")
    assert journal.append("c", 1, [record(2, text="x" * 500)]) == 2
    assert journal.open("new", "y" * 5000).epoch == 1


def test_a_failed_sync_is_no_acknowledgement(
    journal: FileJournal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.open("c", "")
    real, failures = os.fdatasync, iter([True])

    def failing(fd: int) -> None:
        if next(failures, False):
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", failing)
    with refused("storage"):
        journal.append("c", 1, [record(1)])
    assert journal.read("c") == ()
    assert journal.append("c", 1, [record(1, text="other")]) == 1


def test_a_write_that_can_not_even_be_taken_back_is_read_anew(
    journal: FileJournal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.open("c", "")

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        patch.setattr(os, "ftruncate", broken)
        with refused("storage"):
            journal.append("c", 1, [record(1)])
    assert journal.append("c", 1, [record(1)]) == 1
    assert journal.read("c") == (record(1),)


def test_no_more_than_256_files_are_open(journal: FileJournal) -> None:
    names = [f"c{n}" for n in range(270)]
    for name in names:
        journal.open(name, "")
    ours = sum(1 for fd in Path("/proc/self/fd").iterdir() if _is_log(fd))
    assert ours == 256
    assert all(journal.append(name, 1, [record(1)]) == 1 for name in names[:20])


def _is_log(fd: Path) -> bool:
    try:
        return fd.readlink().suffix == ".jsonl"
    except OSError:
        return False


HOLD = """
import sys
from pathlib import Path
from callboard.storage.journal import FileJournal
FileJournal(Path(sys.argv[1]), opening_types=(), closing_types=())
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(root: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with refused("storage"):
            make(root)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=10)
    make(root).close()


def test_files_are_for_the_user_only(journal: FileJournal, root: Path) -> None:
    journal.open("c", "")
    assert root.stat().st_mode & 0o77 == 0
    assert log_file(root).stat().st_mode & 0o77 == 0
