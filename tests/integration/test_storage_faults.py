"""The journal's disk fails in every way that disks do: turns are refused by name before any effect, and recover.

Each fault is put under a real system: a small tmpfs and a read-only mount in a mount namespace of the daemon's own, a
limit on the size of the journal's files, a lock held by another process, files that were damaged while it was stopped.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from callboard.actors.events import (
    ConversationOpened,
    Event,
    StepFinished,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
    event_to_json,
)
from callboard.api import Conversation, System
from callboard.config import Config, default_config
from callboard.config_tables import StorageConfig
from callboard.errors import Unavailable
from callboard.supervisor import log
from callboard.testing.chaos import gate
from callboard.testing.chaos.daemon import ChaosDaemon
from callboard.testing.chaos.five_steps import TOOLS, question, rule
from callboard.testing.model_server import ModelScript, RecordedRequest, Reply, ScriptedModelServer, obey
from callboard.testing.turns import call, eventually, is_written

IN_A_NAMESPACE = ("unshare", "-Um", "-c", "--keep-caps", "sh", "-c")
GO_ON = 'exec setpriv --ambient-caps -all --inh-caps -all "$@"'
TMPFS = f'mount -t tmpfs -o size=4m,mode=700 callboard "$0" && {GO_ON}'
READ_ONLY = f'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && {GO_ON}'
JOURNAL = "journal.sqlite3"
STORE = """
import json, os, sys
from callboard.storage.journal import open_journal
from callboard.storage.journal_terms import Append
journal = open_journal("sqlite:///" + sys.argv[1])
epoch = journal.open("c", "red").epoch
for record in json.load(sys.stdin):
    assert journal.commit([Append(conversation="c", team="red", epoch=epoch, records=[record])]) == [record["seq"]]
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
journal.close()
"""


def namespaces_are_allowed() -> bool:
    """True where this user may mount in a namespace of its own."""
    if not shutil.which("unshare") or not shutil.which("setpriv"):
        return False
    command = [*IN_A_NAMESPACE, TMPFS, "/mnt", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not namespaces_are_allowed(),
    reason="this host lets no unprivileged user mount in a namespace of its own",
)


class Disk:
    """A system whose journal lies in ``state``, a model that is told what to call, and the file of a tool's effects."""

    def __init__(self, tmp_path: Path, model: ScriptedModelServer) -> None:
        self.state = tmp_path / "state"
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.effects = tmp_path / "effects"
        self.fault = tmp_path / "fault"
        self.model = model
        self.daemon = self.daemon_with()
        self.system: System

    def daemon_with(self, **settings: float) -> ChaosDaemon:
        """Make the daemon that ``start`` starts."""
        name, environ = f"disk-{uuid.uuid4().hex[:8]}", {gate.FAULT: str(self.fault)}
        return ChaosDaemon(self._config(), name, f"{gate.__name__}:faulty", environ, **settings)

    def _config(self) -> Config:
        config = default_config({}).with_flags(
            base_url=self.model.base_url, model="scripted", api_key="k", tools_from=[TOOLS]
        )
        return config.model_copy(update={"storage": StorageConfig(path=self.state)})

    def store(self, *texts: str, killed: bool = False) -> list[Event]:
        """Put a conversation with these turns in the journal, as a daemon that stopped (or was killed) leaves it."""
        events: list[Event] = [
            ConversationOpened(conversation_id="c", user="ann", team="red", enabled=("*",))
        ]
        for text in texts:
            events += [TurnStarted(turn_id=text, text=text), StepFinished(turn_id=text, step=1, text=text)]
            events.append(TurnAnswered(turn_id=text, text=text, steps=1))
        events = [
            dataclasses.replace(e, seq=n, at="2026-01-01T00:00:00.000+00:00") for n, e in enumerate(events, 1)
        ]
        command = [sys.executable, "-c", STORE, str(self.state / JOURNAL), "killed" if killed else "stopped"]
        records = json.dumps([event_to_json(event) for event in events])
        done = subprocess.run(command, input=records, text=True, check=False, timeout=60)
        assert done.returncode == (-signal.SIGKILL if killed else 0)
        return events

    def start(self, script: str = "") -> System:
        """Start the system, behind a shell script in a mount namespace of its own if one is given."""
        prefix = [*IN_A_NAMESPACE, script, str(self.state)] if script else []
        self.system = self.daemon.start(*prefix)
        return self.system

    def inside(self) -> Path:
        """Give the state folder as the daemon sees it, whatever is mounted there."""
        return Path(f"/proc/{self.daemon.outermost().pid}/root{self.state}")

    def conversation(self, id: str = "c") -> Conversation:
        """Open a conversation."""
        return self.system.conversation(conversation_id=id, user="ann", team="red", linked=False)

    def journal_pid(self) -> int:
        """Give the journal's process."""
        return next(row.pid for row in self.system.tree() if row.id == "journal" and row.pid is not None)

    def note(self) -> str:
        """Give the text that makes the model call a tool with an effect."""
        return call("note_down", path=str(self.effects))

    def effects_so_far(self) -> int:
        """Count the effects."""
        return len(self.effects.read_text().splitlines()) if self.effects.exists() else 0

    def log_lines(self) -> list[dict[str, object]]:
        """Give the system's own log."""
        text = (self.daemon.folder / log.FILE_NAME).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


def either(request: RecordedRequest) -> Reply:
    """Play the five steps where they are asked for, and else call what the text says."""
    return rule(request) if request.last_user_text.startswith("five steps") else obey(request)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A system that is not started yet."""
    with ScriptedModelServer(ModelScript(rule=either)) as model:
        made = Disk(tmp_path, model)
        try:
            yield made
        finally:
            if hasattr(made, "system"):
                made.system.close()
            made.daemon.end()
            shutil.rmtree(made.daemon.folder, ignore_errors=True)


def answered(conversation: Conversation, text: str) -> list[Event]:
    events = list(conversation.ask(text))
    assert events[-1].type == "turn_answered", events[-1]
    return events


def refused(disk: Disk, kind: str) -> None:
    """Ask, and be told by name why the turn is not taken; nothing has happened."""
    before = disk.effects_so_far(), len(disk.model.requests)
    with pytest.raises(Unavailable) as refusal:
        list(disk.conversation().ask(disk.note()))
    assert refusal.value.kind == kind, refusal.value
    assert (disk.effects_so_far(), len(disk.model.requests)) == before


def numbers_without_gap(conversation: Conversation) -> list[Event]:
    history = conversation.history()
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    return history


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Take all the room that is left in ``folder``."""
    ballast = folder / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (65536, 4096, 1):
            try:
                while os.write(fd, b"x" * size):
                    pass
            except OSError:
                continue
        yield
    finally:
        os.close(fd)
        ballast.unlink()


@contextmanager
def no_growth(pid: int) -> Iterator[None]:
    """Let the process write to no file behind its first 4 KiB: each such write is an I/O error."""
    process = psutil.Process(pid)
    soft, hard = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        process.rlimit(resource.RLIMIT_FSIZE, (soft, hard))


@needs_namespaces
def test_on_a_full_disk_a_turn_is_refused_before_any_effect_and_the_next_one_runs_when_there_is_room(
    disk: Disk,
) -> None:
    disk.start(TMPFS)
    conversation = disk.conversation()
    answered(conversation, disk.note())
    with full(disk.inside()):
        refused(disk, "storage_full")
    answered(conversation, disk.note())
    assert disk.effects_so_far() == 2
    assert [e.type for e in numbers_without_gap(conversation)].count("turn_started") == 2


@needs_namespaces
def test_a_disk_that_fills_up_in_mid_turn_holds_the_turn_until_there_is_room_and_nothing_runs_unrecorded(
    disk: Disk,
) -> None:
    disk.start(TMPFS)
    conversation = disk.conversation()
    turn = conversation.ask(question(str(disk.effects), 0.4))
    seen = [next(turn)]
    while seen[-1].type != "tool_call_started":
        seen.append(next(turn))
    with full(disk.inside()):
        eventually(lambda: is_written(disk.effects), what="the call that was recorded runs")
        eventually(lambda: refused_count(disk) > 1, 10.0, "the journal is asked again and again")
        assert disk.effects_so_far() == 1, "a call ran without a record"
    seen += turn
    assert seen[-1].type == "turn_answered"
    assert [e.seq for e in numbers_without_gap(conversation)][1:] == [e.seq for e in seen if e.seq]


@needs_namespaces
def test_a_turn_that_the_storage_holds_up_for_too_long_fails_by_name_with_one_ending(disk: Disk) -> None:
    disk.daemon = disk.daemon_with(patience_s=1.5)
    disk.start(TMPFS)
    conversation = disk.conversation()
    turn = conversation.ask(question(str(disk.effects), 0.4))
    seen = [next(turn)]
    while seen[-1].type != "tool_call_started":
        seen.append(next(turn))
    with full(disk.inside()):
        eventually(lambda: "log_stuck" in loud(disk), 15.0, "the fault lasts too long")
        refused(disk, "storage_full")
    seen += turn
    ending = seen[-1]
    assert isinstance(ending, TurnFailed)
    assert ending.reason == "storage_full"
    assert disk.effects_so_far() == 1
    assert [e for e in numbers_without_gap(conversation) if e.terminal] == [ending]
    answered(conversation, disk.note())


def refused_count(disk: Disk) -> int:
    return sum(1 for line in disk.log_lines() if line.get("kind") == "storage_full")


def test_an_io_error_or_a_lock_refuses_turns_before_any_effect_and_passes_without_a_restart(
    disk: Disk,
) -> None:
    disk.start()
    conversation = disk.conversation()
    answered(conversation, disk.note())
    faults = [
        (told(disk.fault, "storage_io"), "storage_io"),
        (no_growth(disk.journal_pid()), "storage_io"),
        (held(disk.state / JOURNAL), "storage_locked"),
    ]
    for number, (fault, kind) in enumerate(faults, start=1):
        with fault:
            refused(disk, kind)
        answered(conversation, disk.note())
        assert disk.effects_so_far() == number + 1
    numbers_without_gap(conversation)


@contextmanager
def told(file: Path, kind: str) -> Iterator[None]:
    """Have the wrapped store refuse everything."""
    file.write_text(kind)
    try:
        yield
    finally:
        file.unlink()


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold the database's write lock, as another process's long transaction does."""
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


@needs_namespaces
def test_on_a_read_only_disk_the_daemon_is_up_and_refuses_by_name(disk: Disk) -> None:
    disk.store("one")
    disk.start(READ_ONLY)
    refused(disk, "storage_read_only")


def damaged_file(disk: Disk, harm: Callable[[bytes], bytes], name: str = JOURNAL) -> None:
    path = disk.state / name
    path.write_bytes(harm(path.read_bytes()))


def complaint_of(disk: Disk, words: str) -> None:
    """Have ``callboard journal check`` find what is wrong with it."""
    config = disk.state.parent / "c.toml"
    config.write_text(f'[storage]\npath = "{disk.state}"\n')
    command = [sys.executable, "-m", "callboard", "journal", "check", "--config", str(config)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (1, ""), found.stderr
    assert re.search(words, found.stdout), found.stdout


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda b: b[: len(b) // 2], id="truncated"),
        pytest.param(lambda b: b"not a database at all " + b[22:], id="its header is overwritten"),
    ],
)
def test_a_file_that_is_no_database_any_more_refuses_every_turn_until_it_is_put_back(
    harm: Callable[[bytes], bytes], disk: Disk
) -> None:
    disk.store("one")
    whole = (disk.state / JOURNAL).read_bytes()
    damaged_file(disk, harm)
    complaint_of(disk, r"malformed|not a database|corrupt")
    disk.start()
    refused(disk, "storage_corrupt")
    damaged_file(disk, lambda _: whole)
    answered(disk.conversation(), disk.note())
    assert disk.effects_so_far() == 1
    assert len(numbers_without_gap(disk.conversation())) > 4


def test_a_bit_that_flips_in_a_record_cuts_the_log_there_loudly_and_the_conversation_goes_on(
    disk: Disk,
) -> None:
    disk.store("first", "second")
    damaged_file(disk, lambda b: b.replace(b"second", b"secomd"))
    complaint_of(disk, r"conversation c \(team red\): record \d+")
    disk.start()
    conversation = disk.conversation()
    kept = numbers_without_gap(conversation)
    assert [event.text for event in kept if isinstance(event, TurnStarted)] == ["first"]
    answered(conversation, "the third question")
    assert [event.seq for event in numbers_without_gap(conversation)][: len(kept)] == [e.seq for e in kept]
    assert "journal_cut" in loud(disk)


@pytest.mark.parametrize("harm", ["cut short", "a bit flips"])
def test_a_damaged_write_ahead_log_gives_a_beginning_of_what_was_loudly_and_never_a_mixture(
    harm: str, disk: Disk
) -> None:
    before = disk.store("one", "two", "three", killed=True)
    middle = (disk.state / f"{JOURNAL}-wal").stat().st_size * 3 // 4

    def damage(wal: bytes) -> bytes:
        rest = b"" if harm == "cut short" else bytes([wal[middle] ^ 1]) + wal[middle + 1 :]
        return wal[:middle] + rest

    damaged_file(disk, damage, f"{JOURNAL}-wal")
    disk.start()
    conversation = disk.conversation()
    after = numbers_without_gap(conversation)
    kept = [event for event in after if event in before]
    assert kept == before[: len(kept)]
    assert 0 < len(kept) < len(before), "the damage was to be in the middle"
    answered(conversation, "four")
    numbers_without_gap(conversation)
    assert "journal_damaged" in loud(disk)


def loud(disk: Disk) -> set[object]:
    """Give the errors in the system's log."""
    return {line["event"] for line in disk.log_lines() if line["level"] in ("error", "critical")}
