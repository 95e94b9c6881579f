"""Ctrl-C and SIGTERM: told to everyone who watches a child at once. The parent's side only."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def stopping_on_interrupt(stop: threading.Event) -> Iterator[None]:
    """Sets `stop` the moment Ctrl-C comes (or SIGTERM, as at a reboot), so that all supervisors end their children
    while joblib still cleans up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.default_int_handler(number, frame)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
