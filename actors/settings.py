"""What the actors need of the configuration: plain frozen values that pickle, made once from the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from callboard.tools.decision import Rules
from callboard.tools.limits import ConfiguredLimits

EMBEDDED_START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model. ``kind`` ``embedded``: the local model, whose address is asked of its owner; ``custom``: a class
    of the user's own, ``custom_class``, made with ``options``.

    ``context_tokens``: the window, request and answer together, of which ``reserve_tokens`` are kept for the answer.
    ``fallback``: an endpoint for when this one cannot be had.
    """

    kind: Literal["endpoint", "embedded", "custom"]
    name: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    temperature: float | None = None
    connect_s: float = 5.0
    first_token_s: float = 60.0
    between_tokens_s: float = 60.0
    total_s: float = 600.0
    stream: bool = True
    vision: bool = False
    context_tokens: int | None = None
    reserve_tokens: int = 1024
    custom_class: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    weights: str = ""
    fallback: ModelSettings | None = None

    def at(self, base_url: str, api_key: str) -> ModelSettings:
        """Give the settings with an address."""
        return replace(self, base_url=base_url, api_key=api_key)

    def without_secrets(self) -> ModelSettings:
        """Give the settings of who does not ask the model itself."""
        fallback = self.fallback.without_secrets() if self.fallback is not None else None
        return replace(self, base_url="", api_key="", options={}, fallback=fallback)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSettings:
    """A preset. ``tools`` are patterns over exposed names."""

    system_prompt: str
    tools: tuple[str, ...] = ("*",)
    max_steps: int = 10
    on_cap: Literal["answer", "return"] = "answer"
    turn_deadline_s: float | None = None
    step_deadline_s: float | None = None
    max_turn_calls: int = 256
    tool_deadline_s: float | None = None
    context_policy: Literal["error", "trim"] = "trim"


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
    """The whole system's settings.

    ``storage_url`` is the journal's database, empty for a file in ``state_dir``; ``journal_wrapper``
    ("module:callable") wraps its store, for tests of faults, and comes from no configuration file. A conversation
    that rested for ``retention_s`` (its team's in ``team_retention_s``, where that is set) is deleted; None keeps it
    for ever.
    ``tool_packages`` are patterns over entry points; ``rules`` say who may use which tool.
    ``life`` is another one each time that the daemon starts.
    At most ``prepared_workers`` tool workers of a conversation stand ready while its model thinks.
    The client of a conversation in which nothing happened for ``idle_after_s`` leaves until the next message.
    """

    runtime_dir: str
    state_dir: str
    model: ModelSettings
    model_actors: int = 2
    tool_modules: tuple[str, ...] = ()
    tool_packages: tuple[str, ...] = ()
    rules: Rules = Rules()
    tool_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tool_limits: Mapping[str, ConfiguredLimits] = field(default_factory=dict)
    templates: Mapping[str, TemplateSettings] = field(default_factory=dict)
    servers: tuple[ServerSettings, ...] = ()
    storage_url: str = field(default="", repr=False)
    journal_wrapper: str = ""
    retention_s: float | None = None
    team_retention_s: Mapping[str, float] = field(default_factory=dict)
    max_conversations: int = 1000
    idle_after_s: float = 600.0
    workers_per_step: int = 16
    prepared_workers: int = 0
    life: str = ""

    def without_secrets(self) -> Settings:
        """Give the settings of actors that need no key: the clients, and the directory that starts them.

        Addresses and command lines may hold a password, too. What is configured for tools stays.
        """
        return replace(
            self,
            model=self.model.without_secrets(),
            servers=tuple(replace(server, argv=(), env={}) for server in self.servers),
            storage_url="",
        )
