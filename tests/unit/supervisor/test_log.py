"""The log: whole lines of JSON, bounded, rotated, and never the end of who writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.supervisor import log


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / log.FILE_NAME).read_text().splitlines()]


def test_a_line_holds_the_context_and_the_facts(tmp_path: Path) -> None:
    log.open_log(tmp_path, child="root", incarnation=3).info("started", subject="x", reason="")
    (line,) = lines(tmp_path)
    assert line["event"] == "started"
    assert (line["level"], line["child"], line["incarnation"], line["subject"]) == ("info", "root", 3, "x")
    assert isinstance(line["pid"], int)
    assert str(line["timestamp"]).endswith("+00:00")


def test_an_exception_comes_with_its_traceback(tmp_path: Path) -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        log.open_log(tmp_path).error("crashed", exc_info=True)
    assert "ZeroDivisionError: by nothing" in str(lines(tmp_path)[0]["traceback"])


def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    log.open_log(tmp_path).warning("said", text="x" * 100_000)
    (line,) = lines(tmp_path)
    assert len(str(line["text"])) == 1000
    assert line["cut_from_bytes"]


def test_the_file_is_rotated_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "ROTATE_BYTES", 300)
    writer = log.open_log(tmp_path)
    for number in range(6):
        writer.info("tick", number=number)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["log.1.jsonl", "log.jsonl"] or kept == ["log.1.jsonl"]


def test_a_folder_that_is_gone_costs_the_line_only(tmp_path: Path) -> None:
    log.open_log(tmp_path / "gone").info("anyone?")
    assert log.tail(tmp_path / "gone") == []


def test_the_tail_is_the_end(tmp_path: Path) -> None:
    writer = log.open_log(tmp_path)
    for number in range(50):
        writer.info("tick", number=number)
    assert [json.loads(line)["number"] for line in log.tail(tmp_path, 3)] == [47, 48, 49]
