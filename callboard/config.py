"""The configuration: found, trusted, read, checked, with every default filled in.

Loading resolves what only the loader's process knows (the file's folder, the environment), so the JSON form
that a daemon is handed means the same everywhere. It starts nothing and imports no module that a file names.
The command line and ``callboard.connect`` load; the daemon reads JSON.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator

from callboard import trust
from callboard.config_complaint import explain, shown, table_name
from callboard.config_rules import ApprovalConfig, FeaturesConfig, PermissionsConfig, rules_of
from callboard.config_source import is_path, own_form, read_table, scripts_named
from callboard.config_tables import (
    LimitsConfig,
    ModelConfig,
    ServerConfig,
    ServerName,
    StorageConfig,
    Table,
    TemplateConfig,
    TemplateName,
    ToolsConfig,
)
from callboard.errors import ConfigError, UntrustedConfig
from callboard.paths import config_dir, state_dir
from callboard.tools.decision import Rules

FILE_NAME = "callboard.toml"
OPENAI_URL = "https://api.openai.com/v1"
OPENAI_MODEL = "gpt-4.1-mini"


class ConfigFile(Table):
    """What ``callboard.toml`` may say."""

    model: ModelConfig = ModelConfig()
    tools: ToolsConfig = ToolsConfig()
    templates: Annotated[dict[TemplateName, TemplateConfig], Field(validate_default=True)] = {}
    servers: dict[ServerName, ServerConfig] = {}
    limits: LimitsConfig = LimitsConfig()
    storage: StorageConfig = StorageConfig()
    permissions: PermissionsConfig = PermissionsConfig()
    features: FeaturesConfig = {}
    approval: ApprovalConfig = ApprovalConfig()

    @field_validator("templates")
    @classmethod
    def _add_default(cls, templates: dict[str, TemplateConfig]) -> dict[str, TemplateConfig]:
        return {"default": TemplateConfig()} | templates


class Config(ConfigFile):
    """The whole configuration, ready for use. ``source`` is the file that it was loaded from, if any."""

    source: str | None = None

    @property
    def embedded(self) -> bool:
        """True when the model is the embedded one."""
        return self.model.kind == "embedded"

    def storage_path(self, name: str) -> Path:
        """Give the journal folder of the system ``name``; it may not exist yet."""
        return self.storage.path or state_dir() / "systems" / name

    @property
    def rules(self) -> Rules:
        """What it says about who may use which tool, as the decision on a call takes it."""
        return rules_of(self.permissions, self.features, self.approval, self.templates, self.servers)

    @property
    def database_url(self) -> str | None:
        """The journal's database, for the one who opens it; None: a file in ``storage_path``."""
        url = self.storage.url
        return None if url is None else url.get_secret_value()

    def to_json(self) -> str:
        """Give the JSON form, **with the secrets in it**: keep it in a file of mode 0600."""
        return self.model_dump_json(context={"reveal": True})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read ``to_json``'s form; nothing is resolved again. Raises ConfigError."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ConfigError(explain(error, "configuration", cls)) from error

    def with_flags(
        self,
        *,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        tools_from: Sequence[str | Path] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> Config:
        """Give this configuration with the command line's flags over it; raises ConfigError.

        Another ``base_url`` never receives the file's key: only ``api_key``, or the environment's
        OPENAI_API_KEY.
        """
        form = self.model_dump(context={"reveal": True})
        flags = {"base_url": base_url, "name": model, "api_key": api_key}
        given = {key: value for key, value in flags.items() if value is not None}
        if given:
            form["model"] = _flagged_model(form["model"], given, environ)
        form["tools"]["modules"] = [*self.tools.modules, *(_flagged_module(str(path)) for path in tools_from)]
        try:
            return Config.model_validate(form)
        except ValidationError as error:
            raise ConfigError(explain(error, "command line", ConfigFile)) from error


def load_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Load ``callboard.toml``, its JSON form, or a host's ``mcpServers`` file; raises ConfigError."""
    table, file = read_table(path), str(path)
    context = {"folder": path.resolve().parent, "environ": environ}
    if isinstance(table.get("model", {}), dict):
        table["model"] = resolve_model(table.get("model", {}), environ, f"{file}: ")
    table = _with_host_servers(table, path, context)
    try:
        parts = ConfigFile.model_validate(table, context=context)
    except ValidationError as error:
        raise ConfigError(explain(error, file, ConfigFile)) from error
    return _completed(parts, str(path.resolve()))


def default_config(environ: Mapping[str, str] = os.environ) -> Config:
    """Give what holds without a file: the environment's endpoint, else the embedded model."""
    try:
        parts = ConfigFile.model_validate({"model": resolve_model({}, environ)})
    except ValidationError as error:
        raise ConfigError(explain(error, "environment", ConfigFile)) from error
    return _completed(parts, None)


def find_config(cwd: Path) -> Path | None:
    """Give the file to use: the working folder's if it is trusted, else the user's own, else None.

    Raises UntrustedConfig when the working folder has one that is not (or no longer) trusted.
    """
    here = cwd / FILE_NAME
    if here.is_file():
        reason = trust.doubt(here, named_files(here))
        if reason is not None:
            raise UntrustedConfig(
                f"{here} names code to run and is not trusted ({reason}); read it, then run "
                f"'callboard trust', or pass it with --config {FILE_NAME}"
            )
        return here
    own = config_dir() / FILE_NAME
    return own if own.is_file() else None


def discover_config(cwd: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Load what ``find_config`` finds, else the default; raises ConfigError."""
    found = find_config(cwd)
    return default_config(environ) if found is None else load_config(found, environ)


def named_files(path: Path) -> tuple[Path, ...]:
    """Give the local files that a configuration file makes run, judging nothing else; raises ConfigError."""
    table, folder = read_table(path), path.resolve().parent
    found = _server_files(table, folder)
    model = table.get("model")
    if isinstance(model, dict) and isinstance(model.get("class"), str):
        file = model["class"].rpartition(":")[0]
        found += [folder / Path(file).expanduser()] if is_path(file) else []
    permissions = table.get("permissions")
    if isinstance(permissions, dict) and isinstance(permissions.get("hook"), str):
        file = permissions["hook"].rpartition(":")[0]
        found += [folder / Path(file).expanduser()] if is_path(file) else []
    tools = table.get("tools")
    if isinstance(tools, dict):
        modules = tools.get("modules")
        names = [str(name) for name in modules] if isinstance(modules, list) else []
        found += [folder / Path(name).expanduser() for name in names if is_path(name)]
        if isinstance(tools.get("mcp_config"), str):
            hosts = folder / Path(tools["mcp_config"]).expanduser()
            found.append(hosts)
            found += _server_files(read_table(hosts), hosts.resolve().parent)
    return tuple(dict.fromkeys(found))


def resolve_model(
    table: Mapping[str, Any], environ: Mapping[str, str], place: str = "", name: str = "model"
) -> dict[str, Any]:
    """Fill a ``[model]`` table (``name``) from the environment: which kind, which endpoint, which key; raises
    ConfigError.

    The environment's key goes to the environment's endpoint (or OpenAI's) only, never to a URL in the table.
    """
    model = dict(table)
    if isinstance(model.get("fallback"), dict):
        model["fallback"] = resolve_model(model["fallback"], environ, place, "model.fallback")
    named = any(key in model for key in ("base_url", "api_key", "api_key_env", "name"))
    offered = bool(environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"))
    if model.get("class") is not None and model.setdefault("kind", "custom") == "custom":
        model.setdefault("name", str(model["class"]).rpartition(":")[2] or "custom")
        return model
    chosen = "openai" if named or (offered and "weights" not in model) else "embedded"
    if model.setdefault("kind", chosen) != "openai":
        return model
    variable = model.get("api_key_env")
    if isinstance(variable, str) and "api_key" not in model:
        if not environ.get(variable):
            raise ConfigError(
                f"{place}[{name}] api_key_env: the environment variable {variable!r} is not set"
            )
        model["api_key"] = environ[variable]
    if "base_url" not in model:
        model["base_url"] = environ.get("OPENAI_BASE_URL") or OPENAI_URL
        if "api_key" not in model and environ.get("OPENAI_API_KEY"):
            model["api_key"] = environ["OPENAI_API_KEY"]
    model.setdefault("name", OPENAI_MODEL)
    return model


def _flagged_model(
    table: Mapping[str, Any], given: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, Any]:
    former = {key: value for key, value in table.items() if value is not None}
    kept = former if former["kind"] == "openai" else {key: former[key] for key in ("timeouts", "actors")}
    if "base_url" in given and given["base_url"].rstrip("/") != kept.get("base_url"):
        for key in ("api_key", "api_key_env", "fallback"):
            kept.pop(key, None)
        if environ.get("OPENAI_API_KEY"):
            kept["api_key"] = environ["OPENAI_API_KEY"]
    return resolve_model(kept | dict(given) | {"kind": "openai"}, environ, "command line: ")


def _flagged_module(name: str) -> str:
    if not is_path(name):
        return name
    path = Path(name).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(
            f"--tools-from: expected an existing '.py' file or a module's name, got {shown(name)}"
        )
    return str(path)


def _with_host_servers(table: dict[str, Any], path: Path, context: Mapping[str, Any]) -> dict[str, Any]:
    found = _host_servers(table.pop("mcpServers", {}), str(path), context)
    tools = table.get("tools")
    if isinstance(tools, dict) and isinstance(tools.get("mcp_config"), str):
        hosts = path.resolve().parent / Path(tools["mcp_config"]).expanduser()
        entries = read_table(hosts).get("mcpServers", {})
        found |= _host_servers(entries, str(hosts), {**context, "folder": hosts.resolve().parent})
    own = table.get("servers", {})
    if not found or not isinstance(own, dict):
        return table
    twice = sorted(found.keys() & own.keys())
    if twice:
        raise ConfigError(f"{path}: {table_name(('servers', twice[0]))}: is under mcpServers too; rename one")
    return {**table, "servers": {**own, **found}}


def _host_servers(entries: object, file: str, context: Mapping[str, Any]) -> dict[str, ServerConfig]:
    if not isinstance(entries, dict):
        raise ConfigError(f"{file}: mcpServers: expected an object of servers, got {shown(entries)}")
    found = {}
    for name, entry in entries.items():
        form = own_form(entry, f"{file}: {table_name(('mcpServers', name))}")
        if form is None:
            continue
        try:
            found[name] = ServerConfig.model_validate(form, context=dict(context))
        except ValidationError as error:
            raise ConfigError(explain(error, file, ServerConfig, ("mcpServers", name))) from error
    return found


def _server_files(table: Mapping[str, Any], folder: Path) -> list[Path]:
    found: list[Path] = []
    for key in ("servers", "mcpServers"):
        entries = table.get(key)
        for entry in entries.values() if isinstance(entries, dict) else ():
            if isinstance(entry, dict):
                found += scripts_named(_command_words(entry), folder)
    return found


def _command_words(entry: Mapping[str, Any]) -> list[str]:
    command, args = entry.get("command"), entry.get("args")
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command or ())
    except (ValueError, TypeError):
        words = []
    return [str(word) for word in [*words, *(args if isinstance(args, list) else ())]]


def _completed(parts: ConfigFile, source: str | None) -> Config:
    fields = {name: getattr(parts, name) for name in ConfigFile.model_fields}
    if parts.tools.documents is None:
        fields["tools"] = parts.tools.model_copy(update={"documents": _own_documents()})
    return Config.model_validate({**fields, "source": source})


def _own_documents() -> Path | None:
    checkout = Path(__file__).resolve().parent.parent
    documents = checkout / "docs"
    return documents if (checkout / "run_system.py").is_file() and documents.is_dir() else None
