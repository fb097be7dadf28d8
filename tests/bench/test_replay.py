from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.replay import main, summary
from tests.bench.wfformat import Step

STEPS = (Step("first", (), 30.0), Step("second", (0,), 10.0), Step("beside", (0,), 20.0))


def test_the_makespan_is_set_against_the_path_and_the_best_possible() -> None:
    lines = summary(STEPS, makespan_s=0.9, scale=0.01, slots=1)
    assert "tasks            3 with 2 dependencies" in lines
    assert "work             0.600 s, run times × 0.01" in lines
    assert "critical path    0.500 s" in lines
    assert lines[3].startswith("at best          0.600 s on 1 slots")
    assert "÷ critical path  1.800" in lines
    assert "÷ at best        1.500 (100.00 ms more for each task)" in lines


def test_steps_that_take_no_time_have_nothing_to_be_set_against() -> None:
    lines = summary((Step("nothing", (), 0.0),), makespan_s=0.1, scale=1, slots=2)
    assert lines[-1] == "makespan         0.100 s"


def test_a_file_that_cannot_be_replayed_gets_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text('{"workflow": {}}')
    assert main([str(tmp_path / "bad.json")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path / 'bad.json'}: not WfFormat 1.4: there is no list workflow.tasks"
    ]


def test_a_workflow_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.json"
    path.write_text(
        '{"workflow": {"tasks": [{"name": "a", "runtimeInSeconds": 1, "priority": 3},'
        ' {"name": "b/\\u0007", "parents": ["a"], "runtimeInSeconds": 0}]}}'
    )
    assert main([str(path), "--scale", "0.001", "--slots", "2"]) == 0
    assert "tasks            2 with 1 dependencies" in capsys.readouterr().out
