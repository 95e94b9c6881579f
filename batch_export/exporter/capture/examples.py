"""Examples to capture from: the given one, or others made from it.

Arrives: the axes that were asked for, the model and its example inputs. Leaves: inputs of the same structure whose free
axes have other sizes. Two things ask for them. torch takes a free axis of size 1 (or 0) for a constant, so it captures
from two elements or more. And a model may decide by a size, such as a table of positions that is resized unless it
fits: from another size the general branch is captured. What is captured so is held against the model at the given
example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.dynamic_shapes import DynamicShapes
from batch_export.exporter.capture.fake_runs import refusal
from batch_export.exporter.capture.guard_symbols import AskedAxis, Names
from batch_export.exporter.capture.other_inputs import Inputs, within

Sizes = dict[str, int]

_FIRST = (2, 3, 5, 7, 11, 13)
"""Sizes in place of 1: another one for each axis, so that none is taken for another."""
_ALIKE = (2, 3, 4, 8, 16, 32, 64, 224)
"""Sizes in place of 1 for all axes at once."""
_OTHERS: tuple[Callable[[int], int], ...] = (lambda size: 2 * size, lambda size: size + 1, lambda size: 3 * size)
"""How the sizes of another example are made of the first one's."""
_MOST = 2
"""Other examples that are tried."""


class Examples:
    """Inputs to capture from.

    Attributes:
        given: the sizes of the asked axes in the example that was given; an axis without a name is called by its place.
    """

    def __init__(self, asked: DynamicShapes, module: torch.nn.Module, given: Inputs) -> None:
        self.module = module
        self._inputs = given
        self._names = Names(asked.axes)
        self._places = asked.positions
        self._axes = [axis for axis in asked.axes if axis.where in self._places]
        leaves = pytree.tree_leaves(self._inputs)
        self.given: Sizes = {}
        for axis in self._axes:
            if self._names.expressions.get(axis.name) is None:
                self.given.setdefault(axis.text, int(leaves[self._places[axis.where]].shape[axis.axis]))
        self._roots: Sizes = {}  # what is in expressions alone: `half` of an axis `2*half`
        for axis in self._axes:
            size = int(leaves[self._places[axis.where]].shape[axis.axis])
            self._roots.update(self._names.root(axis.name, size, {**self.given, **self._roots}) if axis.name else {})

    def small(self, *, required: bool) -> list[str]:
        """The axes of fewer than two elements that may not be (`required`) or that may be left as they are."""
        firm = {variable for axis in self._axes if axis.required for variable in self._variables(axis)}
        return [axis for axis, size in self.given.items() if size < 2 and (axis in firm) == required]

    def at(self, sizes: Mapping[str, int]) -> Inputs | None:
        """The given example at other sizes of some axes; None where one is beyond its declared range."""
        return self._at({**self.given, **sizes})

    def lifted(self, axes: Sequence[str]) -> Inputs | None:
        """The given example with two elements or more in some axes; None where the model takes no such inputs."""
        if not axes:
            return self._inputs
        for sizes in self._candidates(axes):
            made = self._at({**self.given, **sizes})
            if made is not None and (len(self.given) == 1 or not refusal(self.module, *made)):
                return made
        return None

    def _candidates(self, axes: Sequence[str]) -> Iterator[Sizes]:
        """Sizes to try for some axes; others may have to follow (the length of a mask for both past and new tokens)."""
        rest = {axis: size for axis, size in self.given.items() if axis not in axes}
        each = [dict(zip(axes, _FIRST, strict=False))] if len(axes) <= len(_FIRST) else []
        alike = [
            dict.fromkeys(axes, size)
            for size in dict.fromkeys((*_ALIKE[:1], *sorted({*rest.values()} - {0, 1}), *_ALIKE))
        ]
        yield from (*each, *alike)
        for sizes in (*each, *alike[:1]):
            growths = {axis: size - self.given[axis] for axis, size in sizes.items()}
            for growth in dict.fromkeys((sum(growths.values()), *growths.values())):
                yield from ({**sizes, axis: size + growth} for axis, size in rest.items())

    def others(self) -> Iterator[Inputs]:
        """Examples of other sizes that the model takes, a few."""
        start = {axis: max(2, size) for axis, size in {**self.given, **self._roots}.items()}
        made = ({axis: step(size) for axis, size in start.items()} for step in _OTHERS if start)
        return self._taken(made)

    def at_some(self, several: Sequence[Sizes]) -> Iterator[Inputs]:
        """Examples of some of several sizes."""
        return self._taken({**self.given, **sizes} for sizes in several)

    def _taken(self, several: Iterable[Sizes]) -> Iterator[Inputs]:
        """The first of several sizes at which the model takes inputs."""
        count = 0
        for sizes in several:
            made = self._at(sizes)
            if made is not None and not refusal(self.module, *made):
                yield made
                count += 1
            if count == _MOST:
                return

    def sizes_of(self, inputs: Inputs) -> Sizes:
        """The sizes of the asked axes in some inputs."""
        leaves = pytree.tree_leaves(inputs)
        return {
            axis.text: int(leaves[self._places[axis.where]].shape[axis.axis])
            for axis in self._axes
            if axis.text in self.given
        }

    def _variables(self, axis: AskedAxis) -> frozenset[str]:
        return self._names.variables(axis.name) if axis.name else frozenset([axis.text])

    def _at(self, sizes: Mapping[str, int]) -> Inputs | None:
        """The inputs at some sizes of the asked axes; None where one is beyond its declared range."""
        sizes = {**self._roots, **sizes}
        leaves, tree = pytree.tree_flatten(self._inputs)
        shapes = {position: list(leaves[position].shape) for position in self._places.values()}
        for axis in self._axes:
            size = self._names.value(axis.name, sizes) if axis.name else sizes[axis.text]
            if size < axis.lowest or (axis.highest is not None and size > axis.highest):
                return None
            shapes[self._places[axis.where]][axis.axis] = size
        generator = torch.Generator().manual_seed(0)
        for position, shape in shapes.items():
            if list(leaves[position].shape) != shape:
                leaves[position] = within(leaves[position], shape, generator)
        made: Inputs = pytree.tree_unflatten(leaves, tree)
        return made
