"""onnxscript's rewrite rules, those of them that hold for every value, indexed by the operator that they start from.

Left out or replaced (onnxscript 0.7.2): its rules for `x + 0` and `x * 1` also match numbers close to 0 and 1, so that
`log(x + 1e-9)` lost its guard against 0; Relu after a Clip took the Clip's upper bound even where that is negative;
Clip after Clip fails, and combines bounds that do not overlap; bounds of one element changed the rank of a scalar;
Flatten became a Reshape to -1, which runtimes refuse for an empty batch; `x + 0.` was dropped, which turns -0.0 into
0.0; a ScatterND that adds to every row was taken for one that overwrites; casts of float64 by way of float32 rounded
once instead of twice; two Slices of an odd axis became a Split whose pieces have other sizes; and products between
Reshapes lost these wherever the last shape was right, although rows had become matrices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import RewriteRule
from onnxscript.rewriter.pattern import Constant


def _exactly(number: int) -> Any:
    return Constant(number, rel_tol=0.0, abs_tol=0.0)


def _neutral_elements() -> list[RewriteRule]:
    """`x * 1`, `1 * x`, `x / 1`, for these very numbers, `x + 0` and `x - 0`, and Dropout that drops nothing.

    -0.0 + 0.0 is 0.0, so that of floating point numbers only adding -0.0 and subtracting 0.0 are neutral.
    """
    from onnxscript.rewriter.rules.common import _no_op  # lazy: onnxscript's rules are slow to load

    def same(op: Any, x: Any, **_: Any) -> Any:
        return op.Identity(x)

    def keeps_zeros(context: Any, x: ir.Value) -> bool:
        node = context.root
        if x.dtype is not None and x.dtype.is_integer():
            return True
        zero: ir.Value = next((value for value in node.inputs if value is not x), x)
        if zero.const_value is None:
            return False
        return bool(np.signbit(zero.const_value.numpy()) == (node.op_type == "Add"))

    zeros: list[Callable[[Any, Any], Any]] = [
        lambda op, x: op.Add(x, _exactly(0)),
        lambda op, x: op.Add(_exactly(0), x),
        lambda op, x: op.Sub(x, _exactly(0)),
    ]
    ones: list[Callable[[Any, Any], Any]] = [
        lambda op, x: op.Mul(x, _exactly(1)),
        lambda op, x: op.Mul(_exactly(1), x),
        lambda op, x: op.Div(x, _exactly(1)),
    ]
    dropout = [_no_op.dropout_zero_rule, _no_op.dropout_inference_rule]
    neutral = [
        *(RewriteRule(pattern, same, keeps_zeros) for pattern in zeros),
        *(RewriteRule(one, same) for one in ones),
    ]
    return [*neutral, *dropout]


def _bounds() -> list[RewriteRule]:
    """Min, Max, Clip and Relu that follow each other; bounds of a Clip are scalars, which keep the input's shape."""
    from onnxscript.rewriter.rules.common import (  # lazy: onnxscript's rules are slow to load
        _fuse_relus_clips,
        _min_max_to_clip,
    )

    def is_scalar(self: Any, bound: Any) -> bool:
        return np.ndim(bound) == 0 and not np.isnan(bound)  # a bound of NaN is lost in a Clip

    clips = [
        type(found.__name__, (found,), {"_is_scalar": is_scalar}).rule()  # type: ignore[attr-defined]
        for found in (_min_max_to_clip.FuseMinMaxToClip, _min_max_to_clip.FuseMaxMinToClip)
    ]
    relu_after_clip = _fuse_relus_clips.FuseSuccessiveReluClip

    unlimited: Any = relu_after_clip.check

    def has_positive(self: Any, context: Any, **found: Any) -> Any:
        """Without positive numbers every result is 0.0, and a Clip to 0 leaves -0.0 as it is."""
        result: Any = unlimited(self, context, **found)
        if result:
            highest = self.compute_clip_min_max(found["out_first_clip"].producer(), None)[1]
            if highest is not None and not highest.numpy() > 0:
                return result.fail("the Clip has no positive bound")
        return result

    clips.append(type("ReluAfterClip", (relu_after_clip,), {"check": has_positive}).rule())  # type: ignore[attr-defined]
    relus = [_fuse_relus_clips.successive_clip_relu_rule, _fuse_relus_clips.successive_relu_rule]
    return [_min_max_to_clip.min_min_rule, _min_max_to_clip.max_max_rule, *clips, *relus]


_NARROW = frozenset(
    {"FLOAT", "FLOAT16", "BFLOAT16", "BOOL", "INT8", "UINT8", "INT16", "UINT16"},
)
"""dtypes whose every value float32 holds, so that a cast by way of it rounds once."""


def _casts() -> RewriteRule:
    """A cast by way of float32, left out where it rounds nothing itself."""
    from onnxscript.rewriter.rules.common import _basic_rules  # lazy: onnxscript's rules are slow to load

    unlimited: Any = _basic_rules.CastCast.check

    def rounds_once(self: Any, context: Any, x: ir.Value, to: ir.Attr, to_ignored: ir.Attr) -> Any:
        result: Any = unlimited(self, context, x, to, to_ignored)
        if x.dtype is None or x.dtype.name not in _NARROW:
            return result.fail("The cast to float32 rounds.")
        return result

    return type("CastByFloat", (_basic_rules.CastCast,), {"check": rounds_once}).rule()  # type: ignore[attr-defined, no-any-return]


def _scatters() -> list[RewriteRule]:
    """A ScatterND that writes everything, unless it adds to what is there."""
    from onnxscript.rewriter.rules.common import _redundant_scatter_nd  # lazy: onnxscript's rules are slow to load

    def only_writes(self: Any, context: Any, data: ir.Value, indices: ir.Value, updates: ir.Value, **_: Any) -> Any:
        if context.root.attributes.get_string("reduction", "none") != "none":
            return False
        check: Any = _redundant_scatter_nd.ScatterAllStatic.check
        return check(self, context, data, indices, updates)

    static = type("ScatterAll", (_redundant_scatter_nd.ScatterAllStatic,), {"check": only_writes})
    return [_redundant_scatter_nd.no_op_dynamic_scatter_nd_rule, static.rule()]  # type: ignore[attr-defined]


def _known_shapes() -> RewriteRule:
    """A Reshape to a shape that is known but for one size, which is -1 then: runtimes refuse that beside a 0."""
    from onnxscript.rewriter.rules.common import (  # lazy: onnxscript's rules are slow to load
        _materialize_reshape_shape,
    )

    unlimited: Any = _materialize_reshape_shape.MaterializeReshapeShape

    def without_zero(self: Any, context: Any, data: ir.Value, shape: ir.Value) -> Any:
        result = unlimited.check(self, context, data, shape)
        if result and -1 in self._new_dims and 0 in self._new_dims:
            return result.fail("A size is 0.")
        return result

    return type("KnownShape", (unlimited,), {"check": without_zero}).rule()  # type: ignore[attr-defined, no-any-return]


def _products() -> list[RewriteRule]:
    """A MatMul of reshaped tensors whose result is reshaped, where Reshapes do nothing to matrices but group them."""
    from onnxscript.rewriter.rules.common import _broadcast_to_matmul  # lazy: onnxscript's rules are slow to load

    def keeps_matrices(context: Any, input_a: ir.Value, input_b: ir.Value, shape_c: ir.Value, **_: Any) -> bool:
        product = context.root.inputs[0].producer()
        whole = [_matrices(value) for value in (input_a, input_b, *product.inputs)]
        if any(shape is None for shape in whole):
            return False
        (batch_a, *matrix_a), (batch_b, *matrix_b), (group_a, *grouped_a), (group_b, *grouped_b) = filter(None, whole)
        if matrix_b != grouped_b or not _are_paired(group_a, group_b) or not _are_paired(batch_a, batch_b):
            return False
        is_by_one = math.prod(batch_b) == math.prod(group_b) == 1 and matrix_a[-1] == grouped_a[-1]
        if matrix_a != grouped_a and not is_by_one:  # rows of whatever matrices are multiplied by one alike
            return False
        return _broadcast_to_matmul.check_if_not_need_reshape(context, input_a, input_b, shape_c)

    return [
        RewriteRule(pattern, _broadcast_to_matmul._matmul, keeps_matrices)
        for pattern in (
            _broadcast_to_matmul._two_reshapes_matmul_reshape_pattern,
            _broadcast_to_matmul._one_reshape_matmul_reshape_pattern,
        )
    ]


def _are_paired(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether matrices of two groups meet in their order, or one of the groups has a single matrix."""
    return list(one) == list(other) or 1 in (math.prod(one), math.prod(other))


def _matrices(value: ir.Value) -> tuple[list[int], int, int] | None:
    """The shape of a group of matrices, their rows and columns; None where these are not known, or there are none."""
    shape = None if value.shape is None else list(value.shape)
    if shape is None or len(shape) < _MATRIX or not all(isinstance(size, int) for size in shape):
        return None
    sizes = [int(size) for size in shape if isinstance(size, int)]
    group = sizes[:-_MATRIX]
    while group[:1] == [1]:
        group = group[1:]
    return group, sizes[-2], sizes[-1]


_MATRIX = 2


def _all_rules() -> list[RewriteRule]:
    from onnxscript.rewriter.rules.common import (  # lazy: onnxscript's rules are slow to load
        _basic_rules,
        _cast_constant_of_shape,
        _collapse_slices,
        _fuse_pad_into_conv,
        _remove_optional_bias,
    )

    left_out = (_basic_rules.flatten_to_reshape_rule, _basic_rules.cast_cast_rule, _basic_rules.slice_split_rule)
    return [
        *_neutral_elements(),
        *_products(),
        *_cast_constant_of_shape.rules,
        *_collapse_slices.rules,
        _known_shapes(),
        *_bounds(),
        *(rule for rule in _basic_rules.basic_optimization_rules() if rule not in left_out),
        _casts(),
        *_scatters(),
        *_fuse_pad_into_conv.rules,
        *_remove_optional_bias.rules,
    ]


@functools.cache
def indexed_rules() -> Mapping[str, tuple[RewriteRule, ...]]:
    """The rules by the operator type of the node that a match starts from."""
    index: dict[str, list[RewriteRule]] = {}
    for rule in _all_rules():
        producer = rule._target_pattern.outputs[0].producer()
        root = str(producer.op) if producer is not None else "*"
        index.setdefault(root, []).append(rule)
    return {root: tuple(found) for root, found in index.items()}
