"""The write-ahead log is cut when nobody is in the way, over both kinds of connections, and between commits only."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
import trio

from storage.contract.companies import ClaimCompany
from storage.contract.store import WalState
from storage.errors import QueryRefused
from storage.sqlite.store import SqliteStore, open_store
from storage.sqlite.wal import wal_bytes
from tests.storage.connections import Flaky, sqlite_error

KINDS: list[Literal["thread", "inline"]] = ["thread", "inline"]


async def write(store: SqliteStore, name: str) -> None:
    await store.commit(ClaimCompany(name, create=True))


async def cut(store: SqliteStore) -> WalState:
    """Cut it however short it is."""
    store.wal_cut_above_bytes = 0
    return await store.shrink()


@pytest.mark.parametrize("how", KINDS)
async def test_it_is_cut_to_nothing_and_everything_is_in_the_database(
    tmp_path: Path, how: Literal["thread", "inline"]
) -> None:
    async with open_store(tmp_path / "x.db", how=how) as store:
        await write(store, "a")
        assert store.wal_bytes > 0
        assert await cut(store) == WalState(0)
        (tmp_path / "copy.db").write_bytes((tmp_path / "x.db").read_bytes())
        with closing(sqlite3.connect(tmp_path / "copy.db")) as raw:
            raw.execute("PRAGMA journal_mode = DELETE")
            assert raw.execute("SELECT name FROM companies").fetchall() == [("a",)]


@pytest.mark.parametrize("how", KINDS)
async def test_a_reader_in_the_way_is_told_of_and_nothing_is_waited_for(
    tmp_path: Path, how: Literal["thread", "inline"]
) -> None:
    async with open_store(tmp_path / "x.db", how=how) as store:
        await write(store, "a")
        with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM companies").fetchall()
            await write(store, "b")
            state = await cut(store)
            assert state == WalState(store.wal_bytes, pinned=True)
            assert reader.execute("SELECT name FROM companies").fetchall() == [("a",)]
            reader.execute("ROLLBACK")
            assert await cut(store) == WalState(0)


async def test_one_that_is_short_is_not_even_looked_into(tmp_path: Path) -> None:
    hops: list[float] = []

    def wrap(connection: object) -> Flaky:
        flaky = Flaky(connection)  # type: ignore[arg-type]
        flaky.hops_at_s = hops
        return flaky

    async with open_store(tmp_path / "x.db", how="inline", wrap=wrap) as store:
        await write(store, "a")
        before, size = len(hops), store.wal_bytes
        assert await store.shrink() == WalState(size)
        assert len(hops) == before


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL])
async def test_what_passes_is_left_to_the_next_look(tmp_path: Path, code: int) -> None:
    made: list[Flaky] = []

    def wrap(connection: object) -> Flaky:
        made.append(Flaky(connection))  # type: ignore[arg-type]
        return made[0]

    async with open_store(tmp_path / "x.db", how="inline", wrap=wrap) as store:
        await write(store, "a")
        made[0].errors = [sqlite_error(code)]
        assert (await cut(store)).pinned
        made[0].errors = [sqlite_error(sqlite3.SQLITE_CORRUPT)]
        with pytest.raises(QueryRefused):
            await cut(store)
        assert await cut(store) == WalState(0)


async def test_it_comes_between_two_commits_and_never_into_one(tmp_path: Path) -> None:
    async with open_store(tmp_path / "x.db", how="inline") as store:
        seen: list[bool] = []

        async def look() -> None:
            seen.append(await store._writing.run(lambda raw: raw.in_transaction))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(write, store, f"c{number}")
                nursery.start_soon(look)
        assert seen == [False] * 20


def test_there_is_none_where_no_database_is(tmp_path: Path) -> None:
    assert wal_bytes(str(tmp_path / "x.db")) == 0
