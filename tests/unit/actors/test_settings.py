"""Who needs no secret is given settings without any, wherever in them one may stand."""

from __future__ import annotations

import pickle

from callboard.actors.settings import ModelSettings, ServerSettings, Settings

SECRET = "canary-0123456789"


def _model(fallback: ModelSettings | None = None) -> ModelSettings:
    return ModelSettings(
        kind="endpoint",
        name="m",
        base_url=f"https://user:{SECRET}@models.example/v1?key={SECRET}",
        api_key=SECRET,
        options={"token": SECRET},
        fallback=fallback,
    )


def test_settings_without_secrets_have_none_in_addresses_and_command_lines_either() -> None:
    server = ServerSettings(name="s", argv=("serve", "--token", SECRET), env={"TOKEN": SECRET})
    settings = Settings(
        runtime_dir="/run/c",
        state_dir="/state",
        model=_model(_model()),
        servers=(server,),
        storage_url=f"postgresql://user:{SECRET}@db.example/callboard",
    )
    slim = settings.without_secrets()
    assert SECRET.encode() in pickle.dumps(settings)
    assert SECRET.encode() not in pickle.dumps(slim)
    assert (slim.model.name, [one.name for one in slim.servers], slim.model.fallback is not None) == (
        "m",
        ["s"],
        True,
    )
