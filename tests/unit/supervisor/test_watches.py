"""Descriptors that are watched: whose event it is, where numbers are used again."""

from __future__ import annotations

import os

from callboard.supervisor.child import Child


def test_an_event_of_a_closed_descriptor_is_not_taken_for_one_of_its_successor() -> None:
    child = Child()
    heard: list[str] = []
    pipes = [os.pipe() for _ in range(2)]
    opened: list[int] = []

    def first(_events: int) -> None:
        heard.append("first")
        reader = pipes[1][0]
        child.unwatch(reader)
        os.close(reader)
        again = os.dup(pipes[0][0])
        assert again == reader, "the lowest free number is given"
        opened.append(again)
        child.watch(again, lambda _events: heard.append("successor"))

    def second(_events: int) -> None:
        heard.append("second")

    child.watch(pipes[0][0], first)
    child.watch(pipes[1][0], second)
    for _, writer in pipes:
        os.write(writer, b".")
    try:
        child._run_ready()
        assert heard in (["first"], ["second", "first"])
    finally:
        for fd in (pipes[0][0], pipes[0][1], pipes[1][1], *opened):
            os.close(fd)
        assert child._poller is not None
        child._poller.close()
