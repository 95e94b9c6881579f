"""Which distributions the user's code asks `importlib.metadata` for: a version, entry points, whether one is there.

Names and folders leave. Nothing of them need be imported for the answer to decide what a model is. What packages ask
for when they are imported is not counted: many look all of them over, and nothing in the model goes by it.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterable
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
        """Starts watching; there is no way to stop."""
        finder: Any = importlib.metadata.MetadataPathFinder
        own = finder.find_distributions

        def found(*context: Any) -> Iterable[importlib.metadata.Distribution]:
            if self._askers.is_users_own(sys._getframe(1)):
                name = context[0].name if context else None
                self._asked.add(distributions.ALL if name is None else distributions.normal(name))
                self.folders.update(map(os.path.abspath, context[0].path if context else sys.path))
            answer: Iterable[importlib.metadata.Distribution] = own(*context)
            return answer

        finder.find_distributions = staticmethod(found)

    def states(self) -> dict[str, str]:
        """Returns names and present states of what was asked for so far."""
        return {name: distributions.state(name) for name in self._asked}
