"""The arguments that several commands share: what a task is made of, and when a schedule fires."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import Final

from actors import Misfire, Mode, Overlap
from actors.cli.arguments import (
    Argument,
    Arguments,
    OneOf,
    integer,
    json_value,
    moment_or_none,
    number,
    option,
    priority,
    switch,
)

TITLE: Final = "what the task is, for people"
PAYLOAD: Final = option("--payload", "JSON", "what its handlers are given", type=json_value)
SCHEDULE: Final = Argument("name", metavar="NAME", help="the name of the schedule")

WORK: Final[Arguments] = (
    OneOf(
        option("--run", "LINE", "what it does: a line for the shell"),
        option("--handler", "NAME", "what it does: a handler of the host"),
        option("--graph", "NAME", "what it does: a graph of the company"),
    ),
    PAYLOAD,
    option("--priority", "N", "lower goes first; the default of a new task is 2", type=priority),
    Argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        help="manual: it waits until it is started; step: each of its steps waits",
    ),
    option("--depends-on", "ID", "a task that must be completed first; repeatable", action="append"),
    option("--goal", "NAME", "a label by which tasks can be stopped together"),
    option("--budget", "N", "how much all its runs may spend, in units of the host", type=integer),
    option("--tries-max", "N", "tries of each of its steps, including the first", type=integer),
    option("--not-before", "TIME", "ISO 8601 with an offset, or none", type=moment_or_none),
)
"""What a task is made of: the same for a new task, for one that is changed, and for one that a schedule submits."""


def _unset(flag: str, field: str, value: object, help: str) -> Argument:
    return switch(flag, help, dest=field, action="store_const", const=value)


EDIT: Final[Arguments] = (
    *WORK,
    option("--title", "TITLE", TITLE),
    Argument("--fail-fast", action=BooleanOptionalAction, help="the first step that fails stops the others"),
    _unset("--no-budget", "budget", None, "no limit of its own"),
    _unset("--no-goal", "goal", None, "no goal"),
    _unset("--no-depends-on", "depends_on", [], "no dependencies"),
)

TIMES: Final = ("name", "cron", "every", "zone", "overlap", "misfire", "jitter_s")
SET_SCHEDULE: Final[Arguments] = (
    SCHEDULE,
    Argument("title", metavar="TITLE", help="what each of its tasks is, for people"),
    OneOf(
        option("--cron", "TEXT", 'five fields, as in "30 7 * * 1-5"'),
        option("--every", "SECONDS", "the time between two fires, beginning now", type=number),
    ),
    option("--zone", "NAME", "the time zone of --cron, as in Europe/Berlin (default: UTC)"),
    Argument(
        "--overlap",
        choices=[one.value for one in Overlap],
        help="what to do while an earlier task is not settled",
    ),
    Argument(
        "--misfire", choices=[one.value for one in Misfire], help="what to do about fires that were missed"
    ),
    option("--jitter", "SECONDS", "delay each fire by up to this long", dest="jitter_s", type=number),
    *WORK,
)
