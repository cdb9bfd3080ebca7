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


ModuleName = Annotated[str, AfterValidator(_module)]
ExistingFolder = Annotated[Path, AfterValidator(_existing_folder)]
LocatedPath = Annotated[Path, AfterValidator(_located)]
ServerName = Annotated[str, AfterValidator(_server_name)]
TemplateName = Annotated[str, AfterValidator(_template_name)]


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class Timeouts(Table):
    """How long a model call may take, in seconds: to connect, to its first token, between two of them."""

    connect_s: Seconds = 10.0
    first_token_s: Seconds = 120.0
    between_tokens_s: Seconds = 60.0


class ModelConfig(Table):
    """The model: the embedded one, or an OpenAI-compatible endpoint. ``base_url`` is set when ``kind`` is
    openai.
    """

    kind: Literal["embedded", "openai"] = "embedded"
    base_url: str | None = None
    name: Annotated[str, Field(min_length=1)] = EMBEDDED_MODEL
    api_key: SecretStr | None = None
    api_key_env: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    timeouts: Timeouts = Timeouts()
    actors: Annotated[int, Field(ge=1, le=32)] = 2
    weights: LocatedPath | None = None

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
        if key is None:
            return None
        return key.get_secret_value() if (info.context or {}).get("reveal") else str(key)

    @property
    def key(self) -> str | None:
        """The API key itself, for the client that sends it."""
        return None if self.api_key is None else self.api_key.get_secret_value()


class ToolsConfig(Table):
    """Where tools come from. A module is a dotted name or an absolute path that ends in ``.py``."""

    modules: tuple[ModuleName, ...] = ()
    documents: ExistingFolder | None = None
    mcp_config: LocatedPath | None = None
    settings: dict[str, dict[str, Any]] = {}

    @field_validator("modules")
    @classmethod
    def _name_once(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(modules))


class TemplateConfig(Table):
    """A named preset. ``tools`` are patterns such as ``*`` or ``time__*``; deadlines are in seconds."""

    system_prompt: str = DEFAULT_PROMPT
    tools: tuple[Annotated[str, Field(min_length=1)], ...] = ("*",)
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 10
    on_cap: Literal["answer", "return"] = "answer"
    turn_deadline_s: Seconds | None = None
    tool_deadline_s: Seconds | None = None


class ServerConfig(Table):
    """One external MCP server over stdio: the command, what its environment adds, and its limits in seconds.

    ``cwd`` is the file's folder unless it says otherwise.
    """

    command: Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]
    args: tuple[str, ...] = ()
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    cwd: Annotated[ExistingFolder | None, Field(validate_default=True)] = None
    trust: Literal["ask", "allow", "annotations"] = "ask"
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
    """How much may run at a time."""

    max_conversations: Annotated[int, Field(ge=1, le=100_000)] = 1000
    workers_per_step: Annotated[int, Field(ge=1, le=256)] = 16


class StorageConfig(Table):
    """Where the journals lie: a folder; None is the platform's state folder."""

    path: LocatedPath | None = None
