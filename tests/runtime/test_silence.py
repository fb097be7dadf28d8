"""A host that has not configured structlog finds nothing of ours on its standard output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOST = """
import sys, structlog, trio
from actors import Submit, open_runtime
from storage.logging import get_logger

if "configured" in sys.argv:
    structlog.configure(cache_logger_on_first_use=False)

def work(ctx):
    ctx.log.info("the handler's own line")
    ctx.log.error("the handler's own error")

async def main():
    async with open_runtime(sys.argv[1], handlers={"work": work, "fail": lambda ctx: 1 / 0}) as runtime:
        company = runtime.company("acme")
        await company.ask(Submit("ok", id="a", handler="work"))
        await company.when_settled("a")
        await company.ask(Submit("bad", id="b", handler="fail", ATTEMPTS=1))
        await company.when_settled("b")
    for name in ("turnkeeper", "storage.writer"):
        log = get_logger(name)
        for level in ("debug", "info", "warning", "error", "critical"):
            getattr(log, level)("by.hand", at=level)
        try:
            raise ValueError("by hand")
        except ValueError:
            log.exception("by.hand")

trio.run(main)
""".replace("ATTEMPTS", "tries_max")


def run(db: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HOST, str(db), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )


def test_nothing_is_printed_until_structlog_is_configured(tmp_path: Path) -> None:
    done = run(tmp_path / "t.db")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("said", ["attempt.failed", "run.completed", "the handler's own line", "by.hand"])
def test_every_line_is_printed_once_it_is(tmp_path: Path, said: str) -> None:
    assert said in run(tmp_path / "t.db", "configured").stdout
