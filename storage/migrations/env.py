"""Alembic's entry: runs the steps on the connection that it is given, in the transaction that is under way."""

from __future__ import annotations

from alembic import context

from callboard.storage.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
