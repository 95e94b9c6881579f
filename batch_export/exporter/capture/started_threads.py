"""Threads that forward starts: torch's capture follows the one that it runs in, and two at once disturb what it keeps.

Nothing arrives. Leaves: a context in which an error of a capture that has met such a thread says so, whichever of
torch's own checks failed first: that hangs on how the threads take turns.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from batch_export.exporter.capture.guard_sources import users_frames
from batch_export.exporter.capture.written_constants import UnfollowedWriteError


@contextlib.contextmanager
def threads_told() -> Iterator[None]:
    """Within, what a thread that the model starts makes of a capture is an error with the line that starts it.

    Raises:
        UnfollowedWriteError: in place of an error of another kind.
    """
    here, lines = threading.get_ident(), list[str]()
    own: Any = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if threading.get_ident() == here:
            lines.extend(f"{file}:{line}" for file, line in list(users_frames())[:1])
        own(self)

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        yield
    except UnfollowedWriteError:
        raise
    except Exception as error:
        if not lines:
            raise
        raise UnfollowedWriteError(
            "a tensor is made by a thread that forward starts", lines[0], "keep threads out of forward"
        ) from error
    finally:
        threading.Thread.start = own  # type: ignore[method-assign]
