"""A record as a row and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.storage import journal_rows
from callboard.storage.journal_outline import line_of
from callboard.storage.journal_rows import (
    LARGE,
    DamagedRow,
    checksum,
    decode_record,
    digests_of,
    encode_record,
    same_record,
)
from callboard.storage.journal_terms import JournalError

LONG = "x" * (LARGE + 1)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.just(LONG),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_any_record_is_put_together_again(record: dict[str, object]) -> None:
    row = encode_record(record)
    assert decode_record(row.body, row.attached, row.attachments) == record
    assert LONG not in row.body
    assert (LONG in json.dumps(record)) == bool(row.attachments)
    assert row.body.isascii()


def test_a_text_of_just_the_limit_stays_in_its_record() -> None:
    assert encode_record({"text": "x" * LARGE, "more": "y" * LARGE}).attachments == {}


def test_the_same_text_twice_is_one_attachment() -> None:
    row = encode_record({"a": LONG, "b": [LONG, {"c": LONG}]})
    assert len(row.attachments) == 1
    assert digests_of(row.attached) == list(row.attachments) * 3


def test_a_record_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_rows, "MAX_RECORD", 100_000)
    with pytest.raises(JournalError, match="over the limit") as caught:
        encode_record({"text": "x" * 100_000})
    assert caught.value.kind == "invalid"


def test_a_record_that_holds_itself_is_refused() -> None:
    record: dict[str, object] = {}
    record["self"] = record
    with pytest.raises(JournalError, match="not JSON"):
        encode_record(record)


@pytest.mark.parametrize(
    "change", [{"stream": 2}, {"seq": 2}, {"epoch": 2}, {"body": "{ }"}, {"attached": "[]"}]
)
def test_the_checksum_covers_all_that_the_row_says(change: dict[str, object]) -> None:
    row = {"stream": 1, "seq": 1, "epoch": 1, "body": "{}", "attached": None}
    assert checksum(**row) != checksum(**{**row, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "attached"),
    [
        ("{", None), ("[]", None), ("[" * 100_000, None), ("{}", "{"), ("{}", "5"), ("{}", "[[1, 2]]"),
        ("{}", '[[["a", "b"], "00"]]'), ('{"a": null}', '[[["a"], "00"]]'),
    ],
)  # fmt: skip
def test_what_was_not_written_by_us_is_damaged(body: str, attached: str | None) -> None:
    with pytest.raises(DamagedRow):
        decode_record(body, attached, {})


def test_a_changed_attachment_is_damaged() -> None:
    row = encode_record({"text": LONG})
    (digest,) = row.attachments
    with pytest.raises(DamagedRow, match="damaged"):
        decode_record(row.body, row.attached, {digest: b"other"})
    with pytest.raises(DamagedRow, match="missing"):
        decode_record(row.body, row.attached, {})


def test_records_are_the_same_whatever_the_order_of_their_keys() -> None:
    assert same_record({"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1})
    assert not same_record({"a": 1}, {"a": True, "b": None})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  a \n b\t", "a b"),
        ("\x1b[31mred", "[31mred"),
        ("\ud800\0x", "x"),
        (None, ""),
        (7, ""),
        ("é" * 99, "é" * 80),
    ],
)
def test_a_title_is_one_line_of_harmless_text(text: object, line: str) -> None:
    assert line_of(text, 80) == line
