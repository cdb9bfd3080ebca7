"""The tools of ``benchmarks/tools.py``: two, in a module that imports nothing else."""

import time

from callboard import tool


@tool
def nothing() -> float:
    """Do nothing."""
    return 0.0


@tool
def nap() -> float:
    """Sleep for 50 ms."""
    time.sleep(0.05)
    return 0.05
