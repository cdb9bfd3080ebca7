"""Which version the tables have, and how they come to the present one.

New tables are made at once; older ones go step by step through ``storage/migrations`` (Alembic, imported then alone);
newer ones are refused. All inside the caller's transaction. Called by ``storage/journal_store.py`` at opening.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, Table, Text, insert, inspect, select

from callboard.storage import schema
from callboard.storage.journal_terms import STORAGE_NEWER, JournalError

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION = Table(schema.VERSION_TABLE, MetaData(), Column("version_num", Text, primary_key=True))
_LOCK = 7_340_032_001


def is_current(connection: Connection) -> bool:
    """Say whether the tables are there, in the version that this code knows."""
    return version_of(connection) == schema.HEAD


def version_of(connection: Connection) -> str | None:
    """Give the tables' version; None when there are none."""
    if not inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar()


def prepare(connection: Connection) -> None:
    """Make or migrate the tables; raises JournalError ``storage_newer`` when they are of a later version."""
    if connection.dialect.name == "postgresql":
        # Two processes may come first at the same time; the lock goes with the transaction.
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    version = version_of(connection)
    if version is None:
        schema.metadata.create_all(connection)
        connection.execute(insert(schema.epochs), {"id": 1, "last": 0})
        migrate(connection, stamp=True)
    elif version != schema.HEAD:
        migrate(connection)


def migrate(
    connection: Connection, to: str = "head", *, stamp: bool = False, folders: Sequence[Path] = ()
) -> None:
    """Bring older tables to revision ``to``, through the revisions in ``folders`` as well.

    ``stamp`` only writes down that they are there.
    """
    if stamp and to == "head" and not folders:
        _VERSION.create(connection, checkfirst=True)
        connection.execute(insert(_VERSION), {"version_num": schema.HEAD})
        return
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(_config(connection, folders), to)
    except CommandError as fault:
        message = (
            f"the journal's tables are of version {version_of(connection)}, which this version of callboard "
            f"does not know (it knows {schema.HEAD}): install a newer one"
        )
        raise JournalError(STORAGE_NEWER, message) from fault


def _config(connection: Connection, folders: Sequence[Path]) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    places = "\n".join(str(folder) for folder in (MIGRATIONS / "versions", *folders))
    config.set_main_option("version_locations", places.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
