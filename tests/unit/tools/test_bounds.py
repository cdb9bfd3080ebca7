"""What a result may weigh, and what becomes of the rest."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from callboard.tools.attached import ATTACHED_BYTES
from callboard.tools.bounds import (
    BLOB_BYTES,
    FIELD_CHARS,
    MAX_BLOCKS,
    MAX_CITATIONS,
    MAX_DEPTH,
    bounded,
    is_too_deep,
    storable,
)
from callboard.tools.content import (
    Attachment,
    Block,
    Citation,
    ImageBlock,
    JsonBlock,
    ResourceBlock,
    TextBlock,
    ToolResult,
)


def _with(*blocks: Block, **fields: Any) -> ToolResult:
    return ToolResult(content=blocks, **fields)


def _text(block: Block) -> str:
    assert isinstance(block, TextBlock)
    return block.text


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_result_within_the_bounds_is_the_same_object() -> None:
    result = _with(
        TextBlock("a" * 1000),
        JsonBlock({"a": 1}),
        ImageBlock("aGk=", "image/png"),
        ResourceBlock("file:///x", text="x"),
        citations=(Citation(document="a.md", line=1),),
        metadata={"a": 1},
    )
    assert bounded(storable(result)) is result


def test_a_long_text_keeps_its_head_and_tail_and_counts_the_rest() -> None:
    text = "H" * 600 + "m" * 3000 + "T" * 600
    (block,) = bounded(_with(TextBlock(text)), 1000).content
    assert _text(block) == "H" * 500 + "\n[… 3200 characters left out …]\n" + "T" * 500


def test_wide_characters_are_cut_between_and_counted_as_characters() -> None:
    (block,) = bounded(_with(TextBlock("ü" * 1001)), 1001).content
    assert _text(block) == "ü" * 250 + "\n[… 501 characters left out …]\n" + "ü" * 250


def test_a_large_json_value_becomes_a_cut_text() -> None:
    (block,) = bounded(_with(JsonBlock(list(range(10_000)))), 1000).content
    assert _text(block).startswith("[0,1,2,")
    assert _text(block).endswith(",9999]")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (ImageBlock("A" * (BLOB_BYTES + 4), "image/png"), ["image/png", "3145731 bytes"]),
        (ResourceBlock("file:///x", blob="A" * (BLOB_BYTES + 4)), ["file:///x", "unknown", "3145731 bytes"]),
    ],
)
def test_a_large_blob_becomes_a_text_of_its_type_and_size(block: Block, words: list[str]) -> None:
    (kept,) = bounded(_with(block)).content
    assert all(word in _text(kept) for word in words)


def test_the_blocks_are_bounded_together() -> None:
    blocks: list[Block] = [
        TextBlock("x" * 900),
        JsonBlock("y" * 900),
        ResourceBlock("u", text="z" * 900),
    ] * 20
    images = [ImageBlock("A" * (BLOB_BYTES // 2), "image/png")] * 3
    kept = bounded(_with(*images, *blocks), 1000).content
    assert len(json.dumps([str(block) for block in kept])) < 2 * (BLOB_BYTES // 2) + 15_000
    assert [type(block) for block in kept[:3]] == [ImageBlock, ImageBlock, TextBlock]


def test_too_many_blocks_and_citations_are_counted() -> None:
    result = _with(*[TextBlock("x")] * 100, citations=tuple(Citation(line=n) for n in range(70)))
    kept = bounded(result)
    assert (len(kept.content), len(kept.citations)) == (MAX_BLOCKS, MAX_CITATIONS)
    assert [_text(block) for block in kept.content[-2:]] == [
        "[… 38 blocks left out …]",
        "[… 6 citations left out …]",
    ]


def test_names_and_metadata_are_bounded_too() -> None:
    long = "x" * (FIELD_CHARS * 2)
    result = _with(
        ResourceBlock(long, long, "t"), citations=(Citation(url=long),), metadata={"a": "x" * 100_000}
    )
    kept = bounded(result)
    (block,) = kept.content
    assert isinstance(block, ResourceBlock)
    assert len(block.uri) == len(block.mime_type or "") == len(kept.citations[0].url or "") == FIELD_CHARS
    assert kept.metadata == {"left_out": "100009 bytes of metadata"}


class _Evil(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class _EvilMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise _Evil

    def __iter__(self) -> Iterator[str]:
        raise _Evil

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "result",
    [
        _with(JsonBlock(object())),
        _with(JsonBlock(float("nan"))),
        _with(JsonBlock(10**5000)),
        _with(JsonBlock(_nested(MAX_DEPTH + 10))),
        _with(JsonBlock(_nested(100_000))),
        _with(JsonBlock({(1, 2): 3})),
        _with(ImageBlock(b"x", "image/png")),  # type: ignore[arg-type]
        _with(ImageBlock(None, "image/png")),  # type: ignore[arg-type]
        _with("text"),  # type: ignore[arg-type]
        ToolResult(content=None),  # type: ignore[arg-type]
        _with(citations="zzz"),
        _with(citations=(Citation(score=float("inf")),)),
        _with(metadata={"a": {1}}),
        _with(metadata=_EvilMapping()),
        _with(is_error=1),
        _with(outcome=None),
    ],
)
def test_what_json_cannot_hold_becomes_an_error_that_says_so(result: ToolResult) -> None:
    kept = storable(result)
    assert kept.is_error
    assert "cannot be put in JSON" in _text(kept.content[0])
    assert bounded(kept) is kept


def test_half_characters_are_replaced_and_the_rest_is_kept() -> None:
    kept = storable(_with(TextBlock("a\ud800"), JsonBlock({"k\udfff": 1}), citations=(Citation(line=2),)))
    assert kept == _with(TextBlock("a?"), JsonBlock({"k?": 1}), citations=(Citation(line=2),))


def test_depth_is_counted_level_by_level() -> None:
    assert not is_too_deep(_nested(MAX_DEPTH))
    assert is_too_deep(_nested(MAX_DEPTH + 10))
    ring: list[Any] = []
    ring.append(ring)
    assert is_too_deep(ring)


def test_what_is_cut_is_attached_whole() -> None:
    image = base64.b64encode(b"\x89PNG" + b"i" * BLOB_BYTES).decode()
    blocks = (
        TextBlock("ü" * 1000),
        JsonBlock(["y" * 900]),
        ResourceBlock("file:///x", "text/html", "z" * 900),
        ImageBlock(image, "image/png"),
        ImageBlock("?" * (BLOB_BYTES + 1), "image/gif"),
        TextBlock("short"),
    )
    kept = bounded(_with(*blocks), 1000)
    assert [(a.mime_type, a.content) for a in kept.attachments] == [
        ("text/plain", ("ü" * 1000).encode()),
        ("application/json", b'["' + b"y" * 900 + b'"]'),
        ("text/html", b"z" * 900),
        ("image/png", base64.b64decode(image)),
        ("image/gif", b"?" * (BLOB_BYTES + 1)),
    ]
    assert _text(kept.content[-1]) == "short"


def test_a_result_that_was_bounded_stays_as_it_is() -> None:
    blocks: list[Block] = [TextBlock("x" * 900), JsonBlock("y" * 900), ResourceBlock("u", text="z" * 900)]
    kept = bounded(_with(*blocks * 30), 1000)
    assert bounded(storable(kept), 1000) is kept


def test_blocks_that_are_left_out_are_attached_as_json() -> None:
    kept = bounded(_with(*[TextBlock(str(n)) for n in range(100)]))
    (attachment,) = kept.attachments
    assert attachment.content is not None
    assert json.loads(attachment.content) == [{"type": "text", "text": str(n)} for n in range(63, 100)]


def test_what_is_over_the_room_for_attachments_is_said() -> None:
    text = "ü" * (ATTACHED_BYTES // 2 + 50)
    image = ImageBlock("A" * (BLOB_BYTES + 4), "image/png")
    kept = bounded(_with(TextBlock(text), image), 1000)
    (attachment,) = kept.attachments
    assert attachment.size == ATTACHED_BYTES
    assert "characters left out, 100 bytes at the end not kept …]" in _text(kept.content[0])
    assert _text(kept.content[1]).endswith("3145731 bytes, left out, not kept]")


def test_half_characters_cost_neither_output_nor_attachments() -> None:
    kept = storable(_with(TextBlock("a\ud800"), output="printed", attachments=(Attachment.of(b"x", "t/p"),)))
    assert (_text(kept.content[0]), kept.output, len(kept.attachments)) == ("a?", "printed", 1)
