"""``python -m tests.mutants.generated``: mutmut over the order, the retries, the restarts and the check of moves.

It runs on a copy of the tree; ``[tool.mutmut]`` in ``pyproject.toml`` says on which files and with which tests. The
exit status is 1 if the share of mutants that are killed is below `SCORE_MIN`. Those that survive are listed. Most are
equivalent, such as another spelling of ``"utf-8"``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .__main__ import ROOT, copy_tree

SCORE_MIN = 0.82
LIMIT_S = 600.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mutmut-") as folder:
        tree = copy_tree(ROOT, Path(folder) / "tree")
        _mutmut(tree, "run")
        survivors = _mutmut(tree, "results")
        _mutmut(tree, "export-cicd-stats")
        counts = json.loads((tree / "mutants" / "mutmut-cicd-stats.json").read_text("utf-8"))
    killed, total = counts["killed"] + counts["timeout"], counts["total"]
    score = killed / total if total else 0.0
    sys.stdout.write(f"{survivors}{killed} of {total} killed: {score:.3f}, at least {SCORE_MIN} wanted\n")
    return int(score < SCORE_MIN)


def _mutmut(tree: Path, command: str) -> str:
    words = [sys.executable, "-m", "mutmut", command]
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"mutmut {command} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
