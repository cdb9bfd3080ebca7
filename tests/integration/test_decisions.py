"""One decision per call, on the real system: permissions, features, approvals, the hook, reloads, tenants."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.actors.events import ApprovalRequested, Event, ToolApproved, ToolCallStarted
from callboard.api import Conversation, System
from callboard.config import Config, load_config
from callboard.errors import ConversationNotFound, Refused, ToolNotFound
from callboard.supervisor.envelope import Principal
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import (
    call,
    eventually,
    finished_calls,
    is_written,
    last_call,
    texts,
    until_asked,
)

TOOLS = '''
from callboard import ToolContext, tool

@tool(destructive=True)
def wipe(path: str) -> str:
    """Wipe a path."""
    with open(path, "a") as file:
        file.write("wiped\\n")
    return f"wiped {path}"

@tool
def greet(context: ToolContext, name: str = "you") -> str:
    """Greet."""
    return f"{context.settings.get('word', 'hello')} {name}"

@tool(feature="beta")
def preview() -> str:
    """Preview."""
    return "a preview"
'''
NAP = '''
@tool
def nap(begun: str) -> str:
    """Nap."""
    import time
    with open(begun, "w") as file:
        file.write("yes")
    time.sleep(2)
    return "old"
'''
HOOK = """
import os, time

def check(request):
    match request.arguments.get("name"):
        case "nobody":
            return "nobody may be greeted"
        case "crash":
            os._exit(3)
        case "hang":
            time.sleep(600)
        case "odd":
            return None
    return request.user == "ann" and request.team == "red"
"""


@pytest.fixture
def open_system(model: ScriptedModelServer, tmp_path: Path) -> Iterator[Callable[[str], System]]:
    """Start a private system with this configuration, on the tools above."""
    systems: list[System] = []

    def start(text: str = "") -> System:
        (tmp_path / "tools.py").write_text(TOOLS)
        (tmp_path / "authz.py").write_text(HOOK)
        (tmp_path / "callboard.toml").write_text(f'{text}\n[tools]\nmodules = ["./tools.py"]\n')
        loaded: Config = load_config(tmp_path / "callboard.toml").with_flags(
            base_url=model.base_url, model="scripted", api_key="test"
        )
        systems.append(callboard.connect(config=loaded, private=True))
        return systems[-1]

    yield start
    for system in systems:
        system.close()


# ------------------------------------------------------------ approvals
def test_a_destructive_call_waits_runs_once_when_approved_and_asks_again_the_next_time(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    conversation = open_system("").conversation(user="ann", team="red")
    target = tmp_path / "effects"
    for _ in range(2):
        turn = conversation.ask(call("wipe", path=str(target)))
        asked = until_asked(turn)
        assert (asked.tool, asked.arguments) == ("wipe", {"path": str(target)})
        assert "destructive" in asked.reason
        assert conversation.pending() == (asked,)
        conversation.approve(asked.call_id)
        conversation.approve(asked.call_id)
        events = list(turn)
        assert last_call(events).outcome == "ok"
        assert events[-1].type == "turn_answered"
        with pytest.raises(Refused, match="decided already"):
            conversation.deny(asked.call_id)
    assert target.read_text() == "wiped\nwiped\n"
    assert conversation.pending() == ()
    started = [event for event in conversation.history() if isinstance(event, ToolCallStarted)]
    assert all("destructive" in event.decision for event in started)


def test_edited_arguments_are_checked_and_are_what_runs(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    rules = '[[permissions.rules]]\neffect = "deny"\nwhen = [{ argument = "/path", under = "/etc" }]'
    conversation = open_system(rules).conversation()
    turn = conversation.ask(call("wipe", path=str(tmp_path / "asked")))
    asked = until_asked(turn)
    for arguments, words in (({"path": 5}, "not of type string"), ({"path": "/etc/x"}, "not permitted")):
        with pytest.raises(Refused, match=words):
            conversation.approve(asked.call_id, arguments)
    conversation.approve(asked.call_id, {"path": str(tmp_path / "edited")})
    assert f"wiped {tmp_path / 'edited'}" in texts(list(turn))[-1]
    assert not (tmp_path / "asked").exists()


def test_parallel_calls_are_decided_apart_and_those_that_need_nobody_run_at_once(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    conversation = open_system("").conversation()
    one, two = tmp_path / "one", tmp_path / "two"
    turn = conversation.ask(
        "\n".join([call("wipe", path=str(one)), call("greet"), call("wipe", path=str(two))])
    )
    asked: list[ApprovalRequested] = []
    for event in turn:
        if isinstance(event, ApprovalRequested):
            asked.append(event)
        if event.type == "turn_suspended":
            assert len(asked) == 2
            conversation.deny(asked[0].call_id, "not on a Friday")
            conversation.approve(asked[1].call_id)
    assert not one.exists()
    assert "not on a Friday" in texts(conversation.history())[-2] + texts(conversation.history())[-1]
    assert two.read_text() == "wiped\n"
    assert sorted(e.outcome for e in finished_calls(conversation.history())) == ["denied", "ok", "ok"]


def test_an_approval_for_the_conversation_holds_there_only_and_none_outlives_a_toggle(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    system = open_system("")
    conversation, other = system.conversation(), system.conversation()
    question = call("wipe", path=str(tmp_path / "effects"))
    turn = conversation.ask(question)
    conversation.approve(until_asked(turn).call_id, for_conversation=True)
    list(turn)
    assert any(isinstance(event, ToolApproved) for event in conversation.history())
    assert last_call(list(conversation.ask(question))).outcome == "ok"
    elsewhere = other.ask(question)
    asked = until_asked(elsewhere)
    other.disable("wipe")
    with pytest.raises(Refused, match="not enabled"):
        other.approve(asked.call_id)
    other.deny(asked.call_id)
    list(elsewhere)
    assert (tmp_path / "effects").read_text() == "wiped\nwiped\n"


def test_a_waiting_call_survives_its_client_and_is_approved_after_it(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    system = open_system("")
    conversation = system.conversation()
    asked = until_asked(conversation.ask(call("wipe", path=str(tmp_path / "effects"))))
    eventually(lambda: conversation.history()[-1].type == "turn_suspended")
    client = next(actor for actor in system.tree() if actor.kind == "client")
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    eventually(lambda: conversation.pending() == (asked,), what="the call waits again")
    conversation.approve(asked.call_id)
    follow = conversation.events(asked.seq or 0, timeout_s=20)
    assert next(event for event in follow if event.terminal).type == "turn_answered"
    assert (tmp_path / "effects").read_text() == "wiped\n"


def test_a_tool_that_changed_while_its_call_waited_has_no_approval(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    system = open_system("")
    conversation = system.conversation()
    turn = conversation.ask(call("wipe", path=str(tmp_path / "effects")))
    asked = until_asked(turn)
    (tmp_path / "tools.py").write_text(TOOLS.replace("wiped", "shredded"))
    assert "wipe" in system.reload().changed
    with pytest.raises(Refused, match="has changed"):
        conversation.approve(asked.call_id)
    conversation.deny(asked.call_id)
    list(turn)
    assert not (tmp_path / "effects").exists()


# ------------------------------------------------------------ permissions and features
def test_rules_decide_by_principal_and_arguments_and_the_decision_is_logged(
    open_system: Callable[[str], System], model: ScriptedModelServer
) -> None:
    rules = """
        [permissions]
        default = "deny"
        [[permissions.rules]]
        effect = "allow"
        tools = ["greet"]
        teams = ["red"]
        unless = [{ argument = "/name", prefix = "Dr" }]
        reason = "greetings"
    """
    system = open_system(rules)
    ann = system.conversation(user="ann", team="red")
    events = list(ann.ask(call("greet", name="Bob")))
    assert texts(events) == ["hello Bob"]
    started = next(event for event in events if isinstance(event, ToolCallStarted))
    assert started.decision == "permitted (rule 1: greetings)"
    refused = last_call(list(ann.ask(call("greet", name="Dr Bob"))))
    assert (refused.outcome, refused.decision.partition(":")[0]) == ("denied", "not_permitted")
    assert model.requests[0].tool_names == ("greet",)
    zoe = system.conversation(user="zoe", team="blue")
    refused = last_call(list(zoe.ask('force greet {"name": "x"}')))
    assert refused.decision.startswith("not_permitted")
    assert model.requests[-1].tool_names == ()
    with pytest.raises(Refused, match="not permitted"):
        zoe.enable("greet")
    assert {tool.name: tool.state for tool in zoe.tools()}["greet"] == "disabled"


def test_the_hook_decides_in_a_process_of_its_own_and_denies_when_it_fails(
    open_system: Callable[[str], System],
) -> None:
    system = open_system('[permissions]\nhook = "./authz.py:check"\nhook_deadline_s = 1.5')
    ann = system.conversation(user="ann", team="red")
    assert texts(list(ann.ask(call("greet")))) == ["hello you"]
    for name, words in {
        "nobody": "nobody may be greeted",
        "crash": "exited with code 3",
        "hang": "deadline",
        "odd": "must give True",
    }.items():
        refused = last_call(list(ann.ask(call("greet", name=name))))
        assert refused.outcome == "denied"
        assert refused.decision.startswith("not_permitted: the permission hook")
        assert words in refused.decision
    bob = system.conversation(user="bob", team="red")
    assert last_call(list(bob.ask(call("greet")))).outcome == "denied"


def test_a_feature_is_switched_at_run_time_for_a_team_and_survives_the_catalogue(
    open_system: Callable[[str], System], model: ScriptedModelServer
) -> None:
    system = open_system("")
    red, blue = system.conversation(team="red"), system.conversation(team="blue")
    assert last_call(list(red.ask("force preview {}"))).decision.startswith("feature_off")
    assert "preview" not in model.requests[-1].tool_names
    system.switch_feature("beta", True, team="red")
    assert texts(list(red.ask(call("preview")))) == ["a preview"]
    assert last_call(list(blue.ask("force preview {}"))).outcome == "denied"
    catalogue = next(actor for actor in system.tree() if actor.kind == "catalogue")
    assert catalogue.pid is not None
    os.kill(catalogue.pid, signal.SIGKILL)
    eventually(
        lambda: any(a.kind == "catalogue" and a.pid not in (None, catalogue.pid) for a in system.tree()),
        what="a new catalogue",
    )
    assert texts(list(red.ask(call("preview")))) == ["a preview"]
    system.switch_feature("beta", None, team="red")
    assert last_call(list(red.ask("force preview {}"))).outcome == "denied"


def test_a_template_is_a_ceiling_and_a_tool_is_configured_for_one_conversation(
    open_system: Callable[[str], System],
) -> None:
    small = '[templates.small]\ntools = ["greet"]\nallowed_tools = ["greet", "preview"]'
    system = open_system(f'{small}\n[tools.settings.greet]\nword = "welcome"')
    conversation = system.conversation(template="small", tools=["*"])
    assert last_call(list(conversation.ask("force wipe {}"))).decision.startswith("not_in_template")
    with pytest.raises(Refused, match="template 'small'"):
        conversation.enable("wipe")
    conversation.configure("greet", {"word": "ahoy"})
    assert texts(list(conversation.ask(call("greet")))) == ["ahoy you"]
    assert texts(list(system.conversation().ask(call("greet")))) == ["welcome you"]
    conversation.configure("greet", None)
    assert texts(list(conversation.ask(call("greet")))) == ["welcome you"]
    with pytest.raises(ToolNotFound):
        conversation.configure("nothing", {})
    with pytest.raises(Refused, match="not JSON"):
        conversation.configure("greet", {"word": object()})


# ------------------------------------------------------------ reloads
def test_a_reload_brings_new_code_keeps_calls_under_way_and_survives_a_broken_module(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    system = open_system("")
    conversation = system.conversation()
    slow = TOOLS + NAP
    (tmp_path / "tools.py").write_text(slow)
    os.kill(system.status().pid, signal.SIGHUP)
    eventually(lambda: "nap" in {tool.name for tool in system.tools()}, 30.0, "the new tool, after SIGHUP")
    napping: list[Event] = []
    begun = tmp_path / "begun"
    nap = threading.Thread(target=lambda: napping.extend(conversation.ask(call("nap", begun=str(begun)))))
    nap.start()
    eventually(lambda: is_written(begun), within_s=20.0)
    (tmp_path / "tools.py").write_text(slow.replace('"old"', '"new"').replace("hello", "welcome"))
    report = system.reload()
    assert report.changed == ("greet", "nap", "preview", "wipe")
    other = system.conversation()
    assert texts(list(other.ask(call("greet")))) == ["welcome you"]
    nap.join(timeout=20)
    assert texts(napping) == ["old"]
    (tmp_path / "tools.py").write_text("def broken(:")
    report = system.reload()
    assert (report.changed, report.removed) == ((), ())
    assert "SyntaxError" in report.faults[0][1]
    assert "greet" in {tool.name for tool in other.tools()}
    listed = {tool.name: tool.reason for tool in system.tools()}
    assert "the tools that it had stay" in listed[str(tmp_path / "tools.py")]


# ------------------------------------------------------------ tenants
def test_a_team_reaches_neither_anothers_approvals_nor_its_conversations(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    system = open_system("")
    mine = system.conversation(user="ann", team="red", conversation_id="mine")
    turn = mine.ask(call("wipe", path=str(tmp_path / "effects")))
    asked = until_asked(turn)
    for user, team in (("ann", "blue"), ("bob", "red")):
        theirs = Conversation(system, "mine", Principal(user=user, team=team))
        attempts: list[Callable[[], Any]] = [
            theirs.pending,
            lambda it=theirs: it.approve(asked.call_id),  # type: ignore[misc]
            lambda it=theirs: it.deny(asked.call_id),  # type: ignore[misc]
            lambda it=theirs: it.enable("greet"),  # type: ignore[misc]
        ]
        for attempt in attempts:
            with pytest.raises(ConversationNotFound):
                attempt()
    elsewhere = system.conversation(user="ann", team="blue", conversation_id="mine")
    with pytest.raises(Refused, match="no such call waits"):
        elsewhere.approve(asked.call_id)
    assert mine.pending() == (asked,)
    mine.deny(asked.call_id)
    list(turn)
    assert not (tmp_path / "effects").exists()


def test_an_approval_id_of_another_team_is_worth_nothing_wherever_it_is_replayed(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    """The other team has a conversation and a call of the very same ids; its own argument is what it approves of."""
    system = open_system("")
    red_file, blue_file = tmp_path / "red", tmp_path / "blue"
    red = system.conversation(user="ann", team="red", conversation_id="same")
    blue = system.conversation(user="ann", team="blue", conversation_id="same")
    red_turn = red.ask(call("wipe", path=str(red_file)))
    blue_turn = blue.ask(call("wipe", path=str(blue_file)))
    red_asked, blue_asked = until_asked(red_turn), until_asked(blue_turn)
    assert red_asked.digest != blue_asked.digest
    blue.approve(blue_asked.call_id)
    list(blue_turn)
    assert red.pending() == (red_asked,)
    assert not red_file.exists()
    red.approve(red_asked.call_id)
    list(red_turn)
    for conversation, asked in ((blue, red_asked), (red, blue_asked), (red, red_asked)):
        with pytest.raises(Refused, match=r"decided already|no such call"):
            conversation.approve(asked.call_id, {"path": str(tmp_path / "replayed")})
    assert not (tmp_path / "replayed").exists()
    assert (red_file.read_text(), blue_file.read_text()) == ("wiped\n", "wiped\n")


def test_a_team_neither_toggles_nor_configures_nor_reads_anothers_conversation(
    open_system: Callable[[str], System],
) -> None:
    system = open_system("")
    red = system.conversation(user="ann", team="red", conversation_id="same")
    list(red.ask("hello"))
    blue = Conversation(system, "same", Principal(user="ann", team="blue", roles=("admin",)))
    attempts: list[Callable[[], Any]] = [
        lambda: blue.disable("greet"),
        lambda: blue.configure("greet", {"word": "ahoy"}),
        lambda: blue.tools(),
        lambda: blue.history(),
        lambda: list(blue.ask(call("greet"))),
        lambda: blue.cancel(),
        lambda: blue.close(),
    ]
    for attempt in attempts:
        with pytest.raises(ConversationNotFound):
            attempt()
    assert texts(list(red.ask(call("greet")))) == ["hello you"]
    own = system.conversation(user="ann", team="blue", conversation_id="same")
    own.disable("greet")
    own.configure("preview", {"word": "x"})
    assert texts(list(red.ask(call("greet")))) == ["hello you"]


def test_a_call_of_another_teams_server_is_never_made(
    open_system: Callable[[str], System], tmp_path: Path
) -> None:
    """Not by a forced call, not by enabling it, not with all tools enabled, not by an approval under the same ids."""
    server = f'[servers.ledger]\ncommand = ["{sys.executable}", "-m", "callboard.testing.mcp_server"]\n'
    system = open_system(f'{server}trust = "ask"\nteams = ["red"]')
    file = tmp_path / "written"
    arguments = {"path": str(file), "text": "red"}
    red = system.conversation(team="red", conversation_id="same")
    blue = system.conversation(
        team="blue", conversation_id="same", tools=["*", "ledger__*", "ledger__write_file"]
    )
    turn = red.ask(call("ledger__write_file", **arguments))
    asked = until_asked(turn)
    refused = last_call(
        list(blue.ask(f"force ledger__write_file {json.dumps({**arguments, 'text': 'blue'})}"))
    )
    assert refused.decision.startswith("unknown_tool")
    with pytest.raises(Refused, match=r"no such call waits|decided already"):
        blue.approve(asked.call_id, for_conversation=True)
    again = last_call(list(blue.ask(f"force ledger__write_file {json.dumps(arguments)}")))
    assert again.decision.startswith("unknown_tool")
    assert not file.exists()
    red.approve(asked.call_id)
    assert last_call(list(turn)).outcome == "ok"
    assert file.read_text() == "red"


def test_a_server_exists_for_its_teams_only_and_its_tools_ask_at_their_first_use(
    open_system: Callable[[str], System], model: ScriptedModelServer
) -> None:
    server = f'[servers.ledger]\ncommand = ["{sys.executable}", "-m", "callboard.testing.mcp_server"]\n'
    system = open_system(f'{server}trust = "ask"\nteams = ["red"]')
    red, blue = system.conversation(team="red"), system.conversation(team="blue")
    turn = red.ask(call("ledger__add", a=1, b=2))
    asked = until_asked(turn)
    assert "first use" in asked.reason
    red.approve(asked.call_id)
    assert last_call(list(turn)).outcome == "ok"
    assert last_call(list(red.ask(call("ledger__add", a=3, b=4)))).outcome == "ok"
    refused = last_call(list(blue.ask('force ledger__add {"a": 1, "b": 2}')))
    assert refused.decision.startswith("unknown_tool")
    assert not any(name.startswith("ledger__") for name in model.requests[-1].tool_names)
    assert not any(tool.name.startswith("ledger__") for tool in blue.tools())
    with pytest.raises(ToolNotFound):
        blue.enable("ledger__add")
