"""Starting children in this environment or in another one: a launcher for each, made when it is first needed.

Orders arrive, `Child` handles leave. An environment may hold packages that cannot even be imported, which is then for a
child to say of the step that needs them: what cannot be preloaded there is not.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from batch_export.environments.shelf import python_in
from batch_export.errors import RunError
from batch_export.runner.launcher import Child, Launcher, Staying, can_fork
from batch_export.runner.order import Order


class Launchers(Launcher):
    """The launcher of this environment, and those of the ones that orders name; arguments as of `Launcher`."""

    def __init__(
        self,
        logs: Path,
        preload: Sequence[str],
        roots: Sequence[str],
        stop: threading.Event | None = None,
        staying: Staying | None = None,
    ) -> None:
        super().__init__(logs, preload, roots, stop, staying)
        self._logs, self._roots = logs, roots
        self._others: dict[str, Launcher] = {}
        self._others_lock = threading.Lock()

    def launch(self, order: Order) -> Child:
        """Starts a child in the order's environment.

        Raises:
            RunError: the forkserver did not start, or is gone.
            StoreError: the order could not be written.
        """
        return self._other(order.layer).launch(order) if order.layer else super().launch(order)

    def close(self) -> None:
        """Ends the forkservers, and with them every child."""
        super().close()
        for other in list(self._others.values()):
            other.close()

    def _other(self, layer: str) -> Launcher:
        with self._others_lock:
            if layer not in self._others:
                self._others[layer] = self._started(python_in(Path(layer)))
            return self._others[layer]

    def _started(self, python: Path) -> Launcher:
        found = Launcher(self._logs, self._preload, self._roots, self._stop, python=python)
        if not can_fork():
            return found
        try:
            found.start()
        except RunError:
            found.close()
            self._refuse_if_stopped()
            found = Launcher(self._logs, (), self._roots, self._stop, python=python)
        return found
