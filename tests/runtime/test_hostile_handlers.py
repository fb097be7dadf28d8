"""Handlers that raise, return or leave behind whatever they like: it is recorded, and it is their own trouble."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors import AttemptEnd, Company, Context, Node, Runtime
from actors.handlers import Handler
from tests.runtime.support import Gated, a_host, a_task, idle, of_kind, settled, stored_events


async def first_error(company: Company, task: str) -> str | None:
    return (await company.attempts(task))[0].error


async def others_go_on(runtime: Runtime) -> None:
    """The rest of the same company and another one work as ever."""
    for name in ("k", "other"):
        report = await runtime.company(name).ask(a_task())
        assert await settled(runtime.company(name), report.id) == "completed"


# --- errors ---------------------------------------------------------------------------------------------------------


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class UnreadableForGood(Exception):
    def __str__(self) -> str:
        raise SystemExit(7)


class NoText(Exception):
    pass


class OutOfLine(BaseException):
    pass


@attrs.frozen
class Deep:
    """An error group in error groups."""

    levels: int

    def make(self) -> BaseExceptionGroup[BaseException]:
        group: BaseExceptionGroup[BaseException] = BaseExceptionGroup("g", [ValueError("at the bottom")])
        for _ in range(self.levels):
            group = BaseExceptionGroup("g", [group])
        return group


ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "with a NUL": (lambda: ValueError("a\0b"), r"ValueError: a\x00b"),
    "with a lone surrogate": (lambda: ValueError("a\ud800b"), r"ValueError: a\ud800b"),
    "of invalid UTF-8": (
        lambda: ValueError(b"\xff\xfe".decode("utf-8", "surrogateescape")),
        r"ValueError: \udcff\udcfe",
    ),
    "of bytes": (lambda: ValueError(b"\xff"), r"ValueError: b'\xff'"),
    "whose text cannot be read": (Unreadable, "Unreadable: (its text cannot be read)"),
    "whose text ends the process": (UnreadableForGood, "UnreadableForGood: (its text cannot be read)"),
    "without a text": (NoText, "NoText"),
    "with a terminal's commands": (lambda: ValueError("\x1b[2J"), r"ValueError: \x1b[2J"),
    "that wants to exit": (lambda: SystemExit(3), "SystemExit: 3"),
    "of asyncio's cancellation": (lambda: asyncio.CancelledError("theirs"), "CancelledError: theirs"),
    "that is no Exception": (lambda: OutOfLine("mine"), "OutOfLine: mine"),
    "of a generator": (GeneratorExit, "GeneratorExit"),
    "of memory": (MemoryError, "MemoryError"),
    "in a group": (
        lambda: ExceptionGroup("g", [ValueError("one"), ExceptionGroup("h", [KeyError("two")])]),
        "ValueError: one; KeyError: 'two'",
    ),
    "in a group with an exit": (
        lambda: BaseExceptionGroup("g", [ValueError("one"), SystemExit(1)]),
        "ValueError: one; SystemExit: 1",
    ),
    "of many": (
        lambda: ExceptionGroup("g", [ValueError(str(n)) for n in range(7)]),
        "ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; ValueError: 4 and 2 more",
    ),
    "in ten thousand groups": (lambda: Deep(10_000).make(), "ValueError: at the bottom"),
}


@pytest.mark.parametrize("what", ERRORS)
async def test_an_error_is_recorded_and_goes_the_ordinary_way(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    """C48."""
    make, text = ERRORS[what]

    async def work(_ctx: Context) -> None:
        raise make()

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=2))
        assert await settled(company, "a") == "failed"
        assert [(view.end, view.error) for view in await company.attempts("a")] == [
            (AttemptEnd.FAILED, text)
        ] * 2
        await others_go_on(runtime)
    assert of_kind(stored_events(db_path), "actor.crashed") == []


async def test_an_error_of_ten_megabytes_keeps_its_beginning_and_its_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C48."""

    async def work(_ctx: Context) -> None:
        raise ValueError("begin" + "x" * 10_000_000 + "end")

    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a", tries_max=1))
        assert await settled(runtime.company("k"), "a") == "failed"
        error = await first_error(runtime.company("k"), "a")
    assert error is not None
    assert error.startswith("ValueError: beginx")
    assert error.endswith("xend")
    assert "characters left out" in error
    assert len(error) < 5_000


def test_the_text_of_an_error_is_the_same_in_the_row_the_event_and_the_node(tmp_path: Path) -> None:
    path = tmp_path / "test.db"

    async def work(_ctx: Context) -> None:
        raise ValueError("a\0b")

    async def main() -> None:
        async with a_host(path, {"work": work}) as runtime:
            company = runtime.company("k")
            await company.ask(a_task("work", id="a", tries_max=1))
            await company.when_settled("a")
            assert (await company.status("a")).nodes[0].error == r"ValueError: a\x00b"

    trio.run(main, clock=MockClock(autojump_threshold=0))
    with closing(sqlite3.connect(path)) as raw:
        (row,) = raw.execute("SELECT error FROM attempts").fetchall()
    (event,) = of_kind(stored_events(path), "attempt.failed")
    assert row == (event.reason,) == (r"ValueError: a\x00b",)


async def test_a_keyboard_interrupt_out_of_a_handler_reaches_the_host_and_costs_the_attempt_no_try(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(_ctx: Context) -> None:
        raise KeyboardInterrupt

    with pytest.raises(BaseExceptionGroup) as raised:
        async with a_host(db_path, {"work": work}) as runtime:
            await runtime.company("k").ask(a_task("work", id="a"))
            await trio.sleep_forever()
    interrupts, others = raised.value.split(KeyboardInterrupt)
    assert interrupts is not None
    assert others is None
    async with a_host(db_path) as runtime:
        (view,) = (await runtime.company("k").attempts("a"))[:1]
        assert view.end in (AttemptEnd.INTERRUPTED, AttemptEnd.LOST), (
            "whether there was time to write it down"
        )
        assert (await runtime.company("k").status("a")).nodes[0].tries == 0


# --- results --------------------------------------------------------------------------------------------------------


def _cycle() -> object:
    value: list[object] = []
    value.append(value)
    return value


RESULTS: dict[str, tuple[Callable[[], object], str]] = {
    "NaN": (lambda: float("nan"), "the result is not JSON: Out of range float values are not JSON compliant"),
    "an infinity inside": (lambda: {"x": [float("inf")]}, "the result is not JSON: Out of range float"),
    "a set": (lambda: {1, 2}, "the result is not JSON: Object of type set is not JSON serializable"),
    "bytes": (lambda: b"x", "the result is not JSON: Object of type bytes is not JSON serializable"),
    "a cycle": (_cycle, "the result is not JSON: nested deeper than 200, or circular"),
    "keys that are numbers": (lambda: {1: "x"}, "the result is not JSON: keys of an object must be strings"),
    "a lone surrogate": (
        lambda: "a\ud800",
        "the result contains a lone surrogate, which UTF-8 cannot encode",
    ),
    "a megabyte and more": (
        lambda: "x" * 1_048_576,
        "the result has 1048578 bytes as JSON, more than the 1048576",
    ),
    "the context": (
        lambda: object(),
        "the result is not JSON: Object of type object is not JSON serializable",
    ),
}


@pytest.mark.parametrize("what", RESULTS)
async def test_a_result_that_is_not_json_is_a_failure_that_says_so(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    """C48."""
    make, text = RESULTS[what]

    async def work(_ctx: Context) -> object:
        return make()

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=2))
        assert await settled(company, "a") == "failed"
        error = await first_error(company, "a")
        assert error is not None
        assert error.startswith(f"InvalidJson: {text}")
        assert (await company.status("a")).nodes[0].tries == 2
        await others_go_on(runtime)


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5, 2**70, "", "é\n\0", [], {}, {"b": [1, {"a": None}], "a": "x"}, "x" * 1_048_574],
    ids=lambda value: repr(value)[:20],
)
async def test_a_result_that_is_json_comes_back_as_it_was(
    db_path: Path, autojump_clock: MockClock, value: object
) -> None:
    async def work(_ctx: Context) -> object:
        return value

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        assert (await company.when_settled("a")).result == {"work": value}
        assert await company.result("a") == {"work": value}


async def test_a_tuple_comes_back_as_a_list_as_json_has_no_other(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(_ctx: Context) -> object:
        return (1, (2,))

    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        outcome = await runtime.company("k").when_settled("a")
        assert json.dumps(outcome.result["work"]) == "[1, [2]]"


# --- what is left behind ----------------------------------------------------------------------------------------------


async def leaves_a_scope(_ctx: Context) -> None:
    trio.CancelScope().__enter__()


async def leaves_a_nursery(_ctx: Context) -> None:
    nursery = await trio.open_nursery().__aenter__()
    nursery.start_soon(trio.sleep_forever)


async def raises_and_leaves_a_nursery(ctx: Context) -> None:
    await leaves_a_nursery(ctx)
    raise ValueError("and an error")


@pytest.mark.parametrize("work", [leaves_a_scope, leaves_a_nursery, raises_and_leaves_a_nursery])
async def test_a_handler_that_leaves_a_scope_open_fails_alone(
    db_path: Path, autojump_clock: MockClock, work: Handler
) -> None:
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        assert await settled(company, "a") == "failed"
        error = await first_error(company, "a")
        assert error is not None
        assert error.startswith("RuntimeError: Cancel scope stack corrupted")
        await others_go_on(runtime)


async def test_a_cancellation_that_is_none_of_ours_is_a_failure_like_any_other(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Kept from another scope and raised again when nobody is cancelled."""

    async def work(_ctx: Context) -> None:
        caught: list[BaseException] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep(1)
            except trio.Cancelled as error:
                caught.append(error)
        raise caught[0]

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        assert await settled(company, "a") == "failed"
        await others_go_on(runtime)


async def test_a_handler_that_floods_its_own_company_keeps_nobody_else_waiting(
    db_path: Path, autojump_clock: MockClock
) -> None:
    stop = trio.Event()

    async def flood(ctx: Context) -> int:
        sent = 0
        while not stop.is_set():
            await ctx.company.tell(a_task(None, mode="manual"))
            sent += 1
        return sent

    async with a_host(db_path, {"flood": flood}, timeless=True) as runtime:
        await runtime.company("k").ask(a_task("flood", id="a"))
        other = runtime.company("other")
        for _ in range(2):
            report = await other.ask(a_task())
            assert await settled(other, report.id) == "completed"
        stop.set()
        outcome = await runtime.company("k").when_settled("a")
        assert outcome.result["flood"] > 0


async def test_many_handlers_that_fail_at_once_are_all_recorded(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Gated()

    async def work(ctx: Context) -> None:
        await gate(ctx)
        sys.exit(int(ctx.node))

    async with a_host(db_path, {"work": work}, executions_max=50) as runtime:
        nodes = [Node(str(number), "work", tries_max=1) for number in range(50)]
        await runtime.company("k").ask(a_task(nodes=nodes, id="a"))
        await gate.has_started(50)
        gate.open.set()
        await idle(runtime)
        errors = {view.node: view.error for view in await runtime.company("k").attempts("a")}
    assert errors == {str(number): f"SystemExit: {number}" for number in range(50)}
