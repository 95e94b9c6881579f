"""Sums of products over named axes (einsum): ONNX's operator where no size is ever 0, a matrix product otherwise.

onnxruntime's Einsum divides by a size of 0, so that an axis that may be empty keeps it out. Two factors with the same
sizes under each name are one MatMul, or one Mul where nothing is summed, between transpositions; what is more than that
is left to torch's decomposition.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import permutations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops.axes import Dim, never_empty, rank, reshaped, scalar, shaped
from batch_export.exporter.ops.axes import size as size_of
from batch_export.exporter.ops.inner_axes import matrix_product
from batch_export.exporter.ops.marking import lowering


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which axes of two factors are what, in the order in which their product has them.

    Attributes:
        swapped: whether the second factor stands on the left.
        both: axes of both factors and of the result.
        lefts, rights: axes of one factor and of the result.
        summed: axes of both factors alone.
    """

    swapped: bool
    both: tuple[str, ...]
    lefts: tuple[str, ...]
    rights: tuple[str, ...]
    summed: tuple[str, ...]

    @property
    def left(self) -> list[tuple[str, ...]]:
        """The axes of the left factor of a MatMul, several as one where that has one."""
        rows = [self.lefts] if self.both else [(name,) for name in self.lefts]
        return [*((name,) for name in self.both), *rows, self.summed]

    @property
    def right(self) -> list[tuple[str, ...]]:
        """The axes of the right factor."""
        return [*((name,) for name in self.both), self.summed, self.rights]

    @property
    def made(self) -> list[tuple[str, ...]]:
        """The axes of the product."""
        return [*self.left[:-1], self.rights]


_SUMMED_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""dtypes in which products that are rounded before they are added lose nothing that a matrix product keeps."""


@lowering("aten::einsum")
def einsum(equation: str, tensors: Sequence[ir.Value], path: Number | None = None) -> ir.Value:
    """`aten::einsum`; with free sizes only what `is_product` takes."""
    if may_stay(tensors):
        return op.Einsum(*tensors, equation=equation)
    return _as_product(equation, *tensors)


@lowering("aten::inner")
def inner(self: ir.Value, other: ir.Value) -> ir.Value:
    """`aten::inner` over free sizes, where `is_product` takes it: the last axes are summed."""
    return _as_product(of_axes(self, other, [-1], [-1]), self, other)


@lowering("aten::tensordot")
def tensordot(self: ir.Value, other: ir.Value, dims_self: Sequence[int], dims_other: Sequence[int]) -> ir.Value:
    """`aten::tensordot` over free sizes, where `is_product` takes it."""
    return _as_product(of_axes(self, other, dims_self, dims_other), self, other)


def of_axes(self: ir.Value, other: ir.Value, dims_self: Sequence[int], dims_other: Sequence[int]) -> str:
    """The equation of a product that sums the axes of one factor with those of the other; empty where there is none."""
    count = rank(self) + rank(other)
    if not rank(self) or not rank(other) or count > len(string.ascii_letters):
        return ""
    of_left, of_right = list(string.ascii_letters[: rank(self)]), list(string.ascii_letters[rank(self) : count])
    for one, another in zip(dims_self, dims_other, strict=True):
        of_right[another] = of_left[one]
    alone = [name for name in of_left + of_right if (name in of_left) != (name in of_right)]
    return f"{''.join(of_left)},{''.join(of_right)}->{''.join(alone)}"


def _as_product(equation: str, left: ir.Value, right: ir.Value) -> ir.Value:
    names, plan = _planned(equation, (left, right))
    assert names is not None
    assert plan is not None
    of_left, of_right, result = names
    if not plan.summed:
        return op.Mul(_spread(left, of_left, result), _spread(right, of_right, result))
    if not plan.lefts and not plan.rights and left.dtype in _SUMMED_DTYPES:
        product = op.Mul(left, _ordered(right, of_right, of_left))
        total = op.ReduceSum(product, [of_left.index(name) for name in plan.summed], keepdims=0)
        remaining = "".join(name for name in of_left if name in plan.both)
        sizes = dict(zip(of_left, left.shape or (), strict=True))
        return _ordered(shaped(total, [sizes[name] for name in remaining]), remaining, result)
    if plan.swapped:
        left, right, of_left, of_right = right, left, of_right, of_left
    return _product(left, right, of_left, of_right, result, plan)


def may_stay(tensors: Sequence[object]) -> bool:
    """Whether ONNX's operator may be written: nothing that it takes is ever empty."""
    return all(
        isinstance(one, ir.Value) and one.shape is not None and all(never_empty(one, axis) for axis in range(rank(one)))
        for one in tensors
    )


def is_unlike(equation: object, shapes: Sequence[Sequence[object]]) -> bool:
    """Whether `...` stands for other axes in one factor than in another, or a name for 1 and then for more.

    torch repeats either.

    NOTE: onnxruntime (1.31) refuses such a file, or ends the process where the first factor has fewer of them; onnx's
    checker takes the first factor's size for that of a name.
    """
    terms = str(equation).replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, object] = {}
    for term, shape in zip(terms, shapes, strict=False):
        before, _, behind = term.partition("...")
        named = [*zip(before, shape, strict=False), *zip(reversed(behind), reversed(shape), strict=False)]
        if any(sizes.setdefault(name, size) == 1 and size != 1 for name, size in named):
            return True
    unnamed = [
        tuple(shape)[term.index(".") : len(shape) - len(term) + term.index(".") + len("...")]
        for term, shape in zip(terms, shapes, strict=False)
        if "..." in term
    ]
    return any(one != unnamed[0] for one in unnamed)


def is_product(equation: object, tensors: Sequence[object]) -> bool:
    """Whether a sum over named axes is one product of two tensors, whose sizes under one name are the same."""
    return _planned(equation, tensors)[1] is not None


def _planned(equation: object, tensors: Sequence[object]) -> tuple[tuple[str, str, str] | None, _Plan | None]:
    names = _names(equation) if isinstance(equation, str) and len(tensors) == 2 else None
    shapes = [tensor.shape for tensor in tensors if isinstance(tensor, ir.Value) and tensor.shape is not None]
    if names is None or len(shapes) != len(tensors):
        return names, None
    sizes: dict[str, Dim] = {}
    for axes, shape in zip(names, shapes, strict=False):
        if len(axes) != len(shape):
            return names, None
        for name, size in zip(axes, shape, strict=True):
            if (not isinstance(size, int) and size.value is None) or not _is_one(sizes.setdefault(name, size), size):
                return names, None
    return names, _plan(*names, {name for name, size in sizes.items() if not isinstance(size, int)})


_AT_MOST = re.compile(r"Min\((\d+), (.+)\)|Min\((.+), (\d+)\)", re.IGNORECASE)


def _is_one(size: Dim, other: Dim) -> bool:
    """Whether two sizes under a name are one wherever eager takes them: part of a table (`w[:n]`) has `Min(32, n)`."""
    if size == other:
        return True
    names = [one.value for one in (size, other) if isinstance(one, ir.SymbolicDim)]
    for one, another in (names, names[::-1]) if len(names) == 2 else ():
        matched = _AT_MOST.fullmatch(str(one))
        if matched is not None and int(matched[1] or matched[4]) > 1 and another == (matched[2] or matched[3]):
            return True  # of 1 torch would repeat it
    return False


def _names(equation: str) -> tuple[str, str, str] | None:
    """The names of both factors' axes and of the result's; None where a name is repeated, alone, or left out."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    left, comma, right = given.partition(",")
    if not arrow or not comma or not all(names.isalpha() for names in (left + right, result + "a")):
        return None
    if any(len(set(names)) != len(names) for names in (left, right, result)):
        return None
    alone = set(left) ^ set(right)
    return (left, right, result) if alone <= set(result) <= set(left + right) else None


def _plan(of_left: str, of_right: str, result: str, free: Set[str]) -> _Plan | None:
    """The order of axes with the fewest transpositions, of those that the runtime gets right; None for no such."""
    summed = tuple(name for name in of_left if name in of_right and name not in result)
    both = [name for name in result if name in of_left and name in of_right]
    lefts, rights = (tuple(name for name in result if name not in other) for other in (of_right, of_left))
    swapped = not both and bool(free & set(rights)) and not free & set(lefts)
    if swapped:  # what is free stays apart on the left
        of_left, of_right, lefts, rights = of_right, of_left, rights, lefts
    best: tuple[int, _Plan] | None = None
    for batch in permutations(both):
        for rows in permutations(lefts) if not both else [lefts]:
            plan = _Plan(swapped, batch, rows, rights, summed)
            if summed and (_is_refused(of_left, plan.left) or _is_refused(of_right, plan.right)):
                continue
            turned = [(of_left, plan.left), (of_right, plan.right), (result, plan.made)]
            cost = sum(list(names) != _apart(groups) for names, groups in turned)
            if best is None or cost < best[0]:
                best = cost, plan
    return None if best is None else best[1]


def _apart(groups: Sequence[Sequence[str]]) -> list[str]:
    return [name for group in groups for name in group]


def _is_refused(names: str, groups: Sequence[Sequence[str]]) -> bool:
    """Whether onnxruntime would fuse this transposition into a MatMul that divides by a batch of 0.

    It does so where the first axis moves behind all others but the last, or behind that too.
    """
    if len(names) < 3 or any(len(group) != 1 for group in groups):
        return False
    order = [names.index(name) for (name,) in groups]
    behind = list(range(1, len(names)))
    return order in ([*behind[:-1], 0, behind[-1]], [*behind, 0])


def _product(left: ir.Value, right: ir.Value, of_left: str, of_right: str, result: str, plan: _Plan) -> ir.Value:
    sizes = dict(zip(of_left + of_right, [*(left.shape or ()), *(right.shape or ())], strict=True))
    first, second = _merged(left, of_left, plan.left, sizes), _merged(right, of_right, plan.right, sizes)
    product = shaped(matrix_product(first, second), [_size(group, sizes) for group in plan.made])
    made = _apart(plan.made)
    if all(len(group) <= 1 for group in plan.made):
        alone = [place for place, group in enumerate(plan.made) if not group]
        product = op.Squeeze(product, alone) if alone else product
    else:
        places = {name: (right, of_right) if name in plan.rights else (left, of_left) for name in made}
        parts = [_part(*places[name], name, sizes) for name in made]
        product = reshaped(product, parts) if parts else scalar(product)
    return _ordered(shaped(product, [sizes[name] for name in made]), "".join(made), result)


def _size(names: Sequence[str], sizes: Mapping[str, Dim]) -> Dim:
    """The size of axes that are one; None where it has no name."""
    fixed = [size for size in (sizes[name] for name in names) if isinstance(size, int)]
    if len(fixed) == len(names):
        return math.prod(fixed)
    return sizes[names[0]] if len(names) == 1 else None


def _part(value: ir.Value, names: str, name: str, sizes: Mapping[str, Dim]) -> RecordedValue:
    """The size of an axis as `int64[1]`."""
    size = sizes[name]
    return op.Constant(value_ints=[size]) if isinstance(size, int) else size_of(value, names.index(name))


def _ordered(value: ir.Value, names: str, wanted: Sequence[str]) -> ir.Value:
    order = [names.index(name) for name in wanted]
    if order == list(range(len(names))):
        return value
    assert value.shape is not None
    return shaped(op.Transpose(value, perm=order), [value.shape[place] for place in order])


def _spread(value: ir.Value, names: str, wanted: str) -> ir.Value:
    """The value with its axes in the wanted order, and an axis of 1 for each that it does not have."""
    ordered = _ordered(value, names, [name for name in wanted if name in names])
    missing = [place for place, name in enumerate(wanted) if name not in names]
    return op.Unsqueeze(ordered, missing) if missing else ordered


def _merged(value: ir.Value, names: str, groups: Sequence[Sequence[str]], sizes: Mapping[str, Dim]) -> ir.Value:
    """The value with an axis for each group of names; one of no names is 1."""
    order = _apart(groups)
    ordered = _ordered(value, names, order)
    if all(len(group) <= 1 for group in groups):
        alone = [place for place, group in enumerate(groups) if not group]
        spread = op.Unsqueeze(ordered, alone) if alone else ordered
        return shaped(spread, [_size(group, sizes) for group in groups])
    parts = []
    for group in groups:
        fixed = math.prod(size for size in (sizes[name] for name in group) if isinstance(size, int))
        is_free = any(not isinstance(sizes[name], int) for name in group)
        part: list[int] | RecordedValue | None = None if fixed == 1 and is_free else [fixed]
        for name in group:
            if not isinstance(sizes[name], int):
                size = size_of(value, names.index(name))
                part = size if part is None else op.Mul(size, part)
        parts.append(part if isinstance(part, ir.Value) else op.Constant(value_ints=part))
    return shaped(reshaped(ordered, parts), [_size(group, sizes) for group in groups])
