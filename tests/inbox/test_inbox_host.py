"""The host's side of the inbox, on a virtual clock: what is taken when, in which order, and how it is answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

import actors.core.turn
import actors.runtime.company
import actors.runtime.inbox_host
from actors import (
    ActorCrashed,
    Archive,
    CompanyDeleted,
    CompanyParked,
    GoalStopped,
    InvalidJson,
    InvalidMessage,
    InvalidName,
    Moved,
    MoveRefused,
    Pause,
    RunStatus,
    SetLimits,
    Start,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Submitted,
    TaskUnknown,
    UnknownHandler,
    Unpark,
    Unparked,
    Unpause,
)
from actors.core.decide import decide
from actors.runtime.inbox_host import PRUNE_MAX
from actors.runtime.mailbox import USER_MAX
from actors.testing import VirtualClock
from storage.codec import MESSAGE_CHARS_MAX
from storage.contract.inbox import (
    NextMessages,
    PruneAnswered,
    StoredMessage,
    Waiting,
)
from storage.errors import StoreUnavailable
from storage.sqlite.connection import Connection
from storage.sqlite.statements import SQL
from tests.inside import inside
from tests.runtime.support import (
    GatedConnection,
    Wrapper,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    sql,
    stored_events,
)
from tests.stores import WatchedStore

from .support import Post, taken

# --- taken and answered -----------------------------------------------------------------------------------------------


async def test_a_message_is_carried_out_and_answered_with_what_ask_would_return(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        submitted = post.send(a_task("ok", id="a", mode="manual", payload=[1]))
        started = post.send(Start("a"))
        await idle(runtime)
        assert post.reply(submitted) == Submitted("a", 1, 1)
        assert post.reply(started) == Moved("a", 1, RunStatus.QUEUED)
        assert (await runtime.company("acme").status("a")).run_status is RunStatus.COMPLETED
        assert await runtime.company("acme").result("a") == {"ok": [1]}


async def test_a_refusal_is_answered_as_itself_and_changes_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        await runtime.company("acme").ask(a_task("ok", id="done"))
        await idle(runtime)
        before = stored_events(db_path)
        unknown, again, handler = post.send(Start("a")), post.send(Start("done")), post.send(a_task("nobody"))
        await idle(runtime)
        assert isinstance(post.error(unknown), TaskUnknown)
        refusal = post.error(again)
        assert isinstance(refusal, MoveRefused)
        assert (refusal.task, refusal.state, refusal.advice) == ("done", "completed", ("Rerun",))
        assert isinstance(post.error(handler), UnknownHandler)
        assert stored_events(db_path) == before, "an answer is not an event"


async def test_what_waits_is_taken_before_the_block_of_the_host_begins(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path):
        pass
    post = Post(db_path)
    sent = post.send(a_task("ok", id="a", mode="manual"))
    async with a_host(db_path) as runtime:
        assert runtime.statistics().inbox == 1
        mine = await runtime.company("acme").ask(a_task("ok", id="b"))
        assert post.reply(sent) == Submitted("a", 1, 1)
        assert mine == Submitted("b", 2, 1)
        await idle(runtime)
        assert runtime.inbox_quiet
        assert runtime.statistics().inbox == 0


async def test_a_host_looks_four_times_a_second_and_reads_nothing_while_nobody_else_has_written(
    db_path: Path, autojump_clock: MockClock
) -> None:
    reads: list[float] = []

    def counted(query: object, found: object) -> None:
        if isinstance(query, NextMessages) and isinstance(found, Waiting) and found.version != query.known:
            reads.append(trio.current_time())

    async with a_host(db_path) as runtime, trio.open_nursery() as nursery:
        inside(runtime).intake.store = WatchedStore(inside(runtime).services.store, after=counted)
        await taken(runtime)
        nursery.start_soon(inside(runtime).intake.run, actors.runtime.inbox_host.POLL_S)
        await trio.sleep(10)
        quiet = len(reads)
        await trio.sleep(1_000)
        assert len(reads) == quiet, "nothing has changed, and the table was read"
        sent_s = trio.current_time()
        key = Post(db_path).send(a_task("ok", id="a"))
        await trio.sleep(0.5)
        assert Post(db_path).reply(key) == Submitted("a", 1, 1)
        assert reads[quiet] - sent_s <= 0.25
        nursery.cancel_scope.cancel()


async def test_a_message_that_comes_while_the_host_itself_writes_is_seen_too(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(inside(runtime).intake.run, actors.runtime.inbox_host.POLL_S)
        post = Post(db_path)
        for number in range(8):
            await runtime.company("other").ask(Submit("own", mode="manual"))
            key = post.send(Submit("sent", id=f"t{number}", mode="manual"))
            await runtime.company("other").ask(Submit("own", mode="manual"))
            await trio.sleep(0.3)
            assert post.reply(key) == Submitted(f"t{number}", number + 1, 1)
        nursery.cancel_scope.cancel()


# --- order and fairness -----------------------------------------------------------------------------------------------


async def test_messages_of_a_company_are_taken_in_their_order_and_no_control_message_overtakes(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        sent = [
            post.send(message)
            for message in (
                Submit("a", id="a", mode="manual", goal="g"),
                Stop("a"),
                Submit("b", id="b", mode="manual", goal="g"),
                Submit("c", id="c", mode="manual", goal="g"),
                StopGoal("g"),
                Pause(),
                Archive("a"),
                Unpause(),
                Start("a"),
            )
        ]
        await idle(runtime)
        replies = [post.letter(key).reply for key in sent]
        assert [type(reply).__name__ for reply in replies[:-1]] == [
            *("Submitted", "Moved", "Submitted", "Submitted", "GoalStopped"),
            *("CompanySettings", "Moved", "CompanySettings"),
        ]
        assert replies[4] == GoalStopped("g", ("b", "c")), "neither before the submits nor after the archive"
        assert isinstance(post.error(sent[-1]), MoveRefused)
        told = stored_events(db_path, "acme")
        assert kinds(told) == [
            *(
                "task.submitted",
                "run.stopped",
                "task.submitted",
                "task.submitted",
                "run.stopped",
                "run.stopped",
            ),
            *("company.paused", "task.archived", "company.unpaused"),
        ]


async def test_what_is_under_way_is_not_taken_again_and_what_follows_it_waits(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime:
        post = Post(db_path)
        await runtime.company("acme").ask(Submit("first", mode="manual"))
        await idle(runtime)
        gate.made.shut()

        async def looks() -> int:
            inside(runtime).intake.wake()
            await trio.testing.wait_all_tasks_blocked()
            return runtime.statistics().inbox

        post.send(Submit("second", mode="manual"))
        assert await looks() == 1
        assert await looks() == 1
        post.send(Submit("third", mode="manual"))
        assert await looks() == 1
        post.send(Submit("theirs", mode="manual"), "other")
        assert await looks() == 2
        gate.made.let_go()
        await idle(runtime)
        assert sql(db_path, "SELECT title FROM tasks ORDER BY company_id, seq") == [
            *(("first",), ("second",), ("third",)),
            ("theirs",),
        ]


async def test_more_than_one_page_is_taken_in_its_order(db_path: Path, autojump_clock: MockClock) -> None:
    count = 3 * actors.runtime.inbox_host.EACH_MAX + 5
    async with a_host(db_path):
        pass
    post = Post(db_path)
    for number in range(count):
        post.send(Submit("t", id=f"t{number}", mode="manual"))
    async with a_host(db_path) as runtime:
        await idle(runtime)
        assert post.waiting == []
        submitted = of_kind(stored_events(db_path), "task.submitted")
        assert [event.task for event in submitted] == [f"t{number}" for number in range(count)]


async def test_a_company_that_sends_many_does_not_keep_another_waiting(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path):
        pass
    post = Post(db_path)
    for _ in range(100):
        post.send(Submit("many", mode="manual"), "loud")
    late = post.send(Submit("one", mode="manual"), "quiet")
    async with a_host(db_path) as runtime:
        await idle(runtime)
        answered = sql(db_path, "SELECT company FROM inbox ORDER BY answered_ms, rowid")
        assert len(answered) == 101
        assert post.reply(late, "quiet") == Submitted("@1", 1, 1)
        order = [event.company for event in of_kind(stored_events(db_path), "task.submitted")]
        assert order.index("quiet") <= actors.runtime.inbox_host.EACH_MAX


async def test_a_look_is_shared_between_companies_in_rounds(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        for company, count in (("a", 5), ("b", 1), ("c", 3)):
            for _ in range(count):
                post.send(Pause(), company)
        rows = await inside(runtime).intake.store.fetch(NextMessages(busy=["c"], each=3, limit=10))
        assert [row.company for row in rows.messages] == ["a", "b", "a", "a"]
        few = await inside(runtime).intake.store.fetch(NextMessages(busy=[], each=3, limit=4))
        assert [row.company for row in few.messages] == ["a", "b", "c", "a"]
        await idle(runtime)


async def test_a_look_reads_only_so_much_text(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        for number in range(6):
            post.send(Submit("t", id=f"t{number}", mode="manual", payload="x" * 3_000))
        look = NextMessages(busy=[], each=20, limit=20, chars_max=5_000)
        assert len((await inside(runtime).intake.store.fetch(look)).messages) == 2
        await idle(runtime)
        assert post.waiting == []


async def test_a_full_mailbox_keeps_a_message_waiting_and_loses_it_not(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime:
        acme, post = runtime.company("acme"), Post(db_path)
        await acme.ask(Submit("first", mode="manual"))
        await idle(runtime)
        gate.made.shut()
        await acme.tell(Submit("in the way", mode="manual"))
        await gate.made.is_asked()
        for _ in range(USER_MAX):
            acme.tell_nowait(Submit("filler", mode="manual"))
        key = post.send(Submit("late", id="late", mode="manual"))
        inside(runtime).intake.wake()
        await trio.sleep(3)
        assert post.letter(key).waiting
        gate.made.let_go()
        await idle(runtime)
        assert post.reply(key) == Submitted("late", USER_MAX + 3, 1)


# --- once -------------------------------------------------------------------------------------------------------------


async def test_the_answer_is_in_the_very_commit_that_carries_the_message_out(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Looked at from outside after every commit: there is never one without the other."""
    looks: list[tuple[int, int]] = []

    class Watched:
        def __init__(self, inner: Connection) -> None:
            self._inner = inner

        async def run(self, work: Callable[[sqlite3.Connection], Any], /) -> Any:
            value = await self._inner.run(work)
            (tasks,), (answers,) = sql(
                db_path,
                "SELECT count(*) FROM tasks UNION ALL SELECT count(*) FROM inbox WHERE answer IS NOT NULL",
            )
            looks.append((tasks, answers))
            return value

        async def aclose(self) -> None:
            await self._inner.aclose()

    async with a_host(db_path, wrap=Watched) as runtime:
        post = Post(db_path)
        for _ in range(3):
            post.send(Submit("t", mode="manual"))
            await idle(runtime)
        post.send(SubmitMany([Submit("t", mode="manual") for _ in range(4)]))
        await idle(runtime)
    steps = [now for before, now in pairwise(looks) if now != before]
    assert steps == [(1, 1), (2, 2), (3, 3), (7, 4)]


async def test_a_unit_that_would_answer_a_message_twice_is_refused_whole(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """The file holds it, whatever the code does: here the host is made to take a message that is answered."""
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        key = post.send(Submit("t", mode="manual"))
        await idle(runtime)
        first = post.letter(key)
        (number,) = sql(db_path, "SELECT number FROM inbox")[0]
        stored = StoredMessage(number, "acme", key, 0, None, None, first.text)
        inside(runtime).intake._take("acme", [stored])
        await idle(runtime)
        assert sql(db_path, "SELECT id FROM tasks") == [("@1",)]
        assert post.letter(key) == first
        # and the same of a row that is gone
        sql(db_path, "DELETE FROM inbox")
        inside(runtime).intake._take("acme", [stored])
        await idle(runtime)
        assert sql(db_path, "SELECT id FROM tasks") == [("@1",)]


def refused(path: Path, statement: str, params: dict[str, object]) -> str:
    with pytest.raises(sqlite3.IntegrityError) as caught, sqlite3.connect(path) as raw:
        raw.execute(statement, params)
    return str(caught.value)


async def test_the_file_refuses_a_second_answer_and_an_answer_without_a_time(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        post.send(Pause())
        await idle(runtime)
        again = {"number": 1, "answered_ms": 1, "answer": "{}"}
        assert refused(db_path, SQL["inbox_answer"], again) == "no such message waits for an answer"
        assert (
            refused(db_path, SQL["inbox_answer"], {**again, "number": 7})
            == "no such message waits for an answer"
        )
        assert (
            refused(db_path, "UPDATE inbox SET answer = :answer", {"answer": "{}"})
            == "this message is answered"
        )
        post.send(Pause())
        assert "CHECK" in refused(db_path, "UPDATE inbox SET answer = '{}' WHERE number = 2", {})
        assert "UNIQUE" in refused(
            db_path, "INSERT INTO inbox (company, id, sent_ms, message) VALUES ('acme', 'm1', 0, '')", {}
        )
        assert "CHECK" in refused(
            db_path,
            "INSERT INTO inbox (company, id, sent_ms, message) VALUES ('acme', 'm9', 0, :text)",
            {"text": "x" * (MESSAGE_CHARS_MAX + 1)},
        )
        await idle(runtime)


async def test_a_message_whose_unit_is_refused_changes_nothing_is_told_so_and_its_neighbours_go_on(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(
            db_path,
            "CREATE TRIGGER refuse BEFORE INSERT ON tasks WHEN NEW.title = 'poison'"
            " BEGIN SELECT RAISE(ABORT, 'planted'); END",
        )
        post = Post(db_path)
        sent = [post.send(Submit(title, mode="manual")) for title in ("good", "poison", "good")]
        await idle(runtime)
        assert post.reply(sent[0]) == Submitted("@1", 1, 1)
        error = post.error(sent[1])
        assert isinstance(error, ActorCrashed)
        assert "planted" in error.cause
        assert not error.happened
        assert post.reply(sent[2]) == Submitted("@2", 2, 1)


async def test_a_message_on_which_the_actor_fails_is_answered_and_the_others_are_carried_out(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad_decide(draft: Any, message: Any, prefetched: Any) -> object:
        reply = decide(draft, message, prefetched)
        if getattr(message, "title", None) == "bad":
            raise RuntimeError("a mistake of ours")
        return reply

    monkeypatch.setattr(actors.core.turn, "decide", bad_decide)
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        sent = [post.send(Submit(title, mode="manual")) for title in ("good", "bad", "good")]
        await idle(runtime)
        assert isinstance(post.error(sent[1]), ActorCrashed)
        assert [post.reply(sent[0]).id, post.reply(sent[2]).id] == ["@1", "@2"]
        assert sql(db_path, "SELECT title FROM tasks ORDER BY seq") == [("good",), ("good",)]


async def test_an_actor_that_was_replaced_leaves_the_message_to_the_next(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        acme, post = runtime.company("acme"), Post(db_path)
        await acme.ask(Submit("first", mode="manual"))
        await idle(runtime)
        sql(db_path, "UPDATE companies SET epoch = epoch + 1")
        key = post.send(Submit("second", mode="manual"))
        await idle(runtime)
        assert post.reply(key) == Submitted("@2", 2, 1)
        assert sql(db_path, "SELECT count(*) FROM tasks") == [(2,)]


# --- broken rows ------------------------------------------------------------------------------------------------------

BROKEN: list[tuple[object, object, type[Exception]]] = [
    ("", "acme", InvalidMessage),
    ("{", "acme", InvalidMessage),
    ("[" * 50_000, "acme", InvalidMessage),
    ('{"v":1,"message":{"$":"Explode"}}', "acme", InvalidMessage),
    ('{"v":9,"message":{"$":"Pause"}}', "acme", InvalidMessage),
    ('{"v":1,"message":{"$":"Start","task":"a/b"}}', "acme", InvalidName),
    ('{"v":1,"message":{"$":"Submit","title":"t","payload":1e999}}', "acme", InvalidJson),
    ('{"v":1,"message":{"$":"Pause"}}', "", InvalidName),
    ('{"v":1,"message":{"$":"Pause"}}', "a/b", InvalidName),
    ('{"v":1,"message":{"$":"Pause"}}', "\x1b[31m", InvalidName),
    ('{"v":1,"message":{"$":"Pause"}}', "x" * 129, InvalidName),
]


@pytest.mark.parametrize(("text", "company", "error"), BROKEN)
async def test_a_broken_row_is_answered_in_its_row_and_harms_nobody(
    db_path: Path, autojump_clock: MockClock, text: str, company: str, error: type[Exception]
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        before = post.send(Submit("before", id="a", mode="manual"))
        post.plant(text, company, "broken")
        after = post.send(Submit("after", id="b", mode="manual"))
        with structlog.testing.capture_logs() as logs:
            await idle(runtime)
        assert isinstance(post.error("broken", company), error)
        assert (post.reply(before).id, post.reply(after).id) == ("a", "b")
        assert await runtime.companies() == ("acme",), "no company came to be"
        assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["inbox.row_refused"]


async def test_a_row_that_is_not_text_is_answered_too(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        for company, message in (("'acme'", "CAST(x'ff' AS TEXT)"), ("CAST(x'fe' AS TEXT)", "'{}'")):
            sql(
                db_path,
                f"INSERT INTO inbox (company, id, sent_ms, message) VALUES ({company}, 'x', 0, {message})",
            )
        key = post.send(Pause())
        await idle(runtime)
        assert post.reply(key).paused
        answers = sql(db_path, "SELECT answer FROM inbox WHERE id = 'x'")
        assert len(answers) == 2
        assert all("it is not UTF-8" in answer for (answer,) in answers)
        assert await runtime.companies() == ("acme",)


# --- companies that rest, end, or are deleted -------------------------------------------------------------------------


async def test_a_message_to_a_company_that_rests_is_told_so_and_unpark_ends_the_rest(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad_decide(draft: Any, message: Any, prefetched: Any) -> object:
        if getattr(message, "title", None) == "bad":
            raise RuntimeError("a mistake of ours")
        return decide(draft, message, prefetched)

    monkeypatch.setattr(actors.core.turn, "decide", bad_decide)
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        for _ in range(5):
            post.send(Submit("bad"))
            await taken(runtime)
        while (cell := inside(runtime).services.directory.find("acme")) is None or cell.parked is None:
            await trio.sleep(0.1)
        parked, unpark = post.send(Submit("good")), post.send(Unpark())
        inside(runtime).intake.wake()
        await trio.sleep(1)
        told = post.error(parked)
        assert isinstance(told, CompanyParked)
        assert "a mistake of ours" in told.cause
        assert post.reply(unpark) == Unparked(was_parked=True)
        good = post.send(Submit("good", id="good", mode="manual"))
        await idle(runtime)
        assert post.reply(good) == Submitted("good", 1, 1)


async def test_a_company_that_is_deleted_takes_with_it_what_was_said_to_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        post.send(Submit("done", id="a", nodes=[]))
        kept = post.send(Submit("kept", id="a", nodes=[]), "other")
        await idle(runtime)
        waiting = post.send(Submit("too late"))
        await runtime.delete_company("acme")
        assert sql(db_path, "SELECT company FROM inbox") == [("other",)]
        assert post.reply(kept, "other").id == "a"
        await idle(runtime)
        assert await runtime.companies() == ("other",), f"{waiting} was carried out"
        anew = post.send(Submit("anew", mode="manual"))
        await idle(runtime)
        assert post.reply(anew) == Submitted("@1", 1, 1)


async def test_what_is_under_way_when_its_company_is_deleted_is_answered_that_it_was_not_done(
    db_path: Path, autojump_clock: MockClock
) -> None:
    told: list[object] = []
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime, trio.open_nursery() as nursery:
        post = Post(db_path)
        await runtime.company("acme").ask(Submit("first", id="a", nodes=[]))
        await idle(runtime)
        gate.made.shut()
        nursery.start_soon(runtime.delete_company, "acme")
        await gate.made.is_asked()
        post.send(Submit("late"))
        settled = inside(runtime).intake._settled

        def watched(row: Any, outcome: Any) -> None:
            told.append(getattr(outcome, "error", outcome))
            settled(row, outcome)

        inside(runtime).intake._settled = watched  # type: ignore[method-assign]
        inside(runtime).intake.wake()
        await trio.testing.wait_all_tasks_blocked()
        gate.made.let_go()
        await idle(runtime)
    assert [type(error) for error in told] == [CompanyDeleted]
    assert post.waiting == []


async def test_what_is_not_answered_when_the_host_closes_waits_for_the_next(
    db_path: Path, autojump_clock: MockClock
) -> None:
    post = Post(db_path)
    async with a_host(db_path) as runtime:
        await runtime.aclose(now=True)
        key = post.send(Submit("t", mode="manual"))
        await idle(runtime)
        assert post.letter(key).waiting
    async with a_host(db_path) as runtime:
        await idle(runtime)
        assert post.reply(key) == Submitted("@1", 1, 1)


async def test_while_the_host_drains_messages_are_still_carried_out(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        post = Post(db_path)
        await runtime.drain()
        key = post.send(a_task("ok"))
        await idle(runtime)
        assert post.reply(key) == Submitted("@1", 1, 1)
        assert sql(db_path, "SELECT status FROM runs") == [("queued",)]


# --- trouble ----------------------------------------------------------------------------------------------------------


async def test_trouble_with_reading_is_told_once_and_over_when_it_is_over(
    db_path: Path, autojump_clock: MockClock
) -> None:
    broken = [True]

    def failing(query: object) -> None:
        if broken and isinstance(query, NextMessages):
            raise StoreUnavailable("disk I/O error")

    async with a_host(db_path) as runtime:
        await idle(runtime)
        inside(runtime).intake.store = WatchedStore(inside(runtime).services.store, before=failing)
        key = Post(db_path).send(Pause())
        with structlog.testing.capture_logs() as logs:
            inside(runtime).intake.wake()
            await trio.sleep(5)
            broken.clear()
            await idle(runtime)
        assert Post(db_path).reply(key).paused
        assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["inbox.trouble"]


async def test_a_broken_row_is_answered_once_the_store_takes_writes_again(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime:
        post = Post(db_path)
        post.plant("{", id="broken")
        gate.made.shut()
        inside(runtime).intake.wake()
        await gate.made.is_asked()
        later = post.send(Pause())
        await trio.sleep(5)
        assert post.waiting == ["broken", later]
        gate.made.let_go()
        await idle(runtime)
        assert isinstance(post.error("broken"), InvalidMessage)
        assert post.reply(later).paused


# --- pruning ----------------------------------------------------------------------------------------------------------


async def test_an_answered_row_goes_a_week_after_its_answer_and_its_id_is_free_again(
    db_path: Path, autojump_clock: MockClock, wall_clock: VirtualClock
) -> None:
    day_s = 86_400
    async with a_host(db_path, clock=wall_clock) as runtime, trio.open_nursery() as nursery:
        post = Post(db_path)
        nursery.start_soon(inside(runtime).intake.run, 60.0)
        old = post.send(SetLimits(runs_max=2))
        await trio.sleep(2 * day_s)
        young = post.send(SetLimits(runs_max=3))
        await trio.sleep(5 * day_s - 7_200)
        assert post.reply(old).runs_max == 2
        await trio.sleep(4 * 3_600)
        assert sql(db_path, "SELECT id FROM inbox") == [(young,)]
        again = post.send(SetLimits(runs_max=4), id=old)
        await trio.sleep(120)
        assert post.reply(again).runs_max == 4
        nursery.cancel_scope.cancel()


async def test_what_is_old_goes_at_a_start_and_every_hour_in_small_steps(
    db_path: Path, autojump_clock: MockClock, wall_clock: VirtualClock
) -> None:
    old = "UPDATE inbox SET answered_ms = 0, answer = '{}'"
    post = Post(db_path)
    async with a_host(db_path, clock=wall_clock):
        post.fill(3, "acme")
        sql(db_path, old)
    counts: list[int] = []

    def count(operation: object, answer: object) -> None:
        if isinstance(operation, PruneAnswered):
            assert isinstance(answer, int)
            counts.append(answer)

    async with a_host(db_path, clock=wall_clock) as runtime, trio.open_nursery() as nursery:
        assert sql(db_path, "SELECT id FROM inbox") == []
        inside(runtime).intake.store = WatchedStore(inside(runtime).services.store, after=count)
        nursery.start_soon(inside(runtime).intake.run, 60.0)
        await trio.sleep(1)
        post.fill(PRUNE_MAX + 2, "acme")
        sql(db_path, old)
        young = post.send(Pause())
        await trio.sleep(actors.runtime.inbox_host.PRUNE_EVERY_S)
        assert sql(db_path, "SELECT id FROM inbox") == [(young,)]
        assert counts == [PRUNE_MAX, 2]
        nursery.cancel_scope.cancel()
