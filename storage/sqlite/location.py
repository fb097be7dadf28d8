"""Where a database is: one absolute path, made once, whatever the current folder becomes afterwards."""

from __future__ import annotations

import os

from storage.errors import NotADatabase


def locate(path: str | os.PathLike[str]) -> str:
    """The absolute path without symbolic links. Raises `NotADatabase` for what SQLite takes for no file's name."""
    name = os.fspath(path)
    if not name or name == ":memory:":
        raise NotADatabase(
            name or "an empty path",
            "nothing would be kept; for tests use actors.testing, or a file in a temporary folder",
        )
    if name.startswith("file:"):
        raise NotADatabase(name, "it is a URI, and a path is needed")
    return os.path.realpath(name)
