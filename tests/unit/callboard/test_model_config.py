from __future__ import annotations

from pathlib import Path

import pytest

from callboard.config import Config, default_config, load_config, named_files
from callboard.embedded.weights import CONTEXT_TOKENS
from callboard.errors import ConfigError
from callboard.settings import settings_of


def load(folder: Path, text: str) -> Config:
    path = folder / "callboard.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, {})


def model_settings(config: Config):  # type: ignore[no-untyped-def]
    return settings_of(Config.from_json(config.to_json()), Path("/run/x"), Path("/state/x")).model


def test_a_class_of_ones_own_is_the_model(tmp_path: Path) -> None:
    config = load(tmp_path, '[model]\nclass = "my.models:Mine"\n[model.options]\ndepth = 3\n')
    model = model_settings(config)
    assert (model.kind, model.custom_class, model.name) == ("custom", "my.models:Mine", "Mine")
    assert model.options == {"depth": 3}


def test_a_class_in_a_file_is_found_from_the_configurations_folder_and_trusted_with_it(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.py"
    own.write_text("", encoding="utf-8")
    config = load(tmp_path, '[model]\nkind = "custom"\nclass = "./own.py:Mine"\n')
    assert model_settings(config).custom_class == f"{own}:Mine"
    assert named_files(tmp_path / "callboard.toml") == (tmp_path / "./own.py",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('class = "Mine"', "'package.module:"),
        ('class = "./no.py:Mine"', "an existing '.py' file"),
        ('kind = "custom"', "expected a class"),
        ('kind = "openai"\nclass = "a:B"', "expected a class"),
        ("context_tokens = 10", "greater than or equal to 256"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[model]\n{text}\n")
    assert "[model]" in str(caught.value)
    assert says in str(caught.value)


def test_what_is_said_of_the_window_reaches_the_actors(tmp_path: Path) -> None:
    text = """
[model]
base_url = "http://127.0.0.1:1/v1"
stream = false
vision = true
context_tokens = 8000
reserve_tokens = 500
timeouts = { total_s = 30 }

[templates.strict]
context_policy = "error"
"""
    settings = settings_of(load(tmp_path, text), Path("/run/x"), Path("/state/x"))
    model = settings.model
    assert (model.kind, model.stream, model.vision) == ("endpoint", False, True)
    assert (model.context_tokens, model.reserve_tokens, model.total_s) == (8000, 500, 30.0)
    assert settings.templates["strict"].context_policy == "error"
    assert settings.templates["default"].context_policy == "trim"


def test_the_embedded_models_window_is_known() -> None:
    assert model_settings(default_config({})).context_tokens == CONTEXT_TOKENS
