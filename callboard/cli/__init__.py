"""The command line. ``main`` is the console script; everything else is imported inside it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit code. Ctrl-C is 130 at any time, also while it is being loaded."""
    try:
        from callboard.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
