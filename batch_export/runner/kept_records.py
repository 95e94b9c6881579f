"""Which records of an interrupted run stand on something that is no longer as it was: a file, a variable, a package.

Records and the store arrive, a sentence leaves. What decides the keys is compared elsewhere (`surroundings.py`); this
is what results were seen to use besides.
"""

from __future__ import annotations

from collections.abc import Iterable

from batch_export.digest import Digest
from batch_export.nouns import counted
from batch_export.record import Record
from batch_export.sources.recorded import changes
from batch_export.store import Store, read_entry

_SHOWN = 3
_BY_ANOTHER_RUN = "another run has made its results again"


def told_of_outdated(records: Iterable[Record], store: Store) -> str:
    """Returns a sentence on the records that would be others now; empty when there are none.

    Args:
        records: those that are kept.
        store: where their results lie, as the run that made them has opened it.
    """
    known: dict[tuple[Digest, bool], str] = {}
    found: dict[str, str] = {}
    for record in records:
        for action in record.actions:
            key, own = action.key, action.origin == "ran"
            if (key, own) not in known:
                known[key, own] = _reason(key, own, store)
            if known[key, own]:
                found.setdefault(record.cell.name, known[key, own])
    if not found:
        return ""
    shown = ", ".join([*found][:_SHOWN])
    more = f" and {counted(len(found) - _SHOWN, 'more cell')}" if len(found) > _SHOWN else ""
    reasons = [*dict.fromkeys(found.values())]
    why = "; ".join(reasons[:_SHOWN]) + ("; ..." if len(reasons) > _SHOWN else "")
    return (
        f"{counted(len(found), 'kept record')} {'stands' if len(found) == 1 else 'stand'} on what has changed since: "
        f"{shown}{more} ({why}). "
        "Next step: run the sweep anew for records of what is there now; what is as it was comes from the store"
    )


def _reason(key: Digest, own: bool, store: Store) -> str:
    if not key.isalnum():
        return ""
    found = store.find(key, remote=False)
    if found is not None:
        return _BY_ANOTHER_RUN if own and store.run and not found.own else ""
    entry = read_entry(store.entry_path(key))
    if entry is None:
        return ""  # it has been removed, or was never stored: there is nothing to compare with
    if own and store.run and entry.run != store.run:
        return _BY_ANOTHER_RUN
    return next(changes(entry.result, store.source_roots, store.root), "")
