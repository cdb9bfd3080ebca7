"""What of a conversation fits into the model's context window, and what is left out (FEATURES C7).

Pure: texts are counted by a function that is handed in. It never splits a call from its result, never leaves out a
system message or a user message of the present turn, and changes nothing where everything fits. The order in which it
gives things up (``_trim``) is written in docs/model.md. Called by the model actor right before a request, where
tokens can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from callboard.actors.chat_messages import text_from_blocks
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.tools.content import Block, ImageBlock, TextBlock

Count: TypeAlias = Callable[[str], int]
ContextPolicy: TypeAlias = Literal["error", "trim"]

MESSAGE_TOKENS = 4
CALL_TOKENS = 12
IMAGE_TOKENS = 1_100
OVER_LONG_SHARE = 4
MIN_RESULT_TOKENS = 200
_HEAD_SHARE = 0.75
_CUT_NOTE = "\n[… the middle of this result was left out: {0} characters did not fit the context window …]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What a request did without: whole items, their tokens with those of cut results, and under which limit."""

    items: int
    tokens: int
    cut_results: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The items to send; ``left_out`` is None when they are all there, whole."""

    items: tuple[Item, ...]
    left_out: LeftOut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """There is no way: ``tokens`` is what would have to fit (as far as it could be shortened) into ``limit``."""

    tokens: int
    limit: int


@dataclass(frozen=True, slots=True)
class _Sized:
    item: Item
    tokens: int
    is_cut: bool = False


_Group: TypeAlias = list[_Sized]


def surely_fits(items: Sequence[Item], limit: int, *, vision: bool = False) -> bool:
    """True when the items fit whatever the model's encoding: no token is shorter than a byte. Counts nothing."""
    room = limit
    for item in items:
        room -= item_tokens(item, _most_tokens, vision)
        if room < 0:
            return False
    return True


def item_tokens(item: Item, count: Count, vision: bool = False) -> int:
    """Give the tokens of one item with what its place in the request costs."""
    match item:
        case FunctionCall(tool=tool, arguments=arguments):
            return CALL_TOKENS + count(tool) + count(arguments)
        case ChatMessage(content=content) | FunctionCallOutput(content=content):
            images = sum(isinstance(block, ImageBlock) for block in content) if vision else 0
            return MESSAGE_TOKENS + images * IMAGE_TOKENS + count(text_from_blocks(content))


def fit(
    items: Sequence[Item],
    count: Count,
    limit: int,
    *,
    policy: ContextPolicy,
    turn_at: int | None = None,
    vision: bool = False,
) -> Fitted | TooLong:
    """Give the items that fit into ``limit`` tokens.

    ``turn_at`` is the index at which the present turn begins (None: at the last user message). With the policy
    ``error`` it is all or nothing.
    """
    sized = [_Sized(item, item_tokens(item, count, vision)) for item in items]
    whole = _sum(sized)
    if whole <= limit:
        return Fitted(items=tuple(items))
    if policy == "error":
        return TooLong(tokens=whole, limit=limit)
    at = _turn_start(items) if turn_at is None else min(turn_at, len(items))
    kept = _trim(sized, at, limit, count)
    if _sum(kept) > limit:
        return TooLong(tokens=_sum(kept), limit=limit)
    left_out = LeftOut(
        items=len(sized) - len(kept),
        tokens=whole - _sum(kept),
        cut_results=sum(entry.is_cut for entry in kept),
        limit=limit,
    )
    return Fitted(items=tuple(entry.item for entry in kept), left_out=left_out)


def _trim(sized: _Group, at: int, limit: int, count: Count) -> _Group:
    """Give things up, the least first, until the rest fits; the caller checks whether it did."""
    over_long = max(MIN_RESULT_TOKENS, limit // OVER_LONG_SHARE)
    sized = [_cut(entry, over_long, count) for entry in sized]
    system, turns = _earlier_turns(sized[:at])
    present = sized[at:]
    fixed = _sum(system) + _sum(present)
    excess = fixed + sum(map(_sum, turns)) - limit
    gone = 0
    while gone < len(turns) and excess > 0:
        excess -= _sum(turns[gone])
        gone += 1
    if excess <= 0:
        return [*system, *(entry for turn in turns[gone:] for entry in turn), *present]
    return [*system, *_shorten_turn(present, limit - _sum(system), count)]


def _shorten_turn(present: _Group, room: int, count: Count) -> _Group:
    """Cut the present turn's longest results to one length; where that is too short, leave out its oldest steps."""
    groups = _steps(present)
    while True:
        entries = [entry for _, group in groups for entry in group]
        if _sum(entries) <= room:
            return entries
        results = [entry.tokens for entry in entries if isinstance(entry.item, FunctionCallOutput)]
        level = _water_level(results, room - (_sum(entries) - sum(results)))
        oldest = next((n for n, (is_step, _) in enumerate(groups) if is_step), None)
        is_last_step = sum(is_step for is_step, _ in groups) <= 1
        if level >= MIN_RESULT_TOKENS or oldest is None or is_last_step:
            return [_cut(entry, max(level, MESSAGE_TOKENS), count) for entry in entries]
        del groups[oldest]


def _water_level(sizes: Sequence[int], room: int) -> int:
    """Give the largest length to which the results can be cut so that they fit into ``room``; 0 when none does."""
    left = room
    for position, size in enumerate(sorted(sizes)):
        level = left // (len(sizes) - position)
        if size > level:
            return max(0, level)
        left -= size
    return max(sizes, default=0) if left >= 0 else 0


def _earlier_turns(former: _Group) -> tuple[_Group, list[_Group]]:
    """Split what was before the present turn: system messages, which stay, and the turns, oldest first."""
    system: _Group = []
    turns: list[_Group] = []
    for entry in former:
        role = entry.item.role if isinstance(entry.item, ChatMessage) else None
        if role == "system":
            system.append(entry)
        elif role == "user" or not turns:
            turns.append([entry])
        else:
            turns[-1].append(entry)
    return system, turns


def _steps(present: _Group) -> list[tuple[bool, _Group]]:
    """Group the present turn: each step of calls and results is (True, entries); what stays is (False, entries)."""
    starts = [0, *_step_starts(present), len(present)]
    groups = [present[a:b] for a, b in pairwise(starts) if a < b]
    return [(_is_step(group), group) for group in groups]


def _step_starts(present: _Group) -> Iterator[int]:
    for number, (before, entry) in enumerate(pairwise(present), start=1):
        after_results = isinstance(before.item, FunctionCallOutput)
        is_message = isinstance(entry.item, ChatMessage)
        is_first_call = isinstance(entry.item, FunctionCall) and isinstance(before.item, ChatMessage)
        after_text = isinstance(before.item, ChatMessage) and before.item.role == "assistant"
        after_step = after_results and not isinstance(entry.item, FunctionCallOutput)
        if is_message or after_step or (is_first_call and not after_text):
            yield number


def _is_step(group: _Group) -> bool:
    return not any(isinstance(e.item, ChatMessage) and e.item.role != "assistant" for e in group)


def _turn_start(items: Sequence[Item]) -> int:
    users = [n for n, item in enumerate(items) if isinstance(item, ChatMessage) and item.role == "user"]
    return users[-1] if users else len(items)


def _cut(entry: _Sized, tokens: int, count: Count) -> _Sized:
    """Shorten a result to ``tokens``, its head and its tail kept; anything else, and what is shorter, stays."""
    if not isinstance(entry.item, FunctionCallOutput) or entry.tokens <= tokens:
        return entry
    content = _cut_content(entry.item.content, tokens - MESSAGE_TOKENS, count)
    item = replace(entry.item, content=content)
    shorter = _Sized(item, item_tokens(item, count), is_cut=True)
    return shorter if shorter.tokens < entry.tokens else entry


def _cut_content(content: Sequence[Block], tokens: int, count: Count) -> tuple[Block, ...]:
    text = text_from_blocks(content)
    chars = int(len(text) * max(0, tokens) / max(1, count(text)))
    while True:
        shorter = _without_middle(text, chars)
        if count(shorter) <= tokens or chars == 0:
            return (TextBlock(shorter),)
        chars = int(chars * 0.8)


def _without_middle(text: str, chars: int) -> str:
    head = int(chars * _HEAD_SHARE)
    tail = chars - head
    return text[:head] + _CUT_NOTE.format(len(text) - chars) + (text[-tail:] if tail else "")


def _sum(entries: Sequence[_Sized]) -> int:
    return sum(entry.tokens for entry in entries)


def _most_tokens(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
