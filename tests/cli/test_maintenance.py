"""`backup`, `prune` and `delete` as a user has them."""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing

import pytest
import trio

import actors.cli.maintenance
from actors.cli.options import BackupOptions
from actors.cli.output import Output

from .conftest import Done, Place
from .support import Gates

PLAN = """
    [companies.acme]

    [[companies.acme.tasks]]
    id = "first"
    run = "true"

    [[companies.acme.tasks]]
    id = "second"
    depends_on = ["first"]
    run = "true"

    [companies.other]

    [[companies.other.tasks]]
    id = "waits"
    mode = "manual"
    run = "true"
"""


@pytest.fixture
def ran(place: Place) -> Place:
    """A database in which acme has two tasks that are done, and other one that waits; long ago."""
    place.plan(PLAN)
    place.run()
    with closing(sqlite3.connect(place.db)) as raw:
        day_ms = 86_400_000
        raw.execute("UPDATE tasks SET created_ms = created_ms - ?", (10 * day_ms,))
        raw.execute("UPDATE runs SET settled_ms = settled_ms - ?", (10 * day_ms,))
        raw.execute("UPDATE attempts SET ended_ms = ended_ms - ?", (10 * day_ms,))
        raw.execute("UPDATE events SET at_ms = at_ms - ?", (10 * day_ms,))
        raw.commit()
    return place


def count(place: Place, table: str) -> int:
    with closing(sqlite3.connect(place.db)) as raw:
        return int(raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


# --- backup -----------------------------------------------------------------------------------------------------------


def test_backup_says_what_it_wrote_and_never_overwrites(ran: Place) -> None:
    target = ran.folder / "copy.db"
    done = ran.cli("backup", target)
    assert (done.status, done.out) == (0, f"{target}: {target.stat().st_size} bytes, checked\n")
    again = ran.cli("backup", target)
    assert (again.status, again.out) == (2, "")
    assert again.err.startswith(f"turnkeeper: no backup was made at {target}: {target} exists")


def test_backup_of_what_is_no_database_is_refused(place: Place) -> None:
    done = place.cli("backup", place.folder / "copy.db")
    assert done.status == 2
    assert "there is no such file" in done.err
    assert list(place.folder.iterdir()) == []


async def test_ctrl_c_stops_a_backup(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_args: object) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(actors.cli.maintenance, "backup", interrupted)
    options = BackupOptions(place.db, place.folder / "copy.db")
    with trio.fail_after(30):
        assert await actors.cli.maintenance.maintain(options, Output(io.StringIO())) == 130


# --- prune ------------------------------------------------------------------------------------------------------------


def test_prune_lets_go_of_what_is_older_and_says_how_much(ran: Place) -> None:
    young = ran.cli("prune", "--tasks-days", "11", "--events-days", "11", "--attempts-days", "11")
    assert (young.status, young.out) == (0, "deleted: 0 tasks, 0 attempts, 0 events\n")
    old = ran.cli("prune", "--tasks-days", "9", "--attempts-days", "9")
    assert (old.status, old.out) == (0, "deleted: 2 tasks, 2 attempts, 0 events\n")
    assert (count(ran, "tasks"), count(ran, "attempts")) == (1, 0)
    lines = count(ran, "events")
    log = ran.cli("prune", "--events-days", "9")
    assert log.status == 0
    assert log.out == f"deleted: 0 tasks, 0 attempts, {lines - 2} events\n", "all but what prunings told"
    assert count(ran, "events") == 3


def test_prune_wants_to_know_of_what(ran: Place) -> None:
    for words in ((), ("--keys-days", "1")):
        done = ran.cli("prune", *words)
        assert done.status == 2
        assert "nothing to prune: say how many days to keep what, with --events-days" in done.err
    assert count(ran, "tasks") == 3


def test_prune_takes_any_number_of_days(ran: Place) -> None:
    done = ran.cli("prune", "--tasks-days", "9" * 18, "--events-days", "9" * 18)
    assert (done.status, done.out) == (0, "deleted: 0 tasks, 0 attempts, 0 events\n")


def test_a_company_that_cannot_be_pruned_is_said(ran: Place) -> None:
    with closing(sqlite3.connect(ran.db)) as raw:
        raw.execute("CREATE TRIGGER stays BEFORE DELETE ON tasks BEGIN SELECT RAISE(ABORT, 'planted'); END")
    done = ran.cli("prune", "--tasks-days", "1")
    assert (done.status, done.out) == (
        1,
        "deleted: 0 tasks, 0 attempts, 0 events; 1 companies could not be pruned\n",
    )
    assert done.err.startswith("turnkeeper: acme: pruning.company_failed: cause=UnitRefused")


def test_the_log_after_pruning_begins_with_what_is_left_and_a_cursor_below_is_told(ran: Place) -> None:
    ran.cli("prune", "--events-days", "9")
    assert (
        ran.cli("log").lines[-1].partition(" old lines of the log were deleted, up to position ")[2].isdigit()
    )
    done = ran.cli("log", "--after", "1")
    assert (done.status, done.out) == (2, "")
    assert "the log was pruned up to position" in done.err


# --- delete -----------------------------------------------------------------------------------------------------------


def test_delete_asks_first_and_then_does_it(ran: Place) -> None:
    asked = ran.cli("delete", "acme")
    assert asked.status == 1
    assert asked.out == (
        "acme has 2 tasks. Add --yes to delete them for ever, with their results and events\n"
    )
    assert count(ran, "tasks") == 3
    done = ran.cli("delete", "acme", "--yes")
    assert done.status == 0
    assert done.out.startswith("acme is deleted: 2 tasks, 2 attempts, ")
    assert (count(ran, "tasks"), count(ran, "companies")) == (1, 1)
    for words in (("acme",), ("acme", "--yes")):
        again = ran.cli("delete", *words)
        assert again.status == 2
        assert "there is no company" in again.err
    assert "company acme was deleted: 2 tasks" in ran.cli("log").out


# --- beside a host ----------------------------------------------------------------------------------------------------


def test_beside_a_host_a_copy_is_made_and_the_rest_names_the_host_and_does_nothing(
    place: Place, finish: Callable[[subprocess.Popen[str]], Done]
) -> None:
    gates = Gates(place.folder)
    place.plan(
        """
        [companies.acme]

        [[companies.acme.tasks]]
        id = "gated"
        run = "echo $$ > up.fifo; read word < go.fifo"
        """
    )
    host = place.start("run", place.folder / "plan.toml")
    gates.until_up()
    assert place.cli("backup", place.folder / "copy.db").status == 0
    for words in (("prune", "--tasks-days", "0"), ("delete", "acme", "--yes")):
        done = place.cli(*words)
        assert (done.status, done.out) == (1, "")
        assert f"is in use by process {host.pid}" in done.err
    gates.go()
    assert finish(host).status == 0
    assert place.cli("prune", "--tasks-days", "0").out.startswith("deleted: 1 tasks")
