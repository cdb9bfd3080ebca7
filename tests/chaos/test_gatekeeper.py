"""The gate before a store, and its keeper: what passes is seen, what a trap waits for is held until it has struck."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from callboard.storage.journal_terms import Append, JournalError, Opened
from callboard.testing.chaos.gate import FaultyStore, GatedStore
from callboard.testing.chaos.gatekeeper import Gatekeeper, Trap


class Store:
    """Takes everything but epoch 0, and remembers it."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def open(self, conversation: str, team: str) -> Opened:
        return Opened(epoch=7, records=())

    def commit(self, appends: Sequence[Append]) -> list[int | JournalError]:
        for append in appends:
            self.taken += [record["seq"] for record in append.records if append.epoch]
        return [a.records[-1]["seq"] if a.epoch else JournalError("stale_epoch", "old") for a in appends]

    def check(self) -> list[str]:
        return ["fine"]


def append(*seqs: int, conversation: str = "c", epoch: int = 1) -> Append:
    return Append(conversation=conversation, team="", epoch=epoch, records=[{"seq": n} for n in seqs])


def test_what_passes_is_seen_in_order_with_epochs_and_refusals() -> None:
    with Gatekeeper() as keeper:
        gated = GatedStore(Store(), str(keeper.path))  # type: ignore[arg-type]
        assert gated.open("c", "").epoch == 7
        answers = gated.commit([append(1, 2), append(3, epoch=0), append(9, conversation="other")])
        assert answers[0] == 2
        seen = [(p.side, p.epoch, p.seqs, p.refused) for p in keeper.passed("c")]
        assert gated.check() == ["fine"]
    assert seen == [
        ("opened", 7, (), None),
        ("before", 1, (1, 2), None),
        ("before", 0, (3,), None),
        ("after", 1, (1, 2), None),
        ("after", 0, (3,), "stale_epoch"),
    ]


@pytest.mark.parametrize(("side", "taken"), [("before", []), ("after", [1, 2])])
def test_a_trap_holds_its_record_once_while_it_strikes(side: str, taken: list[int]) -> None:
    store, seen, may_go = Store(), [], threading.Event()

    def strike() -> None:
        seen.append(list(store.taken))
        may_go.wait(5)

    with Gatekeeper() as keeper:
        gated = GatedStore(store, str(keeper.path))  # type: ignore[arg-type]
        trap = Trap(conversation="c", seq=2, side=side, strike=strike)  # type: ignore[arg-type]
        keeper.set(trap)
        done = threading.Thread(target=gated.commit, args=([append(1, 2)],))
        done.start()
        done.join(0.1)
        assert done.is_alive()
        assert seen == [taken]
        may_go.set()
        done.join(5)
        assert trap.sprung.wait(5)
        gated.commit([append(2)])
    assert len(seen) == 1


def test_what_a_trap_loses_is_not_written_and_goes_through_the_next_time() -> None:
    store = Store()
    with Gatekeeper() as keeper:
        gated = GatedStore(store, str(keeper.path))  # type: ignore[arg-type]
        keeper.set(Trap(conversation="c", seq=2, side="before", strike=lambda: None, lose=True))
        assert [getattr(a, "kind", a) for a in gated.commit([append(1, 2), append(9)])] == ["storage_io"] * 2
        assert store.taken == []
        assert gated.commit([append(1, 2)]) == [2]
    assert store.taken == [1, 2]


def test_without_a_keeper_the_store_is_itself(tmp_path: Path) -> None:
    store = Store()
    with Gatekeeper() as keeper:
        gated = GatedStore(store, str(keeper.path))  # type: ignore[arg-type]
        gated.commit([append(1)])
    gated.commit([append(2)])
    GatedStore(store, str(tmp_path / "nobody")).commit([append(3)])  # type: ignore[arg-type]
    assert store.taken == [1, 2, 3]


def test_a_faulty_store_takes_nothing_while_the_file_is_there(tmp_path: Path) -> None:
    file, store = tmp_path / "fault", Store()
    faulty = FaultyStore(store, file)  # type: ignore[arg-type]
    file.write_text("storage_io\n")
    assert [answer.kind for answer in faulty.commit([append(1), append(2)])] == ["storage_io"] * 2
    with pytest.raises(JournalError):
        faulty.open("c", "")
    file.unlink()
    assert faulty.commit([append(1)]) == [1]
    assert faulty.open("c", "").epoch == 7
    assert store.taken == [1]
