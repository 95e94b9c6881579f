"""Why a cell would be executed or served from the store: its actions with the named entries of their keys, and what
differs from the nearest earlier key.

A planned cell, the toolchain and a store arrive; lines leave. Nothing is executed and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from batch_export.action import Action, ActionResult
from batch_export.digest import Digest
from batch_export.plan import walk as plan
from batch_export.plan.matrix import PlannedCell
from batch_export.sources.recorded import changes
from batch_export.sources.toolchain import Toolchain
from batch_export.store import Entry, Store, read_entry

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Difference:
    """One named entry in which two keys differ; None where a key has no such entry."""

    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True, slots=True)
class Explained:
    """One action of a cell.

    Attributes:
        action: with its key's entries.
        result: from the store; None when it has to be executed.
        earlier: key of the nearest earlier action of its kind; None when there is none.
        differences: between that key and this one.
        since: what the action of the earlier key saw and is no longer so: the files behind digests that differ.
        changed: what the stored result of this very key saw and is no longer so.
    """

    action: Action
    result: ActionResult | None
    earlier: Digest | None = None
    differences: tuple[Difference, ...] = ()
    since: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def explain(
    cell: PlannedCell,
    toolchain: Toolchain,
    settings: plan.PlanSettings,
    store: Store,
    last: Mapping[str, Sequence[Digest]],
) -> list[Explained]:
    """Follows a cell's actions as far as the store has their results.

    Args:
        cell: the cell.
        toolchain: as it is now.
        settings: as for a run.
        store: where results are looked up.
        last: mnemonic -> keys in order, of the cell's actions in the last run.
    """
    explained: list[Explained] = []

    def get(step: plan.Step) -> ActionResult | None:
        found = store.find(step.action.key, remote=False)
        result = None if found is None else found.result
        mnemonic = step.action.mnemonic
        before = last.get(mnemonic, ())
        position = sum(item.action.mnemonic == mnemonic for item in explained)
        earlier = _earlier(step.action, store, before[position] if position < len(before) else None)
        differing = () if earlier is None else differences(earlier.entries, step.action.entries)
        since = tuple(changes(earlier.result, store.source_roots, store.root)) if earlier and differing else ()
        entry = read_entry(store.entry_path(step.action.key)) if result is None else None
        changed = () if entry is None else tuple(changes(entry.result, store.source_roots, store.root))
        key = None if earlier is None else earlier.result.key
        explained.append(Explained(step.action, result, key, differing, since, changed))
        return result

    plan.resolve(cell, toolchain, settings, get)
    return explained


def lines(cell: PlannedCell, explained: list[Explained], *, full: bool = False) -> Iterator[str]:
    """Yields the text; `full` shows long values whole."""
    yield cell.cell.name
    if cell.skip:
        yield f"  is skipped: {cell.skip}"
        return
    for item in explained:
        state = "cached" if item.result is not None else "would be executed"
        yield f"  {item.action.mnemonic:<10} {item.action.key[:12]}  {state}"
        for name, value in item.action.entries:
            yield f"    {name:<30} {_shown(value, full)}"
        if item.result is not None and item.result.failure is not None:
            yield f"    it failed: {item.result.failure.stage} {item.result.failure.error_class}"
        if item.changed:
            yield "    the stored result is not used:"
            yield from (f"      {text}" for text in item.changed)
        elif item.earlier == item.action.key and item.result is None:
            yield "    the key is as before: the stored result is gone, damaged or flaky"
        elif item.differences:
            yield f"    differs from {(item.earlier or '')[:12]} in:"
            for difference in item.differences:
                before, now = _shown(difference.before, full), _shown(difference.now, full)
                yield f"      {difference.name:<28} {before} -> {now}"
            if item.since:
                yield "    of what that action saw:"
                yield from (f"      {text}" for text in item.since)
        elif item.earlier is None and item.result is None:
            yield "    there is no earlier key to compare with"
    if explained and explained[-1].result is None:
        yield "  what follows depends on that result"


def _earlier(action: Action, store: Store, last: Digest | None) -> Entry | None:
    """What the last run stored, or else the stored action which has most entries in common."""
    if last is not None:
        entry = read_entry(store.entry_path(last))
        if entry is not None and entry.result.mnemonic == action.mnemonic:
            return entry
    own = set(action.entries)
    best: tuple[int, Entry] | None = None
    for _, entry in store.entries():
        if entry.result.mnemonic == action.mnemonic and entry.result.key != action.key:
            alike = len(own & set(entry.entries))
            if best is None or alike > best[0]:
                best = alike, entry
    return None if best is None else best[1]


def differences(before: tuple[tuple[str, str], ...], now: tuple[tuple[str, str], ...]) -> tuple[Difference, ...]:
    """Returns the entries in which two keys differ, by name."""
    old, new = dict(before), dict(now)
    return tuple(
        Difference(name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )


def _shown(value: str | None, full: bool) -> str:
    if value is None:
        return "(none)"
    text = value.encode("unicode_escape").decode() if not value.isprintable() else value
    if full or len(text) <= _SHOWN_CHARACTERS:
        return text or "''"
    return f"{text[: _SHOWN_CHARACTERS - 3]}..."
