"""Carrying out a command that steers a host: send its message, wait for the answer, say what a person would.

The command does nothing itself. It leaves a message in the inbox of the database; the process that runs the
database carries it out and writes the answer beside it. So the command may be interrupted at any time, and
given again under the same message id it finds the answer that is there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import attrs
import trio

from actors import Inbox, InboxFull, Letter, Message, TurnkeeperError, open_inbox
from actors.cli.advice import command_line
from actors.cli.output import Output, complain
from actors.cli.parser import SteerOptions
from actors.cli.read import letter_facts, present_ms, require_company
from actors.cli.steering import COMMAND_OF, Command
from actors.sentences import describe_reason, plain

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 1
EXIT_NOT_SENT: Final = 3
EXIT_UNANSWERED: Final = 4
LOOK_S: Final = 0.05


async def steer(options: SteerOptions, out: Output) -> int:
    """Send and wait; returns the exit status.

    Raises `CompanyNotThere`, `InvalidMessage`, `InvalidName`, `InvalidJson`, `PlanError`, `MessageConflict`
    and what `open_inbox` raises: mistakes in the arguments. Nothing was sent then.
    """
    message = options.command.message(options.given)
    async with open_inbox(options.db) as inbox:
        return await _Sending(options, message, inbox, out).carry_out()


@attrs.frozen
class _Sending:
    options: SteerOptions
    message: Message[Any]
    inbox: Inbox
    out: Output

    @property
    def company(self) -> str:
        company: str = self.options.given.company
        return company

    @property
    def command(self) -> Command:
        return self.options.command

    async def carry_out(self) -> int:
        if not self.command.founds:
            await require_company(self.inbox, self.company, await self.inbox.waited_for())
        host = self.inbox.owner is not None
        if not host and not self.options.later:
            self._tell("not_sent", None)
            complain(
                f"no process runs {plain(str(self.options.db))}: nothing was sent. "
                "Start one with run, or add --later: then the next one does it"
            )
            return EXIT_NOT_SENT
        try:
            id = await self.inbox.send(self.company, self.message, id=self.options.message_id)
        except InboxFull as error:
            self._tell("not_sent", None)
            complain(plain(str(error)))
            return EXIT_NOT_SENT
        letter = await self._wait(id, self.options.timeout_s if host else 0.0)
        if not letter.waiting:
            return await self._answered(letter)
        if host and self.options.timeout_s > 0:
            return self._unanswered(letter)
        self._tell("sent", letter)
        if not self.options.json:
            who = "the process" if host else "the next process"
            self.out.line(f"sent: {who} that runs this database does it (message {plain(id)})")
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

    # --- what is said ---------------------------------------------------------------------------------------

    async def _answered(self, letter: Letter) -> int:
        if letter.error is not None:
            self._tell("refused", letter)
            complain(plain(str(letter.error)))
            for step in self._instead(letter.error):
                complain(f"instead: {step}")
            return EXIT_REFUSED
        self._tell("done", letter)
        if not self.options.json:
            self.out.line(await self._sentence(letter.reply))
        return EXIT_DONE

    def _unanswered(self, letter: Letter) -> int:
        self._tell("unanswered", letter)
        look = command_line("inbox", "--db", str(self.options.db))
        complain(
            f"not answered yet after {self.options.timeout_s:g} s: message {plain(letter.id)} still waits, and is "
            f"done when the process gets to it. Look with: {look}"
        )
        return EXIT_UNANSWERED

    async def _sentence(self, reply: Any) -> str:
        task = self.options.given.task if self.command.about == "task" else getattr(reply, "id", None)
        subject = self.company if task is None else f"{self.company}/{task}"
        said = f"{plain(subject)} {self.command.said(self.options.given, reply)}"
        if self.command.then and task is not None:
            with suppress(TurnkeeperError):  # it is done; this is only about where it stands by now
                status = await self.inbox.company(self.company).status(task)
                for reason in status.reasons[:1]:
                    said += f"; {describe_reason(reason, company=self.company, now_ms=present_ms())}"
        note = getattr(reply, "note", None)
        return f"{said}. {plain(note)}" if note else f"{said}."

    def _instead(self, error: TurnkeeperError) -> list[str]:
        """Commands that would do instead, as they can be pasted."""
        steps = []
        for name in getattr(error, "advice", ()):
            command = COMMAND_OF.get(name)
            if command is not None and command.about == "task":
                address = f"{self.company}/{self.options.given.task}"
                words = (command.name, address, *command.needs, "--db", str(self.options.db))
                steps.append(command_line(*words))
        return steps

    def _tell(self, outcome: str, letter: Letter | None) -> None:
        """The outcome for programs."""
        if not self.options.json:
            return
        facts = {"company": self.company, "id": None} if letter is None else letter_facts(letter)
        self.out.json({"outcome": outcome, **facts})
