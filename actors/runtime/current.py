"""Which attempt a piece of code is part of, so that it can be told when it would wait for itself."""

from __future__ import annotations

from contextvars import ContextVar

from .attempts import AttemptRef

current_attempt: ContextVar[AttemptRef] = ContextVar("turnkeeper_attempt")
