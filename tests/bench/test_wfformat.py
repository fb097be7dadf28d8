from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.wfformat import BadWorkflow, Step, in_order, read_workflow, steps_of


def a_task(name: str, *parents: str, runtime: object = 1.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "parents": list(parents), "runtimeInSeconds": runtime, **more}


def a_workflow(*tasks: object) -> dict[str, Any]:
    return {"name": "w", "schemaVersion": "1.4", "workflow": {"tasks": list(tasks)}}


def test_tasks_are_read_in_their_order_with_parents_as_places() -> None:
    found = steps_of(
        a_workflow(
            a_task("join", "left", "right", runtime=2),
            a_task("left", priority=20),
            a_task("right", runtime=0.5),
        )
    )
    assert found == (
        Step("join", (1, 2), 2.0),
        Step("left", (), 1.0, priority=20),
        Step("right", (), 0.5),
    )


def test_parents_may_be_named_by_id_where_that_is_all_there_is() -> None:
    tasks = ({"id": "a", "runtimeInSeconds": 1}, {"id": "b", "parents": ["a"], "runtimeInSeconds": 1})
    assert steps_of(a_workflow(*tasks)) == (Step("a", (), 1.0), Step("b", (0,), 1.0))


def test_parents_may_be_named_by_id_beside_a_name() -> None:
    tasks = (a_task("fetch", id="1"), a_task("use", "1", id="2"), a_task("keep", "use", id="3"))
    assert [step.parents for step in steps_of(a_workflow(*tasks))] == [(), (0,), (1,)]


def test_two_tasks_may_share_a_name_if_their_ids_tell_them_apart() -> None:
    tasks = (a_task("same", id="1"), a_task("same", id="2"), a_task("last", "2", id="3"))
    assert [step.parents for step in steps_of(a_workflow(*tasks))] == [(), (), (1,)]


def test_a_parent_named_twice_counts_once() -> None:
    assert steps_of(a_workflow(a_task("a"), a_task("b", "a", "a")))[1].parents == (0,)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "no list workflow.tasks"),
        ({"workflow": {"specification": {"tasks": []}}}, "no list workflow.tasks"),
        (a_workflow(), "no tasks"),
        (a_workflow("fetch"), "task 0 is not an object"),
        (a_workflow({"parents": [], "runtimeInSeconds": 1}), "neither a name nor an id"),
        (a_workflow(a_task("a"), a_task("a")), "two tasks are named 'a'"),
        (a_workflow(a_task("a", "ghost")), "'a' has the parent 'ghost'"),
        (a_workflow({"name": "a", "parents": "b", "runtimeInSeconds": 1}), "parents of 'a' are not a list"),
        (a_workflow({"name": "a", "parents": []}), "runtimeInSeconds of 'a' must be a number"),
        (a_workflow(a_task("a", runtime=-1)), "not -1"),
        (a_workflow(a_task("a", runtime=True)), "not True"),
        (a_workflow(a_task("a", runtime=float("nan"))), "not nan"),
        (a_workflow(a_task("a", priority="high")), "priority of 'a' must be a whole number"),
        (a_workflow(a_task("a", "a")), "parents go in a circle among: a"),
        (a_workflow(a_task("a", "b"), a_task("b", "a"), a_task("c")), "circle among: a, b"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_one_line(content: object, says: str) -> None:
    with pytest.raises(BadWorkflow) as caught:
        steps_of(content)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_named_in_its_error(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    with pytest.raises(BadWorkflow, match=r"w\.json cannot be read: No such file"):
        read_workflow(path)
    path.write_bytes(b"\xff{")
    with pytest.raises(BadWorkflow, match=r"w\.json is not JSON"):
        read_workflow(path)
    path.write_text("{")
    with pytest.raises(BadWorkflow, match=r"w\.json is not JSON"):
        read_workflow(path)
    path.write_text("{}")
    with pytest.raises(BadWorkflow, match=r"w\.json: not WfFormat 1\.4"):
        read_workflow(path)
    path.write_text(json.dumps(a_workflow(a_task("a"))))
    assert read_workflow(path) == (Step("a", (), 1.0),)


def test_an_order_has_every_step_after_its_parents() -> None:
    steps = (Step("c", (2,), 1.0), Step("a", (), 1.0), Step("b", (1,), 1.0))
    assert in_order(steps) == [1, 2, 0]
