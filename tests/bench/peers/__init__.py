"""Who is measured, under which durability, and what each of them does not do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

import attrs

FULL = "WAL, synchronous=FULL: every commit is synced"


@attrs.frozen
class Subject:
    """``package`` has to be installed; ``None`` where nothing is needed besides Turnkeeper itself."""

    package: str | None
    durability: str
    lacks: str


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        "turnkeeper": Subject(None, FULL, "nothing: it is what is measured"),
        "raw": Subject(
            None,
            FULL,
            "does nothing but write: the same rows of the same schema, a hundred jobs to a transaction, in a plain "
            "sqlite3 loop. No handler runs, nothing is decided, nothing is read. A floor, not a queue.",
        ),
        "huey": Subject(
            "huey",
            FULL + " (fsync=True)",
            "no order or limit per company, no dependencies between tasks other than pipelines, no events, no reason "
            "why something waits; a task is deleted when a worker takes it, so a crash loses it. Polled every "
            "millisecond here; its default is 100 ms, growing to 10 s.",
        ),
        "dbos": Subject(
            "dbos",
            FULL + " (WAL is our gift: left alone it uses a rollback journal, which is slower)",
            "no order per company and no limit short of a partition key, no dependencies between workflows, no log of "
            "every change, no reason why something waits. Recommends PostgreSQL for production.",
        ),
    }
)


def version_of(subject: str) -> str | None:
    """The installed version; ``None`` if it is not installed."""
    package = SUBJECTS[subject].package
    try:
        return version(package or "turnkeeper")
    except PackageNotFoundError:
        return None
