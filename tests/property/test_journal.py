"""The journal against lists: whatever is sent, sent again, torn and reopened, what was acknowledged is there."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from callboard.storage import journal_rows
from callboard.storage.journal import Journal, open_journal
from callboard.storage.journal_terms import Append, JournalError

LARGE = 20
TEXTS = st.text(max_size=5) | st.sampled_from(["z" * (LARGE + 1), "\0", "\ud800" * (LARGE + 1)])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["c", "d"])
TEAMS = st.sampled_from(["red", "blue"])
KEYS = st.tuples(NAMES, TEAMS)
MACHINES = itertools.count()


class JournalMachine(RuleBasedStateMachine):
    """Two names in two teams, their owners, and a process that dies between any two transactions."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"{next(MACHINES)}-"  # each run has names of its own in the one database
        self.journal: Journal = open_journal(self.url)
        self.logs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.epochs: dict[tuple[str, str], int] = {}
        self.issued = 0

    def append(self, key: tuple[str, str], epoch: int, records: list[dict[str, Any]]) -> Append:
        return Append(conversation=self.prefix + key[0], team=key[1], epoch=epoch, records=records)

    def numbered(self, key: tuple[str, str], values: list[Any], gap: int = 1) -> list[dict[str, Any]]:
        start = len(self.logs[key]) + gap
        return [{"seq": start + n, "type": "note", "value": value} for n, value in enumerate(values)]

    @rule(key=KEYS)
    def a_new_owner_opens(self, key: tuple[str, str]) -> None:
        opened = self.journal.open(self.prefix + key[0], key[1])
        assert opened.epoch > self.issued
        assert list(opened.records) == self.logs.setdefault(key, [])
        assert not opened.damaged
        self.epochs[key] = self.issued = opened.epoch

    @rule(
        many=st.lists(
            st.tuples(
                KEYS,
                st.sampled_from(["fresh", "again", "gap", "other", "stale", "not json", "turn"]),
                st.lists(VALUES, min_size=1, max_size=3),
                st.integers(0, 3),
            ),
            max_size=6,
        )
    )
    def many_append_in_one_transaction(self, many: list[tuple[tuple[str, str], str, list[Any], int]]) -> None:
        appends: list[Append] = []
        expected: list[int | str] = []
        for key, how, values, back in many:
            if key not in self.epochs:
                appends.append(self.append(key, 1, [{"seq": 1}]))
                expected.append("unknown")
                continue
            append, answer = self._one(key, how, values, back)
            appends.append(append)
            expected.append(answer)
        answers = self.journal.commit(appends)
        assert [a.kind if isinstance(a, JournalError) else a for a in answers] == expected

    def _one(self, key: tuple[str, str], how: str, values: list[Any], back: int) -> tuple[Append, int | str]:
        log, epoch = self.logs[key], self.epochs[key]
        fresh = self.numbered(key, values)
        if how == "turn":
            is_open = bool(log) and log[-1]["type"] == "turn_started"
            fresh = [{"seq": len(log) + 1, "type": "turn_failed" if is_open else "turn_started"}]
        match how:
            case "gap":
                return self.append(key, epoch, self.numbered(key, values, gap=2)), "conflict"
            case "stale":
                return self.append(key, epoch - 1, fresh), "stale_epoch"
            case "not json":
                return self.append(
                    key, epoch, [*fresh, {"seq": fresh[-1]["seq"] + 1, "value": {1}}]
                ), "invalid"
            case "other" if log:
                return self.append(key, epoch, [{**log[-1], "more": 1}, *fresh]), "conflict"
            case "again":
                known = log[len(log) - min(back, len(log)) :]
                log += fresh
                return self.append(key, epoch, known + fresh), len(log)
        log += fresh
        return self.append(key, epoch, fresh), len(log)

    @rule(key=KEYS)
    def it_is_deleted(self, key: tuple[str, str]) -> None:
        if key in self.epochs:
            self.journal.delete(self.prefix + key[0], key[1])
            del self.logs[key], self.epochs[key]

    @rule()
    def the_process_dies(self) -> None:
        self.journal.close()
        self.journal = open_journal(self.url)

    @rule(key=KEYS, after=st.integers(0, 10), limit=st.integers(1, 4))
    def a_page_is_read(self, key: tuple[str, str], after: int, limit: int) -> None:
        log = self.logs.get(key)
        if log:
            records, more = self.journal.read(self.prefix + key[0], key[1], after, limit)
            assert list(records) == log[after : after + limit]
            assert more == (after + len(records) < len(log))

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        unfinished = []
        for (name, team), log in self.logs.items():
            if log:
                assert list(self.journal.read(self.prefix + name, team)[0]) == log
            turns = [r["type"] for r in log if r["type"] != "note"]
            if turns and turns[-1] == "turn_started":
                unfinished.append((self.prefix + name, team))
        mine = [found for found in self.journal.unfinished() if found[0].startswith(self.prefix)]
        assert sorted(mine) == sorted(unfinished)

    def teardown(self) -> None:
        for name, team in self.logs:
            self.journal.delete(self.prefix + name, team)
        complaints = self.journal.check()
        self.journal.close()
        assert complaints == []


@pytest.mark.parametrize("examples", [20])
def test_what_was_acknowledged_is_there_whatever_happens(
    journal_url: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalMachine, "url", journal_url)
    monkeypatch.setattr(journal_rows, "LARGE", LARGE)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        JournalMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=12, deadline=None, suppress_health_check=checks
        ),
    )
