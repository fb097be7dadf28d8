"""What can go wrong with the store, told apart by type, whatever the engine.

Trouble with the *place* (a lock, a full disk, a mount that went away) is `StoreUnavailable`: nothing that was
asked for is wrong, and the same thing succeeds later. Trouble with the *content* is `UnitRefused` or
`QueryRefused`: trying again gives the same answer. Each engine says which of its errors are which.
"""

from __future__ import annotations

import attrs


class TurnkeeperError(Exception):
    """The root of every error that Turnkeeper raises on purpose."""


class StorageError(TurnkeeperError):
    """The root of what the store raises."""


@attrs.define(slots=False, eq=False)
class StoreUnavailable(StorageError):
    """The database cannot be read or written at present: busy, locked, full, or input/output.

    Nobody's request is at fault. The writer tries again by itself; a reader may ask again. Only when it cannot
    be opened where it was said to be the path is at fault; ``advice`` says which it is, and what to do.
    """

    cause: str
    code: str | None = None
    """The engine's name for the error."""
    advice: str = (
        "Nothing is wrong with the request; "
        "look at the disk, its permissions, and who else holds the database"
    )

    def __str__(self) -> str:
        name = f" ({self.code})" if self.code else ""
        return f"the store is not available: {self.cause}{name}. {self.advice}"


@attrs.define(slots=False, eq=False)
class StoreLost(StoreUnavailable):
    """A file of the database that is open is no longer at its path: nothing is acknowledged from now on.

    Waiting does not mend it. What the last unit changed may be in the lost file.
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} {what} while the database was open",
            advice="Nothing is stored any more, and waiting does not mend it: save what is still held by "
            "Runtime.backup, close the runtime, put the file in its place, and start again",
        )


@attrs.define(slots=False, eq=False)
class UnitRefused(StorageError):
    """The database refused one unit of work, and will refuse it each time; it changed nothing.

    The unit is at fault: a constraint, a trigger's RAISE, or a statement that does not fit the schema.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"the database refused the change: {self.message} ({self.code}); it changed nothing"


@attrs.define(slots=False, eq=False)
class QueryRefused(StorageError):
    """The database could not answer a query, and will not answer it: a damaged page, or a bad statement."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"the database could not answer: {self.message} ({self.code})"


@attrs.define(slots=False, eq=False)
class StaleEpoch(StorageError):
    """A unit came from an actor that has been replaced; it changed nothing. The sender has to end itself."""

    company: str
    epoch: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} of company {self.company!r} is over: a newer actor owns the company"


@attrs.define(slots=False, eq=False)
class DatabaseInUse(StorageError):
    """Another owner, in this process or another, has the database open."""

    path: str
    pid: int
    started_at: str

    def __str__(self) -> str:
        return (
            f"{self.path} is in use by process {self.pid} since {self.started_at}: "
            "close it there, or send your work to that process"
        )


@attrs.define(slots=False, eq=False)
class NotADatabase(StorageError):
    """The file is not one of ours; nothing was written to it. The path is at fault.

    ``absent``: there is nothing yet, neither a file nor anything in it.
    """

    path: str
    why: str
    absent: bool = False

    def __str__(self) -> str:
        return (
            f"{self.path} is not a Turnkeeper database: {self.why}. It was left as it is; give another path"
        )


@attrs.define(slots=False, eq=False)
class SchemaTooNew(StorageError):
    """A newer version of Turnkeeper wrote this database; nothing was written to it."""

    path: str
    found: int
    known: int

    def __str__(self) -> str:
        return (
            f"{self.path} has schema {self.found}, this version knows {self.known}: "
            "update Turnkeeper here, or use the version that wrote it"
        )


@attrs.define(slots=False, eq=False)
class InboxFull(StorageError):
    """So many messages wait in the inbox, or for this company, that no more are taken; this one was not sent.

    A host takes them: start one, or wait for it.
    """

    company: str | None
    limit: int

    def __str__(self) -> str:
        whose = "the inbox" if self.company is None else f"the inbox of company {self.company!r}"
        return f"{whose} holds {self.limit} messages that wait: start a host, or wait until it took them"


@attrs.define(slots=False, eq=False)
class MessageConflict(StorageError):
    """The message id was used for another message; this one was not sent. The sender's mistake."""

    company: str
    id: str

    def __str__(self) -> str:
        return (
            f"message id {self.id!r} of company {self.company!r} was used for another message: "
            "choose another, or leave it out"
        )


@attrs.define(slots=False, eq=False)
class ForkedProcess(StorageError):
    """This process was forked from one that had the database open, and must not touch it.

    SQLite's handles and locks do not survive a fork. Start helpers with spawn or exec.
    """

    owner_pid: int

    def __str__(self) -> str:
        return (
            f"the database was opened by process {self.owner_pid} before a fork: the child must not use it; "
            "start the child with spawn or exec, or open nothing before the fork"
        )


@attrs.define(slots=False, eq=False)
class BackupFailed(StorageError):
    """There is no copy at ``target``: it cannot be written there, or what was to be copied is damaged."""

    target: str
    why: str

    def __str__(self) -> str:
        return f"no backup was made at {self.target}: {self.why}"


class StoreClosed(StorageError):
    """The store was closed before this was asked; nothing was done."""

    def __str__(self) -> str:
        return "the store is closed: nothing was done"


class OutcomeUnknown(StorageError):
    """The store was closed while this was waiting: it may or may not be committed."""

    def __str__(self) -> str:
        return "the store was closed before an answer came: look whether it happened before you ask again"
