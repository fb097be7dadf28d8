"""Group commit: who is committed with whom, who is refused alone, and what an outage does to nobody."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from storage.errors import OutcomeUnknown, StaleEpoch, StoreClosed, StoreUnavailable, UnitRefused
from storage.group_commit import BATCH_UNITS_MAX, RETRY_CAP_S, Submitted, Writer
from storage.sqlite.inline import InlineConnection
from storage.sqlite.writing import SqliteEngine
from tests.storage.connections import (
    FailingSqlite,
    Flaky,
    a_connection,
    a_database,
    assert_nobody_holds_the_write_lock,
    insert,
    open_failing,
    rows_of,
    sqlite_error,
    writer_of,
)
from tests.stores import Plain

BUSY = sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return a_database(tmp_path)


@attrs.define
class Host:
    """A writer with its loop running on an inline connection, and what its hooks were told."""

    connection: Flaky
    nursery: trio.Nursery
    outages: list[StoreUnavailable] = attrs.Factory(list)
    recoveries_s: list[float] = attrs.Factory(list)
    writer: Writer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.writer = Writer(
            SqliteEngine(self.connection), on_outage=self.outages.append, on_recovery=self.recoveries_s.append
        )
        self.nursery.start_soon(self.writer.run)

    def submit_all(self, *units: Callable[[sqlite3.Connection], Any]) -> list[Submitted[Any]]:
        """Hand them in at once, so that they share a batch."""
        return [self.writer.submit(Plain(unit)) for unit in units]


@asynccontextmanager
async def a_host(path: Path, opener: Callable[[], sqlite3.Connection] | None = None) -> AsyncIterator[Host]:
    async with a_connection("inline", opener or writer_of(path)) as inner, trio.open_nursery() as nursery:
        host = Host(Flaky(inner), nursery)
        yield host
        await host.writer.aclose(0)


def is_down(host: Host) -> bool:
    assert host.writer.available == (host.writer.cause is None)
    return not host.writer.available


async def outcome_of(pending: Submitted[Any]) -> object:
    try:
        return await pending.wait()
    except Exception as exc:
        return exc


# one batch


async def test_units_that_wait_together_are_committed_together_and_answered_in_order(path: Path) -> None:
    async with a_host(path) as host:
        answered: list[int] = []

        async def send(number: int) -> None:
            await host.writer.commit(insert(number))
            answered.append(number)

        pending = host.submit_all(*(insert(number) for number in range(10)))
        assert [await each.wait() for each in pending] == [(number,) for number in range(10)]
        assert host.writer.statistics.batches == 1
        assert host.writer.statistics.units == 10
        assert host.writer.statistics.last_batch_units == 10
    assert rows_of(path) == list(range(10))


async def test_a_single_unit_is_committed_before_its_sender_hears_of_it(path: Path) -> None:
    async with a_host(path) as host:
        assert await host.writer.commit(insert(7)) == (7,)
        assert rows_of(path) == [7]


async def test_no_batch_is_longer_than_the_bound_and_the_rest_comes_next(path: Path) -> None:
    async with a_host(path) as host:
        pending = host.submit_all(*(insert(number) for number in range(BATCH_UNITS_MAX + 3)))
        assert await pending[-1].wait() == (BATCH_UNITS_MAX + 2,)
        assert host.writer.statistics.batches == 2
        assert host.writer.statistics.largest_batch_units == BATCH_UNITS_MAX
        assert host.writer.statistics.last_batch_units == 3
        assert 0 < host.writer.statistics.last_commit_s <= host.writer.statistics.total_commit_s


async def test_a_sender_who_is_cancelled_stops_waiting_and_the_unit_stands(path: Path) -> None:
    async with a_host(path) as host:
        host.connection.errors = [BUSY]
        with trio.CancelScope() as scope:
            pending = host.writer.submit(insert(1))
            scope.cancel()
            await pending.wait()
        assert scope.cancelled_caught
        assert await pending.wait() == (1,)
    assert rows_of(path) == [1]


# refused units


def refused_by_constraint(raw: sqlite3.Connection) -> None:
    insert(500)(raw)
    insert(1000)(raw)


def refused_by_trigger(raw: sqlite3.Connection) -> None:
    raw.execute("INSERT INTO guarded VALUES (1)")


def stale(raw: sqlite3.Connection) -> None:
    insert(501)(raw)
    raise StaleEpoch("acme", 3)


def broken(raw: sqlite3.Connection) -> None:
    insert(502)(raw)
    raise LookupError("a bug of the unit's own")


def ends_the_transaction(raw: sqlite3.Connection) -> None:
    """As ON CONFLICT ROLLBACK does: what the others of the batch did is gone with it."""
    insert(503)(raw)
    raw.execute("INSERT OR ROLLBACK INTO t VALUES (503)")


REFUSALS: dict[Callable[[sqlite3.Connection], None], type[Exception]] = {
    refused_by_constraint: UnitRefused,
    refused_by_trigger: UnitRefused,
    stale: StaleEpoch,
    broken: LookupError,
    ends_the_transaction: UnitRefused,
}


@pytest.fixture
def guarded(path: Path) -> Path:
    raw = writer_of(path)()
    raw.executescript(
        "CREATE TABLE guarded (a INTEGER) STRICT;"
        "CREATE TRIGGER guard BEFORE INSERT ON guarded BEGIN SELECT RAISE(ABORT, 'not so many'); END;"
        "CREATE TABLE child (t_a INTEGER REFERENCES t (a) DEFERRABLE INITIALLY DEFERRED) STRICT;"
    )
    raw.close()
    return path


@pytest.mark.parametrize("position", [0, 1, 2, "alone"])
@pytest.mark.parametrize("bad", REFUSALS, ids=lambda bad: bad.__name__)
async def test_a_refused_unit_is_rolled_back_alone_wherever_it_stands(
    guarded: Path, bad: Callable[[sqlite3.Connection], None], position: int | str
) -> None:
    units: list[Callable[[sqlite3.Connection], Any]] = [] if position == "alone" else [insert(1), insert(2)]
    units.insert(position if isinstance(position, int) else 0, bad)
    async with a_host(guarded) as host:
        for unit, pending in zip(units, host.submit_all(*units), strict=True):
            outcome = await outcome_of(pending)
            assert isinstance(outcome, REFUSALS[bad]) if unit is bad else isinstance(outcome, tuple)
        assert host.outages == []
        assert host.writer.statistics.batches == 1
    assert rows_of(guarded) == ([] if position == "alone" else [1, 2])


async def test_a_refusal_carries_the_name_of_the_rule_and_its_words(guarded: Path) -> None:
    async with a_host(guarded) as host:
        with pytest.raises(UnitRefused, match="not so many") as caught:
            await host.writer.commit(Plain(refused_by_trigger))
    assert caught.value.code == "SQLITE_CONSTRAINT_TRIGGER"
    assert caught.value.message == "not so many"
    assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)


async def test_all_units_of_a_batch_may_be_refused(guarded: Path) -> None:
    async with a_host(guarded) as host:
        pending = host.submit_all(stale, ends_the_transaction, refused_by_trigger, ends_the_transaction)
        kinds = [type(await outcome_of(each)) for each in pending]
        assert kinds == [StaleEpoch, UnitRefused, UnitRefused, UnitRefused]
    assert rows_of(guarded) == []


async def test_a_commit_that_is_refused_punishes_only_the_guilty_unit(guarded: Path) -> None:
    """A deferred constraint is checked at COMMIT, which does not say whose it was."""

    def orphan(raw: sqlite3.Connection) -> None:
        raw.execute("INSERT INTO child VALUES (999)")

    async with a_host(guarded) as host:
        first, guilty, last = host.submit_all(insert(1), orphan, insert(2))
        assert await first.wait() == (1,)
        assert await last.wait() == (2,)
        with pytest.raises(UnitRefused, match="FOREIGN KEY"):
            await guilty.wait()
    assert rows_of(guarded) == [1, 2]


# outages


@pytest.mark.parametrize("call", range(1, 7))
async def test_a_transient_error_at_any_statement_of_a_batch_costs_nobody_anything(
    path: Path, autojump_clock: trio.testing.MockClock, call: int
) -> None:
    """BEGIN; insert; insert, insert; COMMIT; then there is no sixth."""
    async with a_host(path, partial(open_failing, path)) as host:
        await host.connection.run(lambda raw: _arm(raw, call))
        first, second = host.submit_all(insert(1), insert(2, 3))
        assert await first.wait() == (1,)
        assert await second.wait() == (2, 3)
        assert len(host.outages) == len(host.recoveries_s) == (1 if call < 6 else 0)
    assert rows_of(path) == [1, 2, 3]
    assert_nobody_holds_the_write_lock(path)


@pytest.mark.parametrize("call", range(1, 21))
async def test_a_transient_error_while_the_guilty_one_is_looked_for_costs_nobody_anything(
    path: Path, autojump_clock: trio.testing.MockClock, call: int
) -> None:
    """BEGIN, four inserts, ROLLBACK; BEGIN; SAVEPOINT, insert, RELEASE; SAVEPOINT, insert, insert, RELEASE;
    SAVEPOINT, insert, ROLLBACK TO, RELEASE; COMMIT; then there is no twentieth. A ROLLBACK that fails is tried again.
    """
    runs: list[str] = []

    def noting(name: str, *values: int) -> Callable[[sqlite3.Connection], object]:
        def unit(raw: sqlite3.Connection) -> object:
            runs.append(name)
            return insert(*values)(raw)

        return unit

    async with a_host(path, partial(open_failing, path)) as host:
        await host.connection.run(lambda raw: _arm(raw, call))
        first, second, guilty = host.submit_all(noting("first", 1), noting("second", 2, 3), stale)
        assert await first.wait() == (1,)
        assert await second.wait() == (2, 3)
        with pytest.raises(StaleEpoch):
            await guilty.wait()
        assert len(host.outages) == len(host.recoveries_s) == (1 if call < 20 and call != 6 else 0)
        assert runs[-2:] == ["first", "second"]
    assert rows_of(path) == [1, 2, 3]
    assert_nobody_holds_the_write_lock(path)


async def test_a_transient_error_in_a_single_unit_is_no_refusal(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path, partial(open_failing, path)) as host:
        await host.connection.run(lambda raw: _arm(raw, 2, code=sqlite3.SQLITE_FULL))
        assert await host.writer.commit(insert(1)) == (1,)
        assert len(host.outages) == 1


async def test_an_outage_is_told_once_at_its_start_and_once_at_its_end(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        host.connection.down = BUSY
        pending = host.writer.submit(insert(1))
        await trio.sleep(1000)
        assert len(host.outages) == 1
        assert host.outages[0].cause == "database is locked"
        assert host.outages[0].code == "SQLITE_PLANNED"
        assert host.recoveries_s == []
        assert is_down(host)
        host.connection.down = None
        assert await pending.wait() == (1,)
        assert host.recoveries_s == [pytest.approx(1000, abs=RETRY_CAP_S)]
        assert not is_down(host)
        assert len(host.outages) == 1


async def test_the_writer_tries_again_in_growing_steps_up_to_the_cap(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        host.connection.errors = [BUSY] * 10
        start_s = trio.current_time()
        await host.writer.commit(insert(1))
        at_s = [hop_s - start_s for hop_s in host.connection.hops_at_s]
    pauses_s = [later - earlier for earlier, later in itertools.pairwise(at_s)]
    assert pauses_s == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


async def test_units_keep_their_order_through_an_outage_and_new_ones_queue_behind(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    order: list[int] = []

    def unit(number: int) -> Callable[[sqlite3.Connection], int]:
        def append(_: sqlite3.Connection) -> int:
            order.append(number)
            return number

        return append

    async with a_host(path) as host:
        host.connection.down = BUSY
        early = host.submit_all(unit(1), unit(2))
        await trio.sleep(60)
        late = host.submit_all(unit(3), unit(4))
        await trio.sleep(60)
        assert order == []
        host.connection.down = None
        assert [await each.wait() for each in early + late] == [1, 2, 3, 4]
    assert order == [1, 2, 3, 4]


async def test_fifty_companies_sit_out_two_minutes_without_a_store(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """C61, the storage half: nobody gets an error, the tries are few, and all are back soon after."""
    answered_at_s: list[float] = []

    async def company(host: Host, number: int) -> None:
        for turn in range(2):
            await host.writer.commit(insert(number * 2 + turn))
        answered_at_s.append(trio.current_time())

    async with a_host(path) as host:
        host.connection.down = sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error")
        start_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(company, host, number)
            await trio.sleep(120)
            assert answered_at_s == []
            assert len(host.connection.hops_at_s) < 40
            host.connection.down = None
        assert len(answered_at_s) == 50
        assert max(answered_at_s) - start_s <= 120 + RETRY_CAP_S
        assert len(host.outages) == len(host.recoveries_s) == 1
    assert rows_of(path) == list(range(100))


async def test_a_full_disk_is_one_alarm_no_half_change_and_heals_by_itself(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """C56."""

    def fat(number: int) -> Callable[[sqlite3.Connection], None]:
        def unit(raw: sqlite3.Connection) -> None:
            insert(number)(raw)
            raw.execute("INSERT INTO fat VALUES (zeroblob(20000))")

        return unit

    def set_pages(raw: sqlite3.Connection, pages: int) -> None:
        raw.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    async with a_host(path) as host:
        await host.connection.run(lambda raw: raw.execute("CREATE TABLE fat (b BLOB) STRICT"))
        await host.connection.run(lambda raw: set_pages(raw, 30))
        pending = host.submit_all(*(fat(number) for number in range(20)))
        await trio.sleep(600)
        assert [error.code for error in host.outages] == ["SQLITE_FULL"]
        assert rows_of(path) == []
        assert not any(each.done for each in pending)
        await host.connection.run(lambda raw: set_pages(raw, 100_000))
        room_s = trio.current_time()
        for each in pending:
            await each.wait()
        assert trio.current_time() - room_s <= RETRY_CAP_S
        assert len(host.recoveries_s) == 1
    assert rows_of(path) == list(range(20))


async def test_a_hook_that_raises_is_logged_and_stops_nothing(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    def angry(_: object) -> None:
        raise RuntimeError("hook")

    async with a_connection("inline", writer_of(path)) as inner, trio.open_nursery() as nursery:
        flaky = Flaky(inner)
        writer = Writer(SqliteEngine(flaky), on_outage=angry, on_recovery=angry)
        nursery.start_soon(writer.run)
        flaky.errors = [BUSY]
        with capture_logs() as logs:
            assert await writer.commit(insert(1)) == (1,)
        assert [log["event"] for log in logs] == ["storage.group_commit.hook_failed"] * 2
        await writer.aclose(0)


# closing


async def test_closing_commits_what_waits_and_takes_nothing_new(path: Path) -> None:
    async with a_host(path) as host:
        pending = host.submit_all(*(insert(number) for number in range(BATCH_UNITS_MAX + 1)))
        await host.writer.aclose(0)
        assert all(each.done for each in pending)
        with pytest.raises(StoreClosed):
            host.writer.submit(insert(999))
    assert len(rows_of(path)) == BATCH_UNITS_MAX + 1


async def test_closing_during_an_outage_waits_the_grace_and_then_says_unknown(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        host.connection.down = BUSY
        pending = host.submit_all(insert(1), insert(2))
        await trio.sleep(60)
        start_s = trio.current_time()
        await host.writer.aclose(12)
        assert trio.current_time() - start_s == pytest.approx(12)
        for each in pending:
            with pytest.raises(OutcomeUnknown):
                await each.wait()
    assert rows_of(path) == []


async def test_closing_during_an_outage_that_ends_in_time_commits(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        host.connection.down = BUSY
        pending = host.writer.submit(insert(1))
        await trio.sleep(60)
        host.nursery.start_soon(host.writer.aclose, 30)
        await trio.sleep(10)
        host.connection.down = None
        assert await pending.wait() == (1,)
        await host.writer.aclose(30)


async def test_closing_that_finds_the_store_away_waits_the_grace_too(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        host.connection.down = BUSY
        pending = host.writer.submit(insert(1))
        start_s = trio.current_time()
        await host.writer.aclose(3)
        assert trio.current_time() - start_s == pytest.approx(3, abs=0.2)
        assert isinstance(await outcome_of(pending), OutcomeUnknown)


async def test_a_cancelled_close_goes_on_without_the_one_who_asked(path: Path) -> None:
    async with a_host(path) as host:
        pending = host.writer.submit(insert(1))
        with trio.CancelScope() as scope:
            scope.cancel()
            await host.writer.aclose(0)
        assert await pending.wait() == (1,)
        with pytest.raises(StoreClosed):
            host.writer.submit(insert(2))


async def test_a_writer_that_never_ran_answers_when_it_is_closed(path: Path) -> None:
    async with a_connection("inline", writer_of(path)) as inner:
        writer = Writer(SqliteEngine(inner))
        pending = writer.submit(insert(1))
        await writer.aclose(0)
        assert isinstance(await outcome_of(pending), OutcomeUnknown)
        await writer.run()  # too late: returns at once
    assert rows_of(path) == []


async def test_a_cancelled_loop_answers_everybody_who_waits(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        host.connection.down = BUSY
        pending = host.submit_all(*(insert(number) for number in range(BATCH_UNITS_MAX + 1)))
        await trio.sleep(1)
        host.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            for each in pending:
                assert isinstance(await outcome_of(each), OutcomeUnknown)


async def test_a_connection_that_is_closed_underneath_answers_everybody_who_waits(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with a_host(path) as host:
        await host.connection.aclose()
        pending = host.submit_all(insert(1), insert(2))
        for each in pending:
            assert isinstance(await outcome_of(each), OutcomeUnknown)
        with pytest.raises(StoreClosed):
            host.writer.submit(insert(3))


async def test_an_sqlite_handle_that_is_closed_underneath_ends_the_loop_and_not_the_host(path: Path) -> None:
    raw = writer_of(path)()
    raw.close()
    async with trio.open_nursery() as nursery:
        writer = Writer(SqliteEngine(InlineConnection(raw)))
        nursery.start_soon(writer.run)
        assert isinstance(await outcome_of(writer.submit(insert(1))), OutcomeUnknown)


@pytest.mark.parametrize("kind", ["inline", "thread"])
async def test_a_transaction_under_way_when_the_loop_is_cancelled_is_answered_truly(
    path: Path, kind: str
) -> None:
    async with a_connection(kind, writer_of(path)) as connection:
        writer = Writer(SqliteEngine(connection))
        token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)

            def unit(raw: sqlite3.Connection) -> str:
                token.run_sync_soon(nursery.cancel_scope.cancel)
                insert(1)(raw)
                return "committed"

            pending = writer.submit(Plain(unit))
            with trio.CancelScope(shield=True):
                assert await pending.wait() == "committed"
        assert rows_of(path) == [1]


async def test_units_of_many_senders_share_commits_on_a_thread(path: Path) -> None:
    async with a_connection("thread", writer_of(path)) as connection, trio.open_nursery() as nursery:
        writer = Writer(SqliteEngine(connection))
        nursery.start_soon(writer.run)
        async with trio.open_nursery() as senders:
            for number in range(100):
                senders.start_soon(writer.commit, insert(number))
        assert writer.statistics.units == 100
        assert writer.statistics.batches < 20
        await writer.aclose(0)
    assert rows_of(path) == list(range(100))


def _arm(raw: sqlite3.Connection, *calls: int, code: int = sqlite3.SQLITE_IOERR) -> None:
    assert isinstance(raw, FailingSqlite)
    raw.arm(*calls, code=code)
