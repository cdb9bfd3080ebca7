"""The tables of ``callboard.toml`` as frozen models: their keys, their defaults, what each value may be.

Validated with the context ``{"folder": Path, "environ": Mapping}``, relative paths and ``${NAME}`` are
resolved; without a context (the daemon's JSON form) values stand as they are. Nothing here reads a
configuration file or imports what it names; ``callboard.config`` puts the tables together.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    SerializationInfo,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from callboard.config_source import expand, is_path

EMBEDDED_MODEL = "qwen2.5-coder-1.5b-instruct"
DEFAULT_PROMPT = (
    "You are a helpful assistant. Use a tool when it gives a better answer than you can give yourself, "
    "and answer from its result. If a tool fails, say so plainly. Be brief."
)

_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_MODULE_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Seconds = Annotated[float, Field(gt=0, le=7 * 86400)]
Days = Annotated[float, Field(gt=0, le=36_500)]


def _folder(info: ValidationInfo) -> Path | None:
    return info.context["folder"] if info.context else None


def _environ(info: ValidationInfo) -> Mapping[str, str] | None:
    return info.context["environ"] if info.context else None


def _located(path: Path, info: ValidationInfo) -> Path:
    folder = _folder(info)
    return path if folder is None else Path(os.path.normpath(folder / path.expanduser()))


def _existing_folder(path: Path, info: ValidationInfo) -> Path:
    located = _located(path, info)
    if _folder(info) is not None and not located.is_dir():
        raise ValueError("expected an existing folder")
    return located


def _module(name: str, info: ValidationInfo) -> str:
    folder = _folder(info)
    if folder is None:
        return name
    if not is_path(name):
        if not _MODULE_NAME.fullmatch(name):
            raise ValueError("expected a module's dotted name or a path that ends in '.py'")
        return name
    path = _located(Path(name), info)
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"expected an existing '.py' file (looked for {path})")
    return str(path)


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as fault:
        raise ValueError(f"expected a command line or a list of words: {fault}") from fault


def _server_name(name: str) -> str:
    if not _SERVER_NAME.fullmatch(name):
        raise ValueError("expected a server's name of 1 to 32 letters, digits, '_' or '-'")
    return name


def _template_name(name: str) -> str:
    if not _PLAIN_NAME.fullmatch(name):
        raise ValueError("expected a template's name of 1 to 64 letters, digits, '_', '.' or '-'")
    return name


def _database_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme in ("postgres", "postgresql"):
        scheme = "postgresql+psycopg"
    if not (scheme == "postgresql+psycopg" and rest) and not (scheme == "sqlite" and rest.startswith("//")):
        raise ValueError(
            "expected 'postgresql://user:password@host/database' or 'sqlite:////a/whole/path.sqlite3'"
        )
    return f"{scheme}://{rest}"


def _revealed(secret: SecretStr | None, info: SerializationInfo) -> str | None:
    if secret is None:
        return None
    return secret.get_secret_value() if (info.context or {}).get("reveal") else str(secret)


def _class_name(reference: str, info: ValidationInfo) -> str:
    module, _, name = reference.rpartition(":")
    if not module or not name.isidentifier():
        raise ValueError("expected 'package.module:name' or './file.py:name'")
    return f"{_module(module, info)}:{name}"


ClassName = Annotated[str, AfterValidator(_class_name)]
ModuleName = Annotated[str, AfterValidator(_module)]
ExistingFolder = Annotated[Path, AfterValidator(_existing_folder)]
LocatedPath = Annotated[Path, AfterValidator(_located)]
ServerName = Annotated[str, AfterValidator(_server_name)]
TemplateName = Annotated[str, AfterValidator(_template_name)]


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class Timeouts(Table):
    """How long a model call may take, in seconds: to connect, to its first token, between two of them, in all."""

    connect_s: Seconds = 10.0
    first_token_s: Seconds = 120.0
    between_tokens_s: Seconds = 60.0
    total_s: Seconds = 600.0


class ModelConfig(Table):
    """The model: the embedded one, an OpenAI-compatible endpoint, or a class of the user's own.

    ``base_url`` is set when ``kind`` is openai, ``model_class`` (the key ``class``) when it is custom. ``fallback``
    is an endpoint that is asked where this model cannot be.
    """

    model_config = ConfigDict(populate_by_name=True)

    kind: Literal["embedded", "openai", "custom"] = "embedded"
    base_url: str | None = None
    name: Annotated[str, Field(min_length=1)] = EMBEDDED_MODEL
    api_key: SecretStr | None = None
    api_key_env: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    timeouts: Timeouts = Timeouts()
    actors: Annotated[int, Field(ge=1, le=32)] = 2
    weights: LocatedPath | None = None
    model_class: ClassName | None = Field(default=None, alias="class")
    options: Annotated[dict[str, Any], Field(repr=False)] = {}
    stream: bool = True
    vision: bool = False
    context_tokens: Annotated[int, Field(ge=256, le=100_000_000)] | None = None
    reserve_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 1024
    fallback: ModelConfig | None = None

    @field_validator("fallback")
    @classmethod
    def _check_fallback(cls, model: ModelConfig | None) -> ModelConfig | None:
        if model is not None and (model.kind != "openai" or model.fallback is not None):
            raise ValueError("expected an endpoint (base_url, name), without a fallback of its own")
        return model

    @model_validator(mode="after")
    def _check_class(self) -> Self:
        if (self.kind == "custom") != (self.model_class is not None):
            raise ValueError(
                "expected a class, such as class = 'my_models:Mine', with kind = 'custom' and only then"
            )
        return self

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected an http(s) URL such as 'http://127.0.0.1:8080/v1'")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        official = self.base_url is not None and urlsplit(self.base_url).hostname == "api.openai.com"
        if official and self.api_key is None:
            raise ValueError("expected an API key: set OPENAI_API_KEY, or api_key_env to a variable's name")
        return self

    @field_serializer("api_key")
    def _write_key(self, key: SecretStr | None, info: SerializationInfo) -> str | None:
        return _revealed(key, info)

    @property
    def key(self) -> str | None:
        """The API key itself, for the client that sends it."""
        return None if self.api_key is None else self.api_key.get_secret_value()


class ToolLimitsConfig(Table):
    """What calls of one tool (or, under ``*``, of every local tool) may use at most; what is not said, the tool says.

    A row makes limits stricter, never looser; ``env``, ``readable`` and ``writable`` add to what the tool names.
    """

    deadline_s: Seconds | None = None
    memory_mb: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    cpu_s: Seconds | None = None
    open_files: Annotated[int, Field(ge=16, le=1_000_000)] | None = None
    file_mb: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    output_mb: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    processes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    sandbox: Literal["none", "confined", "isolated"] = "none"
    env: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    readable: tuple[LocatedPath, ...] = ()
    writable: tuple[LocatedPath, ...] = ()


class ToolsConfig(Table):
    """Where tools come from. A module is a dotted name or an absolute path that ends in ``.py``.

    ``packages`` are patterns: which of the installed packages' entry points in the group ``callboard.tools`` count.
    """

    modules: tuple[ModuleName, ...] = ()
    packages: tuple[Annotated[str, Field(min_length=1)], ...] = ("*",)
    documents: ExistingFolder | None = None
    mcp_config: LocatedPath | None = None
    settings: dict[str, dict[str, Any]] = {}
    limits: dict[str, ToolLimitsConfig] = {}

    @field_validator("modules")
    @classmethod
    def _name_once(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(modules))


class TemplateConfig(Table):
    """A named preset. ``tools`` are patterns such as ``*`` or ``time__*``; deadlines are in seconds.

    ``tools`` are enabled when a conversation opens; no other than ``allowed_tools`` can ever be.
    """

    system_prompt: str = DEFAULT_PROMPT
    tools: tuple[Annotated[str, Field(min_length=1)], ...] = ("*",)
    allowed_tools: tuple[Annotated[str, Field(min_length=1)], ...] = ("*",)
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 10
    on_cap: Literal["answer", "return"] = "answer"
    turn_deadline_s: Seconds | None = None
    step_deadline_s: Seconds | None = None
    max_turn_calls: Annotated[int, Field(ge=1, le=100_000)] = 256
    tool_deadline_s: Seconds | None = None
    context_policy: Literal["error", "trim"] = "trim"


class ServerConfig(Table):
    """One external MCP server over stdio: the command, what its environment adds, and its limits in seconds.

    ``cwd`` is the file's folder unless it says otherwise. ``teams`` are patterns: for others the server does not
    exist.
    """

    command: Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]
    args: tuple[str, ...] = ()
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    cwd: Annotated[ExistingFolder | None, Field(validate_default=True)] = None
    trust: Literal["ask", "allow", "annotations"] = "ask"
    teams: tuple[Annotated[str, Field(min_length=1)], ...] = ("*",)
    call_deadline_s: Seconds = 300.0
    startup_s: Seconds = 30.0

    @field_validator("env")
    @classmethod
    def _expand_env(cls, env: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        environ = _environ(info)
        return env if environ is None else {name: expand(value, environ) for name, value in env.items()}

    @field_validator("cwd")
    @classmethod
    def _default_cwd(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        return _folder(info) if path is None else path

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command line."""
        return (*self.command, *self.args)


class LimitsConfig(Table):
    """How much may run at a time; a conversation's process ends after ``idle_after_s`` seconds without a message.

    So many workers stand prepared in a conversation while its model thinks, for the tools that it called last.
    """

    max_conversations: Annotated[int, Field(ge=1, le=100_000)] = 1000
    idle_after_s: Seconds = 600.0
    workers_per_step: Annotated[int, Field(ge=1, le=256)] = 16
    prepared_workers: Annotated[int, Field(ge=0, le=64)] = 0


class StorageConfig(Table):
    """Where the journals lie, and for how long. ``path`` is a folder, None the platform's state folder; ``url`` is a
    database, None a file in that folder. Conversations that rested for ``retention_days`` are deleted; a team's own
    number of days, in ``retention``, takes the general one's place.
    """

    path: LocatedPath | None = None
    url: SecretStr | None = None
    retention_days: Days | None = None
    retention: dict[str, Days] = {}

    @field_validator("url", mode="before")
    @classmethod
    def _expand_url(cls, url: object, info: ValidationInfo) -> object:
        environ = _environ(info)
        return expand(url, environ) if isinstance(url, str) and environ is not None else url

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        return None if url is None else SecretStr(_database_url(url.get_secret_value()))

    @field_serializer("url")
    def _write_url(self, url: SecretStr | None, info: SerializationInfo) -> str | None:
        return _revealed(url, info)
