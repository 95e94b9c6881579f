"""For whom threads work in which nobody's code is to be seen: those of a pool, which call a function of Python's own or
a library's.

A thread's first frame arrives; what is known of the code that started it leaves. It counts as that code.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType

_FIRST = threading.Thread._bootstrap.__code__  # type: ignore[attr-defined]


class StartedThreads:
    """Remembers who started the threads of this process.

    Args:
        look: what is to be known of the code that runs in a frame.
    """

    def __init__(self, look: Callable[[FrameType | None], frozenset[str]]) -> None:
        self._look = look
        self._starters: weakref.WeakKeyDictionary[threading.Thread, frozenset[str]] = weakref.WeakKeyDictionary()

    def watch(self) -> None:
        """Starts watching; there is no way to stop."""
        start = threading.Thread.start

        @functools.wraps(start)
        def started(thread: threading.Thread) -> None:
            self._starters[thread] = self._look(sys._getframe(1))
            start(thread)

        threading.Thread.start = started  # type: ignore[assignment, method-assign]  # Python raises no event for it

    def of(self, first: FrameType | None) -> frozenset[str]:
        """What is known of who started the thread.

        Args:
            first: the frame behind which there is none.
        """
        if first is None or first.f_code is not _FIRST:
            return frozenset()
        thread = first.f_locals.get("self")
        return self._starters.get(thread, frozenset()) if isinstance(thread, threading.Thread) else frozenset()
