"""Budgets and words of people at the terminal: plans, commands, sentences and what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors import (
    KINDS,
    Moved,
    Node,
    Reason,
    ReasonKind,
    RunStatus,
    SetBudget,
    describe_reason,
)
from actors.cli.advice import advice
from actors.cli.options import SendOptions
from actors.cli.parser import parse
from actors.cli.plan import PlanError, read_plan
from actors.messages import BudgetSettings

PLAN = """
[companies.acme]
budget = 1000

[[companies.acme.tasks]]
id = "one"
run = "true"
budget = 100
estimate = 5

[[companies.acme.tasks]]
id = "many"
[[companies.acme.tasks.nodes]]
name = "n"
run = "true"
estimate = 7

[companies.beta]
budget = false

[companies.gamma]
runs_max = 1
"""


def test_a_plan_may_have_budgets_and_estimates(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    acme, beta, gamma = read_plan(path).companies
    assert (acme.budget, beta.budget, gamma.budget) == (SetBudget(1000), SetBudget(None), None)
    one, many = acme.tasks
    assert one.budget == 100
    assert many.budget is None
    assert [node.estimate for task in (one, many) for node in task.nodes or () if isinstance(node, Node)] == [
        5,
        7,
    ]


@pytest.mark.parametrize(
    ("line", "key"), [("budget = -1", "budget"), ('budget = "much"', "budget"), ("budget = true", "budget")]
)
def test_a_budget_that_is_none_is_refused_with_its_line(tmp_path: Path, line: str, key: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f"[companies.acme]\n{line}\n")
    with pytest.raises(PlanError, match=key) as refused:
        read_plan(path)
    assert ":2:" in str(refused.value)


@pytest.mark.parametrize(
    ("words", "reply", "said"),
    [
        (
            "budget acme 1000",
            BudgetSettings(1000, 20, 300),
            "may spend 1,000 in all; 20 spent, 300 reserved",
        ),
        (
            "budget acme none",
            BudgetSettings(None, 20, 0, changed=False),
            "may spend any amount, as before; 20 spent, 0 reserved",
        ),
        ("next acme/t", Moved("t", 1, RunStatus.QUEUED), "continues"),
        ("approve acme/t gate", Moved("t", 1, RunStatus.QUEUED), "is approved at gate gate"),
        ("send-back acme/t draft no", Moved("t", 2, RunStatus.QUEUED), "does draft again, in run 2"),
    ],
)
def test_what_was_done_is_said(words: str, reply: object, said: str) -> None:
    options = parse([*words.split(), "--db", "x.db"])
    assert isinstance(options, SendOptions)
    assert options.command.said(options.given, reply) == said


NUMBERS = {"spent": 900, "reserved": 50, "estimate": 100, "limit": 1000}


def test_a_budget_that_is_short_is_said_with_its_numbers_and_what_helps() -> None:
    waits = Reason(ReasonKind.BUDGET, numbers=NUMBERS, text="company")
    assert describe_reason(waits) == (
        "it waits for the company's budget of 1,000: 900 spent, 50 reserved, 100 estimated"
    )
    db = Path("x.db")
    assert str(advice(waits, "acme", "t", db)).endswith("budget acme 1050 --db x.db")
    halted = Reason(ReasonKind.BUDGET, nodes=("n",), count=1, numbers=NUMBERS, text="task", at_ms=1)
    assert describe_reason(halted, now_ms=1).startswith("it is halted on its budget of 1,000 for n since ")
    assert str(advice(halted, "acme", "t", db)).endswith("edit acme/t --budget 1050 --db x.db")
    enough = Reason(ReasonKind.BUDGET, numbers=NUMBERS | {"limit": 5000}, text="company", at_ms=1)
    assert str(advice(enough, "acme", "t", db)).endswith("retry acme/t --db x.db")
    gate = Reason(ReasonKind.APPROVAL, nodes=("g",), count=1)
    assert str(advice(gate, "acme", "t", db)).endswith("approve acme/t g --db x.db")


def test_the_kinds_of_budgets_have_fields_of_their_own() -> None:
    assert KINDS["company.budget_changed"].fields == ("limit", "spent", "reserved")
    assert KINDS["attempt.spent"].fields == ("spent", "added", "assumed")
