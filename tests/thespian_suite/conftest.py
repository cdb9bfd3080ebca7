"""Thespian's suite takes minutes: it runs when it is asked for by its folder's name, as CI does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Some of Thespian's tests end before their actors do: those are ended here, and are no fault of the mail's."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=5)
    for process in left:
        try:
            os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:
            continue


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip it unless a given path names it."""
    if any("thespian_suite" in argument for argument in config.args):
        return
    for item in items:
        if "thespian_suite" in item.nodeid:
            item.add_marker(pytest.mark.skip(reason="run by its name: pytest tests/thespian_suite"))
