"""The chat's loop, on a conversation that does as it is told."""

from __future__ import annotations

import io
import os
import pty
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.events import (
    ApprovalRequested,
    Event,
    TextDelta,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnStarted,
)
from callboard.errors import Refused, ToolNotFound, Unavailable
from callboard.gateway.terminal.chat import Chat
from callboard.gateway.terminal.interrupts import CancelOnInterrupt
from callboard.gateway.terminal.lines import PipedLines, PromptedLines
from callboard.gateway.terminal.look import Look
from callboard.views import ActorInfo, ServerInfo, ToolListing

WAITING = ApprovalRequested(
    seq=1,
    turn_id="t",
    call_id="c",
    tool="del\x1b[2Jete",
    arguments={"path": "/x"},
    reason="it is destructive",
)


class FakeSystem:
    def servers(self) -> list[ServerInfo]:
        return [ServerInfo(name="time", state="ready")]

    def tree(self) -> list[ActorInfo]:
        raise Unavailable("the system did not answer")


class FakeConversation:
    """Does what the question says: "fail", "break", "interrupt" (once, or twice); else it echoes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.toggled: list[tuple[str, bool]] = []
        self.cancelled = threading.Event()
        self.waiting: dict[str, ApprovalRequested] = {}
        self.left_behind: list[Event] = []
        self.decided: list[tuple[str, bool, Any, bool]] = []

    def ask(
        self,
        text: str,
        *,
        request_id: str | None = None,
        deadline_s: float | None = None,
        tool_deadline_s: float | None = None,
    ) -> Iterator[Event]:
        self.asked.append(text)
        yield TurnStarted(turn_id="t", text=text)
        yield TextDelta(turn_id="t", text=text)
        match text:
            case "fail":
                yield TurnFailed(turn_id="t", reason="model_rejected", message="wrong key")
            case "delete":
                self.waiting["c"] = WAITING
                yield WAITING
                yield TurnCancelled(turn_id="t") if self.waiting else TurnAnswered(turn_id="t", text="done")
            case "break":
                raise Unavailable("the daemon is gone")
            case "interrupt" | "interrupt twice":
                os.kill(os.getpid(), signal.SIGINT)
                assert self.cancelled.wait(5)
                if text == "interrupt twice":
                    os.kill(os.getpid(), signal.SIGINT)
                yield TurnCancelled(turn_id="t")
            case _:
                yield TurnAnswered(turn_id="t", text=text)

    def cancel(self) -> None:
        self.cancelled.set()

    def events(
        self, after: int = 0, *, until_idle: bool = False, timeout_s: float | None = None
    ) -> Iterator[Event]:
        yield from self.left_behind[after:]

    def pending(self) -> tuple[ApprovalRequested, ...]:
        return tuple(self.waiting.values())

    def approve(
        self,
        call_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        for_conversation: bool = False,
        reason: str = "",
    ) -> None:
        if arguments == {"bad": True}:
            raise Refused("the arguments do not fit")
        if arguments == {"late": True}:
            late = Refused("it is too late")
            late.kind = "expired"
            raise late
        del self.waiting[call_id]
        self.decided.append((call_id, True, arguments, for_conversation))

    def deny(self, call_id: str, reason: str = "") -> None:
        del self.waiting[call_id]
        self.decided.append((call_id, False, reason, False))

    def enable(self, name: str, /) -> None:
        self.toggled.append((name, True))

    def disable(self, name: str, /) -> None:
        if name == "stubborn":
            raise ToolNotFound("it went away")
        self.toggled.append((name, False))

    def tools(self) -> list[ToolListing]:
        return [ToolListing(name="calculate", state="enabled"), ToolListing(name="stubborn", state="enabled")]

    def history(self) -> list[Event]:
        return [TurnStarted(turn_id="t", text="before")]


class Prompt:
    """A person who types these lines; a KeyboardInterrupt among them is Ctrl-C."""

    interactive = True

    def __init__(self, *lines: str | type[KeyboardInterrupt]) -> None:
        self._lines = iter(lines)
        self.questions: list[tuple[str, str]] = []

    def read(self) -> str | None:
        line = next(self._lines, None)
        if isinstance(line, type):
            raise line
        return line

    def answer(self, question: str, text: str = "") -> str | None:
        self.questions.append((question, text))
        return self.read()

    @contextmanager
    def listening(self, cancel: Callable[[], None]) -> Iterator[None]:
        yield


def chat(
    lines: Prompt | str, approve: tuple[str, ...] = (), conversation: FakeConversation | None = None
) -> tuple[int, str, FakeConversation]:
    conversation, out = conversation or FakeConversation(), io.StringIO()
    source = PipedLines(io.StringIO(lines)) if isinstance(lines, str) else lines
    code = Chat(FakeSystem(), conversation, source, out=out, look=Look(), approve=approve).run()
    return code, out.getvalue(), conversation


def test_each_piped_line_is_a_turn() -> None:
    code, out, conversation = chat("one\n\ntwo")
    assert (code, out, conversation.asked) == (0, "one\ntwo\n", ["one", "two"])


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("", 0),
        ("fail\n", 1),
        ("fail\nok\n", 0),
        ("break\n", 3),
        ("ok\nfail\n/help\n", 1),
        ("fail\n/quit\nok", 1),
    ],
)
def test_a_pipe_ends_with_its_last_turns_code(lines: str, code: int) -> None:
    assert chat(lines)[0] == code


def test_a_person_ends_with_0_whatever_failed() -> None:
    code, out, _ = chat(Prompt("fail", "break", "/quit", "never"))
    assert code == 0
    assert "✗ the turn failed (model_rejected): wrong key" in out
    assert "✗ the daemon is gone" in out
    assert "never" not in out


def test_ctrl_c_at_the_prompt_leaves() -> None:
    code, _, conversation = chat(Prompt("hi", KeyboardInterrupt, "never"))
    assert (code, conversation.asked) == (0, ["hi"])


def test_ctrl_c_during_a_turn_cancels_it_and_the_chat_goes_on() -> None:
    before = signal.getsignal(signal.SIGINT)
    code, out, conversation = chat("interrupt\nagain\n")
    assert (code, conversation.asked) == (0, ["interrupt", "again"])
    assert "interrupt\n✗ cancelled" in out
    assert signal.getsignal(signal.SIGINT) is before
    assert chat("interrupt\n")[0] == 4


def test_a_second_ctrl_c_leaves_at_once() -> None:
    code, _, conversation = chat("interrupt twice\nnever\n")
    assert (code, conversation.asked) == (130, ["interrupt twice"])


def test_the_commands_do_what_they_say() -> None:
    _, out, conversation = chat(
        "/tools\n/enable calculate\n/disable calculate\n/disable stubborn\n/enable calculat\n"
        "/servers\n/tree\n/history\n/cancel\n/help\n/hlp\n"
    )
    assert conversation.toggled == [("calculate", True), ("calculate", False)]
    assert conversation.asked == []
    for expected in (
        "enabled  calculate",
        "calculate is enabled, from the next step on",
        "calculate is disabled, from the next step on",
        "✗ it went away",
        "there is no tool 'calculat'; did you mean calculate?",
        "ready  time",
        "✗ the system did not answer",
        "> before",
        "no turn is running",
        "/quit",
        "/hlp is not a command; did you mean /help?",
    ):
        assert expected in out


def test_interrupts_outside_the_main_thread_are_left_alone() -> None:
    seen: list[object] = []

    def enter() -> None:
        before = signal.getsignal(signal.SIGINT)
        with CancelOnInterrupt(lambda: None):
            seen.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(5)
    assert seen == [True]


def test_cancel_typed_during_a_turn_is_heard_and_other_lines_wait(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keyboard, terminal = pty.openpty()
    try:
        lines = PromptedLines(tmp_path / "state" / "chat_history", terminal)
        cancelled = threading.Event()
        with lines.listening(cancelled.set):
            os.write(keyboard, b"next question\n/cancel\n")
            assert cancelled.wait(5)
        assert lines.read() == "next question"
        assert "> next question" in capfd.readouterr().out
        lines.close()
        assert (tmp_path / "state" / "chat_history").stat().st_mode & 0o077 == 0
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.parametrize(
    ("typed", "decided"),
    [
        (["y"], ("c", True, None, False)),
        (["Always"], ("c", True, None, True)),
        (["what?", "yes"], ("c", True, None, False)),
        (["n", "not today"], ("c", False, "not today", False)),
        (["e", '{"path": "/y"}'], ("c", True, {"path": "/y"}, False)),
        (["e", "{", "e", "[]", "y"], ("c", True, None, False)),
        (["e", '{"bad": true}', "y"], ("c", True, None, False)),
        (["e", '{"bad": true}'] * 3, ("c", False, "no approval that was given could be used", False)),
        ([], ("c", False, "the person left without an answer", False)),
    ],
)
def test_a_person_decides_on_a_call_that_waits(
    typed: list[str], decided: tuple[str, bool, Any, bool]
) -> None:
    prompt = Prompt("delete", *typed)
    _, out, conversation = chat(prompt)
    assert conversation.decided == [decided]
    assert "delete waits for your approval: it is destructive" in out
    assert '"path": "/x"' in out
    assert "\x1b" not in out
    assert all(text == '{"path": "/x"}' for question, text in prompt.questions if "JSON" in question)


def test_a_person_who_decides_too_late_is_told_and_not_asked_again() -> None:
    _, out, conversation = chat(Prompt("delete", "e", '{"late": true}'))
    assert conversation.decided == []
    assert "it is too late" in out
    assert out.count("waits for your approval") == 1


def test_ctrl_c_at_the_question_cancels_the_turn() -> None:
    code, _, conversation = chat(Prompt("delete", KeyboardInterrupt))
    assert conversation.cancelled.is_set()
    assert conversation.decided == []
    assert code == 0


@pytest.mark.parametrize(
    ("approve", "is_approved"), [((), False), (("all",), True), (("del*",), True), (("other",), False)]
)
def test_in_a_pipe_the_list_decides(approve: tuple[str, ...], is_approved: bool) -> None:
    code, _, conversation = chat("delete\n", approve)
    assert [decided[1] for decided in conversation.decided] == [is_approved]
    assert is_approved or "--approve" in conversation.decided[0][2]
    assert code == 0


def test_a_turn_that_waited_before_the_chat_is_taken_up_first() -> None:
    conversation = FakeConversation()
    conversation.waiting["c"] = WAITING
    conversation.left_behind = [WAITING, TurnAnswered(seq=2, turn_id="t", text="it is gone")]
    _, out, _ = chat(Prompt("y"), conversation=conversation)
    assert conversation.decided == [("c", True, None, False)]
    assert "it is gone" in out
