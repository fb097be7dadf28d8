"""The loggers of Turnkeeper, which are silent until the host configures structlog.

A library must not print, but an unconfigured structlog writes every line to standard output. So all modules
get their loggers here, and whatever is logged before ``structlog.configure`` was called is dropped, at every
level. Afterwards lines go through the host's processors, at the host's levels. Durable events are in the
database's log in either case.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


_SILENT = structlog.wrap_logger(
    structlog.testing.ReturnLogger(),
    processors=[_drop],
    wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),  # below it, methods do nothing
    cache_logger_on_first_use=True,
)


class Logger:
    """A structlog logger once structlog is configured, and one that drops everything before."""

    def __init__(self, name: str) -> None:
        self._configured = structlog.get_logger(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._configured if structlog.is_configured() else _SILENT, name)


def get_logger(name: str) -> Any:
    """The logger of this name. It follows a configuration that comes later."""
    return Logger(name)
