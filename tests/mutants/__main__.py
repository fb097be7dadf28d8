"""``python -m tests.mutants [--only NAME] [--list] [--jobs N]``: break the code, and see a named test go red.

Each mutant is applied to a copy of the tree in a temporary directory, and only its named tests are run there.
First they have to be green on a copy that nobody broke. The exit status is the number of mutants that survived.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
TREE = ("actors", "storage", "tests", "pyproject.toml", "README.md")
HANGS_S = 60.0
"""A broken program may wait for ever; that is noticed as well."""
SOUND_S = 600.0
"""All the named tests on the sound tree."""
GREEN, RED = 0, 1
"""Exit statuses of pytest; any other means that nothing was tested."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="mutants whose name holds this")
    parser.add_argument("--list", action="store_true", help="name them and break nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    chosen = [mutant for mutant in MUTANTS if options.only is None or options.only in mutant.name]
    if options.list:
        for mutant in chosen:
            _say(f"{mutant.of:>8}  {mutant.name}  ({mutant.file})")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        sound = copy_tree(ROOT, Path(folder) / "sound")
        named = sorted({test for mutant in chosen for test in mutant.tests})
        status, out = _run(sound, named, jobs=options.jobs, limit_s=SOUND_S)
        if status != GREEN:
            _say(out)
            _say("the named tests are not green on the tree as it is")
            return 1
        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = list(pool.map(lambda mutant: _verdict(mutant, sound), chosen))
    survivors = [mutant.name for mutant, ok in zip(chosen, verdicts, strict=True) if not ok]
    _say(f"{len(chosen) - len(survivors)} of {len(chosen)} noticed")
    for name in survivors:
        _say(f"survived: {name}")
    return len(survivors)


def _verdict(mutant: Mutant, sound: Path) -> bool:
    """Whether every named test goes red; says so, and how long it took."""
    text = (sound / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        _say(f"does not apply: {mutant.name}: its text occurs {text.count(mutant.old)} times")
        return False
    tree = copy_tree(sound, sound.with_name(mutant.name.replace(" ", "-")))
    target = tree / mutant.file
    target.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    ok, begun = True, time.monotonic()
    for test in mutant.tests:
        status, out = _run(tree, [test])
        if status != RED:
            ok = False
            _say(f"{'GREEN' if status == GREEN else f'status {status}'}: {mutant.name}: {test}")
            if status != GREEN:
                _say(out[-2000:])
    if ok:
        _say(f"red: {mutant.name} ({time.monotonic() - begun:.0f} s)")
    shutil.rmtree(tree)
    return ok


def copy_tree(tree: Path, to: Path) -> Path:
    """The tree as it is, compiled files and times included, so that only what is broken is compiled again."""
    to.mkdir()
    for name in TREE:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name)
        else:
            shutil.copy2(tree / name, to / name)
    return to


def _run(tree: Path, tests: Iterable[str], *, jobs: int = 0, limit_s: float = HANGS_S) -> tuple[int, str]:
    """Run tests in a tree, on its own code; one that hangs counts as red."""
    options = ("-q", "-x", f"-n{jobs}", "-p", "no:cacheprovider", "--tb=short")
    words = [sys.executable, "-m", "pytest", *options, *tests]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            words, cwd=tree, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return RED, "it hangs"
    return done.returncode, done.stdout + done.stderr


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
