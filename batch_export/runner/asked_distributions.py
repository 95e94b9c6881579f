"""Which distributions the user's code asks `importlib.metadata` for: a version, entry points, whether one is there.

Names and folders leave. Nothing of them need be imported for the answer to decide what a model is. What packages ask
for when they are imported is not counted: many look all of them over, and nothing in the model goes by it.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable
from typing import Any

from batch_export.runner.askers import Askers
from batch_export.sources import distributions


class AskedDistributions:
    """Watches this process.

    Args:
        askers: tell whose questions count.
    """

    def __init__(self, askers: Askers) -> None:
        self._askers = askers
        self._asked: set[str] = set()
        self.folders: set[str] = set()
        """Where metadata was looked for; the model may have put them on the path itself."""

    def watch(self) -> None:
        """Starts watching; there is no way to stop.

        Whatever is asked of `importlib.metadata` goes by `Distribution.discover`. The finder of the standard library is
        not asked any more once the package `importlib_metadata` has put its own in its place.
        """
        kinds: list[Any] = [importlib.metadata.Distribution]
        if "importlib_metadata" in sys.modules:
            kinds.append(sys.modules["importlib_metadata"].Distribution)
        for kind in kinds:
            kind.discover = staticmethod(self._noting(kind.discover))

    def _noting(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def discover(*args: Any, **given: Any) -> Any:
            if self._askers.is_users_own(sys._getframe(1)):
                context = given.get("context") or (args[0] if args else None)
                name = given.get("name", getattr(context, "name", None))
                self._asked.add(distributions.ALL if name is None else distributions.normal(name))
                path = given.get("path", getattr(context, "path", None))
                self.folders.update(map(os.path.abspath, sys.path if path is None else path))
            return own(*args, **given)

        return discover

    def states(self) -> dict[str, str]:
        """Returns names and present states of what was asked for so far."""
        return {name: distributions.state(name) for name in self._asked}
