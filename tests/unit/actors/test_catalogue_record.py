"""A catalogue goes on with what the former one had, if it was of the same life of the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.catalogue_record import CatalogueRecord, Recorded
from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.limits import Limits

SPEC = ToolSpec(
    name="add",
    description="Add ü.",
    parameters={"type": "object"},
    annotations=Annotations(destructive=True),
    limits=Limits(env=("A",), sandbox="confined"),
    digest="d1",
    module="/users/tools.py",
    attribute="add",
    kept_source="/run/x/tools/1",
)
RECORDED = Recorded(
    modules={"/users/tools.py": (SPEC,), "another": ()}, faults={"another": "does not import (line 3)"}
)


def test_what_was_written_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tools" / "described.json"
    CatalogueRecord(path, "life").write(RECORDED)
    found = CatalogueRecord(path, "life").read()
    assert found == RECORDED
    assert list(found.modules) == list(RECORDED.modules)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("life", ["another", ""])
def test_the_record_of_another_life_is_none(tmp_path: Path, life: str) -> None:
    CatalogueRecord(tmp_path / "r", "" if not life else "life").write(RECORDED)
    assert CatalogueRecord(tmp_path / "r", life).read() is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"life": "life", "tools": {"m": [{}]}, "faults": {}}', '"life"']
)
def test_what_cannot_be_read_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert CatalogueRecord(tmp_path / "r", "life").read() is None
    assert CatalogueRecord(tmp_path / "none", "life").read() is None


def test_a_record_that_cannot_be_written_leaves_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = CatalogueRecord(tmp_path / "r", "life")
    record.write(RECORDED)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        record.write(RECORDED)
    assert record.read() is None
