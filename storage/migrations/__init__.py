"""The journal's tables, version by version (Alembic). Run by ``storage/journal_version.py``, never by hand."""
