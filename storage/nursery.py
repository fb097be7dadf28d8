"""A nursery around a caller's block that lets the block's own error out as it is.

Trio wraps whatever leaves a nursery in a group. Inside a context manager of ours that would tell the user
of our children, of which he knows nothing: ``except KeyError`` around ``async with open_runtime(…)`` has to
work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def bare_nursery() -> AsyncIterator[trio.Nursery]:
    """Like `trio.open_nursery`; an error that only the block raised comes out bare, anything more in a group."""
    error: BaseException | None = None
    bare = False
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as exc:
                error = exc
                raise
    except BaseExceptionGroup as group:
        bare = error is not None and group.exceptions == (error,)
        if not bare:
            raise
    if bare and error is not None:
        raise error
