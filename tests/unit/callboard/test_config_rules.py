"""The tables on permissions, features and approval: what they amount to, and what a complaint says."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.config import Config, load_config, named_files
from callboard.errors import ConfigError
from callboard.tools.approval import ApprovalPolicy
from callboard.tools.features import Flag
from callboard.tools.permissions import Condition, Permissions, Rule


def _write(folder: Path, text: str) -> Path:
    path = folder / "callboard.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _complaint(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(_write(folder, text), {})
    return caught.value.message


def test_without_tables_everybody_may_use_everything_and_destructive_tools_ask(tmp_path: Path) -> None:
    rules = load_config(_write(tmp_path, ""), {}).rules
    assert rules.permissions == Permissions()
    assert rules.approval == ApprovalPolicy()
    assert rules.templates == {"default": ("*",)}


def test_a_whole_configuration_means_its_rules_also_after_the_daemons_json(tmp_path: Path) -> None:
    (tmp_path / "authz.py").write_text("def check(request): return True\n")
    text = """
        [permissions]
        default = "deny"
        hook = "./authz.py:check"
        hook_deadline_s = 2

        [[permissions.rules]]
        effect = "allow"
        tools = ["files__*"]
        teams = ["blue"]
        roles = ["writer"]
        when = [{ argument = "/path", under = "/srv" }, { argument = "/size", at_most = 10 }]
        reason = "the blue team's files"

        [[permissions.rules]]
        effect = "deny"
        unless = [{ argument = "/mode", one_of = ["r", 1] }]

        [features]
        beta = true
        [features.files]
        enabled = false
        tools = ["files__*"]

        [approval]
        always = ["files__delete"]
        never = ["files__touch"]

        [templates.default]
        allowed_tools = ["files__*"]

        [servers.files]
        command = "files-server"
        trust = "annotations"
        teams = ["blue", "green"]
    """
    config = load_config(_write(tmp_path, text), {})
    rules = config.rules
    under, at_most = (
        Condition(argument="/path", operator="under", value="/srv"),
        Condition(argument="/size", operator="at_most", value=10.0),
    )
    assert rules.permissions.rules == (
        Rule(
            effect="allow",
            tools=("files__*",),
            teams=("blue",),
            roles=("writer",),
            when=(under, at_most),
            reason="the blue team's files",
        ),
        Rule(effect="deny", unless=(Condition(argument="/mode", operator="one_of", value=("r", 1)),)),
    )
    assert rules.permissions.hook == f"{tmp_path / 'authz.py'}:check"
    assert rules.permissions.hook_deadline_s == 2.0
    assert rules.features.flags == {"beta": Flag(), "files": Flag(enabled=False, tools=("files__*",))}
    assert rules.approval == ApprovalPolicy(
        always=("files__delete",), never=("files__touch",), servers={"files": "annotations"}
    )
    assert rules.templates["default"] == ("files__*",)
    assert rules.teams == {"files": ("blue", "green")}
    assert Config.from_json(config.to_json()).rules == rules
    assert tmp_path / "authz.py" in named_files(tmp_path / "callboard.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[permissions]\ndefault = "maybe"', "[permissions] default: expected 'allow' or 'deny'"),
        ("[permissions]\nrule = []", "did you mean 'rules'?"),
        ('[[permissions.rules]]\ntools = ["x"]', "effect, item 1: is missing"),
        ('[[permissions.rules]]\neffect = "allow"', "expected default = 'deny' where a rule allows"),
        ('[permissions]\nhook = "authz"', "expected 'package.module:name' or './file.py:name'"),
        ('[permissions]\nhook = "./gone.py:check"', "expected an existing '.py' file"),
        ("[permissions]\nhook_deadline_s = 0", "greater than 0"),
        (
            '[[permissions.rules]]\neffect = "deny"\nwhen = [{ argument = "/a" }]',
            "expected exactly one of equals, one_of, pattern",
        ),
        (
            '[[permissions.rules]]\neffect = "deny"\nwhen = [{ argument = "/a", prefix = "x", equals = 1 }]',
            "expected exactly one of",
        ),
        (
            '[[permissions.rules]]\neffect = "deny"\nwhen = [{ argument = "a", prefix = "x" }]',
            "expected a JSON pointer such as '/path'",
        ),
        (
            '[[permissions.rules]]\neffect = "deny"\nwhen = [{ argument = "/a", under = "srv" }]',
            "expected an absolute folder",
        ),
        ("[features]\nbeta = 3", "[features] beta"),
        ("[features.beta]\nteam = []", "did you mean 'teams'?"),
        ('[approval]\nalways = "x"', "[approval] always: expected a list"),
    ],
)
def test_a_complaint_says_what_where_and_what_was_expected(tmp_path: Path, text: str, words: str) -> None:
    assert words in _complaint(tmp_path, text)
