"""The catalogue of breakages fits the code as it is. That each is noticed is shown by ``python -m tests.mutants``."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from .catalogue import MUTANTS, TABLES, Mutant

ROOT = Path(__file__).parents[2]


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse(_text(file))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_one_place_and_its_tests_exist(mutant: Mutant) -> None:
    assert _text(mutant.file).count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert mutant.tests
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert function.partition("[")[0] in _functions(file)


def test_every_promise_and_every_table_has_a_mutant_and_every_mutant_a_name_of_its_own() -> None:
    assert {mutant.of for mutant in MUTANTS} == {*(str(number) for number in range(1, 11)), *TABLES}
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
