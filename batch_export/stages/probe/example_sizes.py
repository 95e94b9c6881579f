"""Example sizes of axes that somebody named without one: `x=float32[batch,3,H,W]` leaves the sides of the image open.

Leaves with such axes arrive; sizes at which the model ran leave, with a sentence that says which were chosen. Likelier
sizes are tried first, all images at one side before sides of their own; the number of tries is limited, not the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from batch_export.axes import terms
from batch_export.nouns import counted
from batch_export.spec import InputSpec
from batch_export.stages.probe.free_axes import at
from batch_export.stages.probe.trial import Trial

Runs = Callable[[Sequence[InputSpec]], Trial]

_BATCHES = (2, 1, 4, 3, 8)
_SIDES = (64, 32, 224, 28, 128, 256, 16, 96, 384, 512, 299, 8, 2)
_VOLUMES = (8, 16, 32, 4, 64, 2)
_LENGTHS = (2, 4, 8, 16, 3, 32, 64, 128, 256, 5, 6, 7, 10, 12, 100, 512, 1000, 1024, 4096, 16000)
_MOST_TRIES = 200


@dataclass(frozen=True, slots=True)
class Chosen:
    """Sizes at which the model ran, or where it ran at none, those that were tried first.

    Attributes:
        sizes: of every axis.
        base: what came out, or the error.
        note: which sizes were found, after which error; or how many more were tried in vain. Empty: all were given.
    """

    sizes: dict[str, int]
    base: Trial
    note: str = ""


def chosen(leaves: Sequence[InputSpec], sizes: Mapping[str, int], unsized: Sequence[str], runs: Runs) -> Chosen:
    """Returns sizes at which the model runs, if there are.

    Args:
        leaves: with names of axes in their shapes.
        sizes: of every axis; for those that are unsized any.
        unsized: axes whose size is to be found; none: there is one run.
        runs: runs the model in eager.
    """
    if not unsized:
        return Chosen(dict(sizes), runs(at(leaves, sizes)))
    failed: list[Chosen] = []
    for given in itertools.islice(_candidates(leaves, unsized), _MOST_TRIES):
        tried = {**sizes, **given}
        base = runs(at(leaves, tried))
        if base.ran:
            before = f" (at {_words(unsized, failed[0].sizes)}: {failed[0].base.error})" if failed else ""
            return Chosen(tried, base, f"Sizes found by running the model: {_words(unsized, tried)}{before}.")
        failed.append(Chosen(tried, base))
    others = f"nor at {counted(len(failed) - 1, 'other size')} of {', '.join(unsized)} that were tried"
    return Chosen(failed[0].sizes, failed[0].base, others)


def _words(axes: Sequence[str], sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={sizes[axis]}" for axis in axes)


def _candidates(leaves: Sequence[InputSpec], unsized: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes of all the axes, likelier ones first; sides of images are equal, and then they are not."""
    options = {axis: _options(leaves, axis) for axis in unsized}
    together: dict[tuple[int, ...], list[str]] = {}
    for axis, sizes in options.items():
        together.setdefault(sizes if sizes in (_SIDES, _VOLUMES) else (*sizes, len(together)), []).append(axis)
    groups = [tuple(axes) for axes in together.values()]
    seen: set[tuple[int, ...]] = set()
    for parts in (groups, [(axis,) for axis in unsized]):
        each = [options[part[0]] for part in parts]
        for ranks in itertools.islice(_ranked([len(one) for one in each]), _MOST_TRIES // 2):
            given = {axis: sizes[rank] for part, sizes, rank in zip(parts, each, ranks, strict=True) for axis in part}
            key = tuple(given[axis] for axis in unsized)
            if key not in seen:
                seen.add(key)
                yield given


def _ranked(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All places in lists of these lengths, those of a smaller sum first."""

    def of_sum(total: int, left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if not left:
            yield from [()] if total == 0 else []
            return
        for rank in range(min(total, left[0] - 1) + 1):
            yield from ((rank, *rest) for rest in of_sum(total - rank, left[1:]))

    for total in range(sum(length - 1 for length in lengths) + 1):
        yield from of_sum(total, lengths)


def _options(leaves: Sequence[InputSpec], axis: str) -> tuple[int, ...]:
    """Sizes of an axis by where it stands: first, in an image or a volume, elsewhere."""
    places = [
        (leaf, index) for leaf in leaves for index, entry in enumerate(leaf.shape) if axis in map(str, terms(entry))
    ]
    if all(index == 0 for _, index in places):
        return _BATCHES
    real = all(leaf.dtype.startswith(("float", "bfloat")) and index > 1 for leaf, index in places)
    for rank, sizes in ((4, _SIDES), (5, _VOLUMES)):
        if real and all(len(leaf.shape) == rank for leaf, _ in places):
            return sizes
    return _LENGTHS
