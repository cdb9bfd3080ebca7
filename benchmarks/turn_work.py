"""The work of ``benchmarks/turns.py``, the same for Callboard and for its peers: three tools, and what asks for them.

Plain functions, of the standard library alone: the peers' processes import it under a Python of their own.
"""

from __future__ import annotations

import json
import time

INSTRUCTIONS = "You are a helpful assistant. Use the tools when needed."
NAP_S = 1.0
BURN_S = 0.5
CALLS_AT_ONCE = 4
HEAVY_CONVERSATIONS = 12
# How long the heavy ones run before the light turns begin.
UNDER_WAY_S = 1.5
LIGHT = "call echo " + json.dumps({"text": "hi"})
HEAVY = {
    name: "\n".join([f"call {name} " + json.dumps({"text": "hi"})] * CALLS_AT_ONCE)
    for name in ("nap", "burn")
}
# A reply that streams comes in as many pieces as this has words.
ANSWER = " ".join(f"word{number:02d}" for number in range(20))


def echo(text: str) -> str:
    """Say the text again.

    Args:
        text: what to say
    """
    return "echo: " + text


def nap(text: str) -> str:
    """Sleep for a second.

    Args:
        text: what to say afterwards
    """
    time.sleep(NAP_S)
    return "slept: " + text


def burn(text: str) -> str:
    """Compute in pure Python for half a second of CPU time.

    Args:
        text: what to say afterwards
    """
    end = time.thread_time() + BURN_S
    total = 0
    while time.thread_time() < end:
        for number in range(1000):
            total += number
    return "burned: " + text
