"""How `run` shows what happens: bars on a terminal, lines elsewhere, JSON for programs.

The bars need rich (the extra ``cli``). Without it a terminal gets the lines too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

from actors import KINDS, Event
from actors.cli.events import event_json, event_sentence
from actors.cli.outcome import Tally
from actors.cli.output import Output, complain
from actors.sentences import clock, plain

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

COMPANIES_SHOWN: Final = 20
"""Bars on one screen. The companies after them share one."""

_ROUTINE: Final = frozenset(
    {
        "process.started",
        "process.stopped",
        "company.graph_defined",
        "company.limits_changed",
        "company.budget_changed",
        "attempt.spent",
        "task.submitted",
        "run.admitted",
    }
)
"""Kinds that the lines leave out: they say what the plan says, or what the next line says too."""


class View:
    """Where `run` sends what it has to show; this one shows nothing but diagnoses and notes, on standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def event(self, event: Event) -> None:
        """Something happened."""

    def note(self, text: str) -> None:
        """Something that `run` itself has to say, in one line."""
        complain(text)

    def warn(self, text: str) -> None:
        """A diagnosis, in one line: to standard error."""
        complain(text)

    def tallies(self, tallies: Mapping[str, Tally]) -> None:
        """Where every company stands now."""

    def summary(self, lines: list[str], facts: Mapping[str, Any], /) -> None:
        """The end: for people, and for programs."""


class LineView(View):
    """A line for each event worth one."""

    def event(self, event: Event) -> None:
        if event.kind not in _ROUTINE:
            self._out.line(f"{clock(event.at_ms)[11:]}  {event_sentence(event)}")

    def note(self, text: str) -> None:
        self._out.line(text)

    def summary(self, lines: list[str], _facts: Mapping[str, Any], /) -> None:
        self._out.lines(["", *lines])


class JsonView(View):
    """Every event as one line of JSON on standard output, then ``{"summary": …}``; notes go to standard
    error."""

    def event(self, event: Event) -> None:
        self._out.json(event_json(event))

    def summary(self, _lines: list[str], facts: Mapping[str, Any], /) -> None:
        self._out.json({"summary": dict(facts)})


class LiveView(View):
    """A bar for each company, and above the bars a line for what goes wrong. A warning stands there too where standard
    error is the same terminal.
    """

    def __init__(self, progress: Progress, out: Output) -> None:
        super().__init__(out)
        self._progress = progress
        self._bars: dict[str, TaskID] = {}
        self._more: TaskID | None = None

    def event(self, event: Event) -> None:
        kind = KINDS.get(event.kind)
        if kind is None or kind.level != "info":
            self.note(event_sentence(event))

    def note(self, text: str) -> None:
        from rich.text import Text

        with _broken_terminal():
            self._progress.console.print(Text(plain(text)), soft_wrap=True)

    def tallies(self, tallies: Mapping[str, Tally]) -> None:
        with _broken_terminal():
            for company, tally in list(tallies.items())[:COMPANIES_SHOWN]:
                if company not in self._bars:
                    self._bars[company] = self._progress.add_task(plain(company), doing="")
                self._show(self._bars[company], tally.completed, tally.total, _doing(tally))
            rest = list(tallies.values())[COMPANIES_SHOWN:]
            if rest:
                if self._more is None:
                    self._more = self._progress.add_task(f"{len(rest)} more", doing="")
                done, total = sum(one.completed for one in rest), sum(one.total for one in rest)
                self._show(self._more, done, total, "")
            self._progress.refresh()

    def _show(self, bar: TaskID, completed: int, total: int, doing: str) -> None:
        self._progress.update(bar, completed=completed, total=max(total, 1), doing=doing)

    def summary(self, lines: list[str], _facts: Mapping[str, Any], /) -> None:
        with _broken_terminal():
            self._progress.stop()
        self._out.lines(["", *lines])


def _doing(tally: Tally) -> str:
    words = tally.words()
    executing = ", ".join(plain(task) for task in tally.executing)
    return f"{words}: {executing}" if words and executing else words


@contextlib.contextmanager
def _broken_terminal() -> Iterator[None]:
    """A terminal that was closed shows nothing more; the work goes on."""
    with contextlib.suppress(OSError):
        yield


@contextlib.contextmanager
def open_view(stream: TextIO, *, json: bool) -> Iterator[View]:
    """The view that fits the stream, until the block is left."""
    out = Output(stream)
    if json:
        yield JsonView(out)
        return
    progress = _bars(stream) if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb" else None
    if progress is None:
        yield LineView(out)
        return
    with _broken_terminal():
        progress.start()
    try:
        yield LiveView(progress, out)
    finally:
        with _broken_terminal():
            progress.stop()


def _bars(stream: TextIO) -> Progress | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column
    except ImportError:
        complain("progress bars need rich (pip install 'turnkeeper[cli]'): showing lines instead")
        return None

    class TerminalMayGo(Console):
        def on_broken_pipe(self) -> None:
            """rich would end the process here; the work goes on."""

    name = Column(no_wrap=True, overflow="ellipsis", max_width=24)
    doing = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[doing]}", markup=False, table_column=doing),
        console=TerminalMayGo(file=stream, highlight=False),
        auto_refresh=False,
        redirect_stderr=sys.stderr.isatty(),
        expand=True,
    )
