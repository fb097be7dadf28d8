"""A plan is read whole, or refused with one message that says where."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from actors.cli.plan import COMMAND, Plan, PlanError, in_dependency_order, read_plan
from actors.messages import Backoff, DefineGraph, Gate, Node, SetLimits, SetSchedule, Submit
from storage.records import Mode


def a_plan(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def read(tmp_path: Path, text: str) -> Plan:
    return read_plan(a_plan(tmp_path, text))


def only_task(tmp_path: Path, fields: str) -> Submit:
    plan = read(tmp_path, f"[[companies.acme.tasks]]\nid = 'a'\n{textwrap.dedent(fields)}")
    ((task,),) = (company.tasks for company in plan.companies)
    return task


def steps_of(task: Submit) -> list[Node]:
    """The nodes of a task that has no gates."""
    assert task.nodes is not None
    return [node for node in task.nodes if isinstance(node, Node)]


def command_of(node: Node | Gate) -> dict[str, Any]:
    assert isinstance(node, Node)
    assert node.handler == COMMAND
    assert isinstance(node.payload, dict)
    return node.payload


# --- what a plan says -------------------------------------------------------------------------------------


def test_a_plan_becomes_the_messages_that_it_stands_for(tmp_path: Path) -> None:
    plan = read(
        tmp_path,
        """
        [companies.acme]
        runs_max = 2

        [[companies.acme.graphs.weekly.nodes]]
        name = "table"
        run = "make table"

        [[companies.acme.tasks]]
        id = "collect"
        title = "Collect the numbers"
        run = "curl -fsS example.org"
        priority = "P1"
        goal = "spring"

        [[companies.acme.tasks]]
        id = "report"
        graph = "weekly"
        depends_on = ["collect"]
        mode = "manual"
        fail_fast = true
        tries_max = 5
        payload = { week = 7 }

        [companies.beta]
        """,
    )
    table = Node("table", COMMAND, payload={"shell": "make table"})
    collect = Submit(
        "Collect the numbers",
        id="collect",
        nodes=(Node("main", COMMAND, payload={"shell": "curl -fsS example.org"}),),
        priority=1,
        goal="spring",
    )
    report = Submit(
        "report",
        id="report",
        graph="weekly",
        depends_on=("collect",),
        mode="manual",
        fail_fast=True,
        tries_max=5,
        payload={"week": 7},
    )
    acme, beta = plan.companies
    assert acme.name == "acme"
    assert acme.limits == SetLimits(runs_max=2)
    assert acme.graphs == (DefineGraph("weekly", (table,)),)
    assert acme.tasks == (collect, report)
    assert (beta.name, beta.limits, beta.graphs, beta.tasks) == ("beta", None, (), ())
    assert set(plan.handlers) == {COMMAND}


def test_nodes_take_what_they_do_not_say_themselves_from_their_task(tmp_path: Path) -> None:
    task = only_task(
        tmp_path,
        """
        cwd = "work"
        env = { LEVEL = "1", WHO = "task" }
        timeout_s = 9
        retry = { base_s = 0 }
        payload = "of the task"

        [[companies.acme.tasks.nodes]]
        name = "one"
        argv = ["{python}", "-V"]

        [[companies.acme.tasks.nodes]]
        name = "two"
        after = ["one"]
        run = "true"
        cwd = "elsewhere"
        env = { WHO = "node" }
        timeout_s = 1
        tries_max = 1
        retry = { base_s = 2, factor = 3, max_s = 4 }
        payload = "of the node"
        """,
    )
    one, two = steps_of(task)
    shared = {"cwd": "work", "env": {"LEVEL": "1", "WHO": "task"}}
    assert task.payload == "of the task"
    assert command_of(one) == {"argv": ["{python}", "-V"], **shared}
    assert (one.timeout_s, one.retry, one.tries_max) == (9.0, Backoff(base_s=0), None)
    assert command_of(two) == {
        "shell": "true",
        "cwd": "elsewhere",
        "env": {"LEVEL": "1", "WHO": "node"},
        "payload": "of the node",
    }
    assert (two.timeout_s, two.retry, two.tries_max) == (1.0, Backoff(2, 3, 4), 1)
    assert two.after == ("one",)


def test_a_plan_may_have_gates_and_go_step_by_step(tmp_path: Path) -> None:
    task = only_task(
        tmp_path,
        """
        mode = "step"
        send_backs_max = 2

        [[companies.acme.tasks.nodes]]
        name = "text"
        run = "true"
        send_backs_max = 5

        [[companies.acme.tasks.nodes]]
        name = "approve"
        after = ["text"]
        gate = true
        """,
    )
    assert (task.mode, task.send_backs_max) == (Mode.STEP, 2)
    text, approve = task.nodes or ()
    assert isinstance(text, Node)
    assert text.send_backs_max == 5
    assert approve == Gate("approve", after=["text"])


def test_a_task_without_steps_is_a_milestone(tmp_path: Path) -> None:
    assert only_task(tmp_path, "") == Submit("a", id="a")


def test_a_function_beside_the_plan_is_found_when_the_plan_is_read(tmp_path: Path) -> None:
    (tmp_path / "plan_functions_a.py").write_text("def greet(ctx): return 'hello'\n")
    plan = read(
        tmp_path,
        """
        [[companies.acme.tasks]]
        id = "a"
        payload = 1

        [[companies.acme.tasks.nodes]]
        name = "greet"
        call = "plan_functions_a:greet"

        [[companies.acme.tasks.nodes]]
        name = "again"
        call = "plan_functions_a:greet"
        payload = 2
        """,
    )
    (task,) = plan.companies[0].tasks
    assert task.payload == 1
    first, again = steps_of(task)
    assert (first.handler, first.payload) == ("plan_functions_a:greet", None)
    assert (again.handler, again.payload) == ("plan_functions_a:greet", 2)
    assert plan.handlers["plan_functions_a:greet"](None) == "hello"


def test_a_plan_may_begin_with_a_byte_order_mark_and_end_its_lines_as_windows_does(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\xef\xbb\xbf[[companies.acme.tasks]]\r\nid = 'a'\r\nwhat = 1\r\n")
    with pytest.raises(PlanError, match=r"plan\.toml:3: companies\.acme\.tasks\.a\.what: unknown key"):
        read_plan(path)


def test_tasks_can_be_put_into_an_order_that_respects_dependencies(tmp_path: Path) -> None:
    plan = read(
        tmp_path,
        """
        [companies.acme]
        tasks = [
            { id = "c", depends_on = ["b", "a"] },
            { id = "b", depends_on = ["a"] },
            { id = "a" },
        ]
        """,
    )
    assert [task.id for task in in_dependency_order(plan.companies[0].tasks)] == ["a", "b", "c"]


# --- times --------------------------------------------------------------------------------------------------


def test_a_schedule_is_when_and_what(tmp_path: Path) -> None:
    plan = read(
        tmp_path,
        """
        [[companies.acme.graphs.weekly.nodes]]
        name = "table"
        run = "make table"

        [[companies.acme.schedules]]
        name = "nightly"
        cron = "0 3 * * *"
        zone = "Europe/Berlin"
        misfire = "skip"
        jitter_s = 60
        title = "Nightly numbers"
        run = "make numbers"
        priority = 1
        payload = { n = 1 }

        [[companies.acme.schedules]]
        name = "beat"
        every = 900
        overlap = "queue"
        graph = "weekly"
        """,
    )
    (company,) = plan.companies
    numbers = Node("main", COMMAND, payload={"shell": "make numbers"})
    assert company.schedules == (
        SetSchedule(
            "nightly",
            cron="0 3 * * *",
            zone="Europe/Berlin",
            misfire="skip",
            jitter_s=60,
            task=Submit("Nightly numbers", nodes=[numbers], priority=1, payload={"n": 1}),
        ),
        SetSchedule("beat", every=900, overlap="queue", task=Submit("beat", graph="weekly")),
    )
    assert company.tasks == ()


def test_a_task_can_start_later(tmp_path: Path) -> None:
    task = only_task(tmp_path, "not_before = 2026-07-01T09:00:00+02:00")
    assert task.not_before == datetime(2026, 7, 1, 7, tzinfo=UTC)
