"""Sources are kept under their digest, privately, and no longer than something may still want them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.tools.kept_source import (
    GRACE_S,
    MAX_RETIRED_BYTES,
    KeptSource,
    KeptSources,
    digest_of,
    read_kept,
)

NOW = 1_000_000_000.0


def _put(kept: KeptSources, content: bytes, changed_at: float) -> str:
    digest = digest_of("", content)
    kept.keep(digest, content)
    path = kept.path(digest)
    os.utime(path, (changed_at, changed_at))
    return path


def test_what_is_kept_is_read_back_and_is_private(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path / "run" / "tools")
    content = KeptSource(b"x = 1\r\n\xff", b"compiled\n").to_bytes()
    before = os.umask(0)
    try:
        paths = {_put(kept, content, NOW) for _ in range(2)}
    finally:
        os.umask(before)
    (path,) = paths
    assert read_kept(path) == content
    assert KeptSource.from_bytes(content) == KeptSource(b"x = 1\r\n\xff", b"compiled\n")
    assert [file.name for file in kept.folder.iterdir()] == [Path(path).name]
    assert (kept.folder.stat().st_mode & 0o777, Path(path).stat().st_mode & 0o777) == (0o700, 0o600)


def test_what_is_not_there_is_not_read(tmp_path: Path) -> None:
    assert [read_kept(path) for path in ("", str(tmp_path), str(tmp_path / "none"))] == [None] * 3


def test_the_same_source_in_two_places_is_two() -> None:
    assert digest_of("/a/tools.py", b"x") != digest_of("/b/tools.py", b"x")


@pytest.mark.parametrize("digest", ["", "../actors/root", "/" * 64, "0" * 63])
def test_nothing_is_kept_under_a_name_that_is_no_digest(tmp_path: Path, digest: str) -> None:
    with pytest.raises(ValueError, match="not a digest"):
        KeptSources(tmp_path).keep(digest, b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_no_spec_names_goes_after_its_hour(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path)
    named = _put(kept, b"named", NOW - 10 * GRACE_S)
    fresh = _put(kept, b"replaced a moment ago", NOW - GRACE_S + 1)
    _put(kept, b"replaced long ago", NOW - GRACE_S - 1)
    (tmp_path / "described.json").write_text("{}")
    kept.sweep([named], NOW)
    assert {os.fspath(path) for path in tmp_path.iterdir()} == {
        named,
        fresh,
        str(tmp_path / "described.json"),
    }


def test_the_hour_counts_from_when_it_was_named_last(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path)
    old, other = _put(kept, b"old", NOW - 10 * GRACE_S), _put(kept, b"other", NOW - 10 * GRACE_S)
    kept.renew([old, kept.path("0" * 64), ""])
    kept.sweep([], Path(old).stat().st_mtime + GRACE_S - 1)
    assert (Path(old).exists(), Path(other).exists()) == (True, False)


def test_a_draft_is_left_to_who_writes_it_for_a_minute(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path)
    drafts = [tmp_path / f"{str(number) * 64}.draft" for number in range(2)]
    for draft, age_s in zip(drafts, (59.0, 61.0), strict=True):
        draft.write_bytes(bytes(MAX_RETIRED_BYTES + 1))
        os.utime(draft, (NOW - age_s, NOW - age_s))
    kept.sweep([], NOW)
    assert [draft.exists() for draft in drafts] == [True, False]


def test_a_draft_that_gets_its_name_during_a_sweep_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptSources(tmp_path)
    old = _put(kept, b"old", NOW - 2 * GRACE_S)
    draft = tmp_path / f"{'0' * 64}.draft"
    monkeypatch.setattr(KeptSources, "_files", lambda _: [draft, Path(old)])
    kept.sweep([], NOW)
    assert not Path(old).exists()


def test_of_too_much_the_oldest_goes_first(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path)
    size = MAX_RETIRED_BYTES // 3
    paths = [_put(kept, bytes([number]) * size, NOW - number) for number in range(5)]
    kept.sweep([paths[4]], NOW)
    assert [Path(path).exists() for path in paths] == [True, True, True, False, True]


def test_a_folder_that_is_not_there_is_swept_and_removed(tmp_path: Path) -> None:
    kept = KeptSources(tmp_path / "none")
    kept.sweep([], NOW)
    kept.remove()
    _put(kept, b"x", NOW)
    kept.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        KeptSources(tmp_path).keep("0" * 64, b"x")
    assert list(tmp_path.iterdir()) == []
