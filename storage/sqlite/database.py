"""Old names of `storage.sqlite.store`, until the last of their users is converted."""

from storage.sqlite.store import Hooks as Hooks
from storage.sqlite.store import SqliteStore as Database
from storage.sqlite.store import open_store as open_database

__all__ = ["Database", "Hooks", "open_database"]
