"""The commands that read, and what no command can use: nothing is created, and one line says why."""

from __future__ import annotations

import json

import pytest
import structlog

from actors import Event
from actors.cli import app
from actors.cli.output import Output

from .conftest import Place
from .support import CHAIN_WITH_A_FAULT, MANUAL, events_of

# --- what cannot be used ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not toml", "plan.toml:1: not TOML: "),
        (
            "[[companies.acme.tasks]]\nid = 'a'\nwrong = 1\n",
            "plan.toml:3: companies.acme.tasks.a.wrong: unknown",
        ),
    ],
)
def test_a_plan_that_is_wrong_ends_with_status_2_and_writes_nothing(
    place: Place, text: str, said: str
) -> None:
    place.plan(text)
    done = place.run()
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert said in line
    assert sorted(path.name for path in place.folder.iterdir()) == ["plan.toml"]


@pytest.mark.parametrize("option", ["--retry", "--start"])
def test_an_unknown_task_in_the_arguments_ends_with_status_2_and_writes_nothing(
    place: Place, option: str
) -> None:
    place.plan(MANUAL)
    done = place.run(option, "acme/other")
    assert (done.status, done.out) == (2, "")
    assert done.err == "turnkeeper: there is no task acme/other in the plan or the database\n"
    assert sorted(path.name for path in place.folder.iterdir()) == ["plan.toml"]
    assert place.run().status == 1
    before = events_of(place.db)
    for name in ("acme/other", "none/other"):
        assert place.run(option, name).status == 2
    assert events_of(place.db) == before


def test_a_task_of_the_database_that_is_not_in_the_plan_can_be_named(place: Place) -> None:
    place.plan(MANUAL)
    assert place.run().status == 1
    place.plan("[companies.beta]\n")
    assert place.run("--start", "acme/by-hand").status == 0


@pytest.mark.parametrize("content", ["", "hello, this is a letter and not a database at all"])
def test_a_file_that_is_not_ours_is_left_as_it_is(place: Place, content: str) -> None:
    place.plan(MANUAL)
    place.db.write_text(content)
    commands: list[list[str]] = [[what] for what in ("status", "queue", "log")]
    commands += [[what, "acme/a"] for what in ("explain", "timeline")]
    if content:
        commands.append(["run", str(place.folder / "plan.toml")])
    for argv in commands:
        done = place.cli(*argv)
        assert (done.status, done.out) == (2, "")
        assert "is not a Turnkeeper database" in done.err
        assert len(done.err.splitlines()) == 1
    assert place.db.read_text() == content


def test_a_database_that_does_not_exist_is_not_made_by_reading(place: Place) -> None:
    for argv in (["status"], ["queue"], ["log"], ["explain", "acme/a"], ["timeline", "acme/a"]):
        done = place.cli(*argv)
        assert (done.status, done.out) == (2, "")
        assert "there is no such file" in done.err
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize("where", ["none/x.db", "x.db"])
def test_a_log_cannot_be_followed_where_no_run_could_ever_make_it(place: Place, where: str) -> None:
    from actors.cli import main

    (place.folder / "x.db").write_text("hello, this is a letter and not a database at all")
    assert main(["log", "-f", "--db", str(place.folder / where)]) == 2
    assert "is not a Turnkeeper database" in place.capsys.readouterr().err


def test_a_folder_that_does_not_exist_ends_with_status_2(place: Place) -> None:
    plan = place.plan(MANUAL)
    place.capsys.readouterr()
    from actors.cli import main

    assert main(["run", str(plan), "--db", str(place.folder / "none" / "x.db")]) == 2
    out, err = place.capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("turnkeeper: the store is not available: No such file or directory: ")
    assert line.endswith(". The path is at fault: make its folder, or give another path")


# --- reading ----------------------------------------------------------------------------------------------


def test_the_read_commands_say_where_things_stand_when_no_host_runs(place: Place) -> None:
    place.plan(CHAIN_WITH_A_FAULT)
    assert place.run().status == 1
    status = place.cli("status")
    assert status.status == 0
    assert status.lines[0] == "no process runs this database"
    assert "acme: 0 of 3 completed, 2 blocked, 1 failed" in status.lines
    assert "  second depends on first, which failed" in status.lines
    queue = place.cli("queue", "--company", "acme").lines
    assert [line.split()[3] for line in queue] == ["acme/second", "acme/third"]
    explain = place.cli("explain", "acme/third").lines
    assert explain[0] == "acme/third is blocked: it depends on acme/second, which is blocked itself."
    assert explain[1] == f"  See why: python -m actors explain acme/second --db {place.db}"
    assert explain[2] == "It also waits: no process runs this database."
    explain = place.cli("explain", "acme/first").lines
    assert "    not yet repaired" in explain
    timeline = place.cli("timeline", "acme/first").lines
    assert [line.rpartition("  ")[2] for line in timeline] == [
        'submitted "first"',
        "starts (run slot 1)",
        "attempt 1 of main starts",
        "attempt 1 of main failed, no tries left: CommandFailed: exit status 4 | not yet repaired",
        "failed in main",
    ]
    log = place.cli("log").lines
    assert len(log) == len(events_of(place.db))
    assert place.cli("log", "--after", "2").lines == log[2:]
    assert place.cli("log", "--company", "acme").lines == [line for line in log if "acme" in line]
    as_json = [Event(**json.loads(line)) for line in place.cli("log", "--json").lines]
    assert as_json == events_of(place.db)


def test_diagnoses_of_the_reading_commands_go_to_standard_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(_options: object, out: Output) -> int:
        structlog.get_logger("storage.bridge").warning("thread_left", thread="x")
        out.line("read")
        return 0

    monkeypatch.setattr(app, "read", read)
    done = place.cli("status")
    assert (done.status, done.out, done.err) == (0, "read\n", "turnkeeper: thread_left: thread=x\n")


def test_an_unknown_name_ends_with_status_2(place: Place) -> None:
    place.plan(MANUAL)
    assert place.run().status == 1
    for argv in (
        ["status", "--company", "none"],
        ["queue", "--company", "none"],
        ["log", "--company", "none"],
        ["explain", "none/a"],
        ["timeline", "acme/none"],
        ["explain", "acme/none"],
    ):
        done = place.cli(*argv)
        assert (done.status, done.out) == (2, "")
        assert "none" in done.err
        assert len(done.err.splitlines()) == 1
