"""A plan with a mistake is refused with one message that says where, and nothing is written."""

from __future__ import annotations

from pathlib import Path

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

REFUSED = {
    # the file
    "syntax": ("[companies.acme]\nruns_max = = 2\n", 2, None, "not TOML: Invalid value (column 12)"),
    "ends too early": ("[companies.acme]\nx = [1,\n", 2, None, "not TOML: Invalid value (at the end)"),
    "nested without end": (f"x = {'[' * 100_000}", None, None, "not usable TOML: nested too deeply"),
    "a number without end": (f"x = {'9' * 5_000}", None, None, "not usable TOML: Exceeds the limit"),
    "key twice": ("[companies.acme]\nruns_max = 1\nruns_max = 2\n", 3, None, "Cannot overwrite a value"),
    "empty": ("", None, None, "needs at least one company"),
    # unknown keys
    "top": ("[company.acme]\n", 1, "company", 'unknown key: did you mean "companies"?'),
    "company": ("[companies.acme]\nrun_max = 1\n", 2, "companies.acme.run_max", 'did you mean "runs_max"?'),
    "task": (f"{TASK}depend_on = []\n", 3, "companies.acme.tasks.a.depend_on", 'did you mean "depends_on"?'),
    "node": (f"{NODE}timeout = 1\n", 5, "companies.acme.tasks.a.nodes.n.timeout", 'mean "timeout_s"?'),
    "graph": (
        "[[companies.acme.graphs.g.node]]\nname = 'n'\n",
        1,
        "companies.acme.graphs.g.node",
        'mean "nodes"?',
    ),
    "retry": (
        f"{TASK}run = 'x'\nretry = {{ base = 1 }}\n",
        4,
        "companies.acme.tasks.a.retry.base",
        'mean "base_s"?',
    ),
    "nothing near": (
        "[companies.acme]\nx = 1\n",
        2,
        "companies.acme.x",
        "known here: runs_max, weight, graphs, tasks",
    ),
    # gates
    "gate false": (
        f"{NODE}gate = false\n",
        5,
        "companies.acme.tasks.a.nodes.n.gate",
        "must be true, for a node that waits for a person",
    ),
    "gate of text": (f"{NODE}gate = 'yes'\n", 5, "companies.acme.tasks.a.nodes.n.gate", "must be true"),
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
    # shapes
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
    "tasks text": ("[companies.acme]\ntasks = 'x'\n", 2, "companies.acme.tasks", "must be a list of tables"),
    "tasks of numbers": (
        "[companies.acme]\ntasks = [1]\n",
        2,
        "companies.acme.tasks",
        "must be a list of tables",
    ),
    "nodes one table": (
        f"{TASK}[companies.acme.tasks.nodes]\nname = 'n'\n",
        3,
        "companies.acme.tasks.a.nodes",
        "write [[companies.acme.tasks.nodes]] with two brackets",
    ),
    # names
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
    # types and values, as the messages check them
    "runs_max": (
        "[companies.acme]\nruns_max = -1\n",
        2,
        "companies.acme.runs_max",
        "runs_max must be from 0",
    ),
    "title": (f"{TASK}title = 1\n", 3, "companies.acme.tasks.a.title", "title must be a string"),
    "priority": (f"{TASK}priority = 'high'\n", 3, "companies.acme.tasks.a.priority", "priority must be"),
    "mode": (
        f"{TASK}mode = 'steps'\n",
        3,
        "companies.acme.tasks.a.mode",
        'mode must be "auto", "manual" or "step"',
    ),
    "tries_max": (
        f"{TASK}tries_max = 0\n",
        3,
        "companies.acme.tasks.a.tries_max",
        "tries_max must be",
    ),
    "fail_fast": (
        f"{TASK}fail_fast = 'yes'\n",
        3,
        "companies.acme.tasks.a.fail_fast",
        "must be true or false",
    ),
    "goal": (f"{TASK}goal = ''\n", 3, "companies.acme.tasks.a.goal", "a goal's name must have 1 to 128"),
    "depends_on text": (
        f"{TASK}depends_on = 'b'\n",
        3,
        "companies.acme.tasks.a.depends_on",
        "a list of names",
    ),
    "payload date": (
        f"{TASK}payload = 2024-01-01\n",
        3,
        "companies.acme.tasks.a.payload",
        "payload is not JSON",
    ),
    "payload nan": (f"{TASK}payload = nan\n", 3, "companies.acme.tasks.a.payload", "payload is not JSON"),
    "node tries_max": (
        f"{NODE}run = 'x'\ntries_max = {TRIES_MAX_LIMIT + 1}\n",
        6,
        "companies.acme.tasks.a.nodes.n.tries_max",
        f"must be from 1 to {TRIES_MAX_LIMIT}",
    ),
    "timeout_s": (
        f"{NODE}run = 'x'\ntimeout_s = 0\n",
        6,
        "companies.acme.tasks.a.nodes.n.timeout_s",
        "above 0 s",
    ),
    "retry not a table": (
        f"{TASK}run = 'x'\nretry = 1\n",
        4,
        "companies.acme.tasks.a.retry",
        "must be a table",
    ),
    "factor": (
        f"{TASK}run = 'x'\nretry.factor = 0\n",
        4,
        "companies.acme.tasks.a.retry.factor",
        "factor must be from 1 to 1000",
    ),
    # what a step does
    "no step": (
        f"{NODE}",
        3,
        "companies.acme.tasks.a.nodes.n",
        "has one of run, argv, call, and this has none",
    ),
    "two steps": (
        f"{NODE}run = 'x'\nargv = ['x']\n",
        6,
        "companies.acme.tasks.a.nodes.n.argv",
        "has one of run, argv, call, not run and argv",
    ),
    "step and nodes": (
        f"{TASK}run = 'x'\n[[companies.acme.tasks.nodes]]\nname = 'n'\nrun = 'x'\n",
        4,
        "companies.acme.tasks.a.nodes",
        "not run and nodes",
    ),
    "setting without step": (
        f"{TASK}timeout_s = 1\n",
        3,
        "companies.acme.tasks.a.timeout_s",
        "belongs to a step",
    ),
    "setting with graph": (
        f"[[companies.acme.graphs.g.nodes]]\nname='n'\nrun='x'\n{TASK}graph = 'g'\ncwd = 'x'\n",
        7,
        "companies.acme.tasks.a.cwd",
        "belongs to a step",
    ),
    "run blank": (f"{TASK}run = ' '\n", 3, "companies.acme.tasks.a.run", "must not be blank"),
    "run not text": (f"{TASK}run = ['x']\n", 3, "companies.acme.tasks.a.run", "must be text, not a list"),
    "argv text": (f"{TASK}argv = 'ls -l'\n", 3, "companies.acme.tasks.a.argv", "must be a list of words"),
    "argv empty": (f"{TASK}argv = []\n", 3, "companies.acme.tasks.a.argv", "must be a list of words"),
    "argv number": (f"{TASK}argv = ['x', 1]\n", 3, "companies.acme.tasks.a.argv", "word 2 must be text"),
    "argv nul": (f'{TASK}argv = ["x", "\\u0000"]\n', 3, "companies.acme.tasks.a.argv", "word 2 must be text"),
    "argv option": (f"{TASK}argv = ['-x']\n", 3, "companies.acme.tasks.a.argv", "must begin with a program"),
    "cwd": (f"{TASK}run = 'x'\ncwd = 1\n", 4, "companies.acme.tasks.a.cwd", "must be text, not a number (1)"),
    "env number": (
        f"{TASK}run = 'x'\nenv = {{ A = 1 }}\n",
        4,
        "companies.acme.tasks.a.env.A",
        "must be text",
    ),
    "env name": (
        f"{TASK}run = 'x'\nenv = {{ 1A = '' }}\n",
        4,
        "companies.acme.tasks.a.env.1A",
        "begins with no",
    ),
    "env of ours": (
        f"{TASK}run = 'x'\nenv.TURNKEEPER_KEY = 'x'\n",
        4,
        "companies.acme.tasks.a.env.TURNKEEPER_KEY",
        "are set by Turnkeeper",
    ),
    # functions
    "call shape": (
        f"{TASK}call = 'os.getcwd'\n",
        3,
        "companies.acme.tasks.a.call",
        'written "module:function"',
    ),
    "no module": (
        f"{TASK}call = 'not_there_x:f'\n",
        3,
        "companies.acme.tasks.a.call",
        "no module 'not_there_x'",
    ),
    "no package": (
        f"{TASK}call = 'not_there_x.y:f'\n",
        3,
        "companies.acme.tasks.a.call",
        "no module 'not_there_x'",
    ),
    "no function": (f"{TASK}call = 'os:not_there'\n", 3, "companies.acme.tasks.a.call", "has no 'not_there'"),
    "no callable": (f"{TASK}call = 'os:sep'\n", 3, "companies.acme.tasks.a.call", "is not a function"),
    "no argument": (
        f"{TASK}call = 'os:cpu_count'\n",
        3,
        "companies.acme.tasks.a.call",
        "must take one argument",
    ),
    "cwd of call": (
        f"{TASK}call = 'os:stat'\ncwd = 'x'\n",
        4,
        "companies.acme.tasks.a.cwd",
        "is for commands",
    ),
    # times
    "not_before without an offset": (
        f"{TASK}not_before = 2026-01-01T09:00:00\n",
        3,
        "companies.acme.tasks.a.not_before",
        "has no time zone",
    ),
    "not_before a date": (
        f"{TASK}not_before = 2026-01-01\n",
        3,
        "companies.acme.tasks.a.not_before",
        "must be a datetime with a time zone",
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
    "every": (f"{SCHEDULE}every = 0.1\n", 3, "companies.acme.schedules.s.every", "at least 1 s"),
    "overlap": (
        f"{SCHEDULE}every = 60\noverlap = 'wait'\n",
        4,
        "companies.acme.schedules.s.overlap",
        'overlap must be "skip" or "queue"',
    ),
    "jitter": (
        f"{SCHEDULE}every = 60\njitter_s = -1\n",
        4,
        "companies.acme.schedules.s.jitter_s",
        "jitter_s must be at least 0 s",
    ),
    "schedule with an id": (
        f"{SCHEDULE}every = 60\nid = 'a'\n",
        4,
        "companies.acme.schedules.a.id",
        "unknown key",
    ),
    "schedule priority": (
        f"{SCHEDULE}every = 60\npriority = 'high'\n",
        4,
        "companies.acme.schedules.s.priority",
        "priority must be",
    ),
    "same schedule": (
        f"{SCHEDULE}every = 60\n{SCHEDULE}every = 60\n",
        5,
        "companies.acme.schedules.s.name",
        "two schedules 's'",
    ),
    "schedule of an unknown graph": (
        f"{SCHEDULE}every = 60\ngraph = 'g'\n",
        4,
        "companies.acme.schedules.s.graph",
        "no graph 'g'",
    ),
    # tasks and nodes together
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


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_in_a_plan_is_one_message_with_its_place(tmp_path: Path, case: str) -> None:
    text, line, key, said = REFUSED[case]
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
