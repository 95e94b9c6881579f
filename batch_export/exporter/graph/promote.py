"""Type promotion: torch mixes dtypes freely, ONNX operators do not.

Arrives: an operator's name, its arguments as ONNX values and Python numbers, and the dtype that torch computed for the
result. Leaves: the arguments with `Cast` nodes where torch would have converted them. Operators that are not in the
tables keep their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op

_FIRST, _FIRST_TWO, _ALL_THREE, _BRANCHES = (0,), (0, 1), (0, 1, 2), (1, 2)
_CONVERTED: tuple[tuple[tuple[int, ...], str], ...] = (
    # positions, operators                                                         what they are
    (_FIRST_TWO, "add sub subtract mul multiply rsub div divide true_divide floor_divide fmod remainder"),  # arithmetic
    (_FIRST_TWO, "pow atan2 hypot lerp copysign nextafter xlogy logaddexp logaddexp2"),
    (_FIRST_TWO, "max min maximum minimum clamp_min clamp_max prelu"),  # comparison and choice
    (_FIRST_TWO, "bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__"),  # bits
    (_FIRST_TWO, "bitwise_left_shift bitwise_right_shift __lshift__ __rshift__"),
    (_ALL_THREE, "addcmul addcdiv clamp clip"),
    (_BRANCHES, "where"),
    (_FIRST, "sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sinc rad2deg deg2rad"),  # elementwise
    (_FIRST, "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid logit erf erfc"),
    (_FIRST, "sum prod mean cumsum cumprod std var"),  # reductions
)
_TO_RESULT: dict[str, tuple[int, ...]] = {name: at for at, names in _CONVERTED for name in names.split()}
"""Operator -> the positions of the arguments that are converted to the dtype of the result."""


def is_converted(qualified: str) -> bool:
    """Whether an operator computes in the dtype that its arguments are promoted to."""
    return base_name(qualified) in _TO_RESULT


_COMPARISONS = frozenset(
    ["eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal", "not_equal", "isclose"]
)
_LOGICAL = frozenset(["logical_and", "logical_or", "logical_xor", "logical_not"])

_CATEGORY_ORDER = {
    ir.DataType.BOOL: 0,
    ir.DataType.UINT8: 1,
    ir.DataType.INT8: 1,
    ir.DataType.INT16: 1,
    ir.DataType.INT32: 1,
    ir.DataType.INT64: 1,
    ir.DataType.FLOAT16: 2,
    ir.DataType.BFLOAT16: 2,
    ir.DataType.FLOAT: 2,
    ir.DataType.DOUBLE: 2,
}
_WIDTH = {
    ir.DataType.UINT8: 1,
    ir.DataType.INT8: 1,
    ir.DataType.INT16: 2,
    ir.DataType.INT32: 3,
    ir.DataType.INT64: 4,
    ir.DataType.FLOAT16: 1,
    ir.DataType.BFLOAT16: 1,
    ir.DataType.FLOAT: 3,
    ir.DataType.DOUBLE: 4,
}


def base_name(qualified: str) -> str:
    """`add` for `aten::add.Tensor`."""
    return qualified.partition("::")[2].partition(".")[0]


def _promoted_pair(left: ir.DataType, right: ir.DataType) -> ir.DataType:
    if left == right:
        return left
    left_order, right_order = _CATEGORY_ORDER.get(left, 2), _CATEGORY_ORDER.get(right, 2)
    if left_order != right_order:
        return left if left_order > right_order else right
    if {left, right} == {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}:
        return ir.DataType.FLOAT
    if {left, right} == {ir.DataType.UINT8, ir.DataType.INT8}:
        return ir.DataType.INT16
    return left if _WIDTH.get(left, 4) >= _WIDTH.get(right, 4) else right


def result_dtype(arguments: Sequence[object]) -> ir.DataType | None:
    """The dtype in which torch compares or combines the arguments: tensors, 0-d tensors and numbers rank in this order.

    Source of the rule: torch's documentation of type promotion (`torch.result_type`).
    """
    ranked: tuple[list[ir.DataType], list[ir.DataType], list[ir.DataType]] = ([], [], [])
    for argument in arguments:
        if isinstance(argument, ir.Value):
            if argument.dtype is None:
                return None
            is_scalar = argument.shape is not None and len(argument.shape) == 0
            ranked[1 if is_scalar else 0].append(argument.dtype)
        elif isinstance(argument, bool):
            ranked[2].append(ir.DataType.BOOL)
        elif isinstance(argument, int):
            ranked[2].append(ir.DataType.INT64)
        elif isinstance(argument, float):
            ranked[2].append(ir.DataType.FLOAT)
    result: ir.DataType | None = None
    for group in ranked:
        if not group:
            continue
        promoted = group[0]
        for dtype in group[1:]:
            promoted = _promoted_pair(promoted, dtype)
        if result is None or _CATEGORY_ORDER.get(promoted, 2) > _CATEGORY_ORDER.get(result, 2):
            result = promoted
    return result


def cast_to(value: object, dtype: ir.DataType) -> object:
    """The value in the given dtype; Python numbers are converted in Python."""
    if isinstance(value, ir.Value):
        return value if value.dtype == dtype or value.dtype is None else op.Cast(value, to=dtype)
    if isinstance(value, (bool, int, float)):
        if dtype.is_floating_point():
            return float(value)
        return bool(value) if dtype == ir.DataType.BOOL else _wrapped(int(value), dtype)
    return value


def _wrapped(value: int, dtype: ir.DataType) -> int:
    """The number that an integer becomes in a dtype that it does not fit into."""
    return int(np.asarray(value).astype(dtype.numpy())) if -(2**63) <= value < 2**63 else value


_MOVES = frozenset(
    (
        *("_to_copy", "_unsafe_view", "alias", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to"),
        *("cat", "chunk", "clone", "concat", "concatenate", "constant_pad_nd", "contiguous", "copy", "detach", "diag"),
        *("diag_embed", "diagonal", "dropout", "embedding", "empty_like", "expand", "expand_as", "flatten", "flip"),
        *("full_like", "gather", "getitem", "hstack", "index", "index_put", "index_select", "item", "lift_fresh"),
        *("lift_fresh_copy", "masked_select", "movedim", "nan_to_num", "narrow", "new_empty", "new_full", "nextafter"),
        *("new_ones",),
        *("new_zeros", "numel", "ones_like", "pad", "permute", "repeat", "repeat_interleave", "reshape", "roll"),
        *("scatter", "select", "select_scatter", "slice", "slice_scatter", "split", "split_with_sizes", "squeeze"),
        *("stack", "swapaxes", "sym_size", "t", "take", "take_along_dim", "tensor_split", "tile", "to", "transpose"),
        *("tril", "triu", "type_as", "unbind", "unflatten", "unfold", "unsafe_split", "unsqueeze", "view", "view_as"),
        *("vstack", "zeros_like"),
    )
)
"""Operators that do not compute: bfloat16 stays what it is."""

_ROUNDS_ITSELF = frozenset({"rand_like", "uniform", "ldexp"})
"""Operators whose translation rounds to bfloat16: a number that reaches a bound, or a power beside wider numbers."""


def _computed_in_float32(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_computed_in_float32(item) for item in value]
    if not isinstance(value, ir.Value) or value.dtype != ir.DataType.BFLOAT16:
        return value
    wide = op.Cast(value, to=ir.DataType.FLOAT)
    if wide.shape is None:
        wide.shape = value.shape
    return wide


def promote(qualified: str, arguments: Sequence[object], result: ir.DataType | None) -> list[object]:
    """The positional arguments of an operator, converted as torch converts them.

    bfloat16 is computed in float32 and rounded once, at the end, as torch does it.
    """
    converted = _promoted(qualified, arguments, result)
    name = base_name(qualified)
    if qualified.startswith(("aten::", "prims::", "_operator::")) and name not in _MOVES | _ROUNDS_ITSELF:
        if any(isinstance(value, ir.Value) and value.dtype == ir.DataType.BFLOAT16 for value in converted):
            ends = [place for place in (0, 1) if place == 0 or name in _NUMBERS_OF_BFLOAT16]
            converted = [_rounded(value) if place in ends else value for place, value in enumerate(converted)]
        return [_computed_in_float32(value) for value in converted]
    return converted


_NUMBERS_OF_BFLOAT16 = frozenset({"add", "sub", "subtract", "rsub", "remainder", "fmod", "pow"}) | _COMPARISONS
"""Operators for which torch rounds a number that stands second beside bfloat16, as every one that stands first.

A number to multiply with, or to divide by, is one of float32.
"""


def _rounded(value: object) -> object:
    """A Python number as the nearest one of bfloat16; everything else as it is."""
    return float(ir.tensor(value, dtype=ir.DataType.BFLOAT16).numpy()) if isinstance(value, float) else value


def _narrowed(value: object, common: ir.DataType | None) -> object:
    """The value in the common dtype where that holds fewer numbers."""
    dtype = value.dtype if isinstance(value, ir.Value) else None
    if common is None or dtype is None or _CATEGORY_ORDER.get(dtype) != _CATEGORY_ORDER.get(common):
        return value
    return cast_to(value, common) if _WIDTH.get(dtype, 0) > _WIDTH.get(common, 0) else value


def _promoted(qualified: str, arguments: Sequence[object], result: ir.DataType | None) -> list[object]:
    name = base_name(qualified)
    converted = list(arguments)
    if name in _COMPARISONS:
        common = result_dtype(converted[:2])
        if common is not None:
            converted[:2] = [cast_to(value, common) for value in converted[:2]]
        return converted
    if name in _LOGICAL:  # a scalar goes through the dtype of the tensor beside it, in which it may be 0
        common = result_dtype(converted[:2])
        return [cast_to(_narrowed(value, common), ir.DataType.BOOL) for value in converted]
    if name in ("cat", "stack", "concat", "concatenate", "hstack", "vstack") and result is not None:
        assert isinstance(converted[0], (list, tuple))
        converted[0] = [cast_to(value, result) for value in converted[0]]
        return converted
    positions = _TO_RESULT.get(name)
    if positions is None or result is None:
        return converted
    if name in ("max", "min") and not (len(converted) > 1 and isinstance(converted[1], ir.Value)):
        return converted
    if name == "pow" and isinstance(converted[0], ir.Value) and not isinstance(converted[1], ir.Value):
        converted[0] = cast_to(converted[0], result)
        return converted
    if name in _BY_ANY_NUMBER and result in _HALVES and _is_wider(converted[1], result):
        result = ir.DataType.FLOAT
    for position in positions:
        if position < len(converted):
            converted[position] = cast_to(converted[position], result)
    return converted


_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_BY_ANY_NUMBER = frozenset({"mul", "multiply", "div", "divide", "true_divide", "floor_divide"})
"""Operators in which torch does not round what stands second beside halves: it computes them in float32."""
_NORMAL_HALVES = (6.104e-5, 65504.0)
"""Between these magnitudes a number of float16 has all its digits."""


def _is_wider(value: object, half: ir.DataType) -> bool:
    """Whether it is a 0-d tensor of another dtype, or a number far from each of float16, as those beyond its range."""
    if isinstance(value, (int, float)):
        smallest, largest = _NORMAL_HALVES
        return half == ir.DataType.FLOAT16 and value != 0 and not smallest <= abs(value) <= largest
    if not isinstance(value, ir.Value) or value.shape is None or value.dtype is None:
        return False
    return len(value.shape) == 0 and value.dtype != half
