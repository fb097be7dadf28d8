"""A forked child has a copy of the runtime that must not be used: it is told so before anything is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHILD = """
import os, sys, trio
from actors import ForkedProcess, Submit, open_runtime

async def work(ctx):
    return 1

async def main(path):
    async with open_runtime(path, handlers={"work": work}) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("before", handler="work", id="before"))
        pid = os.fork()
        if pid == 0:
            answers = []
            ask, status = (lambda m: acme.ask(m).send(None)), (lambda m: acme.status("before").send(None))
            for send in (acme.tell_nowait, ask, status):
                try:
                    send(Submit("child"))
                except ForkedProcess:
                    answers.append("refused")
                except BaseException as error:
                    answers.append(repr(error))
            os.write(1, f"{answers}\\n".encode())
            os._exit(0)
        os.waitpid(pid, 0)
        await acme.ask(Submit("after", handler="work", id="after"))
        os.write(1, f"{(await acme.when_settled('after')).result} {len(await acme.tasks())}\\n".encode())

trio.run(main, sys.argv[1])
"""


def test_a_forked_child_that_calls_the_api_is_refused_and_the_parent_goes_on(db_path: Path) -> None:
    """C57, for the runtime."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(db_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['refused', 'refused', 'refused']\n{'work': 1} 2\n"
