"""A statement for many rows, compiled once: what the journal does for every append is not compiled at every commit.

SQLAlchemy compiles it for the connection's database; the rows then go straight to the driver. Every value must be one
that the driver takes as it is (numbers, text, bytes, None). Called by ``storage/journal*.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase


def raw_sqlite(connection: Connection) -> sqlite3.Connection:
    """Give SQLite's own connection."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


class ManyRows:
    """One INSERT or UPDATE with a named parameter for each value; ``columns`` are those of an INSERT."""

    def __init__(self, statement: UpdateBase, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = columns
        self._compiled: dict[str, tuple[str, Callable[[Mapping[str, Any]], Any] | None]] = {}

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute it for all rows; gives how many rows of the table it touched."""
        sql, in_order = self._compiled.get(connection.dialect.name) or self._compile(connection)
        if in_order is None:
            return connection.exec_driver_sql(sql, list(rows)).rowcount
        return raw_sqlite(connection).executemany(sql, map(in_order, rows)).rowcount

    def _compile(self, connection: Connection) -> tuple[str, Callable[[Mapping[str, Any]], Any] | None]:
        compiled = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
        assert isinstance(compiled, SQLCompiler)
        in_order = itemgetter(*compiled.positiontup) if compiled.positiontup else None
        made = (str(compiled), in_order)
        self._compiled[connection.dialect.name] = made
        return made
