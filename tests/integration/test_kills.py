"""Any process may be killed at any moment: the turn still gets one ending, soon, and the next question works."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import callboard
from callboard.actors.events import Event
from callboard.api import Conversation, System
from callboard.config import Config
from callboard.supervisor.process import is_running as is_alive
from callboard.supervisor.table import ProcessTable, Row
from callboard.testing.chaos.history import History, read_history
from callboard.testing.chaos.nemesis import Fault, Nemesis
from callboard.testing.chaos.stored_log import read_log
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, finished_calls, is_written, texts

ENDS_WITHIN_S = 20.0  # against hanging; how fast it is, the benchmarks say
SERVER = {
    "adverse": {"command": sys.executable, "args": ["-m", "callboard.testing.mcp_server", "--mode", "normal"]}
}


def pid_of(system: System, id: str) -> int:
    """The pid of the actor with this id, or of the first whose id begins with it, once it runs."""

    def found() -> int | None:
        rows = system.tree()
        matching = [row for row in rows if row.id == id] or [row for row in rows if row.id.startswith(id)]
        return matching[0].pid if matching else None

    return eventually(found, 10.0, f"{id} runs")


def ask_and_kill(
    conversation: Conversation, question: str, when: Callable[[Event], bool], strike: Callable[[], None]
) -> tuple[list[Event], float]:
    """Ask, strike at the first event that ``when`` picks, and give all events and the seconds from strike to end."""
    events, struck = [], 0.0
    for event in conversation.ask(question):
        events.append(event)
        if not struck and when(event):
            strike()
            struck = time.monotonic()
    assert struck, "the moment to strike never came"
    return events, time.monotonic() - struck


def started(event: Event) -> bool:
    return event.type == "tool_call_started"


def one_ending(events: list[Event]) -> Event:
    endings = [event for event in events if event.terminal]
    assert len(endings) == 1
    assert events[-1] is endings[0]
    return endings[0]


@pytest.mark.parametrize(
    "victim",
    [
        "directory",
        "catalogue",
        "journal",
        "conversations",
        "conversations.",
        "models",
        "models.m0",
        "models.m1",
        "servers",
        "root",
    ],
)
def test_a_turn_survives_the_death_of(victim: str, start: Callable[..., System], tmp_path: Path) -> None:
    system = start(mcpServers=SERVER)
    conversation = system.conversation()
    file = tmp_path / "notes"
    question = call("note_down", path=str(file), text="once", seconds=1.0)

    def strike() -> None:
        eventually(lambda: is_written(file), what="the call's effect")
        os.kill(pid_of(system, victim), signal.SIGKILL)

    events, took = ask_and_kill(conversation, question, started, strike)
    ending = one_ending(events)
    assert ending.type in ("turn_answered", "turn_failed")
    assert took < ENDS_WITHIN_S
    assert file.read_text().splitlines() == ["once"], "the side effect happened twice, or not at all"
    again = list(conversation.ask(call("say", text="after")))
    assert texts(again) == ["said after"]
    history = conversation.history()
    assert [e.seq for e in history] == list(range(1, len(history) + 1))
    assert len([e for e in history if e.terminal]) == 2


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
@pytest.mark.parametrize("which", ["admin", "logger"])
def test_a_turn_survives_what_befalls_thespians_own(
    which: str, fault: signal.Signals, system: System, tmp_path: Path
) -> None:
    conversation = system.conversation()
    root = psutil.Process(pid_of(system, "root"))
    admin = root.parent()
    assert admin is not None
    logger = next(p for p in admin.children() if p.pid != root.pid)
    victim = admin if which == "admin" else logger
    events, took = ask_and_kill(
        conversation, call("nap", seconds=1.0), started, lambda: os.kill(victim.pid, fault)
    )
    assert one_ending(events).type in ("turn_answered", "turn_failed")
    assert took < ENDS_WITHIN_S
    assert list(conversation.ask("still there?"))[-1].type == "turn_answered"
    if which == "admin":
        eventually(lambda: not is_alive(victim.pid), 10.0, "the admin's former life is over")
        assert list(conversation.ask("and now?"))[-1].type == "turn_answered"


def test_a_killed_client_comes_back_with_its_history_and_repeats_no_side_effect(
    conversation: Conversation, system: System, tmp_path: Path
) -> None:
    list(conversation.ask("remember me"))
    file = tmp_path / "notes"

    def strike() -> None:
        eventually(lambda: is_written(file))
        os.kill(pid_of(system, f"conversations.{conversation.id}"), signal.SIGKILL)

    question = call("note_down", path=str(file), text="once", seconds=30)
    events, took = ask_and_kill(conversation, question, started, strike)
    assert [e.outcome for e in finished_calls(events)] == ["unknown"]
    assert one_ending(events).type == "turn_answered"
    assert took < ENDS_WITHIN_S
    assert file.read_text().splitlines() == ["once"]
    asked = [e.text for e in conversation.history() if e.type == "turn_started"]  # type: ignore[attr-defined]
    assert asked == ["remember me", question]


def test_an_idempotent_call_is_run_again_after_its_client_was_killed(
    conversation: Conversation, system: System, tmp_path: Path
) -> None:
    file = tmp_path / "notes"

    def strike() -> None:
        eventually(lambda: is_written(file))
        os.kill(pid_of(system, f"conversations.{conversation.id}"), signal.SIGKILL)

    question = call("note_again", path=str(file), text="again", seconds=1.0)
    events, _ = ask_and_kill(conversation, question, started, strike)
    assert [e.outcome for e in finished_calls(events)] == ["ok"]
    assert file.read_text().splitlines() == ["again", "again"]


def test_a_turn_that_kills_its_client_every_time_fails_as_poison(
    conversation: Conversation, system: System, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    killed: set[int] = set()
    events = []
    for event in conversation.ask(call("note_again", path=str(file), text="again", seconds=2.0)):
        events.append(event)
        if event.type in ("tool_call_started", "turn_resumed"):
            pid = pid_of(system, f"conversations.{conversation.id}")
            if pid not in killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
    ending = one_ending(events)
    assert ending.type == "turn_failed"
    assert ending.reason == "poison"  # type: ignore[attr-defined]
    assert list(conversation.ask("still there?"))[-1].type == "turn_answered"


def test_a_killed_worker_is_one_error_result(conversation: Conversation, tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def strike() -> None:
        eventually(lambda: is_written(file))
        os.kill(int(file.read_text()), signal.SIGKILL)

    question = "\n".join([call("pause", path=str(file)), call("say", text="fine")])
    events, took = ask_and_kill(conversation, question, started, strike)
    assert {e.tool: e.outcome for e in finished_calls(events)} == {"pause": "killed", "say": "ok"}
    assert "SIGKILL" in " ".join(texts(events))
    assert one_ending(events).type == "turn_answered"
    assert took < 2.0


@pytest.mark.parametrize("victim", ["process", "actor"])
def test_a_killed_server_fails_its_call_and_comes_back(
    victim: str, start: Callable[..., System], tmp_path: Path
) -> None:
    system = start(mcpServers=SERVER)
    conversation = system.conversation()
    assert texts(list(conversation.ask(call("adverse__echo", text="hi")))) == ["hi"]

    file = tmp_path / "note"

    def strike() -> None:
        eventually(lambda: is_written(file), what="the server reads its calls")
        server = system.servers()[0]
        assert server.pid is not None
        os.kill(server.pid if victim == "process" else pid_of(system, "servers.adverse"), signal.SIGKILL)

    sleep, note = call("adverse__sleep", seconds=30), call("adverse__write_file", path=str(file), text="x")
    events, took = ask_and_kill(conversation, f"{sleep}\n{note}", started, strike)
    outcomes = {e.tool: e.outcome for e in finished_calls(events)}
    assert outcomes["adverse__sleep"] == "unknown"
    assert one_ending(events).type == "turn_answered"
    assert took < 2.0
    assert texts(list(conversation.ask(call("adverse__echo", text="back")))) == ["back"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_model_actor_killed_in_mid_stream_is_replaced_and_the_text_starts_anew(
    number: int, configured: Callable[..., Config]
) -> None:
    with ScriptedModelServer(gap_s=0.1, chunk_chars=2) as model:
        config = configured().with_flags(base_url=model.base_url)
        with callboard.connect(config=config, private=True) as system:
            conversation = system.conversation()

            def strike() -> None:
                os.kill(pid_of(system, f"models.m{number}"), signal.SIGKILL)

            events, took = ask_and_kill(
                conversation, "tell me something longer", lambda e: e.type == "text_delta", strike
            )
    ending = one_ending(events)
    assert ending.text == "you said: tell me something longer"  # type: ignore[attr-defined]
    types = [e.type for e in events]
    streamed = ""
    for event in events:
        if event.type == "text_discarded":
            streamed = ""
        elif event.type == "text_delta":
            streamed += event.text  # type: ignore[attr-defined]
    assert streamed == ending.text  # type: ignore[attr-defined]
    assert types.count("text_discarded") <= 1
    assert took < ENDS_WITHIN_S


def test_a_grandchild_in_a_session_of_its_own_does_not_outlive_its_tool(
    conversation: Conversation, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    assert texts(list(conversation.ask(call("breed", path=str(file))))) == ["bred"]
    pid = int(file.read_text())
    eventually(lambda: not is_alive(pid), 5.0, "the grandchild is gone")


def test_a_linked_conversation_ends_with_its_owner(system: System, tmp_path: Path) -> None:
    import subprocess
    import textwrap

    script = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        from callboard.api import System
        from callboard.daemon import SystemInfo, read_info
        folder = Path(sys.argv[1])
        conversation = System(folder, read_info(folder), None).conversation(conversation_id="linked")
        for event in conversation.ask('call nap {"seconds": 60}'):
            if event.type == "tool_call_started":
                os.kill(os.getpid(), 9)
        """
    )
    folder = system.status().runtime_dir
    ended = subprocess.run([sys.executable, "-c", script, folder], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL

    def closed() -> bool:
        return not [row for row in system.tree() if row.id.startswith("conversations.linked")]

    eventually(closed, 10.0, "the linked conversation is gone")
    with read_log(Path(folder) / "state") as journal:
        assert "owner_gone" in str(list(journal.export()))


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSEGV])
def test_the_whole_system_ends_when_its_outermost_process_is_killed(
    fault: signal.Signals, configured: Callable[..., Config]
) -> None:
    system = callboard.connect(config=configured(mcpServers=SERVER), private=True)
    pids = [row.pid for row in system.tree() if row.pid is not None]
    outermost = system.status().pid
    os.kill(outermost, fault)
    eventually(lambda: not any(is_alive(p) for p in pids), 5.0)
    system.close()


@pytest.mark.parametrize("victim", ["conversations.", "journal", "conversations"])
def test_a_stopped_process_is_found_and_replaced_in_mid_turn(
    victim: str, start: Callable[..., System], tmp_path: Path
) -> None:
    """SIGSTOP: the process lives and answers nothing. It never wakes again: its replacement is the only owner."""
    system = start()
    conversation = system.conversation()
    file = tmp_path / "notes"
    stopped: list[int] = []

    def strike() -> None:
        eventually(lambda: is_written(file))
        stopped.append(pid_of(system, victim))
        os.kill(stopped[0], signal.SIGSTOP)

    question = call("note_down", path=str(file), text="once", seconds=1.0)
    events, took = ask_and_kill(conversation, question, started, strike)
    assert one_ending(events).type == "turn_answered"
    assert took < 30.0
    assert file.read_text().splitlines() == ["once"]
    eventually(lambda: not is_alive(stopped[0]), 25.0, "the stopped process is ended")
    assert texts(list(conversation.ask(call("say", text="after")))) == ["said after"]


@pytest.mark.parametrize("how", ["segfault", "raise", "exit"])
def test_every_kind_of_actor_may_fail_in_its_own_way(
    how: str, start: Callable[..., System], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fault signal, an exception in a handler, ``sys.exit`` in a handler: for each kind, with a turn under way."""
    monkeypatch.setenv("CHAOS", "1")
    system = start(mcpServers=SERVER)
    folder = Path(system.status().runtime_dir)
    history = History(tmp_path / "history.jsonl")
    nemesis = Nemesis(folder, history, seed=1)
    fault: Fault = "sigsegv" if how == "segfault" else ("raise" if how == "raise" else "exit")
    conversation = system.conversation()
    for victim in (
        "directory",
        "catalogue",
        "journal",
        "models.m0",
        "models.m1",
        "servers.adverse",
        "servers",
        f"conversations.{conversation.id}",
        "conversations",
        "models",
        "root",
    ):

        def strike(victim: str = victim) -> None:
            row = eventually(lambda: next((r for r in rows_of(folder) if r.id == victim), None), 5.0, victim)
            nemesis.harm(row, fault)

        events, took = ask_and_kill(conversation, call("nap", seconds=0.3), started, strike)
        assert one_ending(events).type in ("turn_answered", "turn_failed"), victim
        assert took < ENDS_WITHIN_S, victim
        *_, after = conversation.ask("still there?")
        assert after.type == "turn_answered", victim
    history.close()
    assert len([e for e in read_history(history.path) if e.kind == "fault"]) == 11


def rows_of(folder: Path) -> list[Row]:
    return [row for row in ProcessTable(folder).rows() if row.state == "running"]
