"""What the actors need of the configuration: plain frozen values that pickle, made once from the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EMBEDDED_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which endpoint. ``kind`` ``embedded``: the local model, whose address is asked of its owner."""

    kind: Literal["endpoint", "embedded"]
    name: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    temperature: float | None = None
    connect_s: float = 5.0
    first_token_s: float = 60.0
    between_tokens_s: float = 60.0
    weights: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSettings:
    """A preset. ``tools`` are patterns over exposed names."""

    system_prompt: str
    tools: tuple[str, ...] = ("*",)
    max_steps: int = 10
    on_cap: Literal["answer", "return"] = "answer"
    turn_deadline_s: float | None = None
    tool_deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One stdio MCP server: its command line, extra environment, and limits in seconds."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    trust_annotations: bool = False
    call_deadline_s: float = 300.0
    startup_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole system's settings."""

    runtime_dir: str
    state_dir: str
    model: ModelSettings
    model_actors: int = 2
    tool_modules: tuple[str, ...] = ()
    tool_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    templates: Mapping[str, TemplateSettings] = field(default_factory=dict)
    servers: tuple[ServerSettings, ...] = ()
    max_conversations: int = 1000
    workers_per_step: int = 16
