"""The tables' versions: made new, migrated from each older one with rows in them, and refused when they are newer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, text

from callboard.storage import journal_version, schema
from callboard.storage.journal import open_journal
from callboard.storage.journal_terms import Append, JournalError
from callboard.testing.postgres import NoPostgres, PostgresServer

NEXT = """
import sqlalchemy as sa
from alembic import op
revision = "9999"
down_revision = "{head}"
branch_labels = depends_on = None

def upgrade():
    with op.batch_alter_table("journal_streams") as table:
        table.add_column(sa.Column("colour", sa.Text, nullable=False, server_default="green"))
"""


def revisions() -> list[str]:
    config = Config()
    config.set_main_option("script_location", str(journal_version.MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    return [r.revision for r in ScriptDirectory.from_config(config).walk_revisions()][::-1]


@pytest.fixture
def url(journal_url: str, postgres: PostgresServer | NoPostgres) -> str:
    """A database without a table."""
    if journal_url.startswith("sqlite") or isinstance(postgres, NoPostgres):
        return journal_url
    postgres.drop("versions")
    return postgres.empty("versions")


@pytest.fixture
def connection(url: str, tmp_path: Path) -> Iterator[Connection]:
    (tmp_path / "state").mkdir(exist_ok=True)
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda raw, _record: setattr(raw, "isolation_level", None))
        event.listen(engine, "begin", lambda made: made.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.connect() as made:
        yield made
    engine.dispose()


def tables(connection: Connection) -> dict[str, Any]:
    """Give the differences between the tables and the schema, and the version."""
    context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
    differences = compare_metadata(context, schema.metadata)
    return {"differences": differences, "version": journal_version.version_of(connection)}


def test_the_code_knows_the_last_version() -> None:
    assert revisions()[-1] == schema.HEAD


@pytest.mark.parametrize("how", ["at once", "step by step"])
def test_tables_made_at_once_and_step_by_step_are_the_same(connection: Connection, how: str) -> None:
    with connection.begin():
        if how == "at once":
            journal_version.prepare(connection)
        else:
            for revision in revisions():
                journal_version.migrate(connection, revision)
    with connection.begin():
        assert tables(connection) == {"differences": [], "version": schema.HEAD}
        assert connection.execute(text("SELECT id, last FROM journal_epochs")).all() == [(1, 0)]


@pytest.mark.parametrize("revision", revisions())
def test_a_journal_of_each_older_version_is_migrated_with_its_rows(
    connection: Connection, url: str, revision: str
) -> None:
    with connection.begin():
        journal_version.migrate(connection, revision)
        connection.execute(
            text(
                "INSERT INTO journal_streams (team, kind, name, epoch, last_seq, damaged, state, owner, template, "
                "title, turns, created_at, updated_at) VALUES ('red', 'conversation', 'c', 7, 0, :no, 'open', 'ann', "
                "'', '', 0, 1.0, 2.0)"
            ),
            {"no": False},
        )
        connection.execute(text("UPDATE journal_epochs SET last = 7"))
    journal = open_journal(url)
    opened = journal.open("c", "red")
    assert opened.epoch == 8
    append = Append(conversation="c", team="red", epoch=8, records=[{"seq": 1, "type": "note"}])
    assert journal.commit([append]) == [1]
    assert journal.check() == []
    journal.close()
    with connection.begin():
        assert tables(connection) == {"differences": [], "version": schema.HEAD}


def test_an_older_journal_meets_newer_code_and_a_newer_one_is_refused(
    url: str, tmp_path: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(url)
    epoch = journal.open("c", "red").epoch
    journal.commit([Append(conversation="c", team="red", epoch=epoch, records=[{"seq": 1}])])
    journal.close()
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "v9999_colours.py").write_text(NEXT.format(head=schema.HEAD))
    with connection.begin():
        journal_version.migrate(connection, folders=[steps])
        assert journal_version.version_of(connection) == "9999"
        assert connection.execute(text("SELECT colour FROM journal_streams")).all() == [("green",)]
    for attempt in (lambda: journal.open("c", "red"), journal.unfinished):
        with pytest.raises(JournalError, match=r"9999.*install a newer one") as caught:
            attempt()
        assert caught.value.kind == "storage_newer"
    journal.close()
    with connection.begin():
        connection.execute(text("UPDATE journal_version SET version_num = :head"), {"head": schema.HEAD})
    assert len(journal.open("c", "red").records) == 1
    journal.close()


def test_a_migration_that_fails_leaves_the_journal_as_it_was(
    url: str, tmp_path: Path, connection: Connection
) -> None:
    with connection.begin():
        journal_version.prepare(connection)
    (tmp_path / "v9999_broken.py").write_text(
        NEXT.format(head=schema.HEAD) + "    raise RuntimeError('in the middle')\n"
    )
    with pytest.raises(RuntimeError, match="in the middle"), connection.begin():
        journal_version.migrate(connection, folders=[tmp_path])
    with connection.begin():
        assert tables(connection) == {"differences": [], "version": schema.HEAD}
