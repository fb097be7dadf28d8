"""How far the runtime's end has come. Set by `Closing`, read by whoever must not begin anything new."""

from __future__ import annotations

import attrs
import trio


@attrs.define
class Shutdown:
    """``draining``: nothing new starts. ``closing``: draining is over, messages are refused and a child that starts
    sees it before it does any work. ``hurry`` is set to skip what is left of the drain. ``interrupted``: labels of
    the attempts whose interruption was committed while closing.
    """

    draining: bool = False
    closing: bool = False
    hurry: trio.Event = attrs.field(factory=trio.Event)
    interrupted: set[str] = attrs.field(factory=set)
