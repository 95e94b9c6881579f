"""The results that one run knows, by key, and where each came from. Filled from the store and from children; it
executes nothing. What is not needed just now lies in a file (`result_file.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from batch_export.action import ActionResult
from batch_export.digest import Digest
from batch_export.plan.walk import Step
from batch_export.record import UNCACHED_STAGES, Cell, Failure, Record
from batch_export.runner.order import Origin
from batch_export.runner.refresh import serves
from batch_export.runner.result_file import ResultMemory
from batch_export.steps import EXCUSED, LOCAL
from batch_export.store import Store


class Results:
    """What is known in this run.

    Args:
        store: where results are looked up.
        refresh: `MeasureSpec.refresh`: which cached latencies are left aside.
    """

    def __init__(self, store: Store, *, refresh: str) -> None:
        self._store = store
        self._refresh = refresh
        self._adopted: dict[Digest, str] = {}
        self._tries: dict[Digest, tuple[Failure, ...]] = {}
        self._known = ResultMemory(store.root / "tmp")
        self._origins: dict[Digest, Origin] = {}
        self._uncached: set[Digest] = set()
        self._absent: set[Digest] = set()
        self._lock = threading.Lock()

    def try_again(self, result: ActionResult, retries: int) -> bool:
        """Keeps a failure as that of an earlier try; says whether the action may be tried again.

        The tries of an action count for the whole run, whichever units it belongs to.
        """
        with self._lock:
            before = self._tries.get(result.key, ())
            if result.failure is None or len(before) >= retries:
                return False
            self._tries[result.key] = (*before, result.failure)
            return True

    def tries(self) -> dict[Digest, tuple[Failure, ...]]:
        """Returns the failures of earlier tries by action."""
        with self._lock:
            return dict(self._tries)

    def put(self, result: ActionResult, origin: Origin) -> None:
        """Adds a result that a child reported; what was executed is not taken for cached by a later report."""
        with self._lock:
            if origin == "ran" or result.key not in self._origins:
                self._keep(result, origin)

    def look_up(self, step: Step) -> ActionResult | None:
        """Returns a step's result if it is known or cached; each key is looked up in the store once."""
        key = step.action.key
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                return known
            if key in self._absent:
                return None
            mnemonic = step.action.mnemonic
            found = self._store.find(key, remote=mnemonic not in LOCAL)
            if found is None or not serves(found, mnemonic, self._refresh):
                self._absent.add(key)
                return None
            self._keep(found.result, "ran" if found.own else "cached")
            return found.result

    def look_up_here(self, step: Step) -> ActionResult | None:
        """Returns a step's result if it is known or in the local store."""
        key = step.action.key
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        found = self._store.find(key, remote=False)
        return found.result if found is not None and serves(found, step.action.mnemonic, self._refresh) else None

    def fetch(self, keys: Sequence[Digest]) -> set[Digest]:
        """Brings results from the remote store, all at once; returns the keys of those that are here now."""
        found = self._store.fetch(keys)
        with self._lock:
            self._absent.update(key for key in keys if key not in found)
        return found

    def _keep(self, result: ActionResult, origin: Origin) -> None:
        self._known.put(result)
        self._origins[result.key] = origin
        self._absent.discard(result.key)
        if result.failure is not None and result.failure.stage in UNCACHED_STAGES:
            self._uncached.add(result.key)
        else:
            self._uncached.discard(result.key)

    def adopt(self, record: Record) -> None:
        """Counts the actions of a record that an earlier process of the same run wrote."""
        for index, action in enumerate(record.actions, start=1):
            last = index == len(record.actions)
            uncached = last and record.failure is not None and record.failure.stage in UNCACHED_STAGES
            self._adopted[action.key] = "rerun_failures" if uncached else action.origin

    def view(self, host: dict[str, str] | None = None) -> View:
        """Returns what one unit of work sees of this memory; `host` is where it worked, if not here."""
        return View(self, host)

    def known(self) -> list[tuple[ActionResult, Origin]]:
        """Returns all results with where they came from."""
        with self._lock:
            keys = list(self._origins)
            return [(result, self._origins[key]) for key in keys if (result := self._known.get(key)) is not None]

    def origin(self, key: Digest) -> Origin:
        """Returns where a known result came from."""
        return self._origins[key]

    def counts(self) -> Mapping[str, int]:
        """Returns numbers of distinct actions: `ran`, `cached`, and `rerun_failures` (executed, and never cached)."""
        counts = {"ran": 0, "cached": 0, "rerun_failures": 0}
        with self._lock:
            for key, kind in self._adopted.items():
                if key not in self._origins:
                    counts[kind] += 1
            for key, origin in self._origins.items():
                if self._adopted.get(key) == "ran":
                    origin = "ran"
                counts["rerun_failures" if key in self._uncached else origin] += 1
        return counts

    def close(self) -> None:
        """Forgets all results; counts and origins stay."""
        with self._lock:
            self._known.close()


class View:
    """One unit's sight of the run's results: what its own children reported comes first.

    A program that is captured twice and comes out differently (a model that is not deterministic) has two results under
    one key; each unit's cells then stand on their own unit's.

    Attributes:
        attempts: by cell, failures of earlier tries that no action is to blame for.
        host: where the unit worked, as in `Toolchain.host`; None: here.
    """

    def __init__(self, shared: Results, host: dict[str, str] | None = None) -> None:
        self._shared = shared
        self.host = host
        self._own: dict[Digest, tuple[ActionResult, Origin]] = {}
        self.attempts: dict[Cell, tuple[Failure, ...]] = {}

    def put(self, result: ActionResult, origin: Origin) -> None:
        """Adds a result that a child of this unit reported."""
        self._shared.put(result, origin)
        known = self._own.get(result.key)
        if origin == "ran" or known is None:
            # Executed by another unit of this run and found in the store by this one: still executed in this run.
            first = self._shared.origin(result.key) if origin == "cached" else origin
            self._own[result.key] = result, first

    def tries(self, key: Digest) -> tuple[Failure, ...]:
        """Returns the failures of an action's earlier tries in this run."""
        return self._shared.tries().get(key, ())

    def look_up(self, step: Step) -> ActionResult | None:
        """Returns a step's result if it is known or cached."""
        own = self._own.get(step.action.key)
        return own[0] if own is not None else self._shared.look_up(step)

    def failed_beside(self) -> tuple[ActionResult, ...]:
        """Returns the failures of this unit's actions that are not cached and after which its cells go on."""
        known = (
            result for result, _ in self._own.values() if result.mnemonic in EXCUSED and result.failure is not None
        )
        return tuple(result for result in known if result.failure and result.failure.stage in UNCACHED_STAGES)

    def origin(self, key: Digest) -> Origin:
        """Returns where a known result came from."""
        own = self._own.get(key)
        return own[1] if own is not None else self._shared.origin(key)
