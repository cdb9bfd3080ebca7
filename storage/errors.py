"""The errors of the storage folder: one root, and a child for each thing that is stored."""

from __future__ import annotations


class StorageError(Exception):
    """Root of all errors that the storage folder raises."""


class DocumentsError(StorageError):
    """A folder of documents or its index cannot be used; the message says which file, why, and what to do."""
