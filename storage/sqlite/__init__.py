"""The embedded engine: SQLite through aiosqlite, and everything that knows SQL, a connection or a column."""
