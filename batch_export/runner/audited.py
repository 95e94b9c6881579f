"""One hook for Python's audit events, for all of this process that listen to some of them.

Listeners arrive with the names of their events. Python calls a hook for every event, millions of times while a model is
captured (each look at a function's code is one), and nearly none of them is one that somebody listens to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

Listener = Callable[[str, tuple[Any, ...]], None]
"""Takes an event and its arguments; two frames above it is the code that raised the event."""

_LISTENERS: dict[str, list[Listener]] = {}


def listen(events: Iterable[str], listener: Listener) -> None:
    """Calls a listener at each of these events; there is no way to stop."""
    if not _LISTENERS:
        sys.addaudithook(_hook)
    for event in events:
        _LISTENERS.setdefault(event, []).append(listener)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _LISTENERS:
        for listener in _LISTENERS[event]:
            listener(event, arguments)
