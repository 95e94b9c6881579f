"""Processes of an earlier start of the same run, killed but not gone yet: nobody goes on with the run before they are.

The forkserver and the keepers have the forkserver's log for their output, from before their first instruction to their
end. The log is locked through that very descriptor, so the kernel lets go of the lock when the last of them is gone.
"""

from __future__ import annotations

from pathlib import Path

from batch_export.errors import RunError
from batch_export.store.locks import take_within

_LIMIT_S = 60.0


def mark(handle: int, log: Path) -> None:
    """Locks the log for all who inherit this descriptor of it, as soon as no earlier process has it any more.

    Raises:
        RunError: earlier processes do not end.
    """
    if not take_within(handle, _LIMIT_S):
        raise RunError(
            f"processes of an earlier start of this run have been killed and do not end; they have {log} open. "
            "Next step: end them, or restart the machine, then run `batch-export resume`"
        )


def wait_for_their_end(log: Path) -> None:
    """Returns when no process of an earlier start of the run is left.

    Raises:
        RunError: they do not end.
    """
    if log.exists():
        with log.open("ab") as stream:
            mark(stream.fileno(), log)
