"""The first tables: streams and their events, attachments and who uses them, the quarantine, the epochs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "journal_streams",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("team", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("epoch", _BIG, nullable=False),
        sa.Column("last_seq", _BIG, nullable=False),
        sa.Column("damaged", sa.Boolean, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("template", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("turns", _BIG, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.UniqueConstraint("team", "kind", "name", name="journal_streams_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("journal_streams_by_time", "journal_streams", ["team", "kind", "updated_at", "id"])
    unfinished = sa.text("state = 'unfinished'")
    op.create_index(
        "journal_streams_unfinished",
        "journal_streams",
        ["kind"],
        sqlite_where=unfinished,
        postgresql_where=unfinished,
    )
    op.create_table(
        "journal_events",
        sa.Column("stream", _BIG, sa.ForeignKey("journal_streams.id"), nullable=False),
        sa.Column("seq", _BIG, nullable=False),
        sa.Column("epoch", _BIG, nullable=False),
        sa.Column("crc", _BIG, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("attached", sa.Text),
        sa.PrimaryKeyConstraint("stream", "seq", name="journal_events_key"),
    )
    op.create_table(
        "journal_quarantine",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("stream", _BIG, sa.ForeignKey("journal_streams.id"), nullable=False),
        sa.Column("seq", _BIG),
        sa.Column("epoch", _BIG),
        sa.Column("crc", _BIG),
        sa.Column("body", sa.Text),
        sa.Column("attached", sa.Text),
        sa.Column("cut_at", sa.Double, nullable=False),
    )
    op.create_index("journal_quarantine_by_stream", "journal_quarantine", ["stream"])
    _create_attachments()


def _create_attachments() -> None:
    op.create_table(
        "journal_attachments",
        sa.Column("team", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("team", "digest", name="journal_attachments_key"),
    )
    op.create_table(
        "journal_uses",
        sa.Column("stream", _BIG, sa.ForeignKey("journal_streams.id"), nullable=False),
        sa.Column("team", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("stream", "digest", name="journal_uses_key"),
    )
    op.create_index("journal_uses_by_digest", "journal_uses", ["team", "digest"])
    epochs = op.create_table(
        "journal_epochs",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last", _BIG, nullable=False),
    )
    op.bulk_insert(epochs, [{"id": 1, "last": 0}])
