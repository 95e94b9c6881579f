"""Who goes down a path step by step to find where it leads (`realpath`), and who wants to know what one path itself is.

Both ask without following links: lstat(2), readlink(2). A process' questions arrive, a yes or no leaves. A way begins
below `/`, and each step lies in the one before it; where a step is a link, the way goes on in a folder above that.
"""

from __future__ import annotations

import os


class WaysDown:
    """Notes on where each thread is on its way."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[str, bool]] = {}

    def is_step(self, task: int, path: str) -> bool:
        """Returns whether a question is a step of a way; ends the thread's way if it is none."""
        folder = os.path.dirname(path)
        last, was_link = self._last.get(task, ("", False))
        if folder == os.sep or (last and (folder == last or path == last)):
            is_step = True
        else:
            is_step = was_link and last.startswith(folder + os.sep)
        if is_step:
            self._last[task] = path, False
        else:
            self._last.pop(task, None)
        return is_step

    def turn(self, task: int) -> None:
        """Notes that the thread's last step is a link."""
        last, _ = self._last[task]
        self._last[task] = last, True
