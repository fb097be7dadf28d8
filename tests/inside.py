"""The one door to a runtime's inner parts, for tests that look behind the facade."""

from __future__ import annotations

from actors.host import Runtime
from actors.runtime.kernel import Kernel


def inside(runtime: Runtime) -> Kernel:
    """The parts of a runtime."""
    return runtime._kernel
