"""Conversations outlive what carries them: readers, clients, the directory, the daemon. Over real processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import callboard
from callboard.actors.events import Event
from callboard.actors.messages import DecideCall, Follow, GetHistory, ToConversation
from callboard.api import Conversation, System
from callboard.api_async import AsyncConversation
from callboard.config import Config
from callboard.config_tables import StorageConfig
from callboard.errors import ConversationNotFound, Refused, Unavailable
from callboard.supervisor.envelope import Principal
from callboard.testing.chaos import gate
from callboard.testing.chaos.daemon import ChaosDaemon
from callboard.testing.chaos.gatekeeper import Gatekeeper, Trap
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, is_written

BRIEF = {"limits": {"idle_after_s": 0.3}}


def rows(system: System) -> list[str]:
    """The ids of the clients that the process table shows."""
    return [row.id for row in system.tree() if row.id.startswith("conversations.") and row.kind == "client"]


def logged(events: list[Event]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]


class Reader(threading.Thread):
    """Follows a conversation from its beginning, in a thread, until it is closed."""

    def __init__(self, conversation: Conversation, **options: object) -> None:
        super().__init__(daemon=True)
        self.conversation = conversation
        self.options = options
        self.events: list[Event] = []
        self.fault: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for event in self.conversation.events(**self.options):  # type: ignore[arg-type]
                self.events.append(event)
        except Exception as fault:
            self.fault = fault

    def finish(self, within_s: float = 20.0) -> list[Event]:
        """Wait for its end, and give what it read."""
        self.join(within_s)
        assert not self.is_alive(), f"it still reads, and has {[e.type for e in self.events]}"
        if self.fault is not None:
            raise self.fault
        return self.events


class Asker(threading.Thread):
    """Asks in a thread."""

    def __init__(self, conversation: Conversation, text: str, request_id: str | None = None) -> None:
        super().__init__(daemon=True)
        self.conversation, self.text, self.request_id = conversation, text, request_id
        self.events: list[Event] = []
        self.fault: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for event in self.conversation.ask(self.text, request_id=self.request_id):
                self.events.append(event)
        except Exception as fault:
            self.fault = fault


# ------------------------------------------------------------------ readers
def test_a_follower_reads_the_whole_conversation_with_live_text_between(conversation: Conversation) -> None:
    first = list(conversation.ask("one"))
    reader = Reader(conversation)
    late = Reader(conversation, after=first[-1].seq)
    list(conversation.ask(call("say", text="two")))
    conversation.close()
    events = reader.finish()
    assert logged(events) == list(range(1, len(logged(events)) + 1))
    assert [e for e in events if e.seq] == conversation.history()
    assert "text_delta" in [event.type for event in events]
    assert events[-1].type == "conversation_closed"
    assert logged(late.finish()) == [n for n in logged(events) if n > (first[-1].seq or 0)]


def test_following_ends_where_it_is_told_to(conversation: Conversation) -> None:
    list(conversation.ask("one"))
    assert logged(list(conversation.events(until_idle=True))) == logged(conversation.history())
    began = time.monotonic()
    assert len(list(conversation.events(after=2, timeout_s=0.5))) == len(conversation.history()) - 2
    assert 0.5 <= time.monotonic() - began < 5.0
    assert [e.seq for e in itertools.islice(conversation.events(), 2)] == [1, 2]


def test_following_from_asyncio_is_the_same(conversation: Conversation) -> None:
    list(conversation.ask("one"))

    async def read() -> list[Event]:
        followed = AsyncConversation(conversation)
        async for event in followed.events():
            assert event.seq == 1
            break
        return [event async for event in followed.events(until_idle=True)]

    assert logged(asyncio.run(read())) == logged(conversation.history())


def test_a_follower_that_sleeps_costs_the_turn_nothing_and_misses_nothing(conversation: Conversation) -> None:
    followed = conversation.events()
    assert next(followed).seq == 1
    for n in range(3):
        list(conversation.ask("\n".join(call("say", text=str(m)) for m in range(12 + n))))
    conversation.close()
    rest = list(followed)
    assert logged(rest) == list(range(2, len(conversation.history()) + 1))


def test_a_follower_survives_the_death_of_any_process_on_the_way(system: System, tmp_path: Path) -> None:
    for victim in ("conversations.", "directory", "conversations", "journal"):
        conversation = system.conversation()
        reader = Reader(conversation)
        late = Reader(conversation, after=1)
        file = tmp_path / f"notes {victim}"
        asked = Asker(
            conversation, call("note_down", path=str(file), text="once", seconds=0.5) + "\nand then"
        )
        eventually(lambda file=file: is_written(file))  # type: ignore[misc]
        name = f"{victim}{conversation.id}" if victim.endswith(".") else victim
        pid = next(row.pid for row in system.tree() if row.id == name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        asked.join(20)
        assert asked.fault is None, victim
        conversation.close()
        events = reader.finish()
        assert logged(events) == list(range(1, len(conversation.history()) + 1)), victim
        assert logged(late.finish()) == logged(events)[1:]
        assert len([e for e in events if e.terminal]) == 1


# ------------------------------------------------------------------ leaving and coming back
def test_an_idle_client_leaves_and_comes_back_with_everything(start: Callable[..., System]) -> None:
    system = start(**BRIEF)
    conversation = system.conversation()
    list(conversation.ask("before"))
    conversation.disable("say")
    eventually(lambda: not rows(system), 10.0, "the idle client leaves")
    assert system.status().conversations == 0
    began = time.monotonic()
    states = {tool.name: tool.state for tool in conversation.tools()}
    assert time.monotonic() - began < 2.0
    assert states["say"] == "available"
    *_, last = conversation.ask("after")
    assert last.type == "turn_answered"
    assert [e.type for e in conversation.history()].count("turn_answered") == 2
    assert not [row for row in system.tree() if row.restarts]


def test_a_follower_neither_keeps_a_client_nor_misses_what_comes_later(start: Callable[..., System]) -> None:
    system = start(**BRIEF)
    conversation = system.conversation()
    reader = Reader(conversation)
    list(conversation.ask("one"))
    eventually(lambda: not rows(system), 15.0, "the client leaves although it is followed")
    time.sleep(1.5)  # the follower's sign of life does not wake it
    assert not rows(system)
    list(conversation.ask("two"))
    eventually(lambda: len([e for e in reader.events if e.terminal]) == 2, 10.0)
    conversation.close()
    assert logged(reader.finish()) == list(range(1, len(conversation.history()) + 1))


def test_messages_at_every_moment_of_leaving_are_taken_once(start: Callable[..., System]) -> None:
    system = start(limits={"idle_after_s": 0.02})
    conversation = system.conversation(linked=False)
    reader = Reader(conversation)
    for n in range(12):
        time.sleep(0.008 * n)
        *_, last = conversation.ask(f"message {n}")
        assert last.text == f"you said: message {n}"  # type: ignore[attr-defined]
    started = [e.text for e in conversation.history() if e.type == "turn_started"]  # type: ignore[attr-defined]
    assert started == [f"message {n}" for n in range(12)]
    conversation.close()
    assert logged(reader.finish()) == list(range(1, len(conversation.history()) + 1))


def test_the_system_forgets_conversations_that_have_left(start: Callable[..., System]) -> None:
    count = int(os.environ.get("CALLBOARD_TEST_CONVERSATIONS", "60"))
    system = start(limits={"idle_after_s": 0.05})
    opened = itertools.count()

    def open_some() -> None:
        while (n := next(opened)) < count:
            system.conversation(conversation_id=f"c{n}", linked=False)

    threads = [threading.Thread(target=open_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 + count)
    eventually(lambda: not rows(system), 30.0, "all of them leave")
    assert system.status().conversations == 0
    assert len(system.conversations(limit=count + 1)) == count


def test_an_owner_that_goes_while_its_conversation_rests_is_noticed_when_it_is_opened(
    start: Callable[..., System],
) -> None:
    system = start(limits={"idle_after_s": 0.05})
    script = """
        import sys
        from pathlib import Path
        from callboard.api import System
        from callboard.daemon import read_info
        folder = Path(sys.argv[1])
        System(folder, read_info(folder), None).conversation(conversation_id="linked")
        sys.stdin.readline()
        """
    command = [sys.executable, "-c", textwrap.dedent(script), system.status().runtime_dir]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE)
    eventually(lambda: system.conversations(), 20.0, "the conversation is opened")
    eventually(lambda: not rows(system), 20.0, "it rests")
    assert owner.stdin is not None
    owner.stdin.close()
    owner.wait(10)
    conversation = Conversation(system, "linked", Principal())
    eventually(lambda: conversation.history()[-1].type == "conversation_closed", 10.0)
    assert conversation.history()[-1].reason == "owner_gone"  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="closed"):
        list(conversation.ask("anyone?"))


def test_a_turn_that_waits_for_a_person_is_left_alone_and_goes_on_when_the_person_comes(
    start: Callable[..., System], tmp_path: Path
) -> None:
    system = start(**BRIEF, approval={"always": ["note_down"]})
    conversation = system.conversation(user="ann", linked=False)
    file = tmp_path / "notes"
    for event in conversation.ask(call("note_down", path=str(file), text="approved")):
        if event.type == "turn_suspended":
            break
    eventually(lambda: not rows(system), 20.0, "its client leaves when nobody waits for it any more")
    assert [c.state for c in system.conversations()] == ["suspended"]
    assert not file.exists()
    [requested] = [e for e in system.history(conversation.id) if e.type == "approval_requested"]
    conversation.approve(requested.call_id)  # type: ignore[attr-defined]
    endings = (e for e in conversation.events() if e.terminal)
    assert next(endings).type == "turn_answered"
    assert file.read_text().splitlines() == ["approved"]


# ------------------------------------------------------------------ cancelling and queueing
def test_cancel_ends_a_turn_whose_model_is_silent_and_those_that_wait(
    configured: Callable[..., Config],
) -> None:
    with ScriptedModelServer(gap_s=30.0, chunk_chars=1) as model:
        config = configured().with_flags(base_url=model.base_url)
        with callboard.connect(config=config, private=True) as system:
            conversation = system.conversation()
            reader = Reader(conversation)
            waiting = [Asker(conversation, f"m{n}") for n in range(18)]
            eventually(lambda: "turn_started" in [e.type for e in reader.events], 10.0)
            eventually(lambda: any(isinstance(a.fault, Unavailable) for a in waiting), 10.0)
            time.sleep(0.3)
            began = time.monotonic()
            conversation.cancel()
            eventually(lambda: "turn_cancelled" in [e.type for e in reader.events], 5.0)
            assert time.monotonic() - began < 1.5
            for asker in waiting:
                asker.join(10)
            conversation.close()
            reader.finish()
    faults = [asker.fault for asker in waiting if asker.fault is not None]
    assert len([f for f in faults if isinstance(f, Unavailable)]) == 1, "16 wait, one is under way"
    assert len([f for f in faults if isinstance(f, Refused)]) == 16
    assert [e.type for e in reader.events if e.terminal] == ["turn_cancelled"]


# ------------------------------------------------------------------ whose it is
def test_another_team_neither_sees_nor_disturbs(system: System) -> None:
    mine = system.conversation(user="ann", team="red", conversation_id="same")
    asked = Asker(mine, call("nap", seconds=0.5))
    theirs = Principal(user="ann", team="blue")
    for _ in range(20):
        with pytest.raises(ConversationNotFound):
            Conversation(system, "same", theirs).cancel()
    with pytest.raises(ConversationNotFound):
        next(Conversation(system, "same", theirs).events())
    with pytest.raises(ConversationNotFound):
        system.history("same", team="blue")
    with pytest.raises(ConversationNotFound):
        system.delete_conversation("same", team="blue")
    with pytest.raises(ConversationNotFound):
        system.delete_conversation("same", team="red", user="bob")
    assert system.conversations(team="blue") == []
    asked.join(20)
    assert asked.events[-1].type == "turn_answered"
    own = system.conversation(user="ann", team="blue", conversation_id="same")
    list(own.ask("a conversation of their own"))
    assert len(mine.history()) != len(own.history())
    assert rows(system) == ["conversations.same@blue", "conversations.same@red"]


# ------------------------------------------------------------------ without waking anyone
def test_lists_and_histories_wake_nobody(start: Callable[..., System]) -> None:
    system = start(**BRIEF)
    for user, text in (("ann", "about the moon"), ("bob", "about the sun")):
        list(system.conversation(user=user, team="red", conversation_id=user).ask(text))
    eventually(lambda: not rows(system), 10.0)
    listed = system.conversations(team="red")
    assert [(c.conversation_id, c.title, c.turns, c.state) for c in listed] == [
        ("bob", "about the sun", 1, "open"),
        ("ann", "about the moon", 1, "open"),
    ]
    assert [c.conversation_id for c in system.conversations(team="red", user="ann")] == ["ann"]
    page = system.conversations(team="red", limit=1)
    assert [c.conversation_id for c in system.conversations(team="red", before=page[0].cursor)] == ["ann"]
    history = system.history("ann", team="red", user="ann")
    assert logged(history) == list(range(1, len(history) + 1))
    assert logged(system.history("ann", team="red", after=2)) == logged(history)[2:]
    with pytest.raises(ConversationNotFound):
        system.history("ann", team="red", user="bob")
    assert not rows(system)


def test_a_deleted_conversation_is_gone_whatever_it_was_doing(system: System, tmp_path: Path) -> None:
    conversation = system.conversation(user="ann", team="red", conversation_id="c")
    file = tmp_path / "pid"
    asked = Asker(conversation, call("pause", path=str(file)))
    eventually(lambda: is_written(file))
    system.delete_conversation("c", team="red", user="ann")
    pid = int(file.read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the tool's process is gone")
    asked.join(20)
    assert isinstance(asked.fault, ConversationNotFound)
    with pytest.raises(ConversationNotFound):
        conversation.history()
    with pytest.raises(ConversationNotFound):
        system.delete_conversation("c", team="red")
    assert system.conversations(team="red") == []
    again = system.conversation(user="ann", team="red", conversation_id="c")
    assert [e.type for e in again.history()] == ["conversation_opened"]


def test_a_log_from_elsewhere_becomes_a_conversation_here(
    system: System, conversation: Conversation, model: ScriptedModelServer
) -> None:
    list(conversation.ask(call("say", text="kept")))
    events = conversation.history()[:-1]
    name = system.import_conversation(events, team="blue", user="bob")
    imported = system.history(name, team="blue")
    assert imported[-1].type == "history_repaired"
    assert [e.type for e in imported if e.terminal] == ["turn_failed"]
    *_, last = system.conversation(user="bob", team="blue", conversation_id=name).ask("go on")
    assert last.type == "turn_answered"
    assert "said kept" in [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"]
    with pytest.raises(Refused):
        system.import_conversation(events, team="blue", user="bob", conversation_id=name)


# ------------------------------------------------------------------ the daemon as a whole
@contextmanager
def named(config: Config, tmp_path: Path, wrapper: str = "", **environ: str) -> Iterator[ChaosDaemon]:
    """A named daemon whose state is kept."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    config = config.model_copy(update={"storage": StorageConfig(path=state)})
    daemon = ChaosDaemon(config, f"c-{uuid.uuid4().hex[:8]}", wrapper, environ)
    try:
        yield daemon
    finally:
        daemon.end()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_readers_and_askers_ride_over_a_restart_of_a_named_daemon(
    how: signal.Signals, configured: Callable[..., Config], tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    with named(configured(), tmp_path) as daemon, daemon.start() as system:
        conversation = system.conversation(conversation_id="c", linked=False)
        reader = Reader(conversation)
        question = call("note_down", path=str(file), text="once", seconds=1.0)
        asked = Asker(conversation, question)
        eventually(lambda: is_written(file))
        if how is signal.SIGKILL:
            daemon.end()
        else:
            daemon.stop()
        with daemon.start():
            asked.join(30)
            assert asked.fault is None
            assert [e.type for e in asked.events if e.terminal] == ["turn_answered"]
            *_, last = conversation.ask("still there?")
            assert last.type == "turn_answered"
            conversation.close()
            events = reader.finish()
            assert logged(events) == list(range(1, len(conversation.history()) + 1))
    assert file.read_text().splitlines() == ["once"]


def test_a_resent_request_joins_the_turn_that_was_accepted_and_not_acknowledged(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    """The daemon is killed between the acceptance on disk and its acknowledgement."""
    file = tmp_path / "notes"
    with (
        Gatekeeper() as keeper,
        named(configured(), tmp_path, f"{gate.__name__}:gated", **{gate.GATE: str(keeper.path)}) as daemon,
        daemon.start() as system,
    ):
        conversation = system.conversation(conversation_id="c", linked=False)
        trap = Trap(conversation="c", seq=2, side="after", strike=daemon.end)
        keeper.set(trap)
        question = call("note_down", path=str(file), text="once")
        asked = Asker(conversation, question, request_id="turn-1")
        assert trap.sprung.wait(20)
        with daemon.start() as again:
            asked.join(30)
            assert asked.fault is None
            resent = list(
                again.conversation(conversation_id="c", linked=False).ask(question, request_id="turn-1")
            )
            assert logged(resent) == logged(asked.events)
            types = [e.type for e in conversation.history()]
    assert types.count("turn_started") == 1
    assert [e.type for e in resent if e.terminal] == ["turn_answered"]
    assert file.read_text().splitlines() == ["once"]


def test_a_daemon_that_does_not_come_back_is_said_to_have_ended(
    configured: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.conversation._SILENT_S", 1.0)
    with named(configured(), tmp_path) as daemon, daemon.start() as system:
        conversation = system.conversation(conversation_id="c", linked=False)
        daemon.stop()
        with pytest.raises(Unavailable, match="has ended"):
            list(conversation.ask("anyone?"))


def test_no_value_in_a_command_crashes_the_conversation(system: System) -> None:
    conversation = system.conversation(user="ann", team="red")
    list(conversation.ask("hello"))
    pids = {row.id: row.pid for row in system.tree()}
    for command in (
        Follow(after=1.5),  # type: ignore[arg-type]
        GetHistory(after="x"),  # type: ignore[arg-type]
        DecideCall(call_id="c", approved=False, reason=5),  # type: ignore[arg-type]
    ):
        body = ToConversation(conversation_id=conversation.id, command=command)
        with pytest.raises(Refused, match="must be"):
            system._request(body, principal=conversation.principal)
    with pytest.raises(Refused, match="reason must be a text"):
        conversation.deny("c", None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="after must be 0"):
        next(conversation.events(after=1.5))  # type: ignore[arg-type]
    assert {row.id: row.pid for row in system.tree()} == pids
