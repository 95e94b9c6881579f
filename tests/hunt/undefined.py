"""What an operator is asked that neither torch nor ONNX defines, so that no answer of it is wrong.

An operator of ATen and its arguments arrive; a truth value leaves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def is_undefined(func: Any, args: Any) -> bool:
    """Whether nobody says what the operator gives for these arguments."""
    return any(asked(func, args) for asked in _UNDEFINED)


def _asks_for_the_sign_of_nan(func: Any, args: Any) -> bool:
    """Which sign a NaN has is the processor's choice."""
    asked = {"signbit": 0, "copysign": 1}.get(func._schema.name.removeprefix("aten::"))
    if asked is None or not isinstance(args[asked], torch.Tensor) or not args[asked].is_floating_point():
        return False
    return bool(args[asked].isnan().any())


def _places(view: torch.Tensor) -> torch.Tensor:
    """Where in its memory a view's elements lie."""
    found = torch.full(view.shape, int(view.storage_offset()))
    for axis, stride in enumerate(view.stride()):
        steps = torch.arange(view.shape[axis]) * stride
        found = found + steps.reshape([-1 if one == axis else 1 for one in range(view.dim())])
    return found


def _sorts_nan(func: Any, args: Any) -> bool:
    """The most frequent of numbers with NaN depends on how a sort that takes none meets it."""
    return func._schema.name == "aten::mode" and args[0].is_floating_point() and bool(args[0].isnan().any())


def _reads_what_it_writes(func: Any, args: Any) -> bool:
    """Elements written one by one from memory that they share."""
    if func._schema.name == "aten::copy_":
        one, other = args[0], args[1]
        if not one.numel() or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
            return False
        same = (one.storage_offset(), one.stride(), one.shape) == (other.storage_offset(), other.stride(), other.shape)
        return not same and bool(torch.isin(_places(one), _places(other)).any())
    if func._schema.name not in ("aten::index_copy_", "aten::index_add_", "aten::index_put_"):
        return False
    there = args[0].untyped_storage().data_ptr()
    others = [one for one in pytree.tree_leaves(args[1:]) if isinstance(one, torch.Tensor)]
    return any(one.untyped_storage().data_ptr() == there for one in others if one.numel())


_SCATTERS = ("select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter")


def _is_expanded(view: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(view.stride(), view.shape, strict=True))


def _writes_a_place_twice(func: Any, args: Any) -> bool:
    """Through a view whose elements share memory; how often each is read and written is the kernel's choice.

    `select_scatter` and the like write to a copy, which torch lays out as the view (docs/upstream.md); not where it is
    expanded.
    """
    if not args or not isinstance(args[0], torch.Tensor) or not args[0].numel():
        return False
    copies = func._schema.name.removeprefix("aten::") in _SCATTERS and not _is_expanded(args[0])
    if not func._schema.is_mutable and not copies:
        return False
    places = _places(args[0]).flatten()
    return bool(places.unique().numel() < places.numel())


def _takes_a_large_exponent(func: Any, args: Any) -> bool:
    """What C does not fit into an int."""
    if func._schema.name != "aten::ldexp" or args[1].dtype != torch.int64:
        return False
    return bool(((args[1] > 2**31 - 1) | (args[1] < -(2**31))).any())


def _takes_the_smallest(func: Any, args: Any) -> bool:
    """The smallest integer has no absolute value."""
    if func._schema.name not in ("aten::gcd", "aten::lcm"):
        return False
    both = [one for one in args if isinstance(one, torch.Tensor) and one.dtype.is_signed]
    return any(bool((one == torch.iinfo(one.dtype).min).any()) for one in both)


def _antialiases_to_one_column(func: Any, args: Any) -> bool:
    """torch then repeats the first row (docs/upstream.md)."""
    if func._schema.name not in ("aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa"):
        return False
    return bool(args[1]) and args[1][-1] == 1


def _is_given_by_lane(func: Any, args: Any) -> bool:
    """Whether torch's kernel of many elements at once gives NaN where its kernel of one does not (docs/upstream.md)."""
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    if name not in ("fmod", "remainder") or not isinstance(args[0], torch.Tensor) or not args[0].is_floating_point():
        return False
    whole, by = torch.broadcast_tensors(args[0], torch.as_tensor(args[1]).to(args[0].dtype))
    operator = getattr(torch, name)
    lost = operator(whole, by).isnan()
    return any(not bool(operator(one, other).isnan()) for one, other in zip(whole[lost], by[lost], strict=True))


def _asks_at_a_pole(func: Any, args: Any) -> bool:
    """The trigamma function of a negative integer is infinite; torch gives what sin(pi x) rounds to."""
    if func._schema.name.removesuffix("_") != "aten::polygamma" or args[0 if isinstance(args[0], int) else 1] != 1:
        return False
    x = args[1 if isinstance(args[0], int) else 0]
    return x.is_floating_point() and bool(((x < 0) & (x == x.floor())).any())


def _fills_nothing(func: Any, args: Any) -> bool:
    """torch then takes any index (docs/upstream.md)."""
    if func._schema.name.removesuffix("_") not in ("aten::index_fill", "aten::index_add") or args[0].numel():
        return False
    size = args[0].shape[args[1]] if args[0].dim() else 1
    return bool(((args[2] >= size) | (args[2] < -size)).any())


def _factors_infinities(func: Any, args: Any) -> bool:
    """What is left of a matrix with infinities once it is factored depends on the order of steps, as inf - inf does."""
    name = func._schema.name.removeprefix("aten::").removesuffix("_ex")
    if name not in _FACTORISATIONS:
        return False
    return any(isinstance(one, torch.Tensor) and one.is_floating_point() and bool(one.isinf().any()) for one in args)


_FACTORISATIONS = frozenset(
    {
        "linalg_inv",
        "_linalg_solve",
        "linalg_lu_factor",
        "linalg_lu",
        "linalg_cholesky",
        "_linalg_det",
        "_linalg_slogdet",
    }
) | {"linalg_lu_solve", "linalg_solve_triangular", "triangular_solve", "cholesky_solve", "linalg_qr"}


_UNDEFINED = (
    _factors_infinities,
    _fills_nothing,
    _is_given_by_lane,
    _asks_at_a_pole,
    _asks_for_the_sign_of_nan,
    _sorts_nan,
    _reads_what_it_writes,
    _writes_a_place_twice,
    _takes_a_large_exponent,
    _takes_the_smallest,
    _antialiases_to_one_column,
)
