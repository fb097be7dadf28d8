"""The inbox, by whatever engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.runtime.opening import open_beside
from storage.contract.inbox import (
    AnswerMessages,
    FindMessage,
    FindOldestAnswer,
    ListAddressed,
    ListAnswered,
    ListWaiting,
    MessageAnswer,
    NextMessages,
    PruneAnswered,
    PutMessage,
    StoredMessage,
)
from storage.errors import InboxFull, MessageConflict

from .engines import ENGINES, Engine, Opened, opened

pytestmark = [pytest.mark.parametrize("engine", ENGINES), pytest.mark.planted]


async def put(here: Opened, company: str, id: str, message: str = "{}") -> None:
    await here.store.commit(PutMessage(company, id, message, 1))


async def test_a_message_stands_as_it_was_put_until_it_is_answered(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        await put(here, "acme", "m")
        waits = StoredMessage(1, "acme", "m", 1, None, None, "{}")
        assert await here.store.fetch(FindMessage("acme", "m")) == waits
        assert await here.store.fetch(FindMessage("other", "m")) is None
        await here.store.commit(AnswerMessages([MessageAnswer(1, 5, '"yes"')]))
        await here.store.commit(AnswerMessages([MessageAnswer(1, 6, '"no"'), MessageAnswer(2, 6, '"no"')]))
        answered = StoredMessage(1, "acme", "m", 1, 5, '"yes"', "{}")
        assert await here.store.fetch(FindMessage("acme", "m")) == answered, "the first answer stands"


async def test_the_same_message_again_is_the_one_that_is_there_and_another_is_refused(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        await put(here, "acme", "m")
        before = here.contents()
        await put(here, "acme", "m")
        with pytest.raises(MessageConflict):
            await put(here, "acme", "m", "[]")
        assert here.contents() == before


async def test_only_so_many_wait_in_all_and_of_one_company(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        for number in range(2):
            await put(here, "loud", f"m{number}")
        await put(here, "quiet", "m")
        before = here.contents()
        with pytest.raises(InboxFull) as of_company:
            await here.store.commit(PutMessage("loud", "more", "{}", 1, of_company_max=2))
        assert (of_company.value.company, of_company.value.limit) == ("loud", 2)
        with pytest.raises(InboxFull) as of_all:
            await here.store.commit(PutMessage("quiet", "more", "{}", 1, waiting_max=3))
        assert (of_all.value.company, of_all.value.limit) == (None, 3)
        await here.store.commit(PutMessage("loud", "m0", "{}", 1, of_company_max=2))
        assert here.contents() == before
        await here.store.commit(AnswerMessages([MessageAnswer(1, 5, "{}")]))
        await here.store.commit(PutMessage("loud", "more", "{}", 1, waiting_max=3, of_company_max=2))


async def test_what_waits_is_listed_by_arrival_and_what_was_answered_from_the_last(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        for company, key in (("b", "1"), ("a", "2"), ("b", "3"), ("c", "4")):
            await put(here, company, key)

        async def waiting(company: str | None = None, limit: int = 10) -> list[str]:
            return [message.id for message in await here.store.fetch(ListWaiting(company, limit))]

        assert await waiting() == ["1", "2", "3", "4"]
        assert await waiting("b") == ["1", "3"]
        assert await waiting(limit=1) == ["1"]
        assert await here.store.fetch(ListAddressed()) == ("a", "b", "c")
        await here.store.commit(AnswerMessages([MessageAnswer(1, 5, "{}"), MessageAnswer(4, 6, "{}")]))
        assert await waiting() == ["2", "3"]
        assert await here.store.fetch(ListAddressed()) == ("a", "b")
        answered = await here.store.fetch(ListAnswered(None, 10))
        assert [message.id for message in answered] == ["4", "1"]
        of_b = await here.store.fetch(ListAnswered("b", 10))
        assert [message.id for message in of_b] == ["1"]


async def test_the_next_messages_are_taken_in_rounds_over_the_companies(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        for company, count in (("a", 4), ("b", 1), ("c", 3)):
            for number in range(count):
                await put(here, company, f"{number}", '"12345678"')

        async def taken(query: NextMessages) -> str:
            return "".join(message.company for message in (await here.store.fetch(query)).messages)

        assert await taken(NextMessages((), 3, 10)) == "abcacac"
        assert await taken(NextMessages(("c",), 3, 10)) == "abaa"
        assert await taken(NextMessages((), 3, 4)) == "abca"
        assert await taken(NextMessages((), 3, 10, chars_max=15)) == "ab"
        assert await taken(NextMessages((), 3, 10, chars_max=0)) == "a", "at least one"


async def test_nothing_is_looked_for_while_nobody_else_has_written(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        await put(here, "acme", "own")
        first = await here.store.fetch(NextMessages((), 3, 10))
        assert [message.id for message in first.messages] == ["own"]
        again = await here.store.fetch(NextMessages((), 3, 10, known=first.version))
        assert (again.version, again.messages) == (first.version, ())
        async with open_beside(here.path, busy_s=5) as other:
            await other.commit(PutMessage("acme", "theirs", "{}", 1))
            assert await other.fetch(FindMessage("acme", "own")) == first.messages[0]
        changed = await here.store.fetch(NextMessages((), 3, 10, known=first.version))
        assert [message.id for message in changed.messages] == ["own", "theirs"]


async def test_old_answers_go_from_the_oldest_and_what_waits_stays(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        assert await here.store.fetch(FindOldestAnswer()) is None
        for number in range(1, 5):
            await put(here, "acme", f"m{number}")
        answers = [MessageAnswer(1, 7, "{}"), MessageAnswer(2, 5, "{}"), MessageAnswer(3, 6, "{}")]
        await here.store.commit(AnswerMessages(answers))
        assert await here.store.fetch(FindOldestAnswer()) == 5
        assert await here.store.commit(PruneAnswered(7, 1)) == 1
        assert await here.store.fetch(FindOldestAnswer()) == 6
        assert await here.store.commit(PruneAnswered(7, 10)) == 1
        assert [message.id for message in await here.store.fetch(ListAnswered(None, 10))] == ["m1"]
        assert [message.id for message in await here.store.fetch(ListWaiting(None, 10))] == ["m4"]
