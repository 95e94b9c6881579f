"""Complex tensors: pairs of real numbers along a last axis. Which values are pairs, and operators on their two parts.

Arrives: an operator without a translation for complex tensors, its arguments as ONNX values (pairs among them) and a
way to translate an operator on real ones. Leaves: the pairs that it gives. An operator that only moves, picks or adds
elements is one operator on the real parts and one on the imaginary parts; a product of two tensors is four. Everything
else is left alone: a translation that takes pairs for numbers would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import ComplexNumber, RecordedValue

_KEY = "batch_export.complex"

LINEAR = frozenset(
    (
        *("alias", "as_strided", "broadcast_to", "chunk", "clone", "constant_pad_nd", "contiguous", "copy", "cumsum"),
        *("as_strided_scatter", "detach_", "masked_scatter", "resize"),
        *("detach", "diag", "diag_embed", "diagonal", "diagonal_copy", "expand", "expand_as", "flatten", "flip"),
        *("gather", "index", "index_put", "index_select", "lift_fresh_copy", "masked_select", "movedim", "nan_to_num"),
        *("narrow", "pad", "permute", "put", "repeat", "repeat_interleave", "reshape", "roll", "rot90"),
        *("scatter", "scatter_add"),
        *("select", "select_scatter", "slice", "slice_scatter", "split", "split_with_sizes", "squeeze", "sum"),
        *("swapaxes", "t", "take", "take_along_dim", "tensor_split", "tile", "trace", "transpose", "tril", "triu"),
        *("unbind", "unflatten", "unfold", "unsqueeze", "view", "unsafe_chunk", "unsafe_split", "broadcast_in_dim"),
    )
)
"""What gives, of real and of imaginary parts, the parts of the result."""

BILINEAR = frozenset({"bmm", "dot", "einsum", "inner", "linear", "matmul", "mm", "mv", "outer", "kron"})
"""Products of two tensors."""

FACTORIES: Mapping[str, tuple[int, int | complex]] = {
    "zeros": (0, 0),
    "ones": (0, 1),
    "empty": (0, 0),
    "new_zeros": (1, 0),
    "new_ones": (1, 1),
    "new_empty": (1, 0),
    "full": (0, 1j),
    "new_full": (1, 1j),
    "scalar_tensor": (-1, 1j),
}
"""Operators that make a tensor from its sizes: which argument these are (-1: it has none), and the number
(1j: the next argument)."""

DRAWN = frozenset({"rand", "randn", "rand_like", "randn_like"})
"""Operators that make a tensor of random numbers."""

LIKE: Mapping[str, str] = {"empty_like": "empty", "zeros_like": "zeros", "ones_like": "ones", "full_like": "full"}
"""Operators that take the sizes of a tensor, and what makes the same from the sizes."""

IN_COMPLEX = frozenset({"sum", "mean", "prod", "cumsum", "cumprod"})
"""Operators on real tensors that may be asked for a complex result."""

PARTS = {ir.DataType.COMPLEX64: ir.DataType.FLOAT, ir.DataType.COMPLEX128: ir.DataType.DOUBLE}
"""The dtypes of complex numbers -> those of their parts."""

_JOINS = frozenset({"cat", "stack", "hstack", "vstack", "dstack", "column_stack"})


Half = tuple[list[object], dict[str, object]]
"""The arguments of an operator on one of the two parts."""


def mark(value: ir.Value) -> None:
    """Says that a value is a tensor of pairs."""
    value.meta[_KEY] = True


def is_pair(value: object) -> TypeGuard[ir.Value]:
    """Whether a value is a tensor of pairs."""
    return isinstance(value, ir.Value) and bool(value.meta.get(_KEY))


def part(value: ir.Value, which: int) -> RecordedValue:
    """The real (0) or the imaginary (1) part."""
    found = op.Squeeze(op.Slice(value, [which], [which + 1], [-1]), [-1])
    if value.shape is not None:
        found.shape = ir.Shape(list(value.shape)[:-1])
    return found


def joined(real: ir.Value, imaginary: ir.Value) -> RecordedValue:
    """Two parts as pairs."""
    return op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1)


def paired(number: ComplexNumber, like: ir.Value) -> ir.Value:
    """A number, a real tensor or pairs, as pairs of a value's dtype."""
    if is_pair(number):
        return number
    if not isinstance(number, ir.Value):
        of = complex(number)
        return op.Constant(value=ir.tensor([of.real, of.imag], dtype=like.dtype))
    return _beside_zeros(op.CastLike(number, like), number.shape)


def _beside_zeros(real: ir.Value, shape: ir.Shape | None) -> RecordedValue:
    """A real tensor as pairs whose imaginary part is 0.

    NOTE: the Pad has amounts for all axes: onnxruntime moves a Transpose wrongly past one that names its axes.
    """
    last = op.Unsqueeze(real, [-1])
    if shape is None:
        return op.Concat(last, op.Expand(op.CastLike(0, last), op.Shape(last)), axis=-1)
    return op.Pad(last, [*[0] * (2 * len(shape) + 1), 1], op.CastLike(0, last))


def is_new(base: str, args: Sequence[object]) -> bool:
    """Whether an operator makes a tensor of one known number beside a complex one (`new_full`)."""
    if not base.startswith("new_") or base not in FACTORIES:
        return False
    position, number = FACTORIES[base]
    return number != 1j or (len(args) > position + 1 and isinstance(args[position + 1], (int, float, complex)))


def filled(base: str, args: Sequence[Any], fake: torch.Tensor) -> RecordedValue:
    """A complex tensor of one number, by an operator of `FACTORIES`."""
    position, number = FACTORIES[base]
    of = complex(args[position + 1]) if number == 1j else complex(number)
    dtype = ir.DataType.DOUBLE if fake.dtype == torch.complex128 else ir.DataType.FLOAT
    pair = op.Constant(value=ir.tensor([of.real, of.imag], dtype=dtype))
    return op.Expand(pair, [*(args[position] if position >= 0 else ()), 2])


def filled_like(base: str, args: Sequence[object], sizes: Sequence[object], fake: torch.Tensor) -> RecordedValue:
    """A complex tensor of one number with the given sizes, by an operator of `LIKE`."""
    return filled(LIKE[base], [sizes, *args[1:]], fake)


def drawn(base: str, sizes: Sequence[object], fake: torch.Tensor) -> RecordedValue:
    """Complex random numbers of some sizes: both parts uniform, or normal with half the variance each."""
    dtype = ir.DataType.DOUBLE if fake.dtype == torch.complex128 else ir.DataType.FLOAT
    like = op.Expand(op.Constant(value=ir.tensor([0.0, 0.0], dtype=dtype)), [*sizes, 2])
    return op.RandomNormalLike(like, scale=0.5**0.5) if base.startswith("randn") else op.RandomUniformLike(like)


def joined_alike(base: str, args: Sequence[Any], fake: object) -> list[object]:
    """The arguments of an operator that joins tensors, each as pairs of the result's dtype where that is complex."""
    if base not in _JOINS or not isinstance(fake, torch.Tensor) or not fake.is_complex():
        return list(args)
    dtype = ir.DataType.DOUBLE if fake.dtype == torch.complex128 else ir.DataType.FLOAT
    return [[_as_pairs(one, dtype) for one in args[0]], *args[1:]]


def as_pairs(argument: object, dtype: torch.dtype) -> object:
    """A tensor, of real or complex numbers, as pairs of a complex dtype; anything else as it is."""
    of = ir.DataType.DOUBLE if dtype == torch.complex128 else ir.DataType.FLOAT
    return _as_pairs(argument, of) if isinstance(argument, ir.Value) else argument


def _as_pairs(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    if value.dtype == dtype and is_pair(value):
        return value
    shape = value.shape
    found = op.Cast(value, to=dtype)
    found.shape = shape
    if is_pair(value):
        mark(found)
    elif shape is None or list(shape) != [0]:  # what torch leaves out of a join whatever its rank
        found = _beside_zeros(found, shape)
        mark(found)
        if shape is not None:
            found.shape = ir.Shape([*shape, 2])
    return found


def by_parts(
    base: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    fake: object,
    real: Callable[[Sequence[object], Mapping[str, object], object, str], object],
) -> object:
    """Translates an operator on pairs by the operator on real tensors; None where that would not be right.

    Args:
        base: the operator's name without namespace and overload.
        args: its arguments.
        kwargs: its arguments by keyword.
        fake: what torch computed, complex tensors in it.
        real: translates the operator with real arguments; called with the arguments, the fake result and a name's end.
    """
    if any(not one.is_complex() for one in pytree.tree_leaves(fake) if isinstance(one, torch.Tensor)):
        return None
    fakes = pytree.tree_map_only(torch.Tensor, lambda one: one.real, fake)
    if base in LINEAR:
        if base in ("index_put", "put", "scatter", "scatter_add", "copy", "slice_scatter", "select_scatter"):
            args = _all_pairs(args)
        dtype = kwargs.get("dtype")
        if isinstance(dtype, int) and dtype in PARTS:
            kwargs = {**kwargs, "dtype": PARTS[ir.DataType(dtype)]}
        halves = [_halves(args, kwargs, which) for which in (0, 1)]
        if base == "scatter":
            halves = [(_numbers(half, which), kwargs) for which, (half, kwargs) in enumerate(halves)]
        if base in ("pad", "constant_pad_nd"):
            halves = [_padding(base, half, which) for which, half in enumerate(halves)]
        return _merged(*(real(*half, fakes, f"part{which}") for which, half in enumerate(halves)))
    if base in BILINEAR and len(args) >= 2:
        return _product(base, args, kwargs, fakes, real)
    return None


def _halves(args: Sequence[object], kwargs: Mapping[str, object], which: int) -> Half:
    both: Half = pytree.tree_map(lambda one: part(one, which) if is_pair(one) else one, (list(args), dict(kwargs)))
    return both


def _all_pairs(args: Sequence[object]) -> list[object]:
    """What is written into a complex tensor is complex too, whether it was given as such or as real numbers."""
    like = next(one for one in pytree.tree_leaves(list(args)) if is_pair(one))
    return [
        paired(one, like)
        if isinstance(one, ir.Value) and one.dtype is not None and one.dtype.is_floating_point()
        else one
        for one in args
    ]


def _numbers(args: Sequence[object], which: int) -> list[object]:
    """The number that a scatter writes: its real or its imaginary part."""
    listed = list(args)
    if len(listed) > 3 and isinstance(listed[3], (int, float, complex)):
        number = complex(listed[3])
        listed[3] = number.imag if which else number.real
    return listed


def _padding(base: str, half: Half, which: int) -> Half:
    """The number that is put around one part: the real or the imaginary part of the one that was given."""
    args, kwargs = half
    position = 3 if base == "pad" else 2
    value = kwargs.get("value", args[position] if len(args) > position else None)
    if value is None:
        return half
    assert isinstance(value, (int, float, complex))
    number = complex(value)
    return args[:position], {**kwargs, "value": number.imag if which else number.real}


def _merged(real: Any, imaginary: Any) -> Any:
    if isinstance(real, (list, tuple)):
        return [_merged(*both) for both in zip(real, imaginary, strict=True)]
    return None if real is None or imaginary is None else joined(real, imaginary)


def _product(
    base: str,
    args: Sequence[Any],
    kwargs: Mapping[str, object],
    fakes: object,
    real: Callable[[Sequence[object], Mapping[str, object], object, str], object],
) -> object:
    listed = list(args)
    bias = listed.pop(2) if base == "linear" and len(listed) > 2 else None
    factors = listed[1] if base == "einsum" else listed[:2]
    if len(factors) != 2:
        return None

    def product(left: object, right: object, end: str) -> object:
        given = [listed[0], [left, right], *listed[2:]] if base == "einsum" else [left, right, *listed[2:]]
        return real(given, kwargs, fakes, end)

    left, right = factors
    if is_pair(left) and is_pair(right):
        parts = [[part(one, which) for which in (0, 1)] for one in (left, right)]
        (a, b), (c, d) = parts
        products = product(a, c, "ac"), product(b, d, "bd"), product(a, d, "ad"), product(b, c, "bc")
        if any(one is None for one in products):
            return None
        result = joined(op.Sub(products[0], products[1]), op.Add(products[2], products[3]))
    else:
        sides = [
            product(part(left, which), right, f"part{which}")
            if is_pair(left)
            else product(left, part(right, which), f"part{which}")
            for which in (0, 1)
        ]
        result = _merged(*sides)
    if bias is None or result is None:
        return result
    return op.Add(result, paired(bias, result))
