"""Names of external tools as a provider accepts them: ``server__tool``, at most 64 of ``[A-Za-z0-9_-]``.

Pure. It decides names only, from nothing but the names themselves: a tool keeps its name when others come and
go (but for a collision of hashes). Called by the catalogue and by the external servers' registration
(FEATURES T3).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable
from itertools import count

MAX_NAME = 64
SEPARATOR = "__"
BUILTIN_NAMES = frozenset({"calculate", "current_time", "search_documents", "read_document"})

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_HASH_CHARS = 8


def expose(
    names: Iterable[tuple[str, str]], reserved: Collection[str] = BUILTIN_NAMES
) -> dict[tuple[str, str], str]:
    """Give each (server, tool) a legal name, no two alike and none in ``reserved``.

    A name that needs no change is ``server__tool``; one that was changed, cut or could be read two ways ends
    in a hash of the pair. The result does not depend on the order of ``names``.
    """
    pairs = sorted(set(names))
    exposed: dict[tuple[str, str], str] = {}
    taken = set(reserved)
    for pair in (*filter(_is_plain, pairs), *(pair for pair in pairs if not _is_plain(pair))):
        exposed[pair] = next(name for name in _candidates(pair) if name not in taken)
        taken.add(exposed[pair])
    return exposed


def _is_plain(pair: tuple[str, str]) -> bool:
    """True when ``server__tool`` is legal and the first ``__`` in it is where the server ends."""
    server, tool = pair
    joined = SEPARATOR.join(pair)
    readable_one_way = bool(server) and SEPARATOR not in server and not server.endswith("_")
    return readable_one_way and bool(tool) and len(joined) <= MAX_NAME and not _ILLEGAL.search(joined)


def _candidates(pair: tuple[str, str]) -> Iterable[str]:
    joined = SEPARATOR.join(pair)
    if _is_plain(pair):
        yield joined
    stem = _ILLEGAL.sub("_", joined)[: MAX_NAME - _HASH_CHARS - 1]
    for attempt in count():
        canonical = json.dumps([*pair, attempt])
        yield f"{stem}_{hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_CHARS]}"
