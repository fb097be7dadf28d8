from __future__ import annotations

import inspect
from functools import partial
from importlib import import_module
from itertools import groupby

import pytest

from tests.bench.cases import FULL, MEASURES, QUICK, Case, Sizes, cases
from tests.bench.child import MODULES
from tests.bench.peers import SUBJECTS
from tests.bench.protocol import ChildFailed, Job, values_of, values_text
from tests.bench.run import present

ALL = [*cases(FULL), *cases(QUICK)]


def test_every_measure_has_cases_and_the_cases_of_one_stand_together() -> None:
    for sizes in (FULL, QUICK):
        found = [measure for measure, _ in groupby(cases(sizes), key=lambda case: case.measure)]
        assert found == list(MEASURES)


@pytest.mark.parametrize("sizes", [FULL, QUICK], ids=["full", "quick"])
def test_a_case_is_set_against_cases_of_its_own_measure(sizes: Sizes) -> None:
    keys = [case.key for case in cases(sizes)]
    assert len(keys) == len(set(keys))
    for case in cases(sizes):
        for key in case.against:
            assert key in keys
            assert key.startswith(f"{case.measure}/")


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.key)
def test_a_case_names_a_task_that_takes_its_params(case: Case) -> None:
    assert case.subject in SUBJECTS
    task = import_module(MODULES[case.subject]).TASKS[case.task]
    taken = inspect.signature(task.args[0] if isinstance(task, partial) else task)
    taken.bind("a path", **case.params)
    if case.fill is not None:
        inspect.signature(import_module(MODULES["raw"]).TASKS["fill"]).bind("a path", **case.fill)


def test_a_peer_that_is_not_installed_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.run.version_of", lambda name: None if name == "huey" else "1.0")
    here, missing = present(cases(QUICK))
    assert missing == ["huey"]
    assert {case.subject for case in here} == {"turnkeeper", "raw", "dbos"}


def test_a_job_and_its_values_come_through_as_they_are() -> None:
    job = Job("huey", "drain", "/tmp/x y.db", {"jobs": 3, "results": False})
    assert Job.of(job.text()) == job
    assert values_of("chatter\n" + values_text({"jobs_per_s": 1.5}) + "\n") == {"jobs_per_s": 1.5}


@pytest.mark.parametrize("output", ["", "chatter", "[]", '{"values": 3}', '{"values": {"a": "b"}}'])
def test_output_without_values_is_a_failure(output: str) -> None:
    with pytest.raises(ChildFailed, match="no values in the output"):
        values_of(output)
