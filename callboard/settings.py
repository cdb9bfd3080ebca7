"""From the configuration (pydantic, what a person wrote) to the actors' settings (plain values that pickle)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from callboard.actors.settings import ModelSettings, ServerSettings, Settings, TemplateSettings
from callboard.config import Config
from callboard.embedded import weights

_DOCUMENT_TOOLS = ("search_documents", "read_document")


def settings_of(config: Config, runtime_dir: Path, state_dir: Path) -> Settings:
    """Make the settings of a system that runs with this configuration and keeps its state in ``state_dir``."""
    return Settings(
        runtime_dir=str(runtime_dir),
        state_dir=str(state_dir),
        model=_model(config),
        model_actors=config.model.actors,
        tool_modules=config.tools.modules,
        tool_settings=_tool_settings(config, state_dir),
        templates={
            name: TemplateSettings(
                system_prompt=template.system_prompt,
                tools=template.tools,
                max_steps=template.max_steps,
                on_cap=template.on_cap,
                turn_deadline_s=template.turn_deadline_s,
                tool_deadline_s=template.tool_deadline_s,
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
        max_conversations=config.limits.max_conversations,
        workers_per_step=config.limits.workers_per_step,
    )


def _model(config: Config) -> ModelSettings:
    model = config.model
    found = weights.find() if config.embedded and model.weights is None else model.weights
    return ModelSettings(
        kind="embedded" if config.embedded else "endpoint",
        name=model.name,
        base_url=model.base_url or "",
        api_key=model.key or "",
        temperature=0.0 if config.embedded and model.temperature is None else model.temperature,
        connect_s=model.timeouts.connect_s,
        first_token_s=model.timeouts.first_token_s,
        between_tokens_s=model.timeouts.between_tokens_s,
        weights=str(found) if found else "",
    )


def _tool_settings(config: Config, state_dir: Path) -> dict[str, dict[str, Any]]:
    settings = {name: dict(table) for name, table in config.tools.settings.items()}
    if config.tools.documents is not None:
        index = state_dir / "documents.sqlite3"
        for name in _DOCUMENT_TOOLS:
            here = {"folder": os.fspath(config.tools.documents), "index": os.fspath(index)}
            settings[name] = here | settings.get(name, {})
    return settings
