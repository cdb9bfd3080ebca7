"""The command line. ``main`` is the console script; heavy things are imported inside the commands."""

from callboard.cli.app import main

__all__ = ["main"]
