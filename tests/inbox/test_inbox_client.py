"""Sending from outside, with real threads: `open_inbox` beside a host, without one, and where it cannot."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio

from actors import (
    CompanyDeleted,
    Inbox,
    InboxFull,
    InvalidJson,
    InvalidMessage,
    InvalidName,
    Letter,
    MessageConflict,
    NotADatabase,
    Pause,
    Retry,
    Start,
    StoreUnavailable,
    Submit,
    SubmitMany,
    Submitted,
    TaskUnknown,
    WorkState,
    open_inbox,
    open_runtime,
)
from storage.contract.inbox import WAITING_MAX, WAITING_MAX_OF_COMPANY
from tests.runtime.support import sql

from .support import Post

PATIENCE_S = 30.0
"""Far more than anything here takes on a machine that has other things to do."""


async def a_database(path: Path) -> None:
    async with open_runtime(path, handlers={}):
        pass


async def test_an_ask_from_outside_returns_and_raises_what_an_ask_inside_would(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    async def ok(ctx: object) -> str:
        return "done"

    with trio.fail_after(PATIENCE_S):
        async with open_runtime(path, handlers={"ok": ok}) as runtime, open_inbox(path) as inbox:
            assert inbox.owner is not None
            assert await inbox.ask("acme", Submit("t", handler="ok", id="a")) == Submitted("a", 1, 1)
            await runtime.company("acme").when_settled("a")
            many = await inbox.ask(
                "acme", SubmitMany([Submit("b", id="b", mode="manual"), Submit("c", id="c")])
            )
            assert [one.id for one in many] == ["b", "c"]
            with pytest.raises(TaskUnknown, match="no task 'nope'"):
                await inbox.ask("acme", Start("nope"))
            # it reads as well, as a `Reader` does
            assert (await inbox.company("acme").status("b")).state is WorkState.HELD
            assert await inbox.companies() == ("acme",)
            assert await inbox.waiting() == ()
            answered = await inbox.answered()
            assert [type(letter.message) for letter in answered] == [Start, SubmitMany, Submit]
            assert isinstance(answered[0].error, TaskUnknown)
            assert answered[2].reply == Submitted("a", 1, 1)


async def test_the_same_message_under_the_same_id_is_done_once_and_has_its_first_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    with trio.fail_after(PATIENCE_S):
        async with open_runtime(path, handlers={}), open_inbox(path) as inbox:
            first = await inbox.ask("acme", Submit("t", mode="manual"), id="mine")
            assert await inbox.ask("acme", Submit("t", mode="manual"), id="mine") == first
            assert await inbox.ask("other", Submit("t", mode="manual"), id="mine") == first, (
                "ids are a company's own"
            )
            with pytest.raises(MessageConflict) as caught:
                await inbox.send("acme", Submit("another"), id="mine")
            assert (caught.value.company, caught.value.id) == ("acme", "mine")
            one, two = await inbox.send("acme", Pause()), await inbox.send("acme", Pause())
            assert one != two, "ids are made where none is chosen"
    assert sql(path, "SELECT company_id, id FROM tasks") == [(1, "@1"), (2, "@1")]


async def test_where_no_host_runs_a_message_waits_and_the_next_host_does_it(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    with trio.fail_after(PATIENCE_S):
        async with open_inbox(path) as inbox:
            assert inbox.owner is None
            key = await inbox.send("acme", Submit("t", id="a", mode="manual"))
            letter = await inbox.find("acme", key)
            assert letter is not None
            assert letter == Letter(
                "acme", key, Submit("t", id="a", mode="manual"), letter.text, sent_ms=letter.sent_ms
            )
            assert letter.waiting
            assert await inbox.waiting() == (letter,)
            assert await inbox.waiting(company="other") == ()
            assert await inbox.waited_for() == ("acme",)
            assert await inbox.companies() == ()
            with trio.move_on_after(0.3) as waited:
                await inbox.ask("acme", Submit("t", id="a", mode="manual"), id=key)
            assert waited.cancelled_caught
            async with open_runtime(path, handlers={}):
                again = await inbox.ask("acme", Submit("t", id="a", mode="manual"), id=key)
                assert again == Submitted("a", 1, 1)
                (done,) = await inbox.answered()
                assert done == attrs.evolve(letter, answered_ms=done.answered_ms, reply=again)


async def test_one_who_waits_for_a_company_that_is_deleted_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    told: list[BaseException] = []

    async def ask(inbox: Inbox) -> None:
        with pytest.raises(CompanyDeleted) as caught:
            await inbox.ask("acme", Submit("too early"), id="mine")
        told.append(caught.value)

    with trio.fail_after(PATIENCE_S):
        async with open_inbox(path) as inbox, trio.open_nursery() as nursery:
            nursery.start_soon(ask, inbox)
            while not await inbox.waiting():
                await trio.sleep(0.01)
            sql(path, "DELETE FROM inbox")  # as a deletion does with all that was said to the company
    assert len(told) == 1


async def test_a_mistake_of_the_sender_s_is_told_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    async with open_inbox(path) as inbox:
        for company, message, key, error in (
            ("a/b", Pause(), None, InvalidName),
            ("acme", Pause(), "a/b", InvalidName),
            ("acme", Pause(), "", InvalidName),
            ("acme", "pause", None, InvalidMessage),
            ("acme", SubmitMany([Submit("t", payload="x" * 900_000) for _ in range(6)]), None, InvalidJson),
        ):
            with pytest.raises(error):
                await inbox.send(company, message, id=key)  # type: ignore[arg-type]
    assert sql(path, "SELECT count(*) FROM inbox") == [(0,)]


async def test_the_inbox_takes_only_so_many_and_a_company_cannot_fill_it(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    post = Post(path)
    async with open_inbox(path) as inbox:
        post.fill(WAITING_MAX_OF_COMPANY - 1, "loud")
        key = await inbox.send("loud", Pause())
        with pytest.raises(InboxFull) as of_company:
            await inbox.send("loud", Pause())
        assert (of_company.value.company, of_company.value.limit) == ("loud", WAITING_MAX_OF_COMPANY)
        assert await inbox.send("loud", Pause(), id=key) == key, "what is there can still be sent again"
        for number in range(1, WAITING_MAX // WAITING_MAX_OF_COMPANY):
            post.fill(WAITING_MAX_OF_COMPANY, f"quiet {number}")
        with pytest.raises(InboxFull) as of_all:
            await inbox.send("another", Pause())
        assert (of_all.value.company, of_all.value.limit) == (None, WAITING_MAX)
        assert "start a host" in str(of_all.value)
        sql(path, "DELETE FROM inbox WHERE company <> 'loud'")
        sql(path, "DELETE FROM inbox WHERE id = ?", key)
        await inbox.send("another", Pause())
        await inbox.send("loud", Pause())


async def test_sending_waits_for_another_s_transaction_but_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with open_inbox(path, busy_s=0.05) as hasty:
            with pytest.raises(StoreUnavailable) as caught:
                await hasty.send("acme", Pause())
            assert caught.value.code == "SQLITE_BUSY"
        async with open_inbox(path, busy_s=PATIENCE_S) as patient, trio.open_nursery() as nursery:
            sent: list[str] = []

            async def send() -> None:
                sent.append(await patient.send("acme", Pause(), id="mine"))

            nursery.start_soon(send)
            await trio.sleep(0.2)
            assert sent == []
            other.execute("ROLLBACK")
        assert sent == ["mine"]
    assert Post(path).waiting == ["mine"]


async def test_what_is_no_database_of_ours_is_not_opened_and_not_made(tmp_path: Path) -> None:
    for path in (tmp_path / "none.db", tmp_path / "empty.db", tmp_path / "text.db"):
        if path.name != "none.db":
            path.write_text("" if path.name == "empty.db" else "hello" * 1000)
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(NotADatabase):
            async with open_inbox(path):
                raise AssertionError("it was opened")
        assert (path.read_bytes() if path.exists() else None) == before


async def test_who_sends_does_not_own_the_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    with trio.fail_after(PATIENCE_S):
        async with open_inbox(path) as inbox:
            key = await inbox.send("acme", Submit("t", mode="manual"))
            assert inbox.owner is None
            async with open_runtime(path, handlers={}) as runtime, open_inbox(path) as second:
                assert await second.ask("acme", Submit("t", mode="manual"), id=key) == Submitted("@1", 1, 1)
                assert await runtime.company("acme").tasks() == await inbox.company("acme").tasks()


async def test_a_row_that_nobody_can_read_is_shown_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await a_database(path)
    post = Post(path)
    post.plant("\x1b[31mno message", "acme", "one")
    post.plant('{"v":1,"message":{"$":"Retry","task":"a"}}', "acme", "two")
    sql(path, "UPDATE inbox SET answered_ms = 1, answer = 'no answer' WHERE id = 'two'")
    async with open_inbox(path) as inbox:
        (one,) = await inbox.waiting()
        assert (one.message, one.text) == (None, "\x1b[31mno message")
        (two,) = await inbox.answered()
        assert two.message == Retry("a")
        assert isinstance(two.error, InvalidMessage)
        assert isinstance(inbox, Inbox)


CREATES_AND_SENDS = """
import sys, trio
from actors import Submit, open_inbox

async def main():
    async with open_inbox(sys.argv[1], create=True) as inbox:
        await inbox.send("acme", Submit("first", id=sys.argv[2], mode="manual"))

print("ready", flush=True)
sys.stdin.readline()
trio.run(main)
"""


@pytest.mark.parametrize("there", [None, ""], ids=["nothing", "an empty file"])
def test_several_processes_may_create_a_database_at_once_and_none_of_their_messages_is_lost(
    tmp_path: Path, there: str | None
) -> None:
    """All begin together. Whoever comes second uses what the first has made, also if it is not finished yet."""
    path = tmp_path / "new.db"
    if there is not None:
        path.write_text(there)
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", CREATES_AND_SENDS, str(path), f"t{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(3)
    ]
    for sender in senders:
        assert sender.stdout is not None
        assert sender.stdout.readline() == b"ready\n"
    for sender in senders:
        assert sender.stdin is not None
        sender.stdin.write(b"go\n")
        sender.stdin.flush()
    for sender in senders:
        sender.communicate(timeout=4 * PATIENCE_S)
    assert [sender.returncode for sender in senders] == [0] * 3

    async def main() -> None:
        async with open_inbox(path) as inbox:
            assert len(await inbox.waiting()) == 3

    trio.run(main)
    assert [found.name for found in tmp_path.iterdir()] == ["new.db"]


def test_a_file_that_is_there_is_never_replaced_by_creating(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("hello, this is a letter and not a database at all")

    async def main() -> None:
        with pytest.raises(NotADatabase):
            async with open_inbox(path, create=True):
                raise AssertionError

    trio.run(main)
    assert path.read_text().startswith("hello")
    assert list(tmp_path.iterdir()) == [path]
