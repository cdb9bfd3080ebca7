"""``[storage]``: which database, and how long conversations are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.config import Config, load_config
from callboard.errors import ConfigError
from callboard.settings import settings_of

MODEL = '[model]\nbase_url = "http://h/v1"\n'


def loaded(folder: Path, text: str, **environ: str) -> Config:
    file = folder / "callboard.toml"
    file.write_text(f"{MODEL}{text}", encoding="utf-8")
    return load_config(file, environ)


def test_a_database_and_the_days_that_conversations_are_kept_reach_the_journal(tmp_path: Path) -> None:
    text = '[storage]\nurl = "postgresql://me:${PW}@db/x"\nretention_days = 30\n'
    text += '[storage.retention]\nred = 0.5\n"" = 1\n'
    config = loaded(tmp_path, text, PW="s3cret")
    settings = settings_of(Config.from_json(config.to_json()), tmp_path, tmp_path)
    assert settings.storage_url == "postgresql+psycopg://me:s3cret@db/x"
    assert (settings.retention_s, dict(settings.team_retention_s)) == (30 * 86400, {"red": 43200, "": 86400})
    assert "s3cret" not in repr(config) + repr(settings) + config.model_dump_json()


def test_without_any_it_is_a_file_that_is_kept_for_ever(tmp_path: Path) -> None:
    settings = settings_of(loaded(tmp_path, ""), tmp_path, tmp_path)
    assert (settings.storage_url, settings.retention_s, dict(settings.team_retention_s)) == ("", None, {})


def test_a_database_file_may_be_named(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[storage]\nurl = "sqlite:////var/lib/x.sqlite3"')
    assert config.database_url == "sqlite:////var/lib/x.sqlite3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('url = "mysql://me:s3cret@db"', "[storage] url: expected 'postgresql://"),
        ('url = "sqlite:///x.sqlite3"', "[storage] url: expected 'postgresql://"),
        ('url = "postgresql://"', "[storage] url: expected 'postgresql://"),
        ('url = "postgresql://${NOPE}@h/s3cret"', "the environment variable NOPE is not set"),
        ("url = 3", "[storage] url: expected"),
        ("retention_days = 0", "[storage] retention_days: expected greater than 0"),
        ('retention_days = "x"', "[storage] retention_days: expected a number"),
        ("retention = { red = -1 }", "[storage.retention] red: expected greater than 0"),
        ("retention = 3", "[storage] retention: expected a table"),
        ("retention_day = 3", "did you mean 'retention_days'?"),
    ],
)
def test_what_cannot_be_is_named_without_the_password(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, f"[storage]\n{text}")
    assert expected in str(refused.value)
    assert "s3cret" not in str(refused.value)
