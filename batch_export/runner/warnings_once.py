"""What goes wrong without harm to a cell, told once a run. Texts come from any thread or child."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Warnings:
    """Passes each text on once, whatever thread or child it comes from."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def tell(self, text: str) -> None:
        """Passes a text on, unless it was before."""
        with self._lock:
            if text in self._told:
                return
            self._told.add(text)
        self._tell(text)
