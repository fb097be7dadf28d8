"""A report every night at half past two in Berlin, also in the night in which that time does not exist.

Run it with ``python -m examples.nightly [DATABASE]``. It uses the virtual clock of `actors.testing`, so three
nights pass in no time; a real program opens `open_runtime` instead and waits.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import trio
import trio.testing

from actors import Context, SetSchedule, Submit
from actors.testing import VirtualClock, open_test_runtime

BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2026, 3, 27, 20, tzinfo=BERLIN)
"""Two nights later the clocks go from two to three o'clock."""


async def report(ctx: Context) -> str:
    return f"report of {ctx.task}"


async def main(database: str) -> None:
    clock = VirtualClock(round(EVENING.timestamp() * 1000))
    async with open_test_runtime(database, handlers={"report": report}, clock=clock) as runtime:
        acme = runtime.company("acme")
        nightly = Submit("Nightly report", handler="report")
        await acme.ask(SetSchedule("nightly", cron="30 2 * * *", zone="Europe/Berlin", task=nightly))
        fires = 0
        async for event in runtime.events(company="acme"):
            if event.kind == "schedule.fired":
                at = datetime.fromtimestamp(event.data["nominal_ms"] / 1000, UTC).astimezone(BERLIN)
                print(f"fired for {at:%A %d %B %H:%M %Z}")
                fires += 1
            if fires == 3:
                break
        await acme.when_idle()
        print([status.state.value for status in await acme.tasks()])


if __name__ == "__main__":
    trio.run(
        main,
        sys.argv[1] if sys.argv[1:] else "nightly.db",
        clock=trio.testing.MockClock(autojump_threshold=0),
    )
