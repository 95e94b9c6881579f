"""Earlier results of an action that was seen to use something which is another now.

Arrives: where the entry of an action lies. Leaves: the same with an earlier entry in its place, if that holds again.
Who goes from one branch to another and back, or lets two checkouts take turns on one store, has the same keys with
other files behind them; without this each turn would execute again what the turn before last executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from batch_export.errors import StoreError
from batch_export.sources.recorded import CHANGED, PASSING
from batch_export.store.entry import Entry, read_entry
from batch_export.store.files import write_atomic

MOST = 3
"""How many earlier entries of one action are kept."""
_NEVER_AGAIN = frozenset({CHANGED, PASSING})


def places(path: Path) -> list[Path]:
    """Returns where earlier entries of an action lie, or would."""
    return [path.with_name(f"{path.stem}.{number}{path.suffix}") for number in range(1, MOST + 1)]


def key_of(path: Path) -> str:
    """Returns the key of the action whose entry, or earlier entry, lies at a path."""
    return path.name.partition(".")[0]


def keep(path: Path, new: Entry) -> None:
    """Keeps the entry of an action for which a new one is about to be written, if it may hold again.

    What one run executes twice, since its children need not know of one another, is kept once. It takes a free place,
    or that of the earlier entry that was used least recently.

    Args:
        path: of the action's entry.
        new: the entry to come.
    """
    there = read_entry(path)
    if there is None or (new.run and there.run == new.run) or _seen(there) == _seen(new):
        return
    if not _NEVER_AGAIN.isdisjoint(dict(there.result.sources).values()):
        return
    free = min(places(path), key=_last_used)
    try:
        os.replace(path, free)
    except OSError:  # it is for saving time alone
        return


def recall(path: Path, holds: Callable[[Entry], bool], scratch: Path) -> Entry | None:
    """Puts an earlier entry that holds in the place of an action's entry; None where none does, or that fails.

    Args:
        path: of the action's entry.
        holds: whether an entry does.
        scratch: a folder for files that are being written.
    """
    for place in places(path):
        found = read_entry(place)
        if found is None or not holds(found):
            continue
        try:
            now, before = place.read_bytes(), path.read_bytes() if path.exists() else b""
            write_atomic(path, now, scratch)
            if before:
                write_atomic(place, before, scratch)
            else:
                place.unlink(missing_ok=True)
        except (OSError, StoreError):  # who reads the entry itself would read another result
            return None
        return found
    return None


def _seen(entry: Entry) -> tuple[object, ...]:
    result = entry.result
    return result.sources, result.asked, result.packages, result.variables


def _last_used(place: Path) -> int:
    try:
        return place.stat().st_mtime_ns
    except OSError:
        return 0
