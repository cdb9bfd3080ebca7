"""One turn, end to end, over real processes and real HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import callboard
from callboard.actors.events import TurnAnswered
from callboard.api import Conversation, System
from callboard.config import Config
from callboard.errors import ConversationNotFound, Refused, ToolNotFound
from callboard.supervisor.envelope import Principal
from callboard.testing.model_script import Call, RecordedRequest, Reply
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import call, eventually, finished_calls, is_written, texts


def test_an_answer_streams_between_its_start_and_its_end(conversation: Conversation) -> None:
    events = list(conversation.ask("good morning"))
    types = [event.type for event in events]
    assert types[0] == "turn_started"
    assert "text_delta" in types
    assert types[-1] == "turn_answered"
    streamed = "".join(e.text for e in events if e.type == "text_delta")  # type: ignore[attr-defined]
    assert streamed == events[-1].text == "you said: good morning"  # type: ignore[attr-defined]
    numbers = [e.seq for e in events if e.seq is not None]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_three_parallel_calls_end_apart_and_come_back_in_call_order(
    conversation: Conversation, model: ScriptedModelServer
) -> None:
    question = "\n".join([call("say", text="a"), call("boom", text="b"), call("segfault", text="c")])
    events = list(conversation.ask(question))
    outcomes = {e.tool: e.outcome for e in finished_calls(events)}
    assert outcomes == {"say": "ok", "boom": "error", "segfault": "killed"}
    shown = [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"]
    assert shown[0] == "said a"
    assert shown[1] == "RuntimeError: boom b"
    assert "SIGSEGV" in shown[2]
    assert events[-1].type == "turn_answered"


def test_calls_of_a_step_run_at_the_same_time(conversation: Conversation) -> None:
    began = time.monotonic()
    events = list(conversation.ask("\n".join(call("nap", seconds=1.0) for _ in range(4))))
    assert len(texts(events)) == 4
    assert time.monotonic() - began < 3.5, "four naps of 1 s took as long as one after the other"


@pytest.mark.parametrize(
    ("line", "outcome", "says"),
    [
        (call("leave", code=3), "killed", "exited with code 3"),
        (call("boom", text="x"), "error", "RuntimeError: boom x"),
        ("force no_such_tool {}", "denied", "no_such_tool"),
        (call("say", text=5), "error", "text"),
        (call("say"), "error", "text"),
        (call("eat", mib=512), "error", "memory"),
    ],
)
def test_a_bad_call_is_one_result_that_the_model_can_read(
    conversation: Conversation, line: str, outcome: str, says: str
) -> None:
    events = list(conversation.ask(line))
    assert [e.outcome for e in finished_calls(events)] == [outcome]
    assert says in texts(events)[0]
    assert events[-1].type == "turn_answered"


def test_a_tool_that_never_ends_is_killed_at_its_deadline(conversation: Conversation, tmp_path: Path) -> None:
    began = time.monotonic()
    events = list(conversation.ask(call("pause", path=str(tmp_path / "pid")), tool_deadline_s=1.0))
    assert 1.0 <= time.monotonic() - began < 4.0
    assert "deadline of 1 s" in texts(events)[0]
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the tool's process is gone")


def test_cancel_ends_the_turn_and_its_tools_within_a_second(
    conversation: Conversation, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    events = []
    for event in conversation.ask(call("pause", path=str(file))):
        events.append(event)
        if event.type == "tool_call_started":
            eventually(lambda: is_written(file))
            asked = time.monotonic()
            threading.Thread(target=conversation.cancel).start()
    assert events[-1].type == "turn_cancelled"
    assert time.monotonic() - asked < 1.5
    pid = int(file.read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the tool's process is gone")
    assert list(conversation.ask("still there?"))[-1].type == "turn_answered"


def test_a_disabled_tool_is_neither_offered_nor_run(
    conversation: Conversation, model: ScriptedModelServer
) -> None:
    conversation.disable("say")
    events = list(conversation.ask('force say {"text": "x"}'))
    assert "not enabled" in texts(events)[0]
    offered = model.requests[-1].tool_names
    assert "say" not in offered
    assert "boom" in offered
    states = {tool.name: tool.state for tool in conversation.tools()}
    assert states["say"] == "available"
    conversation.enable("say")
    assert texts(list(conversation.ask(call("say", text="y")))) == ["said y"]


def test_an_unknown_tool_cannot_be_enabled(conversation: Conversation) -> None:
    with pytest.raises(ToolNotFound, match="nothing_of_the_kind"):
        conversation.enable("nothing_of_the_kind")


def test_a_conversation_starts_with_the_tools_it_was_given(system: System) -> None:
    conversation = system.conversation(tools=["calculate", "current_*"])
    enabled = {tool.name for tool in conversation.tools() if tool.state == "enabled"}
    assert enabled == {"calculate", "current_time"}


def test_history_is_the_log_and_reaches_the_model(
    conversation: Conversation, model: ScriptedModelServer
) -> None:
    list(conversation.ask("first"))
    list(conversation.ask("second"))
    history = conversation.history()
    assert [e.seq for e in history] == list(range(1, len(history) + 1))
    said = [(m["role"], m["content"]) for m in model.requests[-1].messages if m["role"] != "system"]
    assert said == [("user", "first"), ("assistant", "you said: first"), ("user", "second")]


def test_the_same_request_id_is_the_same_turn(conversation: Conversation, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    question = call("note_down", path=str(file), text="once")
    first = list(conversation.ask(question, request_id="turn-1"))
    again = list(conversation.ask(question, request_id="turn-1"))
    logged = [e for e in first if e.seq is not None]
    assert [e for e in again if e.seq is not None] == logged
    assert file.read_text().splitlines() == ["once"]


def test_later_messages_wait_for_their_turn(conversation: Conversation) -> None:
    endings: list[tuple[str, float]] = []

    def take(text: str) -> None:
        *_, last = conversation.ask(text)
        endings.append((last.text, time.monotonic()))  # type: ignore[attr-defined]

    threads = [threading.Thread(target=take, args=(f"message {n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(text for text, _ in endings) == [f"you said: message {n}" for n in range(3)]
    started = [e.turn_id for e in conversation.history() if e.type == "turn_started"]  # type: ignore[attr-defined]
    ended = [e.turn_id for e in conversation.history() if e.type == "turn_answered"]  # type: ignore[attr-defined]
    assert started == ended


def test_the_step_cap_gives_a_last_answer_without_tools(configured: Callable[..., Config]) -> None:
    def insatiable(request: RecordedRequest) -> Reply:
        again = Call(name="say", arguments=json.dumps({"text": str(len(request.messages))}))
        return Reply(calls=(again,)) if request.tool_names else Reply(text="that is all")

    with ScriptedModelServer(rule=insatiable) as model:
        config = configured(templates={"default": {"max_steps": 2}}).with_flags(base_url=model.base_url)
        with callboard.connect(config=config, private=True) as system:
            *_, last = system.conversation().ask("go on for ever")
    assert isinstance(last, TurnAnswered)
    assert last.capped
    assert last.text == "that is all"


def test_a_tool_is_told_for_whom_it_runs_and_cannot_read_the_terminal(conversation: Conversation) -> None:
    events = list(conversation.ask(call("whoami")))
    assert json.loads(texts(events)[0]) == {"user": "ann", "team": "red", "stdin": ""}


def test_a_closed_conversation_takes_no_more_turns(conversation: Conversation) -> None:
    list(conversation.ask("hello"))
    conversation.close()
    with pytest.raises(Refused, match="closed"):
        list(conversation.ask("anyone?"))


def test_citations_of_a_document_search_follow_the_answer(
    start: Callable[..., System], tmp_path: Path
) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "moon.md").write_text("# Moon\n\nThe moon is 384400 kilometres away.\n", encoding="utf-8")
    system = start(tools={"documents": str(folder)})
    *_, last = system.conversation().ask(call("search_documents", query="moon kilometres"))
    assert last.citations[0].document == "moon.md"  # type: ignore[attr-defined]
    assert last.citations[0].line is not None  # type: ignore[attr-defined]


def test_json_events_are_what_the_log_holds(conversation: Conversation) -> None:
    from callboard.actors.events import event_from_json, event_to_json

    for event in conversation.ask(call("say", text="x")):
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_another_principal_finds_no_such_conversation(system: System) -> None:
    mine = system.conversation(user="ann", team="red", conversation_id="mine")
    list(mine.ask("a secret"))
    for user, team in (("bob", "red"), ("ann", "blue"), ("", "")):
        with pytest.raises(ConversationNotFound):
            system.conversation(user=user, team=team, conversation_id="mine", create=team == "red")
        with pytest.raises(ConversationNotFound):
            Conversation(system, "mine", Principal(user=user, team=team)).history()
    assert system.conversation(user="ann", team="red", conversation_id="mine").history() == mine.history()


def test_a_conversation_that_was_never_opened_is_not_found(system: System) -> None:
    with pytest.raises(ConversationNotFound, match="nowhere"):
        Conversation(system, "nowhere", Principal()).history()
