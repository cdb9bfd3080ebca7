"""The configuration's secrets, wiped from the memory of processes whose forks run other people's code.

A fork has its parent's memory, and all actors descend from the process that read the configuration. Who needs a
secret is sent it; who forks tools (or loads them) wipes what it has inherited, once, at its start: every place in its
own memory at which one of the secrets stands is overwritten, but for the environment, which the process of a call
wipes itself of what is not meant for it. Nothing is decided here about what is a secret. ``known`` is called by the
daemon before it forks; ``wipe`` by the actors concerned, or as their ``preload``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MIN_BYTES = 12
_MASK = 0x55
# Like PRIVATE_FDS: what a fork inherits and must know of. Masked, so that it is no further copy of a secret.
_KNOWN: set[bytes] = set()


def known(secrets: Iterable[str]) -> None:
    """Have these wiped by ``wipe`` in every process that is forked from now on.

    Those of less than ``MIN_BYTES`` bytes are passed over: so few bytes may stand anywhere by chance.
    """
    encoded = (secret.encode("utf-8", "surrogateescape") for secret in secrets)
    _KNOWN.update(bytes(byte ^ _MASK for byte in secret) for secret in encoded if len(secret) >= MIN_BYTES)


def wipe() -> None:
    """Overwrite what is known in this process's own memory; takes some milliseconds for each secret."""
    libc = ctypes.CDLL(None)
    libc.memmem.restype = ctypes.c_void_p
    libc.memmem.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    spared = sorted(_environment(libc))
    places = _writable()
    for masked in _KNOWN:
        needle = (ctypes.c_char * len(masked))()
        for at, byte in enumerate(masked):
            needle[at] = bytes((byte ^ _MASK,))
        own = ctypes.addressof(needle)
        for start, end in places:
            for found in _found(libc, start, end, own, len(masked)):
                if found != own and not any(first <= found < last for first, last in spared):
                    ctypes.memset(found, 0, len(masked))
        ctypes.memset(own, 0, len(masked))
    _KNOWN.clear()


def _found(libc: ctypes.CDLL, start: int, end: int, needle: int, length: int) -> Iterator[int]:
    while end - start >= length and (found := libc.memmem(start, end - start, needle, length)):
        yield found
        start = found + length


def _writable() -> list[tuple[int, int]]:
    """The private memory that can be written, but for the stack, where nothing of the configuration lies."""
    places = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        place, rights = line.split()[:2]
        if rights == "rw-p" and not line.endswith("[stack]"):
            first, _, last = place.partition("-")
            places.append((int(first, 16), int(last, 16)))
    return places


def _environment(libc: ctypes.CDLL) -> Iterator[tuple[int, int]]:
    """Where the environment's values stand, Python's and C's."""
    libc.getenv.restype = ctypes.c_void_p
    for name, value in os.environb.items():
        at = libc.getenv(name)
        if at:
            yield at, at + len(value) + 1
    for kept in os.environ._data.values():  # type: ignore[attr-defined]
        yield id(kept), id(kept) + sys.getsizeof(kept)
