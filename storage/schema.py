"""The journal's tables, for SQLite and PostgreSQL alike. ``team`` and the stream's ``kind`` stand in every key.

A stream is one log: a conversation now, a workflow later. Its events are rows; a large string inside an event lies
once per team in the attachments, by digest. ``storage/migrations`` makes the same tables step by step, and a test
holds the two together. Imported by the journal and by the migrations alone: it loads SQLAlchemy.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

HEAD = "0001"
VERSION_TABLE = "journal_version"

_BIG = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()

streams = Table(
    "journal_streams",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("team", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("epoch", _BIG, nullable=False),
    Column("last_seq", _BIG, nullable=False),
    Column("damaged", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("turns", _BIG, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    UniqueConstraint("team", "kind", "name", name="journal_streams_key"),
    sqlite_autoincrement=True,  # the number of a deleted stream is never given to another
)
Index("journal_streams_by_time", streams.c.team, streams.c.kind, streams.c.updated_at, streams.c.id)
_UNFINISHED = text("state = 'unfinished'")
Index(
    "journal_streams_unfinished",
    streams.c.kind,
    sqlite_where=_UNFINISHED,
    postgresql_where=_UNFINISHED,
)

events = Table(
    "journal_events",
    metadata,
    Column("stream", _BIG, ForeignKey("journal_streams.id"), nullable=False),
    Column("seq", _BIG, nullable=False),
    Column("epoch", _BIG, nullable=False),
    Column("crc", _BIG, nullable=False),
    Column("body", Text, nullable=False),
    Column("attached", Text),
    PrimaryKeyConstraint("stream", "seq", name="journal_events_key"),
)

quarantine = Table(
    "journal_quarantine",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("stream", _BIG, ForeignKey("journal_streams.id"), nullable=False),
    Column("seq", _BIG),
    Column("epoch", _BIG),
    Column("crc", _BIG),
    Column("body", Text),
    Column("attached", Text),
    Column("cut_at", Double, nullable=False),
    Index("journal_quarantine_by_stream", "stream"),
)

attachments = Table(
    "journal_attachments",
    metadata,
    Column("team", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("team", "digest", name="journal_attachments_key"),
)

uses = Table(
    "journal_uses",
    metadata,
    Column("stream", _BIG, ForeignKey("journal_streams.id"), nullable=False),
    Column("team", Text, nullable=False),
    Column("digest", Text, nullable=False),
    PrimaryKeyConstraint("stream", "digest", name="journal_uses_key"),
    Index("journal_uses_by_digest", "team", "digest"),
)

epochs = Table(
    "journal_epochs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last", _BIG, nullable=False),
)
