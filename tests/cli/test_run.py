"""``run`` end to end: a plan becomes work that is done, and the exit status says how it went."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
import trio

from actors import Archive, Event, RunStatus, SendBack, open_runtime
from actors.cli import run
from actors.commands import command

from .conftest import Place
from .support import CHAIN_WITH_A_FAULT, MANUAL, events_of, results_of

TWO_COMPANIES = """
    [companies.acme]
    runs_max = 2

    [[companies.acme.tasks]]
    id = "collect"
    run = "echo numbers >> done.txt; echo 1 2 3"

    [[companies.acme.tasks]]
    id = "report"
    depends_on = ["collect"]
    payload = { week = 7 }

    [[companies.acme.tasks.nodes]]
    name = "one"
    run = "echo one"

    [[companies.acme.tasks.nodes]]
    name = "two"
    argv = ["sh", "-c", "echo $0 $LEVEL", "two"]
    env = { LEVEL = "5" }

    [[companies.acme.tasks.nodes]]
    name = "both"
    after = ["one", "two"]
    call = "plan_functions_run:both"

    [[companies.beta.tasks]]
    id = "alone"
    call = "plan_functions_run:alone"
"""

FUNCTIONS = """
async def both(ctx):
    print("printed by a function")
    ctx.log.info("logged by a function", count=2)
    outputs = sorted(result["output"] for result in ctx.inputs.values())
    return {"outputs": outputs, "week": ctx.payload["week"]}

def alone(ctx):
    ctx.progress("half way")
    return ctx.key
"""

# --- the main job -----------------------------------------------------------------------------------------


def test_a_plan_is_executed_and_its_results_are_kept(place: Place) -> None:
    (place.folder / "plan_functions_run.py").write_text(FUNCTIONS)
    place.plan(TWO_COMPANIES)
    done = place.run()
    assert (done.status, done.err) == (0, "")
    assert done.lines[-2:] == ["acme  2 of 2 completed", "beta  1 of 1 completed"]
    assert results_of(place.db, "acme", "collect") == {"main": {"exit_code": 0, "output": "1 2 3\n"}}
    assert results_of(place.db, "acme", "report")["both"] == {"outputs": ["one\n", "two 5\n"], "week": 7}
    assert results_of(place.db, "beta", "alone") == {"main": "beta/alone/1/main/0"}


def test_the_lines_tell_what_happened_once_each(place: Place) -> None:
    (place.folder / "plan_functions_run.py").write_text(FUNCTIONS)
    place.plan(TWO_COMPANIES)
    told = [line[10:] if line[2:3] == ":" else line for line in place.run().lines]
    for line in (
        "acme: 2 tasks added",
        "beta: 1 task added",
        "acme/collect: attempt 1 of main starts",
        "acme/collect: attempt 1 of main succeeded",
        "acme/collect: completed",
        "acme/report: logged by a function: count=2",
        "printed by a function",
    ):
        assert told.count(line) == 1, line


DIAGNOSES = """
import structlog

structlog.get_logger("turnkeeper").warning("said.at_import", of="a plan")

async def warns(ctx):
    ctx.log.warning("warned by a function", count=2)
    ctx.log.info("logged by a function")
    structlog.get_logger("turnkeeper").error("disk.slow", cause="full")
"""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_diagnoses_go_to_standard_error_and_nowhere_else(place: Place, options: list[str]) -> None:
    """Nobody has configured structlog here, which by itself writes all to standard output."""
    (place.folder / "plan_functions_diagnoses.py").write_text(DIAGNOSES)
    sys.modules.pop("plan_functions_diagnoses", None)
    place.plan("[[companies.acme.tasks]]\nid = 'a'\ncall = 'plan_functions_diagnoses:warns'\n")
    done = place.run(*options)
    assert done.status == 0
    diagnoses = [
        "said.at_import: of=a plan",
        "acme/a: warned by a function: count=2",
        "disk.slow: cause=full",
    ]
    lines = done.err.splitlines()
    assert [line for line in lines if not line.endswith(("added", "logged by a function"))] == [
        f"turnkeeper: {diagnosis}" for diagnosis in diagnoses
    ]
    for said in ("said.at_import", "warned by a function", "disk.slow"):
        assert said not in done.out
    if not options:
        assert "acme/a: logged by a function" in done.lines


def test_a_plan_goes_on_when_the_log_of_its_past_was_pruned(place: Place) -> None:
    (place.folder / "plan_functions_run.py").write_text(FUNCTIONS)
    place.plan(TWO_COMPANIES)
    assert place.run().status == 0
    assert place.cli("prune", "--events-days", "0").status == 0
    again = place.run()
    assert (again.status, again.err) == (0, "")
    assert again.lines == ["", "acme  2 of 2 completed", "beta  1 of 1 completed"]


def test_running_a_plan_again_does_nothing_twice(place: Place) -> None:
    (place.folder / "plan_functions_run.py").write_text(FUNCTIONS)
    place.plan(TWO_COMPANIES)
    assert place.run().status == 0
    again = place.run()
    assert again.status == 0
    assert again.lines == ["", "acme  2 of 2 completed", "beta  1 of 1 completed"]
    assert (place.folder / "done.txt").read_text() == "numbers\n"


def test_json_is_every_event_of_this_run_then_a_summary_and_nothing_else(place: Place) -> None:
    (place.folder / "plan_functions_run.py").write_text(FUNCTIONS)
    place.plan(TWO_COMPANIES)
    for _ in range(2):
        before = len(events_of(place.db)) if place.db.exists() else 0
        done = place.run("--json")
        *events, last = (json.loads(line) for line in done.lines)
        assert [Event(**event) for event in events] == events_of(place.db)[before:]
        assert events[0]["kind"] == "process.started"
        assert events[-1]["kind"] == "process.stopped"
        assert last == {
            "summary": {
                "exit_status": 0,
                "companies": {
                    "acme": {"total": 2, "states": {"completed": 2}},
                    "beta": {"total": 1, "states": {"completed": 1}},
                },
                "unfinished": [],
                "interrupted": [],
                "abandoned": [],
            }
        }


# --- what needs a person ----------------------------------------------------------------------------------


def test_a_failure_blocks_what_depends_on_it_until_it_is_retried(place: Place) -> None:
    plan = place.plan(CHAIN_WITH_A_FAULT)
    done = place.run()
    assert done.status == 1
    assert "acme  0 of 3 completed, 2 blocked, 1 failed" in done.lines
    (said,) = (line for line in done.lines if line.startswith("acme/first failed in main after 1 try"))
    assert said.endswith("exit status 4 | not yet repaired")
    assert f"  python -m actors run {plan} --retry acme/first --db {place.db}" in done.lines
    again = place.run()
    assert again.status == 1
    assert [event.kind for event in events_of(place.db)].count("attempt.started") == 1
    (place.folder / "repaired").touch()
    repaired = place.run("--retry", "acme/first")
    assert repaired.status == 0
    assert repaired.lines[-1] == "acme  3 of 3 completed"


def test_a_manual_task_waits_until_it_is_started(place: Place) -> None:
    plan = place.plan(MANUAL)
    done = place.run()
    assert done.status == 1
    assert any(line.startswith("acme/by-hand waits for a person to start it since ") for line in done.lines)
    assert f"  python -m actors run {plan} --start acme/by-hand --db {place.db}" in done.lines
    assert place.run("--start", "acme/by-hand").status == 0


def test_a_move_that_does_not_fit_is_said_and_changes_nothing(place: Place) -> None:
    place.plan(MANUAL)
    assert place.run("--start", "acme/by-hand").status == 0
    for option in ("--start", "--retry"):
        done = place.run(option, "acme/by-hand")
        assert done.status == 0
        assert [line for line in done.lines if "refused: task by-hand" in line]


def test_where_nothing_may_execute_nothing_is_waited_for(place: Place) -> None:
    place.plan("[[companies.acme.tasks]]\nid = 'a'\nrun = 'true'\n")
    done = place.run("--executions-max", "0")
    assert done.status == 1
    assert place.run().status == 0
    place.plan("[companies.acme]\nruns_max = 0\n[[companies.acme.tasks]]\nid = 'b'\nrun = 'true'\n")
    done = place.run()
    assert done.status == 1
    assert "acme/b waits: the company's runs_max is 0, so nothing starts" in done.lines


def test_a_command_that_takes_too_long_is_ended_and_tried_again(place: Place) -> None:
    place.plan(
        """
        [[companies.acme.tasks]]
        id = "slow"
        tries_max = 2
        timeout_s = 0.2
        retry = { base_s = 0 }
        run = "test $TURNKEEPER_ATTEMPT -eq 2 || sleep 1000"
        """
    )
    done = place.run()
    assert done.status == 0
    assert "attempt.timed_out" in [event.kind for event in events_of(place.db)]


# --- a plan that changed ----------------------------------------------------------------------------------


def test_a_changed_plan_adds_its_new_tasks_and_says_what_it_ignored(place: Place) -> None:
    place.plan("[[companies.acme.tasks]]\nid = 'a'\nrun = 'echo old'\n")
    assert place.run().status == 0
    place.plan(
        """
        [[companies.acme.tasks]]
        id = "b"
        run = "echo new"
        depends_on = ["a"]

        [[companies.acme.tasks]]
        id = "a"
        run = "echo changed"
        """
    )
    done = place.run()
    assert done.status == 0
    assert "acme: 1 task added" in done.lines
    kept = "acme: changed in the plan but kept as stored: a."
    assert f"{kept} Give a task another id to run its new definition" in done.lines
    assert results_of(place.db, "acme", "a")["main"]["output"] == "old\n"
    assert results_of(place.db, "acme", "b")["main"]["output"] == "new\n"


def test_what_another_plan_left_in_the_database_goes_on_too_and_that_is_said(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = run._Session._say_what_is_not_in_the_plan

    def say_and_let_it_go_on(session: run._Session) -> None:
        say(session)
        (place.folder / "go").touch()

    place.plan("[[companies.acme.tasks]]\nid = 'a'\nrun = 'until test -e go; do sleep 0.01; done'\n")
    assert place.run("--executions-max", "0").status == 1
    place.plan("[[companies.beta.tasks]]\nid = 'b'\nrun = 'true'\n")
    monkeypatch.setattr(run._Session, "_say_what_is_not_in_the_plan", say_and_let_it_go_on)
    done = place.run()
    assert done.status == 0
    assert "acme: 1 task that is not in this plan will continue too" in done.lines
    assert done.lines[-2:] == ["acme  1 of 1 completed", "beta  1 of 1 completed"]


def test_a_task_that_was_archived_stays_so(place: Place) -> None:
    async def archive() -> None:
        async with open_runtime(place.db, handlers={"command": command}) as runtime:
            await runtime.company("acme").ask(Archive("by-hand"))

    place.plan(MANUAL)
    assert place.run().status == 1
    trio.run(archive)
    done = place.run()
    assert done.status == 0
    assert done.lines[-1] == "acme  0 of 0 completed"


# --- times --------------------------------------------------------------------------------------------------

TIMED = """
    [companies.acme]

    [[companies.acme.schedules]]
    name = "beat"
    every = 1
    run = "echo beat >> beats.txt"

    [[companies.acme.tasks]]
    id = "soon"
    not_before = {soon}
    run = "true"
"""


def test_without_staying_later_starts_are_waited_for_and_schedules_are_not(place: Place) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    place.plan(TIMED.format(soon=soon.isoformat()))
    done = place.run()
    assert done.status == 0, done.out + done.err
    assert datetime.now(UTC) >= soon
    assert "acme: schedule beat is set" in done.out
    assert "acme: 1 schedule fires only while a host runs: use --stay to keep this one running" in done.out
    again = place.run()
    assert again.status == 0
    assert "is set" not in again.out


AT_A_GATE = """
    [[companies.acme.tasks]]
    id = "post"

    [[companies.acme.tasks.nodes]]
    name = "draft"
    run = "echo a text"

    [[companies.acme.tasks.nodes]]
    name = "approve"
    gate = true
    after = ["draft"]

    [[companies.acme.tasks.nodes]]
    name = "publish"
    run = "true"
    after = ["approve"]

    [[companies.acme.tasks]]
    id = "steps"
    mode = "step"
    run = "true"

    [[companies.acme.tasks]]
    id = "behind"
    depends_on = ["post"]
    run = "true"
"""


def test_a_run_ends_where_only_a_person_can_go_on_and_everything_says_so(place: Place) -> None:
    place.plan(AT_A_GATE)
    done = place.run()
    assert done.status == 1
    assert "acme  0 of 3 completed, 1 waiting, 2 halted" in done.lines
    assert any(
        line.startswith("acme/post waits for a person to approve approve since") for line in done.lines
    )
    assert any("acme/post: waits for a person at approve" in line for line in done.lines)

    async def send_back() -> None:
        async with open_runtime(place.db, handlers={"command": command}) as runtime:
            company = runtime.company("acme")
            await company.ask(SendBack("post", "draft", "shorter\nmuch shorter"))
            while (await company.status("post")).run_status is not RunStatus.HALTED:
                await trio.sleep(0.01)

    trio.run(send_back)
    explained = place.cli("explain", "acme/post").lines
    assert explained[0].startswith("acme/post waits for a person to approve approve since ")
    assert explained[1].startswith("  Approve it: python -m actors approve acme/post approve --later --db ")
    assert any(line.startswith('"post", run 1, submitted at ') for line in explained)
    assert "  node draft: succeeded" in explained
    at = explained.index("    was sent back:")
    assert explained[at + 1 : at + 3] == ["      shorter", "      much shorter"]
    assert any(
        line.startswith("  gate approve: pending, has waited for a person since ") for line in explained
    )
    steps = place.cli("explain", "acme/steps").lines
    assert any("goes step by step: a person has to let main start since" in line for line in steps)
    told = place.cli("timeline", "acme/post").out
    assert "node draft is sent back: shorter | much shorter" in told
    assert "gate approve is reached" in told
    assert 'submitted "steps", step by step' in place.cli("timeline", "acme/steps").out
