"""A plan with a mistake is refused with one message that says where, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.cli import source
from actors.cli.plan import PlanError, read_plan
from actors.messages import TRIES_MAX_LIMIT
from actors.sentences import plain

from .test_plan import read


def refused(tmp_path: Path, text: str) -> PlanError:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, text)
    return caught.value


TASK = "[[companies.acme.tasks]]\nid = 'a'\n"
SCHEDULE = "[[companies.acme.schedules]]\nname = 's'\n"
NODE = f"{TASK}[[companies.acme.tasks.nodes]]\nname = 'n'\n"

STEP = f"{TASK}run = 'x'\n"
RUNNING = f"{NODE}run = 'x'\n"
REPEATED = f"{SCHEDULE}every = 60\n"
COMPANY = "[companies.acme]\n"
KEYS = {
    TASK: "companies.acme.tasks.a",
    STEP: "companies.acme.tasks.a",
    NODE: "companies.acme.tasks.a.nodes.n",
    RUNNING: "companies.acme.tasks.a.nodes.n",
    SCHEDULE: "companies.acme.schedules.s",
    REPEATED: "companies.acme.schedules.s",
    COMPANY: "companies.acme",
}
"""What stands before a line, and the key of the table that the line belongs to."""

LINES = [
    (COMPANY, "run_max = 1", "run_max", 'did you mean "runs_max"?'),
    (COMPANY, "x = 1", "x", "known here: runs_max, weight, graphs, tasks"),
    (COMPANY, "tasks = 'x'", "tasks", "must be a list of tables"),
    (COMPANY, "tasks = [1]", "tasks", "must be a list of tables"),
    (COMPANY, "runs_max = -1", "runs_max", "runs_max must be from 0"),
    (TASK, "depend_on = []", "depend_on", 'did you mean "depends_on"?'),
    (TASK, "title = 1", "title", "title must be a string"),
    (TASK, "priority = 'high'", "priority", "priority must be"),
    (TASK, "mode = 'steps'", "mode", 'mode must be "auto", "manual" or "step"'),
    (TASK, "tries_max = 0", "tries_max", "tries_max must be"),
    (TASK, "fail_fast = 'yes'", "fail_fast", "must be true or false"),
    (TASK, "goal = ''", "goal", "a goal's name must have 1 to 128"),
    (TASK, "depends_on = 'b'", "depends_on", "a list of names"),
    (TASK, "payload = 2024-01-01", "payload", "payload is not JSON"),
    (TASK, "payload = nan", "payload", "payload is not JSON"),
    (TASK, "timeout_s = 1", "timeout_s", "belongs to a step"),
    (TASK, "run = ' '", "run", "must not be blank"),
    (TASK, "run = ['x']", "run", "must be text, not a list"),
    (TASK, "argv = 'ls -l'", "argv", "must be a list of words"),
    (TASK, "argv = []", "argv", "must be a list of words"),
    (TASK, "argv = ['x', 1]", "argv", "word 2 must be text"),
    (TASK, 'argv = ["x", "\\u0000"]', "argv", "word 2 must be text"),
    (TASK, "argv = ['-x']", "argv", "must begin with a program"),
    (TASK, "call = 'os.getcwd'", "call", 'written "module:function"'),
    (TASK, "call = 'not_there_x:f'", "call", "no module 'not_there_x'"),
    (TASK, "call = 'not_there_x.y:f'", "call", "no module 'not_there_x'"),
    (TASK, "call = 'os:not_there'", "call", "has no 'not_there'"),
    (TASK, "call = 'os:sep'", "call", "is not a function"),
    (TASK, "call = 'os:cpu_count'", "call", "must take one argument"),
    (TASK, "not_before = 2026-01-01T09:00:00", "not_before", "has no time zone"),
    (TASK, "not_before = 2026-01-01", "not_before", "must be a datetime with a time zone"),
    (STEP, "retry = { base = 1 }", "retry.base", 'mean "base_s"?'),
    (STEP, "retry = 1", "retry", "must be a table"),
    (STEP, "retry.factor = 0", "retry.factor", "factor must be from 1 to 1000"),
    (STEP, "cwd = 1", "cwd", "must be text, not a number (1)"),
    (STEP, "env = { A = 1 }", "env.A", "must be text"),
    (STEP, "env = { 1A = '' }", "env.1A", "begins with no"),
    (STEP, "env.TURNKEEPER_KEY = 'x'", "env.TURNKEEPER_KEY", "are set by Turnkeeper"),
    (NODE, "timeout = 1", "timeout", 'mean "timeout_s"?'),
    (NODE, "gate = false", "gate", "must be true, for a node that waits for a person"),
    (NODE, "gate = 'yes'", "gate", "must be true"),
    (
        RUNNING,
        f"tries_max = {TRIES_MAX_LIMIT + 1}",
        "tries_max",
        f"must be from 1 to {TRIES_MAX_LIMIT}",
    ),
    (RUNNING, "timeout_s = 0", "timeout_s", "above 0 s"),
    (RUNNING, "argv = ['x']", "argv", "has one of run, argv, call, not run and argv"),
    (SCHEDULE, "every = 0.1", "every", "at least 1 s"),
    (REPEATED, "overlap = 'wait'", "overlap", 'overlap must be "skip" or "queue"'),
    (REPEATED, "jitter_s = -1", "jitter_s", "jitter_s must be at least 0 s"),
    (REPEATED, "priority = 'high'", "priority", "priority must be"),
    (REPEATED, "graph = 'g'", "graph", "no graph 'g'"),
]
"""A plan that is wrong in one line, by the table, the line, its key and what is said of it."""

OTHERS = {
    "syntax": ("[companies.acme]\nruns_max = = 2\n", 2, None, "not TOML: Invalid value (column 12)"),
    "ends too early": ("[companies.acme]\nx = [1,\n", 2, None, "not TOML: Invalid value (at the end)"),
    "nested without end": (f"x = {'[' * 100_000}", None, None, "not usable TOML: nested too deeply"),
    "a number without end": (f"x = {'9' * 5_000}", None, None, "not usable TOML: Exceeds the limit"),
    "key twice": ("[companies.acme]\nruns_max = 1\nruns_max = 2\n", 3, None, "Cannot overwrite a value"),
    "empty": ("", None, None, "needs at least one company"),
    "top": ("[company.acme]\n", 1, "company", 'unknown key: did you mean "companies"?'),
    "graph": (
        "[[companies.acme.graphs.g.node]]\nname = 'n'\n",
        1,
        "companies.acme.graphs.g.node",
        'mean "nodes"?',
    ),
    "gate that runs": (
        f"{NODE}gate = true\nrun = 'true'\n",
        6,
        "companies.acme.tasks.a.nodes.n.run",
        "is for nodes that execute something; a gate waits for a person",
    ),
    "gate name": (
        f"{TASK}[[companies.acme.tasks.nodes]]\nname = ' n'\ngate = true\n",
        4,
        "companies.acme.tasks.a.nodes. n.name",
        "must not begin or end with whitespace",
    ),
    "companies not a table": ("companies = 1\n", 1, "companies", "must be a table, not a number (1)"),
    "company not a table": (
        "[companies]\nacme = 'x'\n",
        2,
        "companies.acme",
        "must be a table, not text (x)",
    ),
    "tasks one table": (
        "[companies.acme.tasks]\nid = 'a'\n",
        1,
        "companies.acme.tasks",
        "write [[companies.acme.tasks]] with two brackets",
    ),
    "nodes one table": (
        f"{TASK}[companies.acme.tasks.nodes]\nname = 'n'\n",
        3,
        "companies.acme.tasks.a.nodes",
        "write [[companies.acme.tasks.nodes]] with two brackets",
    ),
    "company name": (
        "[companies.'a/b']\n",
        1,
        "companies.a/b",
        "a company's name 'a/b' must not contain \"/\"",
    ),
    "no id": ("[[companies.acme.tasks]]\nrun = 'x'\n", 1, "companies.acme.tasks#1", "a task needs an id"),
    "id": (
        "[[companies.acme.tasks]]\nid = 'a/b'\n",
        2,
        "companies.acme.tasks.a/b.id",
        'must not contain "/"',
    ),
    "id not text": (
        "[[companies.acme.tasks]]\nid = 7\n",
        2,
        "companies.acme.tasks#1.id",
        "must be text, not a number (7)",
    ),
    "given id": ("[[companies.acme.tasks]]\nid = '@1'\n", 2, "companies.acme.tasks.@1.id", "choose another"),
    "no node name": (
        f"{TASK}[[companies.acme.tasks.nodes]]\nrun = 'x'\n",
        3,
        "companies.acme.tasks.a.nodes#1",
        "a node needs a name",
    ),
    "graph name": (
        "[[companies.acme.graphs.' g'.nodes]]\nname = 'n'\nrun = 'x'\n",
        1,
        "companies.acme.graphs. g",
        "must not begin or end with whitespace",
    ),
    "no step": (
        f"{NODE}",
        3,
        "companies.acme.tasks.a.nodes.n",
        "has one of run, argv, call, and this has none",
    ),
    "step and nodes": (
        f"{TASK}run = 'x'\n[[companies.acme.tasks.nodes]]\nname = 'n'\nrun = 'x'\n",
        4,
        "companies.acme.tasks.a.nodes",
        "not run and nodes",
    ),
    "setting with graph": (
        f"[[companies.acme.graphs.g.nodes]]\nname='n'\nrun='x'\n{TASK}graph = 'g'\ncwd = 'x'\n",
        7,
        "companies.acme.tasks.a.cwd",
        "belongs to a step",
    ),
    "cwd of call": (
        f"{TASK}call = 'os:stat'\ncwd = 'x'\n",
        4,
        "companies.acme.tasks.a.cwd",
        "is for commands",
    ),
    "no schedule name": (
        "[[companies.acme.schedules]]\ncron = '* * * * *'\n",
        1,
        "companies.acme.schedules#1",
        "a schedule needs a name",
    ),
    "no time": (SCHEDULE, 1, "companies.acme.schedules.s", "give one of cron and every"),
    "two times": (
        f"{SCHEDULE}cron = '* * * * *'\nevery = 60\n",
        1,
        "companies.acme.schedules.s",
        "give one of cron and every",
    ),
    "cron": (
        f"{SCHEDULE}overlap = 'queue'\ncron = '0 0 31 2 *'\n",
        4,
        "companies.acme.schedules.s.cron",
        "no date ever fits it",
    ),
    "zone": (
        f"{SCHEDULE}cron = '* * * * *'\nzone = 'Mars/Base'\n",
        4,
        "companies.acme.schedules.s.zone",
        "zone 'Mars/Base' is unknown",
    ),
    "schedule with an id": (
        f"{SCHEDULE}every = 60\nid = 'a'\n",
        4,
        "companies.acme.schedules.a.id",
        "unknown key",
    ),
    "same schedule": (
        f"{SCHEDULE}every = 60\n{SCHEDULE}every = 60\n",
        5,
        "companies.acme.schedules.s.name",
        "two schedules 's'",
    ),
    "same id": (f"{TASK}\n{TASK}", 5, "companies.acme.tasks.a.id", "two tasks 'a', the first on line 2"),
    "unknown task": (
        f"{TASK}[[companies.acme.tasks]]\nid = 'collect'\ndepends_on = ['a', 'colect']\n",
        5,
        "companies.acme.tasks.collect.depends_on",
        "no task 'colect': did you mean \"collect\"?",
    ),
    "itself": (f"{TASK}depends_on = ['a']\n", 1, "companies.acme.tasks.a", "depends on itself"),
    "cycle": (
        f"{TASK}depends_on = ['b']\n[[companies.acme.tasks]]\nid = 'b'\ndepends_on = ['a']\n",
        3,
        "companies.acme.tasks.a.depends_on",
        "dependencies form a cycle: a → b → a",
    ),
    "unknown graph": (
        f"[[companies.acme.graphs.weekly.nodes]]\nname='n'\nrun='x'\n{TASK}graph = 'weekli'\n",
        6,
        "companies.acme.tasks.a.graph",
        "no graph 'weekli': did you mean \"weekly\"?",
    ),
    "graph without nodes": (
        "[companies.acme.graphs.g]\nnods = []\n",
        2,
        "companies.acme.graphs.g.nods",
        "nodes",
    ),
    "node after unknown": (
        f"{NODE}run='x'\nafter = ['m']\n",
        3,
        "companies.acme.tasks.a.nodes",
        "not a node of this",
    ),
    "node twice": (
        f"{NODE}run='x'\n[[companies.acme.tasks.nodes]]\nname = 'n'\nrun = 'x'\n",
        3,
        "companies.acme.tasks.a.nodes",
        "two nodes are named 'n'",
    ),
    "node cycle": (
        f"{NODE}run='x'\nafter = ['n']\n",
        3,
        "companies.acme.tasks.a.nodes",
        "form a cycle among: n",
    ),
}
"""The rest, by the text, the line and key that are blamed, and what is said."""


def refusals() -> Iterator[Any]:
    for before, line, key, said in LINES:
        text, number = f"{before}{line}\n", before.count("\n") + 1
        yield pytest.param(text, number, f"{KEYS[before]}.{key}", said, id=line)
    for name, case in OTHERS.items():
        yield pytest.param(*case, id=name)


@pytest.mark.parametrize(("text", "line", "key", "said"), list(refusals()))
def test_a_mistake_in_a_plan_is_one_message_with_its_place(
    tmp_path: Path, text: str, line: int | None, key: str | None, said: str
) -> None:
    error = refused(tmp_path, text)
    assert said in error.text
    assert (line, key) == (error.line, error.key)
    place = f"{tmp_path / 'plan.toml'}" + (f":{line}" if line else "")
    assert str(error) == ": ".join(plain(part) for part in (place, key, error.text) if part)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.toml"]


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"# one\n# two\n\xff\xfe\n")
    with pytest.raises(PlanError, match=r"plan\.toml:3: not UTF-8 text: invalid start byte at byte 12"):
        read_plan(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        read_plan(tmp_path)


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PLAN_BYTES_MAX", 10)
    error = refused(tmp_path, "not toml at all")
    assert error.text == "has more than the 10 bytes allowed for a plan"


def test_a_module_that_fails_at_import_is_refused_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "plan_functions_b.py").write_text("raise RuntimeError('no \\x1b[31mred\\x1b[0m')\n")
    (tmp_path / "plan_functions_c.py").write_text("import not_installed_at_all\n")
    error = refused(tmp_path, f"{TASK}call = 'plan_functions_b:f'\n")
    assert error.text.endswith("cannot be imported: RuntimeError: no \x1b[31mred\x1b[0m")
    assert "\x1b" not in str(error)
    error = refused(tmp_path, f"{TASK}call = 'plan_functions_c:f'\n")
    assert error.text.endswith("cannot be imported: No module named 'not_installed_at_all'")


def test_a_long_cycle_is_named_in_short(tmp_path: Path) -> None:
    tasks = "".join(
        f"[[companies.acme.tasks]]\nid = 't{n}'\ndepends_on = ['t{(n + 1) % 5_000}']\n" for n in range(5_000)
    )
    error = refused(tmp_path, tasks)
    assert error.text == (
        "dependencies form a cycle: t0 → t1 → t2 → t3 → t4 → t5 → … → t4996 → t4997 → t4998 → t4999 → t0"
    )


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ('title = """\n[[companies.acme.tasks]]\nid = "no"\n"""\n', 7),
        ("title = '''\n# ' [ \" \n''' # a comment with [ and {\n", 6),
        ('payload = [ # [\n  \'[\', "]\\"", { a = 1 },\n]\n', 6),
        ("payload.'a b'.\"c\\td\" = { x = [1, 2], y = '}' }\n", 4),
        ('title = """a""""" # five quotes end it too\n', 4),
        ("\n\n# nothing\n\t\n", 7),
    ],
)
def test_the_line_of_a_key_is_found_whatever_stands_before_it(tmp_path: Path, before: str, line: int) -> None:
    error = refused(tmp_path, f"{TASK}{before}wrong = 1\n")
    assert error.key == "companies.acme.tasks.a.wrong"
    assert line == error.line
