"""The engines that the contract suite is run with, and rows to run it on."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Literal

import attrs

from storage.contract.companies import ClaimCompany
from storage.contract.store import Store
from storage.contract.turns import CommitTurn
from storage.records import (
    AttemptEnd,
    AttemptRecord,
    CompanyRecord,
    EventRecord,
    NodeRecord,
    NodeStatus,
    RunRecord,
    RunStatus,
    ScheduleRecord,
    TaskRecord,
)
from storage.sqlite.connection import Connection
from storage.sqlite.store import open_store
from storage.values import changed
from storage.writes import SchedulePut, TaskTexts
from tests.storage.connections import Flaky, sqlite_error

Engine = Literal["inline", "thread"]
ENGINES: tuple[Engine, ...] = ("inline", "thread")


@attrs.frozen
class Opened:
    """An open store, and what a bystander sees in its file."""

    store: Store
    path: Path

    def contents(self) -> str:
        with closing(sqlite3.connect(self.path)) as raw:
            return "\n".join(raw.iterdump())

    def damage(self) -> None:
        """Take away what one kind of operation and one kind of query need."""
        with closing(sqlite3.connect(self.path)) as raw:
            raw.execute("DROP TABLE inbox")

    async def company(self, name: str = "acme") -> CompanyRecord:
        """The company, claimed by a new actor."""
        company = await self.store.commit(ClaimCompany(name, create=True))
        assert company is not None
        return company

    async def task(self, company: CompanyRecord, seq: int, *upstreams: str, settled: bool = True) -> None:
        """A task ``t<seq>`` with one attempt, made at 1 ms; it ends, and its run settles, at 3 ms if ``settled``."""
        task = TaskRecord(seq, f"t{seq}", 2, 1)
        run = RunRecord(seq, 1, RunStatus.QUEUED, 1)
        node = NodeRecord(seq, 1, 0, '{"name":"n"}')
        attempt = AttemptRecord(seq, 1, 0, 1, 0, 1, 2)
        unit = self._unit(company)
        unit.company = changed(company, task_seq=seq)
        unit.new_tasks, unit.new_runs = [(task, TaskTexts("x"))], [run]
        unit.edges = [(seq, upstreams)]
        unit.events = [EventRecord("task.submitted", 1, task.id, seq)]
        await self.store.commit(unit)
        unit = self._unit(company)
        unit.runs = [changed(run, status=RunStatus.RUNNING, slot=1, admitted_ms=2)]
        unit.new_nodes = [(changed(node, status=NodeStatus.RUNNING, attempts=1), None)]
        unit.begun = [attempt]
        await self.store.commit(unit)
        if settled:
            unit = self._unit(company)
            status = RunStatus.COMPLETED
            unit.runs = [changed(run, status=status, admitted_ms=2, settled_ms=3)]
            unit.nodes = [(changed(node, status=NodeStatus.SUCCEEDED, attempts=1), "1")]
            unit.ended = [changed(attempt, ended_ms=3, end=AttemptEnd.SUCCEEDED)]
            await self.store.commit(unit)

    async def schedule(self, company: CompanyRecord, name: str) -> None:
        """A schedule that waits for its time."""
        record = ScheduleRecord(1, name, "{}", every_ms=60_000, next_ms=5, due_ms=5)
        unit = self._unit(company)
        unit.writes = [SchedulePut(record)]
        await self.store.commit(unit)

    @staticmethod
    def _unit(company: CompanyRecord) -> CommitTurn:
        return CommitTurn(company.claim)


@asynccontextmanager
async def opened(engine: Engine, path: Path, *, fails: int = 0) -> AsyncIterator[Opened]:
    """An open store whose first ``fails`` tries to write find the disk away."""

    def wrap(connection: Connection) -> Connection:
        flaky = Flaky(connection)
        flaky.errors = [sqlite_error(sqlite3.SQLITE_IOERR)] * fails
        return flaky

    async with open_store(path, how=engine, wrap=wrap) as store:
        yield Opened(store, path)
