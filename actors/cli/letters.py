"""Messages in the inbox, for people and for programs."""

from __future__ import annotations

import json
from typing import Any, Final

import attrs

from actors import Inbox, Letter, Submit, SubmitMany, TurnkeeperError
from actors.cli.arguments import TaskName
from actors.cli.message_commands import COMMAND_OF
from actors.sentences import moment, shortened

LOOKED_MAX: Final = 100_000
"""More than an inbox holds."""
_SUBJECTS: Final = ("task", "id", "title", "goal", "name")
"""The field that says what a message is about: the first of these that it has."""


def letter_line(letter: Letter, now_ms: int) -> str:
    """What became of it, what it asks for, when it was sent."""
    outcome = "waits" if letter.waiting else "done" if letter.error is None else "refused"
    because = f": {shortened(str(letter.error))}" if letter.error is not None else ""
    sent = f"sent at {moment(letter.sent_ms, now_ms)}, message {letter.id}"
    return f"{outcome:<7}  {letter.company}: {_asks_for(letter)}, {sent}{because}"


def _asks_for(letter: Letter) -> str:
    """The command and what it is about."""
    if letter.message is None:
        return f"not a message ({shortened(letter.text, 40)})"
    kind = type(letter.message).__name__
    name = COMMAND_OF[kind].name if kind in COMMAND_OF else kind
    subjects = (getattr(letter.message, field, None) for field in _SUBJECTS)
    subject = next((str(one) for one in subjects if one is not None), "")
    return f"{name} {shortened(subject, 60)}".rstrip()


async def waiting_submit(inbox: Inbox, name: TaskName) -> Letter | None:
    """The message that will submit this task, if it still waits."""
    letters = await inbox.waiting(company=name.company, limit=LOOKED_MAX)
    return next((letter for letter in letters if name.task in _submitted_ids(letter)), None)


def _submitted_ids(letter: Letter) -> list[str | None]:
    message = letter.message
    if isinstance(message, SubmitMany):
        return [task.id for task in message.tasks]
    return [message.id] if isinstance(message, Submit) else []


def letter_facts(letter: Letter) -> dict[str, Any]:
    """A message and its answer for programs. A message that cannot be read is ``null``."""
    return {
        "company": letter.company,
        "id": letter.id,
        "message": None if letter.message is None else json.loads(letter.text)["message"],
        "sent_ms": letter.sent_ms,
        "answered_ms": letter.answered_ms,
        "reply": _reply_facts(letter.reply),
        "error": None if letter.error is None else _error_facts(letter.error),
    }


def _reply_facts(reply: object) -> Any:
    if isinstance(reply, tuple):
        return [_reply_facts(one) for one in reply]
    return attrs.asdict(reply) if attrs.has(type(reply)) else reply  # type: ignore[arg-type]


def _error_facts(error: TurnkeeperError) -> dict[str, Any]:
    """Its class, its text, and the messages that would do instead."""
    return {"kind": type(error).__name__, "text": str(error), "advice": list(getattr(error, "advice", ()))}
