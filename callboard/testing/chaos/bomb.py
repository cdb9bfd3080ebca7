"""A command that makes whoever looks at it raise: any actor's handler can fail, without a word in its code."""

from __future__ import annotations

import sys
from typing import Literal


class Bomb:
    """Pickles like any value; asking for its class (as ``match`` and ``isinstance`` do) raises, or exits."""

    def __init__(self, how: Literal["raise", "exit"]) -> None:
        self.how = how

    def __reduce__(self) -> tuple[type[Bomb], tuple[str]]:
        return Bomb, (object.__getattribute__(self, "how"),)

    def __getattribute__(self, name: str) -> object:
        if name == "__class__":
            if object.__getattribute__(self, "how") == "exit":
                sys.exit(3)
            raise RuntimeError("a bomb went off")
        return object.__getattribute__(self, name)
