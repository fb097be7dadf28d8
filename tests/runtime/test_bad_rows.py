"""Rows that nobody of ours wrote: their task is set aside, its company and everybody else go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from actors import (
    Archive,
    AttemptEnd,
    DefineGraph,
    MoveRefused,
    Node,
    ReasonKind,
    Retry,
    RunStatus,
    SetLimits,
    Start,
    Stop,
    Submit,
    WorkState,
)
from tests.runtime.support import Gated, a_host, a_task, idle, of_kind, settled, spec_text, sql, stored_events

pytestmark = pytest.mark.planted

NOT_UTF8 = "CAST(x'80ff' AS TEXT)"
BAD_SHAPES = {
    "no JSON": "'{'",
    "JSON of another kind": "'[1]'",
    "an object in the place of a list": "'{}'",
    "a node without a name": "'[{}]'",
    "no text": NOT_UTF8,
    "nothing": "''",
    "a number that is none": "'[NaN]'",
    "a node after itself": """'[{"name":"n","handler":"ok","after":[0]}]'""",
    "a circle": """'[{"name":"a","handler":"ok","after":[1]},{"name":"b","handler":"ok","after":[0]}]'""",
    "a node after one that is not there": """'[{"name":"n","handler":"ok","after":[-1]}]'""",
    "a time that is none": """'[{"name":"n","handler":"ok","timeout_s":"soon"}]'""",
    "a time below zero": """'[{"name":"n","handler":"ok","timeout_s":-1}]'""",
    "a number of tries that is none": """'[{"name":"n","handler":"ok","tries_max":"two"}]'""",
}


async def a_file_with_tasks(path: Path, *tasks: Submit) -> None:
    """Tasks that wait in company k, and nobody runs them."""
    async with a_host(path) as runtime:
        await runtime.company("k").ask(SetLimits(runs_max=0))
        for task in tasks:
            await runtime.company("k").ask(task)


async def bad_is_set_aside_and_good_goes_on(path: Path, why: str) -> None:
    """Open the file again: good runs, bad is quarantined, other companies never know."""
    async with a_host(path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert await settled(company, "good") == "completed"
        await idle(runtime)
        status = await company.status("bad")
        assert status.state is WorkState.QUARANTINED
        assert status.reasons[0].text is not None
        assert status.reasons[0].text.startswith(why)
        other = await runtime.company("other").ask(a_task())
        assert await settled(runtime.company("other"), other.id) == "completed"
        assert runtime.registry.slots_in_use == 0
    assert sql(path, "SELECT count(*) FROM runs WHERE slot > 0") == [(0,)]
    quarantined = of_kind(stored_events(path), "task.quarantined")
    assert [event.task for event in quarantined] == ["bad"]


@pytest.mark.parametrize("what", BAD_SHAPES)
async def test_a_shape_that_cannot_be_read_sets_its_task_aside(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    await a_file_with_tasks(db_path, a_task(id="bad"), a_task(id="good"))
    sql(db_path, f"UPDATE tasks SET shape = {BAD_SHAPES[what]} WHERE id = 'bad'")
    await bad_is_set_aside_and_good_goes_on(db_path, "bad row: ")


@pytest.mark.parametrize("what", [f"goal = {NOT_UTF8}", f"graph = {NOT_UTF8}"])
async def test_a_column_that_cannot_be_read_sets_its_task_aside(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    await a_file_with_tasks(db_path, a_task(id="bad"), a_task(id="good"))
    sql(db_path, f"UPDATE tasks SET {what} WHERE id = 'bad'")
    await bad_is_set_aside_and_good_goes_on(db_path, "bad row: ")


BAD_SPECS = {
    "no JSON": "'{'",
    "a list": "'[]'",
    "a name that is a number": """'{"name":5,"handler":"work"}'""",
    "no text": NOT_UTF8,
    "after one that is not there": """'{"name":"n","handler":"work","after":[7]}'""",
    "after itself": """'{"name":"n","handler":"work","after":[0]}'""",
    "a gate that is a number": """'{"name":"n","gate":1}'""",
    "a limit that is text": """'{"name":"n","handler":"work","send_backs_max":"x"}'""",
    "a time that is none": """'{"name":"n","handler":"work","timeout_s":NaN}'""",
}


@pytest.mark.parametrize("what", BAD_SPECS)
async def test_a_node_that_cannot_be_read_sets_its_task_aside_and_its_run_slot_is_free(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, drain_s=0) as runtime:
        await runtime.company("k").ask(a_task("work", id="bad"))
        await runtime.company("k").ask(a_task(id="good"))
        await work.has_started()
    sql(db_path, f"UPDATE nodes SET spec = {BAD_SPECS[what]}")
    await bad_is_set_aside_and_good_goes_on(db_path, "bad row: ")
    assert sql(db_path, "SELECT status, slot FROM runs WHERE company_id = 1 AND seq = 1") == [("failed", 0)]


@pytest.mark.parametrize("payload", ["'{'", "''", NOT_UTF8])
async def test_a_payload_that_cannot_be_read_sets_its_task_aside_when_it_starts(
    db_path: Path, autojump_clock: MockClock, payload: str
) -> None:
    await a_file_with_tasks(db_path, a_task(id="bad", payload=1), a_task(id="good"))
    sql(db_path, f"UPDATE tasks SET payload = {payload} WHERE id = 'bad'")
    await bad_is_set_aside_and_good_goes_on(
        db_path, "bad row: " if payload != NOT_UTF8 else "its moves failed twice: OperationalError"
    )


async def test_a_node_s_payload_that_cannot_be_read_sets_its_task_aside(
    db_path: Path, autojump_clock: MockClock
) -> None:
    nodes = [Node("first", "ok"), Node("second", "ok", after=["first"], payload=1)]
    async with a_host(db_path, drain_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task(nodes=nodes, id="bad"))
        await company.ask(a_task(id="good"))
    sql(db_path, "UPDATE tasks SET node_payloads = '[null,{]' WHERE id = 'bad'")
    await bad_is_set_aside_and_good_goes_on(db_path, "")


async def test_a_result_that_cannot_be_read_sets_aside_the_task_that_needs_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    second = Gated()
    nodes = [Node("first", "ok"), Node("second", "second", after=["first"])]
    async with a_host(db_path, {"second": second}, drain_s=0) as runtime:
        await runtime.company("k").ask(a_task(nodes=nodes, id="bad"))
        await runtime.company("k").ask(a_task(id="good"))
        await second.has_started()
    sql(db_path, "UPDATE nodes SET result = '{' WHERE status = 'succeeded'")
    async with a_host(db_path, {"second": second}) as runtime:
        company = runtime.company("k")
        assert await settled(company, "good") == "completed"
        status = await company.status("bad")
        assert (status.state, status.run_status) == (WorkState.QUARANTINED, RunStatus.FAILED)
        assert [view.end for view in await company.attempts("bad")][1:] == [AttemptEnd.INTERRUPTED] * 2


async def test_a_task_without_a_run_is_blocked_and_says_so(db_path: Path, autojump_clock: MockClock) -> None:
    await a_file_with_tasks(
        db_path, a_task(id="bad"), a_task(id="good"), a_task(id="after", depends_on=["bad"])
    )
    sql(db_path, "DELETE FROM runs WHERE seq = 1")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert await settled(company, "good") == "completed"
        status = await company.status("bad")
        assert (status.state, status.reasons[0].kind) == (WorkState.BLOCKED, ReasonKind.RUN_MISSING)
        assert (await company.status("after")).state is WorkState.BLOCKED
        with pytest.raises(MoveRefused, match="has no run: its rows are incomplete"):
            await company.ask(Start("bad"))


async def test_an_upstream_that_is_not_there_blocks_and_says_which(
    db_path: Path, autojump_clock: MockClock
) -> None:
    await a_file_with_tasks(
        db_path, a_task(id="up", mode="manual"), a_task(id="bad", depends_on=["up"]), a_task(id="good")
    )
    sql(db_path, "UPDATE edges SET upstream = 'gone'")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert await settled(company, "good") == "completed"
        (reason,) = (await company.status("bad")).reasons[:1]
        assert (reason.kind, reason.tasks) == (ReasonKind.UPSTREAM_MISSING, ("gone",))
        await company.ask(a_task(id="gone"))
        assert await settled(company, "bad") == "completed", "a task that takes the id frees it"


async def test_a_circle_in_the_file_blocks_its_members_and_nobody_else(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C23."""
    tasks = [
        a_task(id="a"),
        a_task(id="b", depends_on=["a"]),
        a_task(id="c", depends_on=["b"]),
        a_task(id="good"),
    ]
    await a_file_with_tasks(db_path, *tasks)
    sql(db_path, "INSERT INTO edges (company_id, seq, upstream) VALUES (1, 1, 'c')")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert await settled(company, "good") == "completed"
        for task in ("a", "b", "c"):
            status = await company.status(task)
            assert status.state is WorkState.BLOCKED
            (reason,) = [reason for reason in status.reasons if reason.kind is ReasonKind.DEPENDENCY_CYCLE]
            assert (reason.tasks[0], len(reason.tasks)) == (reason.tasks[-1], 4)
            assert set(reason.tasks) == {"a", "b", "c"}


async def test_a_graph_that_cannot_be_read_is_as_if_it_were_not_defined(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(DefineGraph("g", [Node("n", "ok")]))
        await company.ask(a_task(graph="g", id="bad"))
        await company.ask(a_task(id="good"))
    sql(db_path, "UPDATE graphs SET shape = '{'")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert await settled(company, "good") == "completed"
        status = await company.status("bad")
        assert (status.state, status.reasons[0].kind) == (WorkState.BLOCKED, ReasonKind.GRAPH_MISSING)
        await company.ask(DefineGraph("g", [Node("n", "ok")]))
        assert await settled(company, "bad") == "completed"


async def test_a_row_that_was_repaired_is_read_afresh_when_a_person_says_retry(
    db_path: Path, autojump_clock: MockClock
) -> None:
    await a_file_with_tasks(db_path, a_task(id="bad"), a_task(id="good"))
    (shape,) = sql(db_path, "SELECT shape FROM tasks WHERE id = 'bad'")[0]
    sql(db_path, "UPDATE tasks SET shape = '{' WHERE id = 'bad'")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert await settled(company, "good") == "completed"
        sql(db_path, "UPDATE tasks SET shape = ? WHERE id = 'bad'", shape)
        await company.ask(Retry("bad"))
        assert await settled(company, "bad") == "completed"


async def test_a_row_that_was_not_repaired_cannot_be_retried(
    db_path: Path, autojump_clock: MockClock
) -> None:
    await a_file_with_tasks(db_path, a_task(id="bad"), a_task(id="good"))
    sql(db_path, "UPDATE tasks SET shape = '{' WHERE id = 'bad'")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        with pytest.raises(MoveRefused, match="its rows still cannot be read: mend or Archive it"):
            await company.ask(Retry("bad"))
        assert await settled(company, "good") == "completed"
        assert (await company.status("bad")).state is WorkState.QUARANTINED


async def test_a_title_that_cannot_be_read_is_shown_escaped_and_hurts_no_list(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task(id="a"))
        await company.ask(a_task(id="b"))
        sql(db_path, f"UPDATE tasks SET title = {NOT_UTF8} WHERE id = 'a'")
        assert [status.title for status in await company.queue()] == [r"\x80\xff", "b"]
        assert [status.title for status in await company.tasks()] == [r"\x80\xff", "b"]


async def test_a_bad_row_can_be_stopped_and_put_away(db_path: Path, autojump_clock: MockClock) -> None:
    await a_file_with_tasks(db_path, a_task(id="bad"), a_task(id="good"))
    sql(db_path, "UPDATE tasks SET shape = '{' WHERE id = 'bad'")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        assert (await company.ask(Stop("bad"))).status is RunStatus.STOPPED
        assert (await company.ask(Archive("bad"))).status is RunStatus.STOPPED
        assert (await company.status("bad")).state is WorkState.ARCHIVED


async def test_a_settled_task_with_a_bad_row_hurts_only_who_names_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task(id="bad"))
        await runtime.company("k").when_settled("bad")
    sql(db_path, "UPDATE nodes SET spec = '{'")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(id="good"))
        assert await settled(company, "good") == "completed"
        with pytest.raises(MoveRefused, match="is quarantined"):
            await company.ask(Start("bad"))
        await company.ask(a_task(id="also good"))
        assert await settled(company, "also good") == "completed"


def test_what_the_tests_plant_is_what_we_would_write_but_for_the_mistake() -> None:
    assert spec_text("n", "ok").startswith("{")
