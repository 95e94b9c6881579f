"""Which sizes of a model's inputs may differ, found by running it at others.

Leaves at which a module ran arrive, with numbers for shapes; the same leaves with named axes leave, and each axis with
an example size and sizes that were seen to run. A size that no other was found for stays a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from batch_export.axes import WORDS, size_of, terms
from batch_export.spec import AxisSpec, InputSpec
from batch_export.stages.probe.trial import Trial

Runs = Callable[[Sequence[InputSpec]], Trial]
Place = tuple[int, int]
"""A leaf, and one of its dimensions."""

_STEPS = (1, 2, 4, 8, 16, 32)
_MOST_PLACES = 40


@dataclass(frozen=True, slots=True)
class Axes:
    """What was found.

    Attributes:
        leaves: with names of axes in their shapes.
        axes: in the order in which they first occur.
        notes: sentences about sizes that do not run.
    """

    leaves: tuple[InputSpec, ...]
    axes: tuple[AxisSpec, ...]
    notes: tuple[str, ...] = ()


def at(leaves: Sequence[InputSpec], sizes: Mapping[str, int]) -> list[InputSpec]:
    """The leaves with a number for every axis."""
    return [replace(leaf, shape=tuple(size_of(entry, sizes) for entry in leaf.shape)) for leaf in leaves]


def checked(leaves: Sequence[InputSpec], sizes: Mapping[str, int], runs: Runs, base: Trial) -> Axes:
    """Tries other sizes of the axes that somebody named; one that runs at no other size becomes a number again."""
    axes: list[AxisSpec] = []
    notes: list[str] = []
    for number, (name, example) in enumerate(sizes.items()):

        def moved(size: int, name: str = name) -> Trial:
            return runs(at(leaves, {**sizes, name: size}))

        found, error = _sizes(example, moved, base)
        if found:
            # Every other axis shrinks where its neighbour grows, so that a file cannot take one for the other.
            axes.append(AxisSpec(name, example, found if number % 2 == 0 else found[::-1]))
            if example + 1 not in found and error:
                notes.append(f"{name}: {_not_every(example, found)}")
        else:
            notes.append(f"{name} stays {example}: the model runs at no other size that was tried ({error})")
    kept = {axis.name for axis in axes}
    fixed = {name: size for name, size in sizes.items() if name not in kept}
    named = tuple(replace(leaf, shape=tuple(_fixed(entry, fixed) for entry in leaf.shape)) for leaf in leaves)
    return Axes(named, tuple(axes), tuple(notes))


def _fixed(entry: int | str, fixed: Mapping[str, int]) -> int | str:
    parts = [fixed.get(part, part) if isinstance(part, str) else part for part in terms(entry)]
    words = [part for part in parts if isinstance(part, str)]
    rest = sum(part for part in parts if isinstance(part, int))
    return "+".join([*words, *([str(rest)] if rest else [])]) if words else rest


def found(leaves: Sequence[InputSpec], runs: Runs, base: Trial) -> Axes:
    """Names the dimensions that may differ: each alone, and those that have to change together as one axis."""
    places = [(place, index) for place, leaf in enumerate(leaves) for index in range(len(leaf.shape))][:_MOST_PLACES]
    size = {place: int(leaves[place[0]].shape[place[1]]) for place in places}
    tried = [place for place in places if size[place] > 1 or place[1] == 0]
    groups: list[tuple[Place, ...]] = []
    for group in (*_meant(leaves, tried, size), *_groups(tried, size)):
        if any(place in taken for place in group for taken in groups):
            continue
        if _step(leaves, group, runs, base):
            groups.append(group)
    groups = _together(leaves, sorted(groups), runs, base)
    names = _names(leaves, groups)
    example = {names[group]: _example(leaves, group, size, runs, base) for group in groups}
    named = list(leaves)
    for group in groups:
        for place, index in group:
            shape = list(named[place].shape)
            shape[index] = names[group]
            named[place] = replace(named[place], shape=tuple(shape))
    return checked(named, example, runs, base)


def _example(
    leaves: Sequence[InputSpec], group: tuple[Place, ...], size: Mapping[Place, int], runs: Runs, base: Trial
) -> int:
    """A size of 1 is what captures take for fixed, so 2 where that runs."""
    now = size[group[0]]
    return 2 if now == 1 and runs(_moved(leaves, group, 2)).is_like(base) else now


def _meant(
    leaves: Sequence[InputSpec], places: Sequence[Place], size: Mapping[Place, int]
) -> Iterator[tuple[Place, ...]]:
    """Dimensions that are one axis to whoever wrote the model, though eager may run without: the batch, and a mask's.

    A mask of ones is often not looked at, so it may have any size; a file with a size of its own for it has no use.
    """
    for one in dict.fromkeys(size[place] for place in places):
        first = tuple(place for place in places if place[1] == 0 and size[place] == one)
        if len(first) > 1:
            yield first
    masks = [number for number, leaf in enumerate(leaves) if any("mask" in str(step) for step in leaf.path)]
    others = [number for number in range(len(leaves)) if number not in masks]
    for index in dict.fromkeys(place[1] for place in places if place[1]):
        for other in (place for place in places if place[1] == index and place[0] in others):
            alike = tuple(place for place in places if place[1] == index and place[0] in masks)
            group = (other, *(place for place in alike if size[place] == size[other]))
            if len(group) > 1:
                yield tuple(sorted(group))


def _groups(places: Sequence[Place], size: Mapping[Place, int]) -> Iterator[tuple[Place, ...]]:
    """Dimensions alone; then those of one size at the same index; then all of one size, and pairs of them."""
    for place in places:
        yield (place,)
    sizes = list(dict.fromkeys(size[place] for place in places))
    for one in sizes:
        equal = [place for place in places if size[place] == one]
        for index in dict.fromkeys(place[1] for place in equal):
            yield tuple(place for place in equal if place[1] == index)
        yield tuple(equal)
    for one in sizes:
        equal = [place for place in places if size[place] == one]
        for index in dict.fromkeys(place[1] for place in equal):
            alike = [place for place in equal if place[1] == index]
            yield from ((a, b) for number, a in enumerate(alike) for b in alike[number + 1 :])
        for leaf in dict.fromkeys(place[0] for place in equal):
            inside = tuple(place for place in equal if place[0] == leaf)
            if len(inside) > 1:
                yield inside


def _moved(leaves: Sequence[InputSpec], group: Sequence[Place], size: int) -> list[InputSpec]:
    changed = list(leaves)
    for place, index in group:
        shape = list(changed[place].shape)
        shape[index] = size
        changed[place] = replace(changed[place], shape=tuple(shape))
    return changed


def _step(leaves: Sequence[InputSpec], group: tuple[Place, ...], runs: Runs, base: Trial) -> int:
    """By how much the size grows to run again; 0 where no step does, or no smaller size runs.

    A mask that is indexed by rows runs with more rows than there are, and with fewer it does not.
    """
    now = int(leaves[group[0][0]].shape[group[0][1]])

    def runs_at(size: int) -> bool:
        return runs(_moved(leaves, group, size)).is_like(base)

    step = next((step for step in _steps(now) if runs_at(now + step)), 0)
    smaller = dict.fromkeys([now - step, now // 2, 1])
    return step if now == 1 or any(runs_at(size) for size in smaller if 0 < size < now) else 0


def _steps(now: int) -> list[int]:
    return list(dict.fromkeys([*(step for step in _STEPS if step <= max(2, now)), now]))


def _together(
    leaves: Sequence[InputSpec], groups: Sequence[tuple[Place, ...]], runs: Runs, base: Trial
) -> list[tuple[Place, ...]]:
    """Those that may differ all at once, each by a step of its own."""
    kept: list[tuple[Place, ...]] = []
    moved = list(leaves)
    for group in groups:
        now = int(leaves[group[0][0]].shape[group[0][1]])
        step = _step(leaves, group, runs, base)
        trial = _moved(moved, group, now + step * (len(kept) + 1))
        if not runs(trial).is_like(base):
            trial = _moved(moved, group, now + step)
            if not runs(trial).is_like(base):
                continue
        kept.append(group)
        moved = trial
    return kept


def _sizes(example: int, moved: Callable[[int], Trial], base: Trial) -> tuple[tuple[int, ...], str]:
    """Sizes to check: a smaller and a larger one that run; and the first error on the way."""
    smaller = [1] if example < 8 else [example // 2, example // 2 + 1, 1]
    larger = [example + example // 2 + 1, *(example + step for step in _steps(example))]
    kept: list[int] = []
    error = ""
    for options in (smaller, larger):
        for size in options:
            if size == example or size < 1:
                continue
            trial = moved(size)
            if trial.is_like(base):
                kept.append(size)
                break
            error = error or trial.error or "its outputs have another form"
    return tuple(kept), error


def _not_every(example: int, kept: tuple[int, ...]) -> str:
    return f"not every size runs; these do: {', '.join(map(str, sorted({example, *kept})))}"


def _names(leaves: Sequence[InputSpec], groups: Sequence[tuple[Place, ...]]) -> dict[tuple[Place, ...], str]:
    free = {place for group in groups for place in group}
    found: dict[tuple[Place, ...], str] = {}
    for group in groups:
        word = _word(leaves, group, free)
        if word in found.values() or word in WORDS:
            word = f"{'_'.join(map(str, leaves[group[0][0]].path))}_{word}"
        stem, number = word, 1
        while word in found.values():
            number += 1
            word = f"{stem}_{number}"
        found[group] = word if word.isidentifier() else f"axis_{word}".replace("-", "_").replace(".", "_")
    return found


def named_places(leaves: Sequence[InputSpec], symbols: Sequence[str]) -> dict[str, str]:
    """Names of axes for symbols that stand in shapes."""
    groups: dict[str, tuple[Place, ...]] = {}
    for symbol in symbols:
        stands = [
            (place, index)
            for place, leaf in enumerate(leaves)
            for index, entry in enumerate(leaf.shape)
            if isinstance(entry, str) and symbol in entry.split("+")
        ]
        alone = [(place, index) for place, index in stands if leaves[place].shape[index] == symbol]
        groups[symbol] = tuple(alone or stands)
    named = _names(leaves, list(groups.values()))
    return {symbol: named[group] for symbol, group in groups.items()}


def _word(leaves: Sequence[InputSpec], group: tuple[Place, ...], free: set[Place]) -> str:
    place, index = group[0]
    leaf = leaves[place]
    rank, whole = len(leaf.shape), not leaf.dtype.startswith(("float", "bfloat", "complex"))
    if index == 0:
        return "batch"
    if rank == 4 and index > 1:
        return "side" if (place, 2) in group and (place, 3) in group else ("height", "width")[index - 2]
    if rank == 5 and index > 1:
        return ("depth", "height", "width")[index - 2]
    if (rank == 2 and whole) or (rank == 3 and index == 1 and (place, 2) not in free):
        return "seq"
    return "length" if index == rank - 1 and rank < 4 else f"size_{index}"
