"""The embedded engine: SQLite through aiosqlite, and everything that knows SQL, a connection or a column."""

# each registers what it serves in `engine`
from . import (
    companies,
    deletion,
    events,
    hosts,
    inbox,
    loading,
    prefetch,
    reads,
    recovery,
    retention,
    unit_of_work,
)

__all__ = [
    "companies",
    "deletion",
    "events",
    "hosts",
    "inbox",
    "loading",
    "prefetch",
    "reads",
    "recovery",
    "retention",
    "unit_of_work",
]
