"""What the README and the pages show is run, and what they say about the tree is compared with it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import actors
from tests.docs.generate import PARTS, with_generated
from tests.docs.pages import BLOCKS, PAGES, README, ROOT, Block, commands

LANGUAGES = {"python", "sh", "toml", "text", "mermaid", "{eval-rst}", "{toctree}", "{include}"}
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
WITH_COMMANDS = sorted({block.page for block in BLOCKS if block.language == "sh"})
INSTALL = "python3 -m venv"


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("page", PARTS)
def test_a_generated_part_is_what_the_code_says(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert with_generated(page, text) == text, "run python -m tests.docs.generate"


def test_every_block_is_of_a_kind_that_is_checked_or_meant_as_text() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.place)
def test_a_program_runs_and_prints_what_its_comments_say(block: Block, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block.body, "utf-8")
    done = run(["-X", "dev", "program.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"print\(.*\)  # (.+)$", block.body, flags=re.MULTILINE)
    for line in expected:
        assert line.replace("(first's id,)", "('@1',)") in done.stdout


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_work_one_after_the_other(page: str, tmp_path: Path) -> None:
    for plan in (block.body for block in BLOCKS if block.page == page and block.language == "toml"):
        (tmp_path / "plan.toml").write_text(plan, "utf-8")
    if page == README.name:
        demo = run(["-m", "actors", "demo", "--db", "demo.db"], tmp_path)
        assert demo.returncode == 0, demo.stdout + demo.stderr
    lines = [line for line in commands(page) if not line.startswith(INSTALL)]
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/python"
        done = run(arguments, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout


def test_the_two_commands_of_the_readme_install_and_do_everything() -> None:
    """Continuous integration runs both as they stand; here they are held to their form."""
    demo, tests = (line for line in commands(README.name) if line.startswith(INSTALL))
    assert demo.endswith("-m actors demo --db demo.db")
    assert tests.endswith("-m pytest -q")


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 250


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_of_the_documentation_is_in_its_contents() -> None:
    (index,) = (page for page in PAGES if page.name == "index.md")
    listed = {
        line
        for block in BLOCKS
        if block.page == index.name and block.language == "{toctree}"
        for line in block.body.splitlines()
    }
    assert {page.stem for page in index.parent.glob("*.md")} - {"index"} <= listed


def test_the_reference_has_every_public_name_once() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    names = re.findall(r"^\.\. auto(?:class|exception|function|data):: actors\.(\w+)$", text, re.MULTILINE)
    assert sorted(names) == sorted(actors.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_file_that_a_page_names_is_there(page: Path) -> None:
    """In code quotes, from the top of the tree: `actors/core/order.py`, `storage/sqlite/`."""
    text = page.read_text("utf-8")
    named = set(re.findall(r"`((?:actors|storage|tests|docs|examples|\.ci)/[\w./-]*)`", text))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_newest_version_in_the_changelog_is_that_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    newest, *_ = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest == version
