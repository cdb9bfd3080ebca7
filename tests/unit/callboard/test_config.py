"""The configuration: what is accepted, what is filled in, and what a complaint says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard import trust
from callboard.config import (
    Config,
    default_config,
    discover_config,
    find_config,
    load_config,
    named_files,
)
from callboard.errors import ConfigError, UntrustedConfig


def write(folder: Path, text: str, name: str = "callboard.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str, environ: dict[str, str] | None = None) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ or {})
    message = caught.value.message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_without_a_file_or_key_the_model_is_the_embedded_one() -> None:
    config = default_config({})
    assert config.embedded
    assert config.templates["default"].tools == ("*",)
    assert config.templates["default"].max_steps == 10


def test_the_environments_key_means_its_endpoint() -> None:
    config = default_config({"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"})
    assert (config.model.kind, config.model.base_url, config.model.name, config.model.key) == (
        "openai",
        "http://127.0.0.1:9/v1",
        "gpt-4.1-mini",
        "sk-1",
    )
    assert default_config({"OPENAI_API_KEY": "sk-1"}).model.base_url == "https://api.openai.com/v1"


def test_an_environment_that_names_no_url_is_complained_of() -> None:
    with pytest.raises(ConfigError, match=r"environment: \[model\] base_url: expected an http\(s\) URL"):
        default_config({"OPENAI_BASE_URL": "localhost:8080"})


def test_a_whole_file_is_read_with_its_paths_resolved(tmp_path: Path) -> None:
    write(tmp_path, "", "my_tools.py")
    (tmp_path / "papers").mkdir()
    path = write(
        tmp_path,
        """
        [model]
        base_url = "http://127.0.0.1:8080/v1"
        name = "small"
        api_key_env = "MY_KEY"
        temperature = 0.2
        timeouts = { first_token_s = 5 }
        [tools]
        modules = ["./my_tools.py", "package.module", "my_tools.py"]
        documents = "papers"
        [tools.settings.search_documents]
        limit = 3
        [templates.clerk]
        system_prompt = "You are a clerk."
        tools = ["time__*"]
        on_cap = "return"
        [servers.time]
        command = "python -m 'mcp server'"
        args = ["--local-timezone", "UTC"]
        env = { TOKEN = "a-${SECRET}-b" }
        trust = "annotations"
        [limits]
        max_conversations = 3
        [storage]
        path = "journals"
        """,
    )
    config = load_config(path, {"MY_KEY": "k", "SECRET": "s"})
    assert config.model.key == "k"
    assert config.model.timeouts.first_token_s == 5
    assert config.model.timeouts.connect_s == 10
    assert config.tools.modules == (str(tmp_path / "my_tools.py"), "package.module")
    assert config.tools.documents == tmp_path / "papers"
    assert config.tools.settings == {"search_documents": {"limit": 3}}
    assert set(config.templates) == {"default", "clerk"}
    assert config.templates["clerk"].on_cap == "return"
    server = config.servers["time"]
    assert server.argv == ("python", "-m", "mcp server", "--local-timezone", "UTC")
    assert server.env == {"TOKEN": "a-s-b"}
    assert server.cwd == tmp_path
    assert config.storage_path("default") == tmp_path / "journals"
    assert config.source == str(path)


def test_the_json_form_goes_there_and_back_with_its_secrets(tmp_path: Path) -> None:
    write(tmp_path, "", "my_tools.py")
    path = write(
        tmp_path,
        '[model]\nbase_url = "http://h/v1"\napi_key = "k"\n[tools]\nmodules = ["./my_tools.py"]\n'
        '[servers.s]\ncommand = "x"\nenv = { A = "${B}" }\n',
    )
    config = load_config(path, {"B": "${NOT_EXPANDED_TWICE}"})
    again = Config.from_json(config.to_json())
    assert again == config
    assert again.model.key == "k"
    assert "'k'" not in repr(config) and "${NOT" not in repr(config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[model]\nbase_url = "foo"', "[model] base_url: expected an http(s) URL"),
        ('[model]\nbase_url = "foo"', "got 'foo'"),
        ('[model]\nbase_ulr = "http://h"', "[model] base_ulr: unknown key; did you mean 'base_url'?"),
        ("[modle]\n", "modle: unknown key; did you mean 'model'?"),
        ('source = "x"', "source: unknown key; did you mean 'storage'?"),
        ("model = 3", "model: expected a table, got 3"),
        ('[model]\nname = "m"\nactors = 0', "[model] actors: expected greater than or equal to 1, got 0"),
        ('[model]\nname = "m"', "[model]: expected an API key: set OPENAI_API_KEY"),
        ('[model]\napi_key_env = "NOPE"', "[model] api_key_env: the environment variable 'NOPE' is not set"),
        ("[model.timeouts]\nconnect_s = nan", "[model.timeouts] connect_s: expected"),
        ("[model.timeouts]\nconect_s = 1", "did you mean 'connect_s'?"),
        ('[tools]\nmodules = ["a", "./x.py"]', "[tools] modules, item 2: expected an existing '.py' file"),
        ('[tools]\nmodules = ["a-b"]', "[tools] modules, item 1: expected a module's dotted name"),
        ('[tools]\ndocuments = "nowhere"', "[tools] documents: expected an existing folder"),
        ('[templates.t]\non_cap = "stop"', "[templates.t] on_cap: expected 'answer' or 'return', got 'stop'"),
        ("[templates.t]\nmax_step = 3", "[templates.t] max_step: unknown key; did you mean 'max_steps'?"),
        ('[templates."a b"]\n', "[templates] a b: expected a template's name"),
        ("[servers.t]\n", "[servers.t] command: is missing"),
        ('[servers.t]\ncommand = ""', "[servers.t] command: expected"),
        ('[servers.t]\ncommand = "a \'b"', "[servers.t] command: expected a command line or a list of words"),
        ('[servers."a b"]\ncommand = "x"', "[servers] a b: expected a server's name of 1 to 32"),
        ('[servers.t]\ncommand = "x"\ntrust = "yes"', "[servers.t] trust: expected 'ask', 'allow' or"),
        (
            '[servers.t]\ncommand = "x"\nenv = { A = "${NOPE}" }',
            "[servers.t] env: the environment variable NOPE",
        ),
        ('[mcpServers.t]\nurl = "http://x"', "[mcpServers.t]: expected 'command'"),
        ("[mcpServers.t]\ncommand = 3", "[mcpServers.t] command: expected a list, got 3"),
        (
            '[servers.t]\ncommand = "x"\n[mcpServers.t]\ncommand = "x"',
            "[servers.t]: is under mcpServers too",
        ),
        ("[model]\nname = \n", "line 2, column 8: not valid TOML"),
        ('a = """', "line 1: not valid TOML"),
    ],
)
def test_a_complaint_names_the_key_and_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_a_complaint_never_repeats_a_secret(tmp_path: Path) -> None:
    message = complaint(tmp_path, '[model]\nbase_url = "http://h"\napi_key = ["sk-secret"]')
    assert message == "[model] api_key: expected a string in quotes"
    message = complaint(tmp_path, '[servers.s]\ncommand = "x"\nenv = { A = ["sk-secret"] }')
    assert "sk-secret" not in message
    message = complaint(tmp_path, '[model]\nname = "m"\napi_key = "sk-secret"\nbase_url = "ftp://h"')
    assert "sk-secret" not in message


def test_many_faults_are_told_one_a_line_and_bounded(tmp_path: Path) -> None:
    text = "[limits]\n" + "".join(f"wrong_{n} = 1\n" for n in range(9))
    lines = complaint(tmp_path, text).splitlines()
    assert len(lines) == 6
    assert lines[-1].endswith("and 4 more")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match="line 2: expected UTF-8 text"):
        load_config(tmp_path / "b.toml")
    with pytest.raises(ConfigError, match="line 1, column 2: not valid JSON"):
        load_config(write(tmp_path, "{,}", "c.json"))
    with pytest.raises(ConfigError, match="expected an object at the top"):
        load_config(write(tmp_path, "[]", "d.json"))
    with pytest.raises(ConfigError, match="at most 1 MiB"):
        load_config(write(tmp_path, "#" * (1 << 20) + "\n", "e.toml"))


HOSTS = {
    "mcpServers": {
        "time": {
            "command": "/opt/my tools/time",
            "args": ["--utc"],
            "env": {"K": "${V}"},
            "autoApprove": ["x"],
        },
        "off": {"command": "x", "disabled": True},
    }
}


def test_a_hosts_file_can_be_the_configuration(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, json.dumps(HOSTS), "mcp.json"), {"V": "v"})
    assert set(config.servers) == {"time"}
    assert config.servers["time"].argv == ("/opt/my tools/time", "--utc")
    assert config.servers["time"].env == {"K": "v"}
    assert config.embedded


def test_a_hosts_file_can_be_named_by_the_tools_table(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    write(tmp_path / "hosts", json.dumps(HOSTS), "mcp.json")
    path = write(tmp_path, '[tools]\nmcp_config = "hosts/mcp.json"\n[servers.own]\ncommand = "y"\n')
    config = load_config(path, {"V": "v"})
    assert set(config.servers) == {"own", "time"}
    assert config.servers["time"].cwd == tmp_path / "hosts"
    with pytest.raises(ConfigError, match=r"mcp\.json: \[mcpServers\.time\] env: .* V is not set"):
        load_config(path, {})


def test_the_json_form_is_a_configuration_too(tmp_path: Path) -> None:
    form = {"limits": {"max_conversations": 5}, "servers": {"a": {"command": ["x"]}}, **HOSTS}
    config = load_config(write(tmp_path, json.dumps(form), "callboard.json"), {"V": "v"})
    assert config.limits.max_conversations == 5
    assert set(config.servers) == {"a", "time"}


def test_flags_lie_over_the_embedded_model(tmp_path: Path) -> None:
    tools = write(tmp_path, "", "t.py")
    config = default_config({}).with_flags(
        base_url="http://127.0.0.1:1/v1",
        model="m",
        api_key="k",
        tools_from=[tools, "package.mod"],
        environ={},
    )
    assert (config.model.kind, config.model.name, config.model.key) == ("openai", "m", "k")
    assert config.tools.modules == (str(tools), "package.mod")
    assert default_config({}).with_flags(environ={}) == default_config({})


def test_the_files_key_is_never_sent_to_another_url(tmp_path: Path) -> None:
    path = write(
        tmp_path, '[model]\nbase_url = "http://a/v1"\nname = "n"\napi_key = "file-key"\ntemperature = 1\n'
    )
    config = load_config(path, {})
    other = config.with_flags(base_url="http://b/v1", environ={})
    assert (other.model.key, other.model.name, other.model.temperature) == (None, "n", 1)
    assert config.with_flags(base_url="http://b/v1", environ={"OPENAI_API_KEY": "e"}).model.key == "e"
    assert config.with_flags(base_url="http://a/v1/", environ={}).model.key == "file-key"
    assert config.with_flags(model="m", environ={}).model.key == "file-key"
    assert load_config(path, {"OPENAI_API_KEY": "e"}).model.key == "file-key"


def test_the_environments_key_is_not_sent_to_a_url_from_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, '[model]\nbase_url = "http://a/v1"\n')
    assert load_config(path, {"OPENAI_API_KEY": "e"}).model.key is None


def test_flags_that_are_wrong_are_named() -> None:
    with pytest.raises(ConfigError, match=r"command line: \[model\] base_url: expected an http"):
        default_config({}).with_flags(base_url="", environ={})
    with pytest.raises(ConfigError, match="expected an API key"):
        default_config({}).with_flags(model="gpt-x", environ={})
    with pytest.raises(ConfigError, match=r"--tools-from: expected an existing '\.py' file"):
        default_config({}).with_flags(tools_from=["./none.py"], environ={})


def test_the_working_folders_file_is_used_only_after_trust(tmp_path: Path) -> None:
    assert find_config(tmp_path) is None
    tools = write(tmp_path, "x = 1", "my_tools.py")
    path = write(tmp_path, '[tools]\nmodules = ["./my_tools.py"]\n')
    with pytest.raises(UntrustedConfig, match="callboard trust"):
        find_config(tmp_path)
    trust.record(path, named_files(path))
    assert discover_config(tmp_path, {}).source == str(path)
    tools.write_text("x = 2")
    with pytest.raises(UntrustedConfig, match=r"my_tools\.py changed since"):
        discover_config(tmp_path, {})


def test_the_users_own_file_needs_no_trust(tmp_path: Path, own_folders: Path) -> None:
    own = own_folders / "config" / "callboard"
    own.mkdir()
    write(own, "[limits]\nmax_conversations = 7\n")
    assert discover_config(tmp_path, {}).limits.max_conversations == 7


def test_all_files_that_a_configuration_makes_run_are_named(tmp_path: Path) -> None:
    for name in ("t.py", "srv.py", "run.sh", "host.js", "data.json"):
        write(tmp_path, "", name)
    write(tmp_path, '{"mcpServers": {"h": {"command": "node", "args": ["host.js"]}}}', "mcp.json")
    path = write(
        tmp_path,
        '[tools]\nmodules = ["./t.py", "os.path"]\nmcp_config = "mcp.json"\n'
        '[servers.a]\ncommand = "python srv.py data.json"\n[servers.b]\ncommand = ["./run.sh"]\n',
    )
    assert {file.name for file in named_files(path)} == {"t.py", "mcp.json", "host.js", "srv.py", "run.sh"}


def test_the_example_file_loads() -> None:
    example = Path(__file__).parents[3] / "examples" / "callboard.toml"
    assert load_config(example, {}).templates


def test_a_fallback_is_an_endpoint_with_a_key_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "callboard.toml"
    table = """[model]
base_url = "http://127.0.0.1:1/v1"
[model.fallback]
base_url = "http://127.0.0.1:2/v1"
name = "spare"
api_key_env = "SPARE"
"""
    file.write_text(table, encoding="utf-8")
    model = load_config(file, {"SPARE": "s3cret"}).model
    assert model.fallback is not None
    assert (model.fallback.kind, model.fallback.name, model.fallback.key) == ("openai", "spare", "s3cret")
    with pytest.raises(
        ConfigError, match=r"\[model.fallback\] api_key_env: the environment variable 'SPARE'"
    ):
        load_config(file, {})
    file.write_text('[model.fallback]\nkind = "embedded"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"\[model.fallback\]: expected an endpoint"):
        load_config(file, {})
