"""Sending a message to the host: send it, wait for the answer, print the answer as a sentence.

The command does nothing itself. It leaves a message in the inbox of the database; the process that runs the
database carries it out and writes the answer beside it. So the command may be interrupted at any time: given
again under the same message id, it finds the answer that is there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import attrs
import trio

from actors import Inbox, InboxFull, Letter, Message, NotADatabase, TurnkeeperError, open_inbox
from actors.cli.advice import command_line
from actors.cli.letters import letter_facts
from actors.cli.message_commands import COMMAND_OF
from actors.cli.options import SendOptions
from actors.cli.output import Output, complain, present_ms
from actors.cli.read import require_company
from actors.sentences import describe_reason

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 1
EXIT_NOT_SENT: Final = 3
EXIT_UNANSWERED: Final = 4
LOOK_S: Final = 0.05


async def send(options: SendOptions, out: Output) -> int:
    """Send and wait; returns the exit status. With ``--later``, what may be the first word to a company may also be
    the first to a database: it is created.

    Raises `CompanyNotThere`, `InvalidMessage`, `InvalidName`, `InvalidJson`, `PlanError`, `MessageConflict`
    and what `open_inbox` raises: mistakes in the arguments. Nothing was sent then.
    """
    message = options.command.message(options.given)
    create = options.later and options.command.founds
    try:
        async with open_inbox(options.db, create=create) as inbox:
            return await _Sending(options, message, inbox, out).carry_out()
    except NotADatabase as error:
        if error.absent and options.command.founds:
            complain(f"{error}. Create one with run, or add --later to create it")
            return _not_sent(options, out)
        raise


def _not_sent(options: SendOptions, out: Output) -> int:
    _tell(options, out, "not_sent", None)
    return EXIT_NOT_SENT


def _tell(options: SendOptions, out: Output, outcome: str, letter: Letter | None) -> None:
    """The outcome for programs."""
    if options.json:
        about = {"company": options.given.company, "id": None} if letter is None else letter_facts(letter)
        out.json({"outcome": outcome, **about})


@attrs.frozen
class _Sending:
    options: SendOptions
    message: Message[Any]
    inbox: Inbox
    out: Output

    @property
    def company(self) -> str:
        return self.options.given.company

    async def carry_out(self) -> int:
        if not self.options.command.founds:
            await require_company(self.inbox, self.company, await self.inbox.waited_for())
        host = self.inbox.owner is not None
        if not host and not self.options.later:
            complain(
                f"no process runs {self.options.db}: nothing was sent. Start one with run, or add --later: "
                "then the next one carries it out"
            )
            return _not_sent(self.options, self.out)
        try:
            id = await self.inbox.send(self.company, self.message, id=self.options.message_id)
        except InboxFull as error:
            complain(str(error))
            return _not_sent(self.options, self.out)
        letter = await self._wait(id, self.options.timeout_s if host else 0.0)
        if not letter.waiting:
            return await self._answered(letter, host)
        if host and self.options.timeout_s > 0:
            return self._unanswered(letter)
        self._tell("sent", letter)
        if not self.options.json:
            who = "the process" if host else "the next process"
            self.out.line(f"sent: {who} that runs this database carries it out (message {id})")
        return EXIT_DONE

    async def _wait(self, id: str, timeout_s: float) -> Letter:
        """The message when it is answered, or as it stands when the time is over."""
        with trio.move_on_after(timeout_s):
            while (letter := await self._find(id)).waiting:
                await trio.sleep(LOOK_S)
            return letter
        return await self._find(id)

    async def _find(self, id: str) -> Letter:
        letter = await self.inbox.find(self.company, id)
        assert letter is not None, "it is kept for days"
        return letter

    # --- what is printed ------------------------------------------------------------------------------------

    async def _answered(self, letter: Letter, host: bool) -> int:
        if letter.error is not None:
            self._tell("refused", letter)
            complain(str(letter.error))
            for step in self._instead(letter.error, host):
                complain(f"instead: {step}")
            return EXIT_REFUSED
        self._tell("done", letter)
        if not self.options.json:
            self.out.line(await self._sentence(letter.reply))
        return EXIT_DONE

    def _unanswered(self, letter: Letter) -> int:
        self._tell("unanswered", letter)
        look = command_line(("inbox",), self.options.db)
        complain(
            f"not answered yet after {self.options.timeout_s:g} s: message {letter.id} still waits and is "
            f"carried out when the process gets to it. Look with: {look}"
        )
        return EXIT_UNANSWERED

    async def _sentence(self, reply: Any) -> str:
        command, given = self.options.command, self.options.given
        task = given.task if command.about == "task" else getattr(reply, "id", None)
        subject = self.company if task is None else f"{self.company}/{task}"
        said = f"{subject} {command.said(given, reply)}"
        if command.then and task is not None:
            with suppress(TurnkeeperError):  # it is done; this is only about where the task stands by now
                status = await self.inbox.company(self.company).status(task)
                for reason in status.reasons[:1]:
                    said += f"; {describe_reason(reason, company=self.company, now_ms=present_ms())}"
        note = getattr(reply, "note", None)
        return f"{said}. {note}" if note else f"{said}."

    def _instead(self, error: TurnkeeperError, host: bool) -> list[str]:
        """Commands that would do instead, as they can be pasted."""
        address = f"{self.company}/{self.options.given.task}"
        commands = [COMMAND_OF[name] for name in getattr(error, "advice", ()) if name in COMMAND_OF]
        return [
            command_line((command.name, address, *command.required_words), self.options.db, host=host)
            for command in commands
            if command.about == "task"
        ]

    def _tell(self, outcome: str, letter: Letter | None) -> None:
        _tell(self.options, self.out, outcome, letter)
