"""The command line as people use it: at a terminal of 80 columns, and in pipes."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from fcntl import ioctl
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from callboard.testing.model_server import ScriptedModelServer

pytestmark = pytest.mark.integration

TOOLS = Path(__file__).parent / "some_tools.py"
CALLBOARD = [sys.executable, "-m", "callboard"]


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._keyboard, screen = pty.openpty()
        ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env={**os.environ, **environ},
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        os.close(self._keyboard)

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def wait_for(self, text: str, timeout_s: float = 20.0) -> str:
        """Read until ``text`` has been shown; give what came up to it, and forget it."""
        give_up_at = time.monotonic() + timeout_s
        while text not in self.shown:
            ready, _, _ = select.select([self._keyboard], [], [], max(0.0, give_up_at - time.monotonic()))
            assert ready, f"{text!r} was not shown, but {self.shown!r}"
            try:
                self.shown += os.read(self._keyboard, 65536).decode(errors="replace")
            except OSError:
                pytest.fail(f"it ended before {text!r}: {self.shown!r}")
        before, _, self.shown = self.shown.partition(text)
        return before

    def ends(self, timeout_s: float = 10.0) -> int:
        return self.process.wait(timeout_s)


@pytest.fixture
def at_terminal(model: ScriptedModelServer) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str, **environ: str) -> Terminal:
        command = [*CALLBOARD, *arguments, "--base-url", model.base_url, "--tools-from", str(TOOLS)]
        environ = {"TERM": "xterm", "LC_ALL": "C.UTF-8"} | environ
        opened.append(Terminal(command, environ))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


def test_a_person_chats_cancels_toggles_and_leaves(at_terminal: Callable[..., Terminal]) -> None:
    chat = at_terminal("chat")
    chat.wait_for("Ctrl-D to leave.")
    chat.wait_for("> ")
    chat.type('call calculate {"expression": "17*23"}\n')
    assert "\x1b[36m▸" in chat.wait_for('{"expression": "17*23"}\x1b[0m')
    chat.wait_for("✓")
    chat.wait_for("done: 391")
    chat.type('call nap {"seconds": 60}\n')
    chat.wait_for('{"seconds": 60}\x1b[0m')
    chat.type("\x03")
    chat.wait_for("cancelled\r\n")
    chat.type('call nap {"seconds": 61}\n')
    chat.wait_for('{"seconds": 61}\x1b[0m')
    chat.type("/disable calculate\n/cancel\n")
    chat.wait_for("calculate is disabled, from the next step on")
    chat.type('call calculate {"expression": "1+1"}\n')
    chat.wait_for("you said:")
    chat.wait_for("> ")
    chat.type("\x04")
    assert chat.ends() == 0


def test_without_colour_and_utf8_it_is_plain_ascii(at_terminal: Callable[..., Terminal]) -> None:
    environ = {"NO_COLOR": "1", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    chat = at_terminal("chat", **environ)
    chat.wait_for("Ctrl-D to leave.")
    chat.type('call calculate {"expression": "17*23"}\n')
    shown = chat.wait_for("done: 391")
    assert "-> 391" in shown
    assert shown.replace("\x1b[?2004h", "").replace("\x1b[?2004l", "").isascii()
    assert "\x1b[3" not in shown
    chat.type("/quit\n")
    assert chat.ends() == 0


def test_a_second_ctrl_c_leaves_a_turn_that_will_not_end(at_terminal: Callable[..., Terminal]) -> None:
    ask = at_terminal("ask", 'call nap {"seconds": 60}')
    ask.wait_for('{"seconds": 60}\x1b[0m')
    ask.type("\x03\x03")
    assert ask.ends() == 130


def test_in_a_pipe_each_line_is_a_turn(model: ScriptedModelServer) -> None:
    done = subprocess.run(
        [*CALLBOARD, "chat", "--base-url", model.base_url],
        input='one\ncall calculate {"expression": "17*23"}\n/tools\n',
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("you said: one\n▸ calculate")
    assert "done: 391\nenabled" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_in_a_pipe_ask_gives_the_answer_alone(model: ScriptedModelServer) -> None:
    done = subprocess.run(
        [*CALLBOARD, "ask", "--base-url", model.base_url],
        input='call calculate {"expression": "17*23"}',
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "done: 391\n")
    assert "calculate" in done.stderr


def test_a_call_that_needs_a_person_asks_at_the_terminal_and_ctrl_c_there_leaves() -> None:
    tools = str(Path(__file__).parent / "called_tools.py")
    command = [*CALLBOARD, "tools", "call", "wipe", '{"path": "x"}', "--tools-from", tools]
    environ = {
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "OPENAI_BASE_URL": "http://127.0.0.1:9",
        "OPENAI_API_KEY": "k",
    }
    with Terminal(command, environ) as asking:
        assert '"path": "x"' in asking.wait_for("[y]es")
        asking.type("y\n")
        assert "approved by a person" in asking.wait_for("wiped x")
        assert asking.ends() == 0
    with Terminal(command, environ) as asking:
        asking.wait_for("[y]es")
        asking.type("\x03")
        assert asking.ends() == 130
