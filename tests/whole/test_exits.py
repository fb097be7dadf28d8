"""C58: the process ends within seconds, whichever way it is left, and leaves the file in order."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .processes import a_host, assert_left_in_order, finished, rows, wait_for

EXIT_S = 20.0
"""From the moment at which the process may end until it has. The grace of its handlers is a second, and their threads
take a minute or for ever; the rest is for a machine that is busy with other things.
"""


def _timed(
    child: subprocess.Popen[str], act: Callable[[], None] = lambda: None
) -> tuple[int, list[str], str]:
    began_s = time.monotonic()
    act()
    ended = finished(child)
    took_s = time.monotonic() - began_s
    assert took_s < EXIT_S, f"it took {took_s:.1f} s to end"
    return ended


@pytest.mark.parametrize(
    "what",
    ["normal_end", "normal_end_with_a_thread_left", "cancelled_while_opening", "closing_cancelled"],
)
def test_a_host_that_comes_to_its_end_exits(tmp_path: Path, what: str) -> None:
    """C45 with a thread that does not end."""
    path = tmp_path / "companies.db"
    with a_host(what, path) as child:
        wait_for(child, "leaving")
        status, said, err = _timed(child)
    assert (status, said[-1:], err) == (0, ["end"], "")
    assert_left_in_order(path, closed=True)


def test_a_host_that_fails_after_opening_exits_with_its_own_error_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "companies.db"
    with a_host("exception_after_opening", path) as child:
        wait_for(child, "leaving")
        status, _, err = _timed(child)
    assert status == 1
    assert err.count("Traceback") == 1
    assert err.strip().endswith("RuntimeError: the host's own mistake")
    assert_left_in_order(path, closed=True)
    assert rows(path, "SELECT end, status FROM attempts JOIN nodes USING (company_id, seq)") == [
        ("interrupted", "pending")
    ]


def test_ctrl_c_closes_now_and_costs_the_attempt_nothing(tmp_path: Path) -> None:
    path = tmp_path / "companies.db"
    with a_host("until_a_signal", path) as child:
        wait_for(child, "executing")
        status, _, err = _timed(child, lambda: child.send_signal(signal.SIGINT))
    assert status == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert err.strip().endswith("KeyboardInterrupt")
    # a Ctrl-C can land in a callback of the loop under the bridge; then a write-ahead log stays, which harms nobody
    assert_left_in_order(path, closed=False)
    assert rows(path, "SELECT end, status, tries FROM attempts JOIN nodes USING (company_id, seq)") == [
        ("interrupted", "pending", 0)
    ]


def test_ctrl_c_twice_ends_while_a_handler_takes_its_time(tmp_path: Path) -> None:
    """C45."""
    path = tmp_path / "companies.db"
    with a_host("slow_until_a_signal", path) as child:
        wait_for(child, "executing")
        child.send_signal(signal.SIGINT)
        wait_for(child, "ending")
        status, _, err = _timed(child, lambda: child.send_signal(signal.SIGINT))
    assert status == -signal.SIGINT
    assert "Exception ignored" not in err
    assert "Exception in thread" not in err
    assert_left_in_order(path, closed=False)


def test_a_host_that_does_not_listen_to_sigterm_dies_of_it_and_the_next_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "companies.db"
    with a_host("until_a_signal", path) as child:
        wait_for(child, "executing")
        status, _, err = _timed(child, child.terminate)
    assert (status, err) == (-signal.SIGTERM, "")
    assert_left_in_order(path, closed=False)
    with a_host("until_a_signal", path) as child:
        wait_for(child, "executing")
        assert rows(path, "SELECT number, end FROM attempts ORDER BY number") == [(1, "lost"), (2, None)]
