"""The sdist, and the wheel that is built from it, are complete: installed outside the checkout they work.

Nothing is downloaded. The build uses this environment's setuptools, and the new environment finds the dependencies, not
this checkout, in the site-packages of this one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "storage")


class Built(NamedTuple):
    sdist: Path
    wheel: Path


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both are built from a copy, so that the build leaves nothing in the checkout and takes nothing else from it."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tree / name)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)], tree)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that has the wheel."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    interpreter = str(home / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "install", "-q", "--no-deps", "--no-index"]
    run([*pip, str(built.wheel)], home)
    place = run([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], home).strip()
    (Path(place) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return interpreter


def wanted() -> set[str]:
    """Every file of the packages that the program needs."""
    kinds = ("*.py", "*.sql", "*.toml", "py.typed")
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for kind in kinds
        for path in (ROOT / package).rglob(kind)
    }


def test_the_wheel_has_every_module_statement_and_marker_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {"actors/py.typed", "storage/py.typed"} <= names
    assert any(name.endswith(".sql") for name in names)
    assert names == wanted()


def test_the_sdist_has_what_the_wheel_is_built_from(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted() | {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names


def test_the_installed_package_is_the_one_that_is_imported(python: str, tmp_path: Path) -> None:
    code = "import actors, storage; print(actors.__file__, storage.__file__)"
    environment = Path(python).parents[1]
    for file in run([python, "-W", "error", "-c", code], tmp_path).split():
        assert Path(file).is_relative_to(environment)


def test_the_installed_demo_runs_and_the_installed_script_reads_what_it_left(
    python: str, tmp_path: Path
) -> None:
    run([python, "-m", "actors", "demo", "--db", "demo.db"], tmp_path)
    script = str(Path(python).with_name("turnkeeper"))
    assert "bakery" in run([script, "status", "--db", "demo.db"], tmp_path)
