"""Turnkeeper, measured through its public surface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio

from tests.bench.ours.big import chain_of, fan_in, graph, message
from tests.bench.ours.companies import active, idle
from tests.bench.ours.drain import backlog, chain, drain, pile, steps
from tests.bench.ours.latency import latency
from tests.bench.ours.memory import waiting
from tests.bench.ours.submit import many, one_at_a_time, senders
from tests.bench.protocol import Values


def _run(task: Callable[..., Any], path: str, **params: Any) -> Values:
    values: Values = trio.run(partial(task, path, **params))
    return values


TASKS: Mapping[str, Callable[..., Values]] = {
    task.__name__: partial(_run, task)
    for task in (
        drain,
        chain,
        steps,
        backlog,
        pile,
        senders,
        many,
        one_at_a_time,
        latency,
        idle,
        active,
        message,
        fan_in,
        chain_of,
        graph,
        waiting,
    )
}
