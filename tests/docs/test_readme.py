"""Every command and snippet of the README is run; its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.generate import README, with_generated

TEXT = README.read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
SNIPPETS = [body for language, body in BLOCKS if language == "python"]
LINES = [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]
INSTALLS = [line for line in LINES if line.startswith("python3 -m venv")]
COMMANDS = [line for line in LINES if line not in INSTALLS]


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_generated_parts_are_what_the_code_says() -> None:
    assert with_generated(TEXT) == TEXT, "run python -m tests.docs.generate"


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_runs_and_prints_what_its_comments_say(snippet: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(snippet, "utf-8")
    done = run(["-X", "dev", "snippet.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    for said in re.findall(r"print\(.*\)  # (.+)$", snippet, flags=re.MULTILINE):
        expected = said.replace("(first's id,)", "('@1',)")
        assert expected in done.stdout


def test_the_two_commands_install_and_do_everything() -> None:
    """Continuous integration runs both as they stand; here they are held to their form."""
    demo, tests = INSTALLS
    assert demo.endswith("-m actors demo --db demo.db")
    assert tests.endswith("-m pytest -q")


def test_the_commands_work_one_after_the_other(tmp_path: Path) -> None:
    (plan,) = [body for language, body in BLOCKS if language == "toml"]
    (tmp_path / "plan.toml").write_text(plan, "utf-8")
    demo = run(["-m", "actors", "demo", "--db", "demo.db"], tmp_path)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert COMMANDS
    for line in COMMANDS:
        program, *arguments = shlex.split(line)
        assert program in ("python", ".venv/bin/python")
        done = run(arguments, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout
