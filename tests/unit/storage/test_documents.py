"""The document index: what it finds, when it reads files again, and what it refuses."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from pathlib import Path

import pytest

from callboard.storage.documents import DocumentIndex, Refreshed
from callboard.storage.errors import DocumentsError
from callboard.storage.folder import MAX_BYTES, DocumentFolder
from callboard.storage.passages import MAX_LINES, split_lines, split_passages

LONG_AGO_S = 1_500_000_000


def _write(folder: Path, name: str, text: str | bytes, *, at_s: int = LONG_AGO_S) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(file, (at_s, at_s))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    _write(folder, "birds.md", "# Birds\n\nParrots talk.\n\n# Fish\n\nSharks swim. Rays swim as well.\n")
    _write(folder, "deep/notes.txt", "A note about café prices.\nSharks again.\n")
    return folder


@pytest.fixture
def index_file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "documents.sqlite"


def _found(index: DocumentIndex, query: str) -> list[tuple[str, int, int]]:
    return [(hit.document, hit.line, hit.line_end) for hit in index.search(query, limit=20)]


def test_passages_are_found_with_their_lines_and_headings(folder: Path, index_file: Path) -> None:
    with DocumentIndex(folder, index_file) as index:
        assert index.refresh() == Refreshed(documents=2, indexed=2)
        assert _found(index, "parrot") == [("birds.md", 1, 3)]
        (hit,) = index.search("Rays")
        assert (hit.heading, hit.line, hit.line_end) == ("Fish", 5, 7)
        assert hit.text == "# Fish\n\nSharks swim. Rays swim as well."
        assert "Rays" in hit.snippet
        assert _found(index, "CAFE") == [("deep/notes.txt", 1, 2)]


def test_the_better_match_comes_first(folder: Path) -> None:
    with DocumentIndex(folder) as index:
        index.refresh()
        hits = index.search("sharks swim")
        assert [hit.document for hit in hits] == ["birds.md", "deep/notes.txt"]
        assert hits[0].score > hits[1].score > 0
        assert len(index.search("sharks swim", limit=1)) == 1


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "_",
        '"',
        '"sharks',
        "sharks*",
        "a AND",
        "NEAR(",
        "body:x",
        "x OR",
        "(",
        "- ^ :",
        "'; DROP",
        "\0",
        "€",
        "x" * 9999,
    ],
)
def test_any_text_is_a_query(folder: Path, query: str) -> None:
    with DocumentIndex(folder) as index:
        index.refresh()
        assert isinstance(index.search(query), tuple)


def test_operators_in_a_query_are_words(folder: Path) -> None:
    _write(folder, "near.txt", "not near and far\n")
    with DocumentIndex(folder) as index:
        index.refresh()
        assert _found(index, "NEAR") == [("near.txt", 1, 1)]
        assert ("birds.md", 1, 3) in _found(index, "body:parrots AND (x")


def test_only_what_changed_is_read_again(folder: Path, index_file: Path) -> None:
    with DocumentIndex(folder, index_file) as index:
        index.refresh()
    _write(folder, "birds.md", "Ducks only.\n", at_s=LONG_AGO_S + 1)
    _write(folder, "new.txt", "Owls.\n")
    (folder / "deep" / "notes.txt").unlink()
    with DocumentIndex(folder, index_file) as index:
        assert index.refresh() == Refreshed(documents=2, indexed=2, removed=1)
        assert index.refresh() == Refreshed(documents=2)
        assert _found(index, "parrots sharks note") == []
        assert sorted(_found(index, "ducks owls")) == [("birds.md", 1, 1), ("new.txt", 1, 1)]


def test_a_touched_file_with_the_same_bytes_keeps_its_passages(folder: Path, index_file: Path) -> None:
    with DocumentIndex(folder, index_file) as index:
        index.refresh()
        before = index._db.execute("SELECT max(id) FROM passages").fetchone()
        os.utime(folder / "birds.md", (LONG_AGO_S + 5, LONG_AGO_S + 5))
        index.refresh()
        assert index._db.execute("SELECT max(id) FROM passages").fetchone() == before
        assert index.refresh().indexed == 0


def test_a_change_within_the_clocks_grain_is_seen(folder: Path, index_file: Path) -> None:
    file = folder / "fresh.txt"
    file.write_text("first\n")
    state = file.stat()
    with DocumentIndex(folder, index_file) as index:
        index.refresh()
        file.write_text("other\n")
        os.utime(file, ns=(state.st_mtime_ns, state.st_mtime_ns))
        index.refresh()
        assert _found(index, "other first") == [("fresh.txt", 1, 1)]
        assert index.search("first") == ()


def test_hidden_binary_foreign_and_outside_files_are_not_found(folder: Path, tmp_path: Path) -> None:
    _write(tmp_path, "secret.txt", "zebra\n")
    _write(folder, ".hidden.md", "zebra\n")
    _write(folder, ".git/x.md", "zebra\n")
    _write(folder, "program.bin", "zebra\n")
    _write(folder, "binary.txt", b"zebra\0\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "dangling.txt").symlink_to(tmp_path / "gone")
    os.mkfifo(folder / "pipe.txt")
    with DocumentIndex(folder) as index:
        assert index.refresh().documents == 3
        assert _found(index, "zebra") == []


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "alias.md").symlink_to(folder / "birds.md")
    with DocumentIndex(folder) as index:
        index.refresh()
        assert {name for name, _, _ in _found(index, "parrot")} == {"alias.md", "birds.md"}


def test_too_large_a_file_is_passed_over_and_told(folder: Path) -> None:
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with DocumentIndex(folder) as index:
        refreshed = index.refresh()
        assert refreshed.indexed == 2
        assert len(refreshed.skipped) == 1
        assert "'huge.txt' is larger than 8 MiB" in refreshed.skipped[0]


def test_a_document_that_can_no_longer_be_read_is_no_longer_found(folder: Path) -> None:
    with DocumentIndex(folder) as index:
        index.refresh()
        with (folder / "birds.md").open("ab") as file:
            file.truncate(MAX_BYTES + 1)
        assert len(index.refresh().skipped) == 1
        assert index.search("parrots") == ()


def test_text_that_is_not_utf_8_is_still_found(folder: Path) -> None:
    _write(folder, "old.txt", b"caf\xe9 zebra\n")
    with DocumentIndex(folder) as index:
        index.refresh()
        assert _found(index, "zebra") == [("old.txt", 1, 1)]


def test_an_index_of_another_folder_is_made_anew(folder: Path, index_file: Path, tmp_path: Path) -> None:
    with DocumentIndex(folder, index_file) as index:
        index.refresh()
    other = tmp_path / "other"
    _write(other, "owls.md", "Owls.\n")
    with DocumentIndex(other, index_file) as index:
        assert index.search("parrots") == ()
        index.refresh()
        assert _found(index, "owls") == [("owls.md", 1, 1)]


def test_the_index_is_for_its_owner_only(folder: Path, index_file: Path) -> None:
    with DocumentIndex(folder, index_file) as index:
        index.refresh()
    assert index_file.stat().st_mode & 0o777 == 0o600


def _refresh_and_count(folder: str, index_file: str, answers: multiprocessing.Queue[int]) -> None:
    with DocumentIndex(folder, index_file) as index:
        index.refresh()
        answers.put(len(index.search("common", limit=50)))


def test_processes_may_index_at_the_same_time(folder: Path, index_file: Path) -> None:
    for number in range(40):
        _write(folder, f"many/{number}.txt", f"common word and number{number}\n")
    fork = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[int] = fork.Queue()
    processes = [
        fork.Process(target=_refresh_and_count, args=(str(folder), str(index_file), answers))
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    try:
        assert [answers.get(timeout=30) for _ in processes] == [40] * 4
    finally:
        for process in processes:
            process.join(timeout=30)
            process.close()
        answers.close()
        answers.join_thread()
    with sqlite3.connect(index_file) as db:
        assert db.execute("SELECT count(*) FROM files").fetchone() == (42,)
        assert db.execute("SELECT count(*) FROM passages").fetchone() == (43,)
        assert db.execute("SELECT count(*) FROM passage_text").fetchone() == (43,)
    db.close()


@pytest.mark.parametrize(
    ("place", "word"),
    [("documents/birds.md/index.sqlite", "File exists"), ("documents", "Is a directory")],
)
def test_an_index_that_cannot_be_written_is_a_clear_error(
    folder: Path, tmp_path: Path, place: str, word: str
) -> None:
    with pytest.raises(DocumentsError, match=f"(?s){place}.*{word}.*Set 'index'"):
        DocumentIndex(folder, tmp_path / place)


def test_a_damaged_index_is_a_clear_error(folder: Path, index_file: Path) -> None:
    _write(index_file.parent, index_file.name, "this is no database, whatever its name says" * 50)
    with pytest.raises(DocumentsError, match=r"not a database.*may be deleted"):
        DocumentIndex(folder, index_file)


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentsError, match="does not exist: create it"):
        DocumentIndex(tmp_path / "gone")
    with pytest.raises(DocumentsError, match="is not a folder"):
        DocumentIndex(_write(tmp_path, "file.txt", ""))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../secret.txt",
        "deep/../../secret.txt",
        "/etc/hostname.txt",
        "a\0.txt",
        "link.txt",
        "linked/secret.txt",
        ".hidden.md",
        "pipe.txt",
        "program.bin",
        "deep",
        "gone.txt",
    ],
)
def test_reading_never_leaves_the_folder(folder: Path, tmp_path: Path, name: str) -> None:
    _write(tmp_path, "secret.txt", "zebra\n")
    _write(folder, ".hidden.md", "zebra\n")
    _write(folder, "program.bin", "zebra\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.txt")
    with pytest.raises(DocumentsError):
        DocumentFolder(folder).read(name)


def test_lines_are_counted_as_editors_do() -> None:
    assert split_lines("a\r\nb\x0cc\u2028d\n\n") == ["a", "b\x0cc\u2028d", ""]
    assert split_lines("") == []


def test_passages_cover_every_line_that_says_something_once() -> None:
    text = "\n".join("" if number % 7 == 0 else f"line {number}" for number in range(1, 200))
    pieces = list(split_passages(text, markdown=True))
    covered = [number for piece in pieces for number in range(piece.line, piece.line_end + 1)]
    assert sorted(set(covered)) == covered
    assert set(covered) >= {number for number in range(1, 200) if number % 7}
    assert all(piece.line_end - piece.line < MAX_LINES for piece in pieces)
    lines = split_lines(text)
    assert all("\n".join(lines[piece.line - 1 : piece.line_end]) == piece.body for piece in pieces)


def test_a_hash_in_a_code_fence_or_in_plain_text_is_no_heading() -> None:
    fenced = "# Real\n\n```sh\n# comment\n```\n"
    assert [piece.heading for piece in split_passages(fenced, markdown=True)] == ["Real"]
    assert [piece.heading for piece in split_passages("# not here\n", markdown=False)] == [""]


def test_headings_are_nested() -> None:
    text = "# A\nx\n## B\ny\n### C\nz\n## D\nw\n"
    headings = [piece.heading for piece in split_passages(text, markdown=True)]
    assert headings == ["A", "A > B", "A > B > C", "A > D"]
