"""What the journal costs, beside a plain loop of one SQLite transaction an append; ``python benchmarks/journal.py``.

Both write to the same disk with the same durability (write-ahead log, ``synchronous=FULL``), in turns, so that a disk
that is slower for a while is slower for both. Prints tables; the folder must lie on a real disk. What group commit
is worth depends on what a sync costs: ``--sync-ms 2`` makes each commit of both wait for so much longer, as a disk does
that has no cache which outlives a power cut.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callboard.actors.events import (
    ConversationOpened,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnStarted,
    event_to_json,
)
from callboard.actors.items import FunctionCall
from callboard.actors.messages import AppendEvents, LogOpened, OpenLog
from callboard.actors.settings import ModelSettings, Settings
from callboard.storage.journal import Journal, open_journal
from callboard.storage.journal_terms import Append
from callboard.supervisor.envelope import Envelope, Init, Reply, Started
from callboard.supervisor.process import become_subreaper, descendants, kill
from callboard.supervisor.table import ProcessTable
from callboard.tools.content import TextBlock
from callboard.transports import mail

SYNC_MS = "CALLBOARD_BENCH_SYNC_MS"
TEAM = "bench"
ROUNDS = 5


def note(seq: int, turn: str = "t") -> Event:
    """An event of common size: about 300 bytes as JSON."""
    content = (TextBlock(text="what a small tool has found, in a line or two" * 2),)
    return ToolCallFinished(
        seq=seq, at="2030-01-01T00:00:00.000+00:00", turn_id=turn, call_id="call_1", tool="calculate",
        is_error=False, outcome="ok", content=content, duration_s=0.0123,
    )  # fmt: skip


def slow_sync() -> None:
    """Wait for what a slower disk would take."""
    delay_ms = float(os.environ.get(SYNC_MS, "0"))
    if delay_ms:
        time.sleep(delay_ms / 1000)


class SlowStore:
    """The store on a slower disk; in the journal actor it is ``Settings.journal_wrapper``."""

    def __init__(self, store: Journal) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, appends: list[Append]) -> Any:
        """Commit, and wait."""
        answers = self._store.commit(appends)
        slow_sync()
        return answers


# ------------------------------------------------------------ the plain loop
class PlainLoop:
    """One table, one INSERT, one transaction, one sync."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE events (conversation TEXT, seq INTEGER, body TEXT, PRIMARY KEY (conversation, seq))"
        )
        self._seq = 0

    def run(self, for_s: float, conversations: int) -> float:
        """Append to so many conversations in turn; gives appends a second."""
        done, end = 0, time.perf_counter() + for_s
        began = time.perf_counter()
        while time.perf_counter() < end:
            self.once(f"c{self._seq % conversations}")
            done += 1
        return done / (time.perf_counter() - began)

    def once(self, conversation: str = "c") -> None:
        """Append one event."""
        self._seq += 1
        row = (conversation, self._seq, json.dumps(event_to_json(note(self._seq))))
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO events VALUES (?, ?, ?)", row)
        self._db.execute("COMMIT")
        slow_sync()

    def close(self) -> None:
        """Close the file."""
        self._db.close()


# ------------------------------------------------------------ the store
class Store:
    """The journal itself, in this process: as many appends in a transaction as there are conversations."""

    def __init__(self, path: Path, conversations: int) -> None:
        self._journal = SlowStore(open_journal(f"sqlite:///{path}"))
        self._epochs = {f"c{n}": self._journal.open(f"c{n}", TEAM).epoch for n in range(conversations)}
        self._seq = 0

    def run(self, for_s: float) -> float:
        """Give appends a second."""
        done, began = 0, time.perf_counter()
        while time.perf_counter() < began + for_s:
            self._seq += 1
            appends = [
                Append(conversation=name, team=TEAM, epoch=epoch, records=[event_to_json(note(self._seq))])
                for name, epoch in self._epochs.items()
            ]
            assert self._journal.commit(appends) == [self._seq] * len(appends)
            done += len(appends)
        return done / (time.perf_counter() - began)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


# ------------------------------------------------------------ the actor
class Actor:
    """A journal actor, and the mail to it."""

    def __init__(self, folder: Path) -> None:
        run = Path(tempfile.mkdtemp(prefix="cb-", dir="/tmp"))
        self._table = ProcessTable(run)
        self._table.create()
        self._system = mail.open_system(run)
        self.address = self._system.create("callboard.actors.journal.JournalActor")
        settings = Settings(
            runtime_dir=str(run),
            state_dir=str(folder),
            model=ModelSettings(kind="endpoint", name=""),
            journal_wrapper="journal:SlowStore",
        )
        init = Init(
            id="journal", kind="journal", incarnation=1, runtime_dir=str(run), args={"settings": settings}
        )
        self._system.send(self.address, init)
        started = self._system.receive(20)
        assert isinstance(started, Started), started
        self.endpoint = mail.Endpoint(run)
        self._seqs: dict[str, int] = {}
        self._epochs: dict[str, int] = {}

    def send(self, body: Any) -> str:
        """Send a command; give its request id."""
        id = uuid.uuid4().hex
        self.endpoint.send(self.address, Envelope(request_id=id, body=body, reply_to=self.endpoint.address))
        return id

    def receive(self) -> Reply:
        """Take the next answer."""
        reply = self.endpoint.receive(30.0)
        assert isinstance(reply, Reply), reply
        return reply

    def ask(self, body: Any) -> Any:
        """Ask, and wait for the answer."""
        self.send(body)
        return self.receive().body

    def open(self, name: str) -> LogOpened:
        """Own a conversation."""
        create = ConversationOpened(conversation_id=name, user="u", team=TEAM)
        opened = self.ask(OpenLog(conversation_id=name, team=TEAM, create=create))
        assert isinstance(opened, LogOpened), opened
        self._epochs[name] = opened.epoch
        return opened

    def append(self, name: str, *events: Event) -> Any:
        """Append, and wait until it is durable."""
        return self.ask(self.command(name, events))

    def command(self, name: str, events: tuple[Event, ...]) -> AppendEvents:
        """The command to append."""
        return AppendEvents(conversation_id=name, team=TEAM, epoch=self._epochs[name], events=events)

    def run(self, for_s: float, conversations: int) -> float:
        """Each conversation appends again as soon as its append is acknowledged; gives appends a second."""
        names = [f"n{conversations}-{n}" for n in range(conversations)]
        for name in names:
            if name not in self._epochs:
                self.open(name)
                self._seqs[name] = 0
        waiting = {self._next(name): name for name in names}
        done, began = 0, time.perf_counter()
        while waiting:
            reply = self.receive()
            name = waiting.pop(reply.request_id)
            assert reply.body == self._seqs[name], reply.body
            done += 1
            if time.perf_counter() < began + for_s:
                waiting[self._next(name)] = name
        return done / (time.perf_counter() - began)

    def _next(self, name: str) -> str:
        self._seqs[name] += 1
        return self.send(self.command(name, (note(self._seqs[name]),)))

    def close(self) -> None:
        """End everything."""
        self.endpoint.close()
        while left := descendants(os.getpid()):
            for process in left:
                kill(process.pid)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                pass
        self._system.close()


@contextmanager
def actor(folder: Path) -> Iterator[Actor]:
    """A journal actor for one measurement."""
    opened = Actor(folder)
    try:
        yield opened
    finally:
        opened.close()


# ------------------------------------------------------------ the figures
def throughput(folder: Path, for_s: float) -> None:
    """Acknowledged appends a second, side by side."""
    print("\nacknowledged appends a second (median of rounds taken in turn; ratio to the plain loop)\n")
    print(f"{'conversations':>13} {'plain loop':>11} {'store':>9} {'ratio':>6} {'actor':>9} {'ratio':>6}")
    with actor(folder / "actor") as journal:
        for conversations in (1, 10, 100):
            plain = PlainLoop(folder / f"plain-{conversations}")
            store = Store(folder / f"store-{conversations}", conversations)
            rounds = [
                (plain.run(for_s, conversations), store.run(for_s), journal.run(for_s, conversations))
                for _ in range(ROUNDS)
            ]
            plain.close()
            store.close()
            per_plain, per_store, per_actor = (
                statistics.median(column) for column in zip(*rounds, strict=True)
            )
            of_store = statistics.median(s / p for p, s, _ in rounds)
            of_actor = statistics.median(a / p for p, _, a in rounds)
            print(
                f"{conversations:>13} {per_plain:>11.0f} {per_store:>9.0f} {of_store:>6.1f}"
                f" {per_actor:>9.0f} {of_actor:>6.1f}"
            )


def resume(folder: Path, times: int) -> None:
    """Opening a conversation of 1,000 events through the actor."""
    with actor(folder / "resume") as journal:
        journal.open("long")
        journal.append("long", ConversationOpened(seq=1, conversation_id="long", user="u", team=TEAM))
        for start in range(2, 1001, 100):
            journal.append("long", *(note(seq) for seq in range(start, min(start + 100, 1001))))
        took = []
        for _ in range(times):
            began = time.perf_counter()
            assert len(journal.open("long").events) == 1000
            took.append((time.perf_counter() - began) * 1000)
    print(f"\nopening a conversation of 1,000 events: {_spread(took)} (aim: under 150 ms)")


def turn_share(folder: Path, times: int) -> None:
    """The three awaited appends of a one-tool turn, beside three plain transactions."""
    plain = PlainLoop(folder / "plain-turn")
    with actor(folder / "turn") as journal:
        journal.open("c")
        journal.append("c", ConversationOpened(seq=1, conversation_id="c", user="u", team=TEAM))
        seq, ours, theirs = 2, [], []
        for _ in range(times):
            theirs.append(_three(plain))
            began = time.perf_counter()
            for events in _turn(seq):
                assert journal.append("c", *events) == events[-1].seq
            ours.append((time.perf_counter() - began) * 1000)
            seq += 5
    plain.close()
    share = statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
    print(f"\nthe journal's share of a one-tool turn, 3 awaited appends: {_spread(ours)}")
    print(f"three plain transactions: {_spread(theirs)}; the difference: {share:.2f} ms (aim: under 1.5 ms)")


def _three(plain: PlainLoop) -> float:
    began = time.perf_counter()
    for _ in range(3):
        plain.once()
    return (time.perf_counter() - began) * 1000


def _turn(seq: int) -> list[tuple[Event, ...]]:
    turn = f"t{seq}"
    call = FunctionCall(call_id="call_1", tool="calculate", arguments='{"expression": "17 * 23"}')
    return [
        (TurnStarted(seq=seq, turn_id=turn, text="What is 17 * 23?"),),
        (
            StepFinished(seq=seq + 1, turn_id=turn, step=1, calls=(call,)),
            ToolCallStarted(seq=seq + 2, turn_id=turn, call_id="call_1", tool="calculate", arguments={}),
        ),
        (note(seq + 3, turn), TurnAnswered(seq=seq + 4, turn_id=turn, text="391", steps=2)),
    ]


def _spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"median {statistics.median(ordered):.1f} ms, 95% {ordered[int(len(ordered) * 0.95)]:.1f} ms"


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", help="where the databases are made; on the disk to be measured (/var/tmp)"
    )
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    parser.add_argument(
        "--sync-ms", type=float, default=0.0, help="make every commit wait for so much longer"
    )
    given = parser.parse_args()
    os.environ[SYNC_MS] = str(given.sync_ms)
    become_subreaper()
    print(f"{platform.platform()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, sync + {given.sync_ms:g} ms")  # fmt: skip
    parts: list[Callable[[Path], None]] = [
        lambda folder: throughput(folder, 0.5 if given.quick else 2.0),
        lambda folder: resume(folder, 10 if given.quick else 40),
        lambda folder: turn_share(folder, 20 if given.quick else 100),
    ]
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="journal-", dir=given.folder or "/var/tmp") as name:
            part(Path(name))


if __name__ == "__main__":
    sys.exit(main())
