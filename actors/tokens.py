"""How many tokens a text is: exactly by tiktoken where that can be had, else by a stated estimate.

It decides which counter a model's name gets. It never goes to the network and never waits: tiktoken counts only once
its encoding, which must lie in tiktoken's own cache already, has been loaded by a thread in the background; until
then, and where there is none, ``estimate_tokens`` counts. Importing it imports no tiktoken. Used by model actors,
which never fork.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

Encode: TypeAlias = Callable[[str], int]

MAX_REMEMBERED = 20_000
_SHORT_CHARS = 64
_PIECE_CHARS = 20_000

_SOURCE = "https://openaipublic.blob.core.windows.net/encodings/"
# Where tiktoken's encodings come from: it names the file in its cache by the SHA-1 of this address.
ENCODING_FILES: Mapping[str, str] = {
    "cl100k_base": f"{_SOURCE}cl100k_base.tiktoken",
    "o200k_base": f"{_SOURCE}o200k_base.tiktoken",
    "o200k_harmony": f"{_SOURCE}o200k_base.tiktoken",
}

_LOWER = bytes(range(0x61, 0x7B)) + b" "
_UPPER = bytes(range(0x41, 0x5B))
_DIGITS = b"0123456789"
_ABOVE_ASCII = bytes(range(0x80, 0x100))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, on the high side; 0 for the empty text.

    Of the text's UTF-8 bytes: small letters and spaces count 1/3.3 each, capitals 1/1.7, digits 1 (some models give
    each its own token), other ASCII 0.7, bytes above ASCII 0.55. Against cl100k that is 1.1 to 1.8 times the true count
    for prose, source text, JSON and other scripts, and 2.2 for tables of numbers; random letters and base64 come out
    too low (0.6 and 0.8).
    """
    if not text:
        return 0
    data = text.encode("utf-8", "replace")
    ascii_only = data.translate(None, _ABOVE_ASCII)
    rest = ascii_only.translate(None, _LOWER)
    lower, high = len(ascii_only) - len(rest), len(data) - len(ascii_only)
    no_upper = rest.translate(None, _UPPER)
    upper = len(rest) - len(no_upper)
    other = len(no_upper.translate(None, _DIGITS))
    digits = len(no_upper) - other
    return int(lower / 3.3 + upper / 1.7 + digits + other * 0.7 + high * 0.55) + 1


class TokenCounter:
    """Count texts for one model. ``count`` may be called from any thread."""

    def __init__(self, model_name: str, find: Callable[[str], Encode | str] | None = None) -> None:
        self._model_name = model_name
        self._find = find or find_encode
        self._encode: Encode | None = None
        self._remembered: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._lock = threading.Lock()
        self.note = "not looked for yet"

    @property
    def is_exact(self) -> bool:
        """True once the model's own encoding counts."""
        return self._encode is not None

    def prepare(self, then: Callable[[], None] | None = None) -> None:
        """Look for the encoding in a thread of its own; ``then`` is called in it when that is settled."""
        threading.Thread(target=self.load, args=(then,), name="encoding", daemon=True).start()

    def load(self, then: Callable[[], None] | None = None) -> None:
        """Look for the encoding now (0.3 s); ``note`` says what came of it."""
        found = self._find(self._model_name)
        if isinstance(found, str):
            self.note = found
        else:
            self.note = "counted by tiktoken"
            self._encode = found
        if then is not None:
            then()

    def count(self, text: str) -> int:
        """Give the number of tokens, exactly or by estimate; what was counted once is remembered by its hash."""
        encode = self._encode
        if encode is None:
            return estimate_tokens(text)
        if len(text) < _SHORT_CHARS:
            return encode(text)
        key = (len(text), hash(text))
        with self._lock:
            known = self._remembered.get(key)
        if known is None:
            known = encode(text)
            with self._lock:
                self._remembered[key] = known
                if len(self._remembered) > MAX_REMEMBERED:
                    self._remembered.popitem(last=False)
        return known


def find_encode(model_name: str) -> Encode | str:
    """Give tiktoken's counter for a model, or a sentence on why there is none. May take 0.5 s; no network."""
    try:
        tiktoken: Any = import_module("tiktoken")
        models: Any = import_module("tiktoken.model")
    except ImportError:
        return "estimated: the package tiktoken is not installed (pip install 'callboard[tiktoken]')"
    try:
        name = models.encoding_name_for_model(model_name)
    except KeyError:
        return f"estimated: tiktoken does not know the model {model_name!r}"
    if not is_cached(name, os.environ):
        return f"estimated: tiktoken's encoding {name} is not in its cache; docs/model.md says how to put it there"
    try:
        encoding = tiktoken.get_encoding(name)
    except (
        Exception
    ) as fault:  # a damaged cache file, or what tiktoken makes of it: counting is never worth a turn
        return f"estimated: tiktoken's encoding {name} could not be loaded ({type(fault).__name__}: {fault})"

    def encode(text: str) -> int:
        """Count in pieces: tiktoken's time grows faster than an odd text does. A border costs a token at most."""
        starts = range(0, len(text), _PIECE_CHARS)
        return sum(len(encoding.encode_ordinary(text[at : at + _PIECE_CHARS])) for at in starts)

    return encode


def is_cached(encoding: str, environ: Mapping[str, str]) -> bool:
    """True when the encoding's file lies where tiktoken looks before it would download it."""
    address = ENCODING_FILES.get(encoding)
    if address is None:
        return False
    set_folder = environ.get("TIKTOKEN_CACHE_DIR", environ.get("DATA_GYM_CACHE_DIR"))
    folder = str(Path(tempfile.gettempdir()) / "data-gym-cache") if set_folder is None else set_folder
    name = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    return folder != "" and (Path(folder) / name).is_file()
