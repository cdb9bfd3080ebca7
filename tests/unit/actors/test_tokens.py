from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from callboard.actors import tokens
from callboard.actors.tokens import TokenCounter, estimate_tokens, find_encode, is_cached

PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. " * 40


def test_the_estimate_is_on_the_high_side_for_prose_and_more_so_for_digits() -> None:
    words = len(PROSE.split())
    assert words < estimate_tokens(PROSE) < 2 * words
    assert estimate_tokens("1234567890" * 10) >= 100
    assert estimate_tokens("今天天气很好" * 10) >= 60
    assert estimate_tokens("") == 0


def test_the_estimate_never_exceeds_the_bytes_by_more_than_one() -> None:
    for text in ("a", "A1", "€", "\ud800", "{}" * 50, PROSE):
        assert estimate_tokens(text) <= len(text.encode("utf-8", "replace")) + 1


def test_until_the_encoding_is_there_the_estimate_counts() -> None:
    counter = TokenCounter("gpt-4o", find=lambda name: len)
    assert (counter.count(PROSE), counter.is_exact) == (estimate_tokens(PROSE), False)
    counter.load()
    assert (counter.count(PROSE), counter.is_exact) == (len(PROSE), True)


def test_why_it_is_an_estimate_is_said() -> None:
    settled: list[bool] = []
    counter = TokenCounter("mine", find=lambda name: f"estimated: no {name}")
    counter.load(lambda: settled.append(counter.is_exact))
    assert (counter.note, settled) == ("estimated: no mine", [False])


def test_a_long_text_is_counted_once() -> None:
    asked: list[str] = []

    def encode(text: str) -> int:
        asked.append(text)
        return 7

    counter = TokenCounter("m", find=lambda name: encode)
    counter.load()
    assert [counter.count(PROSE) for _ in range(3)] == [7, 7, 7]
    assert len(asked) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_REMEMBERED", 3)
    counter = TokenCounter("m", find=lambda name: len)
    counter.load()
    for number in range(10):
        counter.count(PROSE + str(number))
    assert len(counter._remembered) == 3


def test_an_encoding_counts_as_there_only_where_tiktoken_would_find_it(tmp_path: Path) -> None:
    environ = {"TIKTOKEN_CACHE_DIR": str(tmp_path)}
    assert not is_cached("o200k_base", environ)
    address = tokens.ENCODING_FILES["o200k_base"]
    (tmp_path / hashlib.sha1(address.encode()).hexdigest()).write_text("")
    assert is_cached("o200k_base", environ)
    assert is_cached("o200k_harmony", environ), "the same file"
    assert not is_cached("cl100k_base", environ)
    assert not is_cached("o200k_base", {"TIKTOKEN_CACHE_DIR": ""})
    assert not is_cached("gpt2", environ)


class _FakeEncoding:
    def encode_ordinary(self, text: str) -> list[int]:
        return [0] * len(text.split())


def _install(monkeypatch: pytest.MonkeyPatch, *, get_encoding: object) -> None:
    def encoding_name_for_model(name: str) -> str:
        return {"gpt-4o": "o200k_base"}[name]

    package = ModuleType("tiktoken")
    package.__dict__["get_encoding"] = get_encoding
    monkeypatch.setitem(sys.modules, "tiktoken", package)
    monkeypatch.setitem(
        sys.modules, "tiktoken.model", SimpleNamespace(encoding_name_for_model=encoding_name_for_model)
    )


def test_tiktoken_counts_when_its_encoding_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, get_encoding=lambda name: _FakeEncoding())
    monkeypatch.setattr(tokens, "is_cached", lambda encoding, environ: True)
    encode = find_encode("gpt-4o")
    assert not isinstance(encode, str)
    assert encode("a b c") == 3
    assert encode("word " * 10_000) >= 10_000, "counted in pieces"


def test_nothing_is_fetched_when_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str) -> object:
        raise AssertionError("it would have gone to the network")

    _install(monkeypatch, get_encoding=fetch)
    monkeypatch.setitem(os.environ, "TIKTOKEN_CACHE_DIR", "")
    assert "not in its cache" in str(find_encode("gpt-4o"))
    assert "does not know the model" in str(find_encode("qwen"))


def test_a_damaged_cache_costs_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> object:
        raise ValueError("hash mismatch")

    _install(monkeypatch, get_encoding=broken)
    monkeypatch.setattr(tokens, "is_cached", lambda encoding, environ: True)
    assert "could not be loaded" in str(find_encode("gpt-4o"))


def test_without_the_package_it_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert "not installed" in str(find_encode("gpt-4o"))
