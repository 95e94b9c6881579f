"""Inputs of other sizes than the example's, where the axes of a captured program are free.

Arrives: the example inputs, and a captured program with its table of symbols. Leaves: inputs of the same structure and
dtypes at sizes that are given by axis (a name, or torch's symbol where an axis has none), with values like the
example's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.dynamic_shapes import user_tensors
from batch_export.exporter.capture.guard_symbols import Symbols
from batch_export.exporter.capture.guards import environment_of
from batch_export.exporter.capture.other_inputs import Inputs, repeated, within

if TYPE_CHECKING:
    from batch_export.exporter.capture.captured import Captured

_STEPS = (1, 2, 3, 4, 8, 16, 32, 64)
"""What the first free axis grows by, in turn; the second one by twice that, and so on."""
_ELEMENTS = 2**24
"""The largest input that is made up."""


class Resizing:
    """Example inputs whose free axes may be given other sizes.

    Attributes:
        example: axis -> its size in the example; empty where nothing can be resized.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        symbols: Symbols,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> None:
        self._leaves, self._tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._positions = [index for index, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        self._symbols = symbols
        self._expressions = [[_expression(size) for size in fake.shape] for _, fake in user_tensors(program)]
        self._generator = torch.Generator().manual_seed(0)
        self.example: dict[str, int] = {}
        if len(self._positions) != len(self._expressions):
            return
        sizes: dict[str, int] = {}
        used: set[str] = set()
        for position, axes in zip(self._positions, self._expressions, strict=True):
            for at, axis in enumerate(axes):
                used |= {str(symbol) for symbol in getattr(axis, "free_symbols", ())}
                if getattr(axis, "is_Symbol", False):
                    sizes.setdefault(str(axis), int(self._leaves[position].shape[at]))
        if not used <= set(sizes):
            return
        found = {variable: size for one, size in sizes.items() if (variable := symbols.variable(one)) is not None}
        for one, size in sizes.items():
            found |= _root(symbols, one, size, found)
        if {variable for one in used for variable in symbols.variables(one)} <= set(found):
            self.example = found

    def like_example(self, sizes: Mapping[str, int]) -> Inputs | None:
        """The inputs at other sizes, made of the example's own elements: what the model asks of it (a positive definite
        matrix, a sorted row) holds for a part of it, and often for its repetition.

        Floats differ from the example's by up to a thousandth.
        """
        shapes = self._shapes(sizes)
        if shapes is None or max((math.prod(shape) for shape in shapes), default=0) > _ELEMENTS:
            return None
        made = list(self._leaves)
        for position, shape in zip(self._positions, shapes, strict=True):
            made[position] = repeated(self._leaves[position], shape, self._generator)
        inputs: Inputs = pytree.tree_unflatten(made, self._tree)
        return inputs

    def at(self, sizes: Mapping[str, int], *, anew: bool = False, spread: bool = False) -> Inputs | None:
        """The inputs at other sizes of some axes; None where an axis would have less than nothing, or far too much.

        Args:
            sizes: axis -> size, for those that differ from the example's.
            anew: whether inputs that keep their sizes get other values too.
            spread: whether floats that are all one value in the example get others beside it.
        """
        shapes = self._shapes(sizes)
        if shapes is None or max((math.prod(shape) for shape in shapes), default=0) > _ELEMENTS:
            return None
        made = list(self._leaves)
        for position, shape in zip(self._positions, shapes, strict=True):
            leaf = self._leaves[position]
            if anew or list(leaf.shape) != shape:
                widened = (-1, 1) if spread and leaf.is_floating_point() else (0, 0)
                made[position] = within(leaf, shape, self._generator, widened)
        inputs: Inputs = pytree.tree_unflatten(made, self._tree)
        return inputs

    def at_other_numbers(self, sizes: Mapping[str, int]) -> Iterator[Inputs]:
        """Inputs at other sizes: with lengths as whole numbers, with zeros, and made of the example's own elements."""
        alike = self.like_example(sizes)
        if alike is not None and (of_lengths := self._of_lengths(alike, sizes)) is not None:
            yield of_lengths
        for inputs in (self.at(sizes), alike) if self._has_numbers else ():
            if inputs is not None:
                yield pytree.tree_map_only(torch.Tensor, _whole_as_zero, inputs)
        if alike is not None:
            yield alike

    def _of_lengths(self, alike: Inputs, sizes: Mapping[str, int]) -> Inputs | None:
        """The same with lengths up to a new size; None where no whole numbers go up to a size in the example."""
        made, spec = pytree.tree_flatten(alike)
        found = False
        for position in self._positions:
            leaf = self._leaves[position]
            most = int(leaf.max()) if leaf.numel() and _is_whole(leaf) and bool((leaf >= 0).all()) else 0
            axis = next((one for one, size in self.example.items() if size == most and one in sizes), None)
            if axis is not None and most > 1 and made[position].numel():
                scaled = (made[position] * sizes[axis] // most).clamp(min=min(1, sizes[axis]))
                made[position] = torch.where(made[position] == made[position].max(), sizes[axis], scaled).to(leaf.dtype)
                found = True
        inputs: Inputs = pytree.tree_unflatten(made, spec)
        return inputs if found else None

    @property
    def _has_numbers(self) -> bool:
        return any(isinstance(leaf, torch.Tensor) and _is_whole(leaf) for leaf in self._leaves)

    def at_wide_numbers(self, sizes: Mapping[str, int], kind: int) -> Inputs | None:
        """Inputs at other sizes whose numbers are far from the example's: large ones of both signs, any truth values.

        Args:
            sizes: axis -> size.
            kind: 0 for that, 1 with NaN among them, 2 with whole numbers that are 0, 3 with floats among them that are.
        """
        inputs = self.at(sizes, anew=True)
        if inputs is None:
            return None

        def wide(one: torch.Tensor) -> torch.Tensor:
            made = _wide(one, self._generator, with_nan=kind == 1, with_zeros=kind == 2)
            return _with_zeros(made) if kind == _ZEROS else made

        made: Inputs = pytree.tree_map_only(torch.Tensor, wide, inputs)
        return made

    @property
    def wide_kinds(self) -> Sequence[int]:
        """The kinds of numbers far from the example's that say something of these inputs, one at least."""
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]
        floats = (1, _ZEROS) if any(map(_has_wide, tensors)) else ()
        return (0, *floats, *((2,) if self._has_numbers else ()))

    def without_numbers(self, sizes: Mapping[str, int], mode: FakeTensorMode) -> Inputs | None:
        """The inputs at other sizes as tensors of a fake mode, which are never too large to be made."""
        shapes = self._shapes(sizes)
        if shapes is None:
            return None
        made = list(self._leaves)
        with mode:
            for position, shape in zip(self._positions, shapes, strict=True):
                leaf = self._leaves[position]
                made[position] = torch.empty(shape, dtype=leaf.dtype, device=leaf.device)
        inputs: Inputs = pytree.tree_unflatten(made, self._tree)
        return inputs

    def _shapes(self, sizes: Mapping[str, int]) -> list[list[int]] | None:
        """The shape of each input at other sizes of some axes; None where an axis would have less than nothing."""
        shapes = self._computed(sizes)
        return None if _least(shapes) < 0 else shapes

    def in_place_of_less(self, sizes: Mapping[str, int]) -> list[Inputs]:
        """Inputs at sizes at which an axis that is computed from others would have less than nothing (`n - 2`), or may
        have any size (`n // m`).

        Such an axis has 0, 1 or as many as in the example; there are no inputs where there is no such axis.
        """
        shapes = self._computed(sizes)
        if _least(shapes) >= 0:
            return []
        made: list[Inputs] = []
        for given in (0, 1, None):
            leaves = list(self._leaves)
            for position, shape in zip(self._positions, shapes, strict=True):
                leaf = self._leaves[position]
                instead = leaf.shape if given is None else [given] * len(shape)
                full = [size if size >= 0 else int(other) for size, other in zip(shape, instead, strict=True)]
                if math.prod(full) > _ELEMENTS:
                    return []
                leaves[position] = within(leaf, full, self._generator, (0, 0))
            made.append(pytree.tree_unflatten(leaves, self._tree))
        return made

    def _computed(self, sizes: Mapping[str, int]) -> list[list[int]]:
        """The shape of each input, which may have sizes below 0."""
        values = {**self.example, **sizes}
        return [[self._size(axis, values) for axis in axes] for axes in self._expressions]

    @property
    def is_uniform(self) -> bool:
        """Whether some input of floats is one value throughout."""
        floats = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
        return any(leaf.numel() and bool((leaf == leaf.reshape(-1)[0]).all()) for leaf in floats)

    def elements(self, sizes: Mapping[str, int]) -> int:
        """How many numbers the inputs have at some sizes."""
        return sum(max(0, math.prod(shape)) for shape in self._computed(sizes))

    def _size(self, axis: Any, values: Mapping[str, int]) -> int:
        symbols = getattr(axis, "free_symbols", None)
        if not symbols:
            return int(axis)
        try:
            return int(axis.xreplace({symbol: self._symbols.value(str(symbol), values) for symbol in symbols}))
        except ZeroDivisionError:  # a quotient by an axis of nothing
            return -1


_ZEROS = 3
_FAR = 20.0


def _is_whole(one: torch.Tensor) -> bool:
    return not (one.is_floating_point() or one.is_complex() or one.dtype is torch.bool)


def _has_wide(one: torch.Tensor) -> bool:
    return one.is_floating_point() and one.dtype.itemsize > 1


def _whole_as_zero(one: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(one) if _is_whole(one) else one


def _wide(one: torch.Tensor, generator: torch.Generator, *, with_nan: bool, with_zeros: bool) -> torch.Tensor:
    if one.dtype is torch.bool:
        return (torch.rand(one.shape, generator=generator) < _HALF).to(one.device)
    if not _has_wide(one):
        return _whole_as_zero(one) if with_zeros else one
    finite = one[torch.isfinite(one)]
    reach = _FAR * max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
    made = torch.randn(one.shape, generator=generator, dtype=torch.float64) * reach
    if with_nan and made.numel():
        made.view(-1)[0] = math.nan
    return made.to(one.dtype).to(one.device)


_HALF = 0.5
_EVERY = 5
"""How many elements there are to one that is 0."""


def _with_zeros(one: torch.Tensor) -> torch.Tensor:
    if _has_wide(one) and one.numel():
        one.view(-1)[::_EVERY] = 0.0
    return one


def other_sizes(
    captured: Captured, args: Sequence[object], kwargs: Mapping[str, object], *, like_example: bool = False
) -> Iterator[tuple[str, Inputs]]:
    """Inputs at other sizes of the free axes that the program's guards allow, with the sizes in words.

    Args:
        captured: the program.
        args: positional example inputs.
        kwargs: keyword example inputs.
        like_example: of the example's own elements, smaller sizes first, in place of random ones.
    """
    if captured.symbols is None:
        return
    resizing = Resizing(captured.traced, captured.symbols, args, kwargs)
    names = {axis: captured.axis_names.get(axis, axis) for axis in resizing.example}
    order = list(dict.fromkeys(names.values()))
    steps = (-1, *_STEPS) if like_example else (*_STEPS, -1)
    for step in steps if names else ():
        sizes = {
            axis: max(1, size - 1) if step < 0 and like_example else size + step * (1 + order.index(names[axis]))
            for axis, size in resizing.example.items()
        }
        if min(sizes.values()) < 1 or sizes == resizing.example or not _allowed(captured, captured.symbols, sizes):
            continue
        made = resizing.like_example(sizes) if like_example else resizing.at(sizes)
        if made is not None:
            yield ", ".join(f"{names[axis]}={size}" for axis, size in sizes.items()), made


def at_numbers(
    captured: Captured, args: Sequence[object], kwargs: Mapping[str, object], numbers: Sequence[int]
) -> Iterator[tuple[str, Inputs]]:
    """Inputs at which one free axis has one of some numbers and the others have the example's sizes, with the sizes in
    words; those that the program's guards allow.
    """
    if captured.symbols is None:
        return
    resizing = Resizing(captured.traced, captured.symbols, args, kwargs)
    for axis in resizing.example:
        for number in numbers:
            sizes = {**resizing.example, axis: number}
            made = resizing.at(sizes) if _allowed(captured, captured.symbols, sizes) else None
            if made is not None:
                yield f"{captured.axis_names.get(axis, axis)}={number}", made


def _root(symbols: Symbols, symbol: str, size: int, known: Mapping[str, int]) -> dict[str, int]:
    """The size of the one name that an axis is asked for as an expression of (`t` of `2*t`), where that is not known.

    torch has a symbol of the axis then, and none of the name.
    """
    axis = symbols.axes.get(symbol)
    if axis is None or not axis.derived or symbol in symbols.solved:
        return {}
    found = symbols.names.root(axis.name, size, known)
    return found if found and symbols.names.value(axis.name, {**known, **found}) == size else {}


def _least(shapes: Sequence[Sequence[int]]) -> int:
    return min((size for shape in shapes for size in shape), default=0)


def _expression(size: Any) -> sympy.Basic:
    """A size in torch's symbols: of each axis its own, also where the program made two of them one."""
    if not isinstance(size, torch.SymInt) or size.node.expr.is_number:
        return int(size)
    return size.node._expr


def _allowed(captured: Captured, symbols: Symbols, sizes: Mapping[str, int]) -> bool:
    """Whether the program holds at these sizes, by its ranges and its guards."""
    environment = environment_of(captured.traced)
    known = {symbol for symbol in symbols.axes if symbols.variables(symbol) <= set(sizes)}

    def value(symbol: object) -> int:
        return symbols.value(str(symbol), sizes)

    for symbol, bounds in captured.traced.range_constraints.items():
        if str(symbol) in known and not bounds.lower <= value(symbol) <= bounds.upper:
            return False
    for guard in () if environment is None else environment.guards:
        used = guard.expr.free_symbols
        if {str(symbol) for symbol in used} <= known and guard.expr.xreplace({s: value(s) for s in used}) == False:  # noqa: E712  (a sympy value)
            return False
    return True
