"""What a handler is given, and what it may say to its own company."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import (
    Backoff,
    Context,
    Edit,
    Node,
    Pause,
    Rerun,
    Retry,
    SetLimits,
    Start,
    Stop,
    Submit,
    TaskUnknown,
    Unpause,
    WorkState,
)
from actors.handlers import Handler
from tests.runtime.support import Gated, Scripted, a_host, a_task, idle, settled, stored_events

# --- fields ---------------------------------------------------------------------------------------------------------


async def test_a_handler_knows_which_attempt_it_is_and_what_came_before(
    db_path: Path, autojump_clock: MockClock
) -> None:
    seen: list[Context] = []

    async def work(ctx: Context) -> str:
        seen.append(ctx)
        return f"result of {ctx.node}"

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("acme")
        nodes = [
            Node("a", "work"),
            Node("b", "work", payload={"own": 1}),
            Node("c", "work", after=["a", "b"]),
        ]
        await company.ask(a_task(nodes=nodes, id="t", payload=[1, 2]))
        await company.when_settled("t")
    a, b, c = sorted(seen, key=lambda ctx: ctx.node)
    assert (a.company.name, a.task, a.run, a.node, a.attempt, a.generation) == ("acme", "t", 1, "a", 1, 0)
    assert (a.payload, b.payload, c.payload) == ([1, 2], {"own": 1}, [1, 2])
    assert (a.task_payload, b.task_payload) == ([1, 2], [1, 2])
    assert dict(a.inputs) == {}
    assert dict(c.inputs) == {"a": "result of a", "b": "result of b"}
    assert c.key == "acme/t/1/c/0"


async def test_what_a_handler_does_to_its_payload_and_inputs_reaches_nobody_else(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def spoil(ctx: Context) -> object:
        before = list(ctx.payload)
        ctx.payload.append("spoilt")
        with pytest.raises(TypeError):
            ctx.inputs["x"] = 1  # type: ignore[index]
        return before

    async with a_host(db_path, {"spoil": spoil}, timeless=True) as runtime:
        company = runtime.company("k")
        nodes = [Node("a", "spoil"), Node("b", "spoil", after=["a"])]
        await company.ask(a_task(nodes=nodes, id="t", payload=["clean"]))
        assert (await company.when_settled("t")).result == {"a": ["clean"], "b": ["clean"]}


async def test_the_idempotency_key_is_the_same_over_retries_and_a_person_s_retry(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("1"), ValueError("2"), ValueError("3"), "done"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        assert await settled(company, "a") == "failed"
        await company.ask(Retry("a"))
        assert await settled(company, "a") == "completed"
    assert [ctx.key for ctx in work.contexts] == ["k/a/1/work/0"] * 4
    assert [ctx.attempt for ctx in work.contexts] == [1, 2, 3, 4]


async def test_the_idempotency_key_is_the_same_in_the_next_process(
    db_path: Path, autojump_clock: MockClock
) -> None:
    first, second = Gated(), Gated()
    async with a_host(db_path, {"work": first}, drain_s=0) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await first.has_started()
    second.open.set()
    async with a_host(db_path, {"work": second}) as runtime:
        assert await settled(runtime.company("k"), "a") == "completed"
    assert [ctx.key for ctx in first.contexts + second.contexts] == ["k/a/1/work/0"] * 2


async def test_another_run_and_another_payload_have_another_key(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("1"), "a", "b"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.when_settled("a")
        await company.ask(Edit("a", payload="other"))
        await company.ask(Retry("a"))
        await company.when_settled("a")
        await company.ask(Rerun("a"))
        await company.when_settled("a")
    assert [ctx.key for ctx in work.contexts] == ["k/a/1/work/0", "k/a/1/work/1", "k/a/2/work/0"]


async def test_a_rerun_can_bring_a_payload_of_its_own(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", payload="first"))
        assert (await company.when_settled("a")).result == {"ok": "first"}
        await company.ask(Rerun("a", payload="second"))
        assert (await company.when_settled("a")).result == {"ok": "second"}
        await company.ask(Rerun("a"))
        assert (await company.when_settled("a")).result == {"ok": "first"}


async def test_progress_is_seen_at_once_and_stored_nowhere(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()

    async def says(ctx: Context) -> object:
        ctx.progress("half\0way " + "x" * 500)
        return await work(ctx)

    async with a_host(db_path, {"says": says}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("says", id="a"))
        await work.has_started()
        (reason,) = (await company.status("a")).reasons
        assert reason.text is not None
        assert reason.text.startswith(r"half\x00way xxx")
        assert len(reason.text) < 260
        work.open.set()
        await company.when_settled("a")
    assert not any("half" in str(event) for event in stored_events(db_path))


async def test_a_handler_can_ask_whether_it_should_end(db_path: Path, autojump_clock: MockClock) -> None:
    seen: list[bool] = []

    async def work(ctx: Context) -> None:
        seen.append(ctx.cancel_requested)
        try:
            await trio.sleep_forever()
        finally:
            seen.append(ctx.cancel_requested)

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await trio.testing.wait_all_tasks_blocked()
        await company.ask(Stop("a"))
        await company.when_settled("a")
    assert seen == [False, True]


async def test_the_log_of_a_handler_is_bound_to_its_attempt(
    db_path: Path, autojump_clock: MockClock, logs: list[dict[str, object]]
) -> None:
    async def work(ctx: Context) -> None:
        ctx.log.info("hello", extra=1)

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await idle(runtime)
    (entry,) = [entry for entry in logs if entry["event"] == "hello"]
    assert entry == {
        "event": "hello",
        "log_level": "info",
        "extra": 1,
        "company": "k",
        "task": "a",
        "run": 1,
        "node": "work",
        "attempt": 1,
    }


# --- kinds of handlers ------------------------------------------------------------------------------------------------


class AsyncObject:
    async def __call__(self, ctx: Context) -> object:
        return ctx.payload

    async def method(self, ctx: Context) -> object:
        return ctx.payload

    @classmethod
    async def of_class(cls, ctx: Context) -> object:
        return ctx.payload

    @staticmethod
    async def of_nothing(ctx: Context) -> object:
        return ctx.payload


async def with_prefix(prefix: str, ctx: Context) -> object:
    return ctx.payload


ASYNC: dict[str, Handler] = {
    "an object": AsyncObject(),
    "a method": AsyncObject().method,
    "a class method": AsyncObject.of_class,
    "a static method": AsyncObject.of_nothing,
    "a partial": functools.partial(with_prefix, "x"),
}


@pytest.mark.parametrize("what", ASYNC)
async def test_whatever_is_called_and_awaited_can_be_a_handler(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    async with a_host(db_path, {"work": ASYNC[what]}, timeless=True) as runtime:
        await runtime.company("k").ask(a_task("work", id="a", payload=5))
        assert (await runtime.company("k").when_settled("a")).result == {"work": 5}


async def test_what_cannot_be_called_is_refused_before_anything_is_opened(db_path: Path) -> None:
    with pytest.raises(TypeError, match="handlers must map names to functions, not 'x' to 5"):
        async with a_host(db_path, {"x": 5}):  # type: ignore[dict-item]
            raise AssertionError("not reached")
    assert not db_path.exists()


async def test_a_handler_that_is_taken_from_the_host_s_mapping_later_is_still_there(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted(["done"])
    handlers: dict[str, Handler] = {"work": work}
    async with a_host(db_path, handlers) as runtime:
        handlers.clear()
        await runtime.company("k").ask(a_task("work", id="a"))
        assert await settled(runtime.company("k"), "a") == "completed"


# --- speaking to one's own company ------------------------------------------------------------------------------------


async def test_a_handler_may_ask_its_own_company_whatever_it_likes(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C69: none of it waits for the handler."""

    async def work(ctx: Context) -> list[str]:
        company = ctx.company
        with trio.fail_after(1):
            child = await company.ask(Submit("child", handler="ok"))
            await company.ask(Submit("manual", handler="ok", mode="manual", id="manual"))
            await company.ask(Start("manual"))
            await company.ask(Pause())
            await company.ask(Unpause())
            await company.ask(SetLimits(runs_max=5))
            await company.tell(Stop(ctx.task))
            said = [(await company.status(ctx.task)).state.value]
            said.extend(status.id for status in await company.queue())
            return [child.id, *said]

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        with trio.fail_after(1):
            await idle(runtime)
        assert (await company.status("a")).state is WorkState.STOPPED
        assert (await company.status("@2")).state is WorkState.COMPLETED
        assert (await company.status("manual")).state is WorkState.COMPLETED


async def test_a_handler_may_stop_its_own_task_and_is_cancelled_while_it_asks(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> str:
        await ctx.company.ask(Stop(ctx.task))
        with trio.CancelScope():
            await trio.sleep_forever()
        return "not reached"

    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        with trio.fail_after(1):
            assert await settled(runtime.company("k"), "a") == "stopped"


async def test_handlers_of_two_companies_may_ask_each_other(db_path: Path, autojump_clock: MockClock) -> None:
    """C69."""

    async def work(ctx: Context) -> str:
        other = companies["b" if ctx.company.name == "a" else "a"]
        with trio.fail_after(1):
            return (await other.ask(Submit("from the other", handler="ok"))).id

    async with a_host(db_path, {"work": work}) as runtime:
        companies = {name: runtime.company(name) for name in ("a", "b")}
        for company in companies.values():
            await company.ask(a_task("work", id="t"))
        await idle(runtime)
        for company in companies.values():
            assert (await company.status("t")).state is WorkState.COMPLETED


async def test_a_refusal_is_an_error_in_the_handler_that_made_the_mistake(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        await ctx.company.ask(Start("nobody"))

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        node = Node("n", "work", tries_max=1, retry=Backoff(base_s=0))
        await company.ask(a_task(nodes=[node], id="a"))
        outcome = await company.when_settled("a")
        assert outcome.reason == f"TaskUnknown: {TaskUnknown('k', 'nobody')}"
