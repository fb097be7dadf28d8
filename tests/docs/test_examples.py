"""Every example runs as it stands and does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import trio

from actors import open_reader
from examples import web_host
from tests.docs.pages import ROOT

COVERED = {"agent_pipeline.py", "budgets.py", "nightly.py", "web_host.py", "plan.toml"}


def run(*arguments: str, status: int = 0) -> list[str]:
    """The lines that the program prints. It runs in the checkout, where it finds `examples`."""
    words = [sys.executable, "-X", "dev", "-m", *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run_by_a_test_of_this_file() -> None:
    found = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()}
    assert found - {"__init__.py"} == COVERED


def test_the_pipeline_sends_the_draft_back_once_and_publishes_what_a_person_approved(tmp_path: Path) -> None:
    database = str(tmp_path / "pipeline.db")
    sent_back, done = run("examples.agent_pipeline", database)
    assert sent_back == "sent back: 16 words: make it shorter"
    assert done.startswith("completed: 'bread ")
    assert done.endswith("approved by Ada")
    assert run("examples.agent_pipeline", database)[-1] == done, "a second start does nothing again"


def test_the_schedule_fires_once_in_each_night_also_when_the_clocks_change(tmp_path: Path) -> None:
    assert run("examples.nightly", str(tmp_path / "nightly.db")) == [
        "fired for Saturday 28 March 02:30 CET",
        "fired for Sunday 29 March 03:00 CEST",
        "fired for Monday 30 March 02:30 CEST",
        "['completed', 'completed', 'completed']",
    ]


def test_a_run_that_cannot_pay_halts_and_goes_on_once_the_budget_is_raised(tmp_path: Path) -> None:
    halted, completed = run("examples.budgets", str(tmp_path / "budgets.db"))
    assert halted.startswith("halted – ")
    assert "700 spent" in halted
    assert completed == "completed: 1400 of 2000 spent"


def test_the_plan_halts_at_its_gate_and_completes_once_it_is_approved(tmp_path: Path) -> None:
    database = ("--db", str(tmp_path / "plan.db"))
    plan = ("actors", "run", "examples/plan.toml", *database)
    assert run(*plan, status=1)[-1].startswith("acme/report waits for a person to approve ok")
    run("actors", "approve", "acme/report", "ok", *database, "--later")
    run(*plan)
    (line,) = run("actors", "result", "acme/report", "--json", *database)
    result = json.loads(line)["result"]
    assert result["sum"]["output"] == "6\n"
    assert result["send"]["output"] == "sent\n"


async def test_the_web_host_stores_a_repeated_request_once_and_reports_the_result(tmp_path: Path) -> None:
    database = str(tmp_path / "web.db")

    async def request(first: str, body: str = "", key: str | None = None) -> tuple[int, dict[str, object]]:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            head = f"{first} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
            head += "" if key is None else f"Idempotency-Key: {key}\r\n"
            await stream.send_all(f"{head}\r\n{body}".encode())
            answer = b"".join([part async for part in stream]).decode()
        lead, _, said = answer.partition("\r\n\r\n")
        return int(lead.split()[1]), json.loads(said)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            port: int = await nursery.start(web_host.host, database, 0)
            status, first = await request("POST /acme", '{"name": "Ada"}', key="form 17")
            again = await request("POST /acme", '{"name": "Ada"}', key="form 17")
            assert (status, again) == (201, (200, first))
            assert (await request("POST /acme", '{"name": "Bob"}', key="form 17"))[0] == 409
            assert (await request("POST /acme", "{"))[0] == 400
            assert (await request("GET /"))[0] == 404
            async with open_reader(database) as reader:
                async for event in reader.events(company="acme", follow=True):
                    if event.kind == "run.completed":
                        break
            task = first["task"]
            assert await request(f"GET /acme/{task}") == (
                200,
                {"state": "completed", "result": {"greet": "Hello Ada"}},
            )
            nursery.cancel_scope.cancel()
