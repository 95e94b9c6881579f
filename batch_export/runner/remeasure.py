"""Measuring suspects again: the old file and the new one of a cell, both from the store, in one child at a time.

Records of both sides arrive, `PairedFacts` by cell leave. Nothing is cached and no verdict is given; a file that is
damaged or no longer in the store, or a child that dies, is a fact with an error. The parent only finds the files and
waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from batch_export.errors import ArtifactError
from batch_export.record import Cell, Record
from batch_export.runner.stored_models import stored_model
from batch_export.runtime.paired import PairedFacts
from batch_export.runtime.paired_child import PairedOrder
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.store import Store, read_entry

_START_LIMIT_S = 120.0
_MODULE = "batch_export.runtime.paired_child"


def remeasure(
    cells: Sequence[Cell],
    base: Mapping[Cell, Record],
    new: Mapping[Cell, Record],
    base_store: Store,
    new_store: Store,
    providers: Mapping[str, ProviderSpec],
    *,
    threads: int = 1,
    budget_s: float = 3.0,
    say: Callable[[str], None] | None = None,
) -> dict[Cell, PairedFacts]:
    """Measures each cell's two files against each other, one after the other and nothing beside them.

    Args:
        cells: the suspects.
        base, new: records of both sides, by cell.
        base_store, new_store: where their files lie; often the same.
        providers: by name.
        threads: threads of a measured inference.
        budget_s: seconds of timing per cell.
        say: told of each cell before it is measured.
    """
    facts: dict[Cell, PairedFacts] = {}
    for cell in cells:
        if say is not None:
            say(f"measuring again, old file against new: {cell.name}")
        try:
            order = PairedOrder(
                base=str(stored_model(base[cell], base_store)),
                base_reference=str(_reference(base[cell], base_store)),
                new=str(stored_model(new[cell], new_store)),
                new_reference=str(_reference(new[cell], new_store)),
                provider=providers[cell.provider],
                threads=threads,
                budget_s=budget_s,
            )
        except (LookupError, ArtifactError) as error:
            facts[cell] = PairedFacts(error=str(error.args[0]))
            continue
        facts[cell] = _in_child(order)
    return facts


def _in_child(order: PairedOrder) -> PairedFacts:
    environment = {**os.environ, "OMP_NUM_THREADS": str(order.threads)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE],
            input=msgspec.json.encode(order),
            capture_output=True,
            timeout=_START_LIMIT_S + 10 * order.budget_s,
            env=environment,
            check=False,
        )
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            return PairedFacts(error=f"the measuring process ended with exit code {done.returncode}")
        return msgspec.json.decode(lines[-1], type=PairedFacts)
    except (subprocess.TimeoutExpired, msgspec.MsgspecError, OSError) as error:
        return PairedFacts(error=f"{type(error).__name__} while measuring again")


def _reference(record: Record, store: Store) -> Path:
    key = next((action.key for action in record.actions if action.mnemonic == "Reference"), "")
    entry = read_entry(store.entry_path(key)) if key else None
    digest = entry.result.artifacts.get("reference") if entry is not None else None
    if digest is None or store.content.find(digest) is None:
        raise LookupError("its example inputs are no longer in the store")
    return store.blob_path(digest)
