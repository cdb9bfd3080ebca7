"""The file journal against a list: whatever is sent, torn and reopened, what was acknowledged is there."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from callboard.storage.journal import FileJournal, JournalError
from callboard.storage.log_lines import encode_line, parse_log

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


class JournalMachine(RuleBasedStateMachine):
    """One conversation, its owners, and a disk that tears what was not acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name) / "journal"
        self.journal = self.fresh()
        self.epoch = self.journal.open("c", "t").epoch
        self.acknowledged: list[dict[str, Any]] = []
        self.open_turn = False

    def fresh(self) -> FileJournal:
        return FileJournal(self.root, opening_types={"start"}, closing_types={"end"})

    def numbered(self, values: list[Any], start: int) -> list[dict[str, Any]]:
        return [{"seq": start + n, "type": "note", "value": value} for n, value in enumerate(values)]

    @rule(values=st.lists(VALUES, max_size=3), back=st.integers(0, 3))
    def append_with_some_sent_again(self, values: list[Any], back: int) -> None:
        known = self.acknowledged[len(self.acknowledged) - back :] if back else []
        fresh = self.numbered(values, len(self.acknowledged) + 1)
        assert self.journal.append("c", self.epoch, known + fresh) == len(self.acknowledged) + len(fresh)
        self.acknowledged += fresh

    @rule()
    def open_or_close_a_turn(self) -> None:
        kind = "end" if self.open_turn else "start"
        self.acknowledged.append({"seq": len(self.acknowledged) + 1, "type": kind})
        self.journal.append("c", self.epoch, self.acknowledged[-1:])
        self.open_turn = not self.open_turn

    @rule(gap=st.integers(2, 5))
    def a_gap_is_refused(self, gap: int) -> None:
        self.refused("conflict", self.epoch, self.numbered([0], len(self.acknowledged) + gap))

    @rule()
    def other_content_is_refused(self) -> None:
        if self.acknowledged:
            self.refused("conflict", self.epoch, [{**self.acknowledged[-1], "more": 1}])

    @rule(off=st.integers(1, 3))
    def a_former_owner_is_refused(self, off: int) -> None:
        self.refused("stale_epoch", self.epoch - off, self.numbered([0], len(self.acknowledged) + 1))

    @rule()
    def a_new_owner_opens(self) -> None:
        opened = self.journal.open("c", "t")
        assert opened.epoch > self.epoch
        assert list(opened.records) == self.acknowledged
        self.epoch = opened.epoch

    @rule(
        values=st.lists(VALUES, min_size=1, max_size=3),
        kept=st.integers(0, 10_000),
        junk=st.binary(max_size=9),
    )
    def the_journal_dies_in_mid_append(self, values: list[Any], kept: int, junk: bytes) -> None:
        self.journal.close()
        body = {"epoch": self.epoch, "records": self.numbered(values, len(self.acknowledged) + 1)}
        line = encode_line(body)
        with (self.root / "logs" / "c.jsonl").open("ab") as file:
            file.write(line[: kept % len(line)] + junk.replace(b"\n", b""))
        self.journal = self.fresh()

    def refused(self, kind: str, epoch: int, records: list[dict[str, Any]]) -> None:
        try:
            self.journal.append("c", epoch, records)
        except JournalError as error:
            assert error.kind == kind
        else:
            raise AssertionError(f"{kind} was not refused")

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        assert list(self.journal.read("c")) == self.acknowledged
        assert self.journal.unfinished() == (["c"] if self.open_turn else [])

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=2), max_size=4), st.data())
def test_a_damaged_log_gives_a_prefix_of_whole_appends(batches: list[list[Any]], data: st.DataObject) -> None:
    lines = [encode_line({"epoch": 1, "conversation": "c", "team": ""})]
    appends: list[list[dict[str, Any]]] = []
    for batch in batches:
        start = sum(map(len, appends)) + 1
        appends.append([{"seq": start + n, "value": value} for n, value in enumerate(batch)])
        lines.append(encode_line({"epoch": 1, "records": appends[-1]}))
    whole = b"".join(lines)
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    damaged = (
        whole[:at]
        if cut
        else whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    )
    parsed = parse_log(damaged)
    prefixes = [list(chain.from_iterable(appends[:n])) for n in range(len(appends) + 1)]
    assert parsed.records in prefixes
    assert damaged[: parsed.size] == whole[: parsed.size]
    assert parsed.size <= at
