"""The embedded engine: SQLite through aiosqlite, and everything that knows SQL, a connection or a column."""

from . import companies, deletion, inbox, retention  # each registers what it serves in `engine`

__all__ = ["companies", "deletion", "inbox", "retention"]
