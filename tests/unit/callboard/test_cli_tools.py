"""``callboard tools`` on a system that does as it is told: completion, what goes to which stream, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import click
import pytest
import typer
from typer.testing import CliRunner, Result

import callboard.cli.tools
import callboard.tool_call
from callboard.actors.messages import ToolRan, ToolRuns
from callboard.cli.app import app
from callboard.cli.faults import modules_not_loaded
from callboard.cli.tools import complete_tools
from callboard.errors import NoDaemon
from callboard.tools.content import Progress, TextBlock, ToolResult, error_result
from callboard.tools.decision_layers import Layer
from callboard.views import ServerInfo, ToolListing

LAYERS = (
    Layer(name="registered", verdict="passed", reason="a local tool, in m"),
    Layer(name="permitted", verdict="refused", reason="rule 1: \x1b[2J" + "very long " * 20),
    Layer(name="approved", verdict="not asked"),
)


class FakeSystem:
    private = False

    def __enter__(self) -> FakeSystem:
        return self

    def __exit__(self, *_: object) -> None: ...

    def tools(self) -> list[ToolListing]:
        broken = ToolListing(name="/broken.py", state="disabled", reason="no", source="/broken.py")
        return [ToolListing(name="lint", description="Look.\nMore."), ToolListing(name="list_it"), broken]

    def servers(self) -> list[ServerInfo]:
        return [ServerInfo(name="time", state="parked", last_error="gone")]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Have ``tools call`` give this, after ``news``; gives what it was called with."""

    def make(answer: ToolRan, *news: ToolRuns | Progress) -> dict[str, Any]:
        given: dict[str, Any] = {}

        def call(_system: object, tool: str, arguments: str, **options: Any) -> ToolRan:
            given.update(options, tool=tool, arguments=arguments)
            for one in news:
                options["heard"](one)
            return answer

        monkeypatch.setattr(callboard.tool_call, "call", call)
        return given

    monkeypatch.setattr(callboard.cli.tools, "open_system", lambda *_: FakeSystem())
    return make


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["tools", *arguments], input=given)


def context() -> typer.Context:
    return cast(typer.Context, click.Context(click.Command("x")))


def test_names_are_completed_from_the_running_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callboard.cli.tools, "attach", lambda _name: FakeSystem())
    assert complete_tools(context(), "li") == [("lint", "Look."), ("list_it", "")]
    assert complete_tools(context(), "/") == [], "a module that is not loaded is no tool"

    def no_daemon(_name: str) -> FakeSystem:
        raise NoDaemon("none runs")

    monkeypatch.setattr(callboard.cli.tools, "attach", no_daemon)
    assert complete_tools(context(), "") == []


def test_the_result_is_on_stdout_and_all_else_on_stderr(ran: Callable[..., dict[str, Any]]) -> None:
    passed = LAYERS[:1]
    result = ToolResult(content=(TextBlock("the result"),), output="printed\x1b[2J")
    answer = ToolRan(result=result, duration_s=1.0, decision="permitted", layers=passed)
    news = (ToolRuns(decision="permitted", layers=passed), Progress("half\x1b[2J way", 0.5), Progress("more"))
    given = ran(answer, *news)
    done = run(
        "call", "lint", "-", "--user", "ann", "--role", "a", "--role", "b", "--enable", given='{"a": 1}'
    )
    assert (done.exit_code, done.stdout) == (0, "the result\n")
    assert done.stderr.count("registered") == 1, "the decision is shown once"
    assert "printed\n" in done.stderr
    assert "half" not in done.stderr, "nobody looks at a pipe"
    assert "\x1b" not in done.stderr
    assert (given["tool"], given["arguments"], given["enable"]) == ("lint", '{"a": 1}', True)
    assert given["principal"].roles == ("a", "b")
    assert "50 %  half way" in run("call", "lint", "-v").stderr


@pytest.mark.parametrize(
    ("decision", "code", "stream"),
    [
        ("not_permitted: rule 1", 1, "stdout"),
        ("unknown_tool: there is none", 2, "stderr"),
        ("bad_arguments", 2, "stderr"),
    ],
)
def test_a_refused_call_says_why_in_whole_and_by_its_exit_code(
    ran: Callable[..., dict[str, Any]], decision: str, code: int, stream: str
) -> None:
    answer = ToolRan(
        result=error_result("it may not", "denied"), duration_s=0.0, decision=decision, layers=LAYERS
    )
    ran(answer)
    done = run("call", "lint")
    assert done.exit_code == code
    assert "it may not" in getattr(done, stream)
    assert "very long " * 19 in done.stderr
    assert "- approved      not asked" in done.stderr
    assert "\x1b" not in done.stderr
    as_json = run("call", "lint", "--json")
    document = json.loads(as_json.stdout)
    assert (as_json.exit_code, as_json.stderr) == (
        code,
        "callboard: tool module /broken.py is not loaded: no\n",
    )
    assert (document["decision"], document["layers"][0]["verdict"]) == (decision, "passed")


def test_options_before_the_word_are_not_taken_silently() -> None:
    done = run("--json", "show", "lint")
    assert done.exit_code == 2
    assert "put the options after the word 'show'" in done.stderr


def test_the_list_says_which_servers_are_away(ran: Callable[..., dict[str, Any]]) -> None:
    done = run("list", "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["lint", "list_it", "/broken.py"]
    assert done.stderr == "callboard: server time is parked: gone\n"


def test_a_system_that_is_lost_while_it_is_announced_is_no_drama() -> None:
    (told,) = modules_not_loaded("nobody")
    assert "cannot be reached" in told
