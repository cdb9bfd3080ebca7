"""``callboard history`` and ``callboard journal``, on a daemon and without one."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import callboard
from callboard.cli.app import app
from callboard.cli.history import complete_ids
from callboard.paths import runtime_dir, state_dir
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import eventually

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is\x1b[2J 17*23?"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "calculate", "arguments": '{"x": "17*23"}'}},
            {"id": "b", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "391"},
    {"role": "assistant", "content": "It is 391."},
]


def run(*arguments: str, stdin: str | bytes = "") -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def imported(tmp_path: Path, *arguments: str, id: str = "one") -> Result:
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(MESSAGES), encoding="utf-8")
    return run("history", "import", str(file), "--id", id, *arguments)


def ids(*arguments: str) -> list[str]:
    return [
        info["conversation_id"] for info in json.loads(run("history", "list", "--json", *arguments).stdout)
    ]


def journal_file() -> Path:
    return state_dir() / "systems" / "default" / "journal.sqlite3"


def test_without_a_journal_there_is_nothing_and_nothing_is_made() -> None:
    assert run("history", "list").stdout == "There are no conversations.\n"
    for arguments in (("history", "show", "x"), ("history", "export", "x"), ("journal", "check")):
        result = run(*arguments)
        assert result.exit_code == 2
        assert f"there is no journal {journal_file()}" in result.stderr
    assert not journal_file().parent.exists()


def test_messages_are_imported_and_read_without_a_daemon(tmp_path: Path) -> None:
    result = imported(tmp_path, "--team", "red", "--user", "ann")
    assert (result.exit_code, result.stdout) == (0, "one\n")
    assert "system prompt was left out" in result.stderr
    assert "'b' ('clock') had no result" in result.stderr
    (info,) = json.loads(run("history", "list", "--team", "red", "--user", "ann", "--json").stdout)
    assert (info["conversation_id"], info["turns"], info["state"]) == ("one", 1, "open")
    assert [ids(), ids("--team", "red", "--user", "bob")] == [[], []]
    listed = run("history", "list", "--team", "red").stdout
    assert "one" in listed and "17*23?" in listed
    shown = run("history", "show", "one", "--team", "red").stdout
    assert "> What is 17*23?" in shown and "It is 391." in shown and "no result: interrupted" in shown
    assert "\x1b" not in listed + shown


def test_what_is_exported_can_be_imported_again(tmp_path: Path) -> None:
    imported(tmp_path, "--team", "red")
    file = tmp_path / "one.json"
    assert run("history", "export", "one", "--team", "red", "-o", str(file)).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    again = run("history", "import", str(file))
    assert (again.exit_code, "--id" in again.stderr) == (2, True)
    assert run("history", "delete", "one", "--team", "red", "--yes").stdout == "deleted one\n"
    again = run("history", "import", str(file), "--json")
    told = json.loads(again.stdout)
    assert (told["conversation_id"], told["team"], told["repairs"]) == ("one", "red", [])
    assert run("history", "export", "one", "--team", "red").stdout == file.read_text(encoding="utf-8")
    copy = run(
        "history", "import", "-", "--id", "two", "--team", "blue", stdin=file.read_text(encoding="utf-8")
    )
    assert (copy.exit_code, ids("--team", "blue")) == (0, ["two"])


def test_a_transcript_is_exported_as_markdown(tmp_path: Path) -> None:
    imported(tmp_path)
    text = run("history", "export", "one", "--format", "markdown").stdout
    assert text.startswith("# What is 17\\*23?\n") and "> It is 391." in text


def test_show_gives_events_a_line_each_and_only_those_after_a_number(tmp_path: Path) -> None:
    imported(tmp_path)
    lines = run("history", "show", "one", "--json", "--after", "2").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(3, 3 + len(lines)))
    assert json.loads(lines[-1])["type"] == "history_repaired"


def test_a_list_is_limited_and_says_that_there_is_more(tmp_path: Path) -> None:
    for number in range(3):
        imported(tmp_path, id=f"c{number}")
    result = run("history", "list", "--limit", "2", "--json")
    assert len(json.loads(result.stdout)) == 2
    assert "more than 2" in result.stderr
    assert sorted(ids("--limit", "3")) == ["c0", "c1", "c2"]


def test_deleting_needs_a_yes_and_tells_of_each_that_is_not_there(tmp_path: Path) -> None:
    imported(tmp_path)
    refused = run("history", "delete", "one")
    assert (refused.exit_code, "--yes" in refused.stderr, ids()) == (2, True, ["one"])
    result = run("history", "delete", "nope", "one", "--yes")
    assert (result.exit_code, result.stdout, ids()) == (2, "deleted one\n", [])
    assert "nope" in result.stderr


@pytest.mark.parametrize(("answer", "left"), [("n", ["one"]), ("y", [])])
def test_at_a_terminal_deleting_asks(tmp_path: Path, answer: str, left: list[str]) -> None:
    imported(tmp_path)
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "callboard", "history", "delete", "one"],
            stdin=theirs,
            capture_output=True,
            timeout=30,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"Delete conversation one for ever?" in done.stderr
    assert ids() == left


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (("history", "import", "/no/such/file"), "", "/no/such/file: cannot be read: No such file"),
        (("history", "import", "-"), "{", "not JSON"),
        (("history", "import", "-"), b"\xff", "line 1: expected UTF-8 text"),
        (("history", "import", "-"), '[{"role": "wizard"}]', "message 1: expected the role"),
        (("history", "import", "-", "--id", "a/b"), '[{"role": "user", "content": "x"}]', "a/b"),
        (("history", "list", "--config", "/no/such.toml"), "", "/no/such.toml"),
        (("journal", "import", "/no/such/file"), "", "/no/such/file"),
        (("journal", "import", "-"), "", "is empty"),
        (("journal", "import", "-"), "[]\n", "line 1: expected a JSON object"),
        (
            ("journal", "import", "-"),
            '{"format": "x"}\n',
            "line 1: expected what 'callboard journal export' wrote",
        ),
        (("journal", "import", "-"), '{"format": "callboard journal", "version": 2}\n', "version 2"),
        (("journal", "import", "-"), '{"format": "callboard journal", "version": 1}\n{}\n', "line"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    arguments: tuple[str, ...], stdin: str | bytes, says: str
) -> None:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert ids() == []


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    imported(tmp_path)
    result = run("history", "export", "one", "-o", str(tmp_path / "no" / "such.json"))
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)


def test_the_journal_moves_as_lines_and_as_a_copy(tmp_path: Path) -> None:
    imported(tmp_path, "--team", "red")
    imported(tmp_path, id="two")
    lines, copy = tmp_path / "journal.jsonl", tmp_path / "copy.sqlite3"
    assert run("journal", "export", str(lines)).exit_code == 0
    assert run("journal", "backup", str(copy)).stdout == f"{copy}\n"
    assert "is there already" in run("journal", "backup", str(copy)).stderr
    assert "its folder is not there" in run("journal", "backup", str(tmp_path / "no" / "x")).stderr
    before = run("journal", "export").stdout
    assert before == lines.read_text(encoding="utf-8")
    assert run("journal", "import", str(lines)).exit_code == 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "callboard.toml").write_text('[storage]\npath = "."\n', encoding="utf-8")
    config = ("--config", str(elsewhere / "callboard.toml"))
    assert run("journal", "import", str(lines), *config).stdout == "2 conversations were added\n"
    assert run("journal", "export", *config).stdout == before
    copy.rename(elsewhere / "journal.sqlite3")
    for sidecar in elsewhere.glob("journal.sqlite3-*"):
        sidecar.unlink()
    assert run("journal", "export", *config).stdout == before
    assert len(run("journal", "export", "--team", "red").stdout.splitlines()) < len(before.splitlines())


def test_a_check_names_the_conversation_that_is_damaged(tmp_path: Path) -> None:
    imported(tmp_path, "--team", "red")
    assert run("journal", "check").stdout == f"{journal_file()}: all is well\n"
    with sqlite3.connect(journal_file()) as database:
        database.execute("UPDATE journal_events SET body = replace(body, '391', '392')")
    database.close()
    result = run("journal", "check")
    assert result.exit_code == 1
    assert "conversation one (team red): record" in result.stdout
    assert json.loads(run("journal", "check", "--json").stdout)[0]["conversation"] == "one"
    journal_file().write_bytes(b"no database, " * 1000)
    assert run("journal", "check").exit_code in (1, 3)
    shown = run("history", "show", "one", "--team", "red")
    assert (shown.exit_code, "storage_corrupt" in shown.stderr) == (3, True)


def test_ids_are_completed_and_nothing_is_said_where_there_are_none(tmp_path: Path) -> None:
    context = __import__("click").Context(__import__("click").Command("show"))
    assert complete_ids(context, "") == []
    imported(tmp_path, id="abc")
    imported(tmp_path, id="xyz")
    assert [id for id, _ in complete_ids(context, "a")] == ["abc"]


@pytest.fixture
def daemon(model: ScriptedModelServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``callboard serve`` with the scripted model."""
    file = tmp_path / "callboard.toml"
    file.write_text(f'[model]\nbase_url = "{model.base_url}"\nname = "m"\napi_key = "k"\n', encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "callboard", "serve", "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        eventually(lambda: (runtime_dir("default") / "system.json").exists(), 30, "the daemon is up")
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_a_running_daemon_is_worked_on_and_what_it_wrote_is_there_without_it(
    daemon: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with callboard.connect(private=False) as system:
        talk = system.conversation(team="red", user="ann", linked=False)
        assert [event.type for event in talk.ask("good morning")][-1] == "turn_answered"
    assert ids("--team", "red") == [talk.id]
    assert ids() == []
    assert "> good morning" in run("history", "show", talk.id, "--team", "red").stdout
    assert run("history", "show", talk.id).exit_code == 2
    went_on = run("ask", "--conversation", talk.id, "--team", "red", "and good night")
    assert (went_on.exit_code, went_on.stdout) == (0, "you said: and good night\n")
    assert imported(tmp_path, "--team", "red").stdout == "one\n"
    assert imported(tmp_path, "--team", "red").exit_code == 2
    went_on = run("ask", "--conversation", "one", "--team", "red", "and times two?")
    assert went_on.stdout == "you said: and times two?\n"
    copied = run("history", "export", talk.id, "--team", "red").stdout

    assert run("journal", "check").exit_code == 0
    assert run("journal", "backup", str(tmp_path / "copy.sqlite3")).exit_code == 0
    exported = run("journal", "export").stdout
    refused = run("journal", "import", "-", stdin=exported)
    assert (refused.exit_code, "storage_locked" in refused.stderr) == (3, True)

    assert run("history", "delete", "one", "--team", "red", "--yes").exit_code == 0
    assert ids("--team", "red") == [talk.id]
    assert run("ask", "--conversation", "one", "--team", "red", "are you there?").exit_code == 2
    daemon.terminate()
    daemon.communicate(timeout=20)
    assert run("history", "export", talk.id, "--team", "red").stdout == copied
    assert run("history", "delete", talk.id, "--team", "red", "--yes").exit_code == 0
    assert ids("--team", "red") == []


def test_a_conversation_goes_on_without_a_daemon(model: ScriptedModelServer, tmp_path: Path) -> None:
    imported(tmp_path)
    flags = ("--base-url", model.base_url, "--model", "m", "--api-key", "k")
    assert (
        run("ask", "--conversation", "one", "and times two?", *flags).stdout == "you said: and times two?\n"
    )
    sent = model.requests[-1].body["messages"]
    assert [message["role"] for message in sent[-2:]] == ["assistant", "user"]
    (info,) = json.loads(run("history", "list", "--json").stdout)
    assert (info["turns"], info["state"]) == (2, "open")
    assert run("history", "delete", "one", "--yes").exit_code == 0, (
        "the private system has let go of the journal"
    )
