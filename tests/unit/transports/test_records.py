"""Records arrive as they were sent, by whatever way they are pickled."""

from __future__ import annotations

import dataclasses
import io
import pickle
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from callboard.actors import chat_model, events, items, messages
from callboard.actors.events import ToolCallStarted, TurnStarted
from callboard.supervisor import envelope
from callboard.tools import content
from callboard.transports import records
from callboard.transports.records import RecordPickler


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any = None


@dataclass(frozen=True, slots=True)
class One:
    only: Any


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True)
class Loose:
    value: int
    more: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Open:
    value: int


@dataclass(frozen=True, slots=True)
class Longer(Pair):
    third: int = 3


@dataclass(frozen=True, slots=True)
class Own:
    value: int

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.value + 1,)


@dataclass(frozen=True, slots=True)
class OwnState:
    value: int

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "value", 10)


def through(value: Any) -> Any:
    out = io.BytesIO()
    RecordPickler(out, 5).dump(value)
    return pickle.loads(out.getvalue())


@pytest.mark.parametrize(
    "value",
    [
        Pair(1, Pair("a", [One(None)])),
        One((1, 2)),
        One(One(())),
        Empty(),
        Loose(1, {"a": 2}),
        Open(5),
        Longer(1, 2, 4),
        {"k": [Pair(b"x", 1.5)]},
        TurnStarted(turn_id="t", text="hello", seq=3),
        ToolCallStarted(turn_id="t", call_id="c", tool="f", arguments={"a": 1}),
        ValueError("not a record"),
        Pair,
    ],
)
def test_what_arrives_is_what_was_sent(value: Any) -> None:
    arrived = through(value)
    assert type(arrived) is type(value)
    assert repr(arrived) == repr(value)


def test_one_object_that_is_in_a_message_twice_is_one_on_arrival() -> None:
    shared = One([1])
    arrived = through([shared, Pair(shared)])
    assert arrived[1].left is arrived[0]


def test_a_class_that_says_how_it_is_pickled_is_obeyed() -> None:
    assert through(Own(1)) == Own(2)
    # Some Pythons put their own in the place of a frozen dataclass's: whatever it does is right.
    assert through(OwnState(1)) == pickle.loads(pickle.dumps(OwnState(1)))


def test_nothing_of_a_record_runs_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the record was made anew")

    value = Pair(1, 2)
    monkeypatch.setattr(Pair, "__init__", fail)
    assert through(value).right == 2


def test_a_record_whose_field_is_missing_cannot_be_sent() -> None:
    broken = object.__new__(Pair)
    with pytest.raises(AttributeError):
        through(broken)


@pytest.mark.parametrize("module", [chat_model, events, items, messages, envelope, content])
def test_the_products_messages_are_records(module: Any) -> None:
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    ]
    assert kinds
    with_fields = [kind for kind in kinds if dataclasses.fields(kind)]
    assert all(records._is_record(kind) for kind in with_fields)
