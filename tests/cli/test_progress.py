"""What `run` shows: bars on a terminal, lines elsewhere, JSON for programs; and it works on when nobody reads it."""

from __future__ import annotations

import builtins
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from actors.cli.outcome import Tally
from actors.cli.output import Output
from actors.cli.progress import COMPANIES_SHOWN, JsonView, LineView, LiveView, open_view
from actors.events import Event
from actors.messages.views import WorkState

NOW_MS = 1_700_000_000_000
FAILED = Event(
    7, "acme", 3, NOW_MS, "attempt.failed", task="[red]a\x1b", run=1, node="n", attempt=1, reason="boom"
)
ROUTINE = Event(8, "acme", 4, NOW_MS, "run.admitted", task="a", run=1)
STARTED = Event(9, "acme", 5, NOW_MS, "attempt.started", task="a", run=1, node="n", attempt=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_lines_leave_out_routine_and_escape_what_came_from_outside() -> None:
    stream = io.StringIO()
    with open_view(stream, json=False) as view:
        assert isinstance(view, LineView)
        view.event(FAILED)
        view.event(ROUTINE)
        view.note("a note")
        view.tallies({"acme": Tally({WorkState.COMPLETED: 1})})
        view.summary(["the end"], {})
    (event, *rest) = stream.getvalue().splitlines()
    assert event.endswith("  acme/[red]a\\x1b: attempt 1 of n failed: boom")
    assert rest == ["a note", "", "the end"]


def test_json_is_every_event_and_a_summary_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    with open_view(stream, json=True) as view:
        assert isinstance(view, JsonView)
        view.event(FAILED)
        view.event(ROUTINE)
        view.note("a note")
        view.summary(["the end"], {"exit_status": 0})
    first, second, last = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (Event(**first), Event(**second)) == (FAILED, ROUTINE)
    assert last == {"summary": {"exit_status": 0}}
    assert capsys.readouterr().err == "turnkeeper: a note\n"


def test_a_terminal_gets_a_bar_for_each_company_and_lines_for_what_goes_wrong(terminal: Terminal) -> None:
    with open_view(terminal, json=False) as view:
        assert isinstance(view, LiveView)
        states = {WorkState.COMPLETED: 3, WorkState.RUNNING: 1, WorkState.FAILED: 2}
        view.event(FAILED)
        view.event(STARTED)
        view.tallies({"[bold]acme\x1b": Tally(states, ("report",)), "beta": Tally({})})
        view.summary(["the end"], {})
    shown = terminal.getvalue()
    assert "[bold]acme\\x1b" in shown
    assert "3/6" in shown
    assert "1 running, 2 failed: report" in shown
    assert "acme/[red]a\\x1b: attempt 1 of n failed: boom" in shown
    assert "starts" not in shown
    assert shown.endswith("\nthe end\n")


@pytest.mark.parametrize("json", [False, True])
def test_a_warning_goes_to_standard_error_alone(json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with open_view(stream, json=json) as view:
        view.warn("the disk is slow")
    assert (stream.getvalue(), capsys.readouterr().err) == ("", "turnkeeper: the disk is slow\n")


def test_a_terminal_shows_a_warning_above_its_bars_only_if_it_is_standard_error_too(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", error)
        with open_view(terminal, json=False) as view:
            assert isinstance(view, LiveView)
            view.warn("the disk is slow")
        assert ("the disk is slow" in error.getvalue()) is not error.isatty()
        assert ("the disk is slow" in terminal.getvalue()) is error.isatty()


def test_many_companies_share_a_screen(terminal: Terminal) -> None:
    tallies = {f"c{n}": Tally({WorkState.COMPLETED: 1}) for n in range(COMPANIES_SHOWN + 5)}
    with open_view(terminal, json=False) as view:
        view.tallies(tallies)
        view.tallies(tallies)
    last = terminal.getvalue().rpartition("5 more")[2]
    assert "5/5" in last
    assert f"c{COMPANIES_SHOWN} " not in terminal.getvalue()


def test_a_terminal_without_rich_gets_lines_and_is_told_why(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find: Callable[..., Any] = builtins.__import__

    def without_rich(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("rich"):
            raise ImportError(name)
        return find(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    with open_view(terminal, json=False) as view:
        assert isinstance(view, LineView)
    assert "pip install 'turnkeeper[cli]'" in capsys.readouterr().err


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with open_view(terminal, json=False) as view:
        assert isinstance(view, LineView)


def test_a_reader_that_has_gone_ends_the_output_and_raises_nothing() -> None:
    out = Output(Broken())
    view = LineView(out)
    view.event(FAILED)
    view.summary(["the end"], {})
    assert out.broken


def test_a_terminal_that_has_gone_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenTerminal(Broken):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    with open_view(BrokenTerminal(), json=False) as view:
        view.event(FAILED)
        view.tallies({"acme": Tally({WorkState.COMPLETED: 1})})
        view.summary(["the end"], {})
        assert isinstance(view, LiveView)
