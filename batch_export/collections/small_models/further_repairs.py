"""More guesses at a model's inputs, by the numbers in an error: for models that no guess was found for otherwise.

`repairs.py` reads what an error says of a shape; here the numbers of an error are compared with the sizes of inputs,
which may be a coincidence. An attempt and the error that it ended in arrive, attempts leave. Nothing is called here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from batch_export.collections.small_models.leaves import EXAMPLES, Attempt, Leaf
from batch_export.collections.small_models.sizes_read import lengths_said, multiple_said, unlike_sizes

_SIGNALS = ("samples", "frames", "height", "width", "past")
_LARGEST = 1 << 15
_LARGEST_SIDE = 1024
_MOST_ELEMENTS = 1 << 22
"""Of one input."""
_SMALL = re.compile(
    r"too small|[Kk]ernel size can't be greater|Padding size should be less than|must be at least|"
    r"by zero|of 0 elements|tensor b \(0\)"
)
_CHANNELS = re.compile(r"expected input\[(?P<given>[\d, ]+)\] to have (?P<wide>\d+) channels, but got (?P<got>\d+)")
_LEADING = "isn't allowed in a leading, non-existing dimension"
_RANK = re.compile(r"not enough values to unpack \(expected (\d+), got (\d+)\)")


def further_repaired(attempt: Attempt, error: BaseException) -> list[Attempt]:
    """Returns other guesses that an error suggests, the likeliest first; those that change nothing are left out.

    An axis whose size an error has beside another one gets that other one. A signal without channels gets the axis that
    a convolution asks for, a signal that is too short for a layer gets longer, and a length becomes the multiple that
    is asked for.
    """
    text = str(error)
    found = [
        *_multiplied(attempt, text),
        *_with_channels(attempt, text),
        *_larger(attempt, text),
        *_resized(attempt, text),
        *_scaled(attempt, text),
        *_deeper(attempt, text),
    ]
    kept: list[Attempt] = []
    for one in found:
        if one != attempt and one not in kept and _elements(one) <= _MOST_ELEMENTS:
            kept.append(one)
    return kept


def _elements(attempt: Attempt) -> int:
    return max((math.prod(_sizes(attempt, leaf)) for leaf in attempt.leaves.values()), default=0)


def _sizes(attempt: Attempt, leaf: Leaf) -> list[int]:
    return [attempt.sizes.get(entry, 0) if isinstance(entry, str) else entry for entry in leaf.shape]


def _multiplied(attempt: Attempt, text: str) -> Iterator[Attempt]:
    """Lengths as the multiples of what an error names."""
    said = multiple_said(text)
    if said is None:
        return
    length, unit = said
    for name, size in attempt.sizes.items():
        if length in (0, size) and name != "batch" and size % unit:
            yield _sized(attempt, {name: -(-size // unit) * unit})


def _with_channels(attempt: Attempt, text: str) -> Iterator[Attempt]:
    """Signals with an axis of channels after the first one, where a convolution took another axis for it."""
    said = _CHANNELS.search(text)
    if said is None:
        return
    given, wide, got = [int(one) for one in said["given"].split(",")], int(said["wide"]), int(said["got"])
    for name, leaf in attempt.leaves.items():
        sizes = _sizes(attempt, leaf)
        if leaf.dtype != "float32" or leaf.fill is not None or got not in sizes or len(sizes) > len(given):
            continue
        if len(sizes) == len(given) - 1:  # read as one signal without a batch
            yield _with(attempt, {name: Leaf(leaf.dtype, (leaf.shape[0], wide, *leaf.shape[1:]))})
        elif len(sizes) == len(given):
            rest = [entry for entry in leaf.shape[2:] if isinstance(entry, str)] or ["samples"]
            yield _with(attempt, {name: Leaf(leaf.dtype, (leaf.shape[0], wide, *rest))})
            yield _with(attempt, {name: Leaf(leaf.dtype, (leaf.shape[0], wide, "samples"))})


def _larger(attempt: Attempt, text: str) -> Iterator[Attempt]:
    if _SMALL.search(text) is None:
        return
    larger = {
        name: size * (2 if name in ("height", "width") else 4)
        for name, size in attempt.sizes.items()
        if name in _SIGNALS and size < (_LARGEST_SIDE if name in ("height", "width") else _LARGEST)
    }
    if larger:
        yield _sized(attempt, larger)


def _resized(attempt: Attempt, text: str) -> Iterator[Attempt]:
    """Axes of the sizes that do not fit one another, with the other of the two."""
    for given, wanted in unlike_sizes(text):
        for name, leaf in attempt.leaves.items():
            for place, entry in enumerate(leaf.shape):
                if entry == given and place and wanted > 1:
                    shape = (*leaf.shape[:place], wanted, *leaf.shape[place + 1 :])
                    yield _with(attempt, {name: replace(leaf, shape=shape)})
        named = {
            name: wanted
            for name, size in attempt.sizes.items()
            if size == given and name != "batch" and 1 < wanted <= _LARGEST_SIDE
        }
        if named:
            yield _sized(attempt, named)
    for length, unit in lengths_said(text):
        for name, size in attempt.sizes.items():
            if name != "batch" and length % size == 0 and size % unit:
                yield _sized(attempt, {name: -(-size // unit) * unit})


def _scaled(attempt: Attempt, text: str) -> Iterator[Attempt]:
    """Last axes that are to become as much wider or narrower as a layer behind them wants its input."""
    for given, wanted in unlike_sizes(text):
        for name, leaf in attempt.leaves.items():
            last = leaf.shape[-1]
            if leaf.dtype == "float32" and isinstance(last, int) and last != given and last * wanted % given == 0:
                shape = (*leaf.shape[:-1], last * wanted // given)
                yield _with(attempt, {name: replace(leaf, shape=shape)})


def _deeper(attempt: Attempt, text: str) -> Iterator[Attempt]:
    """Inputs with an axis more, where an unpacking or an expansion wanted another one."""
    if _LEADING in text:
        for name, leaf in attempt.leaves.items():
            if leaf.fill is not None:
                yield _with(attempt, {name: replace(leaf, shape=(*leaf.shape, 1))})
    said = _RANK.search(text)
    if said is None:
        return
    wanted, got = int(said[1]), int(said[2])
    for name, leaf in attempt.leaves.items():
        if len(leaf.shape) == got and wanted == got + 1:
            yield _with(attempt, {name: replace(leaf, shape=(leaf.shape[0], 1, *leaf.shape[1:]))})


def _sized(attempt: Attempt, sizes: Mapping[str, int]) -> Attempt:
    return replace(attempt, sizes={**attempt.sizes, **sizes})


def _with(attempt: Attempt, leaves: Mapping[str, Leaf]) -> Attempt:
    merged = {name: leaves.get(name, leaf) for name, leaf in attempt.leaves.items()}
    named = dict.fromkeys(entry for leaf in merged.values() for entry in leaf.shape if isinstance(entry, str))
    sizes = {name: attempt.sizes.get(name, EXAMPLES.get(name, 0)) for name in named}
    return replace(attempt, leaves=merged, sizes=sizes)
