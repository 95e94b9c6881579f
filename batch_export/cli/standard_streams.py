"""Standard input, output and error as the shell left them: closed ones are opened, and full ones let go of.

Nothing arrives, and what leaves is the reason why output cannot be written; messages that cannot be are dropped.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

_FIRST_OF_OTHERS = 3


def open_closed_ones() -> None:
    """Leads what the shell closed (`>&-`) to nowhere, so that no file of ours gets the number of a standard stream."""
    for number in range(_FIRST_OF_OTHERS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    # Python has None for a stream that was closed when it began.
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def why_unwritable(error: Exception) -> str:
    """Returns why standard output takes no more, in the system's words; empty when it does.

    Args:
        error: what was raised; an empty line is written to find out, if that may have been standard output's.
    """
    if not isinstance(error, OSError) or error.filename is not None:
        return ""
    try:
        print(flush=True)
    except OSError as refusal:
        return refusal.strerror or str(refusal)
    return ""


class _Forgiving:
    """Standard error which drops what there is no room for: a run does not end for a line about how far it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes, or drops the text."""
        with _dropping(self._stream):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Writes what was kept, or drops it."""
        with _dropping(self._stream):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's."""
        return getattr(self._stream, name)


@contextlib.contextmanager
def _dropping(stream: TextIO) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # nobody reads any more
        raise
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def errors_forgiven() -> Iterator[None]:
    """While open, a full disk behind standard error ends nothing: from then on it leads nowhere."""
    before, made = sys.stderr, cast(TextIO, _Forgiving(sys.stderr))
    sys.stderr = made
    try:
        yield
    finally:
        if sys.stderr is made:
            sys.stderr = before


def let_go() -> None:
    """Leads what can no longer be written to nowhere, so that Python does not complain of it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
