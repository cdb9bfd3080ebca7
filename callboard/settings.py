"""From the configuration (pydantic, what a person wrote) to the actors' settings (plain values that pickle)."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from callboard.actors.settings import ModelSettings, ServerSettings, Settings, TemplateSettings
from callboard.config import Config
from callboard.config_tables import ModelConfig, ToolLimitsConfig
from callboard.embedded import weights
from callboard.tools.limits import ConfiguredLimits

_DAY_S = 86400.0
_DOCUMENT_TOOLS = ("search_documents", "read_document")


def settings_of(config: Config, runtime_dir: Path, state_dir: Path) -> Settings:
    """Make the settings of a system that runs with this configuration and keeps its state in ``state_dir``."""
    keep = config.storage.retention_days
    return Settings(
        runtime_dir=str(runtime_dir),
        state_dir=str(state_dir),
        model=_model(config.model),
        model_actors=config.model.actors,
        tool_modules=config.tools.modules,
        tool_packages=config.tools.packages,
        rules=config.rules,
        tool_settings=_tool_settings(config, state_dir),
        tool_limits={name: _tool_limits(row) for name, row in config.tools.limits.items()},
        templates={
            name: TemplateSettings(
                system_prompt=template.system_prompt,
                tools=template.tools,
                max_steps=template.max_steps,
                on_cap=template.on_cap,
                turn_deadline_s=template.turn_deadline_s,
                step_deadline_s=template.step_deadline_s,
                max_turn_calls=template.max_turn_calls,
                tool_deadline_s=template.tool_deadline_s,
                context_policy=template.context_policy,
            )
            for name, template in config.templates.items()
        },
        servers=tuple(
            ServerSettings(
                name=name,
                argv=server.argv,
                env=server.env,
                cwd=str(server.cwd) if server.cwd else None,
                trust_annotations=server.trust == "annotations",
                call_deadline_s=server.call_deadline_s,
                startup_s=server.startup_s,
            )
            for name, server in config.servers.items()
        ),
        storage_url=config.database_url or "",
        retention_s=None if keep is None else keep * _DAY_S,
        team_retention_s={team: days * _DAY_S for team, days in config.storage.retention.items()},
        max_conversations=config.limits.max_conversations,
        idle_after_s=config.limits.idle_after_s,
        workers_per_step=config.limits.workers_per_step,
        prepared_workers=config.limits.prepared_workers,
        life=uuid.uuid4().hex,
    )


def _model(model: ModelConfig) -> ModelSettings:
    embedded = model.kind == "embedded"
    found = weights.find() if embedded and model.weights is None else model.weights
    return ModelSettings(
        kind="endpoint" if model.kind == "openai" else model.kind,
        name=model.name,
        base_url=model.base_url or "",
        api_key=model.key or "",
        temperature=0.0 if embedded and model.temperature is None else model.temperature,
        connect_s=model.timeouts.connect_s,
        first_token_s=model.timeouts.first_token_s,
        between_tokens_s=model.timeouts.between_tokens_s,
        total_s=model.timeouts.total_s,
        stream=model.stream,
        vision=model.vision,
        context_tokens=model.context_tokens or (weights.CONTEXT_TOKENS if embedded else None),
        reserve_tokens=model.reserve_tokens,
        custom_class=model.model_class or "",
        options=model.options,
        weights=str(found) if found else "",
        fallback=_model(model.fallback) if model.fallback is not None else None,
    )


def _tool_limits(row: ToolLimitsConfig) -> ConfiguredLimits:
    numbers = row.model_dump(exclude={"readable", "writable"})
    return ConfiguredLimits(
        **numbers,
        readable=tuple(os.fspath(path) for path in row.readable),
        writable=tuple(os.fspath(path) for path in row.writable),
    )


def _tool_settings(config: Config, state_dir: Path) -> dict[str, dict[str, Any]]:
    settings = {name: dict(table) for name, table in config.tools.settings.items()}
    if config.tools.documents is not None:
        index = state_dir / "documents.sqlite3"
        for name in _DOCUMENT_TOOLS:
            here = {"folder": os.fspath(config.tools.documents), "index": os.fspath(index)}
            settings[name] = here | settings.get(name, {})
    return settings
