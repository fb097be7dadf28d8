"""The steps of continuous integration, one session each: ``nox -s lint types tests``. ``.ci/run`` is all in one go."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests", "docs", "package", "mutation"]

PYTHONS = ["3.11", "3.12", "3.13"]


@nox.session
def lint(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("mypy")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("pytest", "-q", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of what runs in the test process; the tests of whole processes add nothing to it."""
    session.install("-e", ".[test]")
    session.run(
        "pytest",
        "-q",
        "--ignore=tests/whole",
        "--ignore=tests/bench",
        "--ignore=tests/packaging",
        "--ignore=tests/docs",
        "--ignore=tests/cli/test_processes.py",
        "--cov",
        "--cov-report=term-missing:skip-covered",
    )


@nox.session
def docs(session: nox.Session) -> None:
    session.install("-e", ".[docs]")
    session.run("sphinx-build", "-q", "-W", "--keep-going", "docs", "docs/_build")


@nox.session
def package(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("pytest", "-q", "-n0", "tests/packaging")


@nox.session
def mutation(session: nox.Session) -> None:
    session.install("-e", ".[test,mutation]")
    session.run("python", "-m", "tests.mutants")
    session.run("python", "-m", "tests.mutants.generated")
