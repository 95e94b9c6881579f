"""onnxscript's rewrite rules, those of them that hold for every value, indexed by the operator that they start from.

Left out or replaced (onnxscript 0.7.2): its rules for `x + 0` and `x * 1` also match numbers close to 0 and 1, so that
`log(x + 1e-9)` lost its guard against 0; Relu after a Clip took the Clip's upper bound even where that is negative;
Clip after Clip fails, and combines bounds that do not overlap; bounds of one element changed the rank of a scalar;
and Flatten became a Reshape to -1, which runtimes refuse for a batch of none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import RewriteRule
from onnxscript.rewriter.pattern import Constant


def _exactly(number: int) -> Any:
    return Constant(number, rel_tol=0.0, abs_tol=0.0)


def _neutral_elements() -> list[RewriteRule]:
    """`x + 0`, `0 + x`, `x - 0`, `x * 1`, `1 * x`, `x / 1`, for these very numbers, and Dropout that drops nothing."""
    from onnxscript.rewriter.rules.common import _no_op

    def same(op: Any, x: Any, **_: Any) -> Any:
        return op.Identity(x)

    patterns: list[Callable[[Any, Any], Any]] = [
        lambda op, x: op.Add(x, _exactly(0)),
        lambda op, x: op.Add(_exactly(0), x),
        lambda op, x: op.Sub(x, _exactly(0)),
        lambda op, x: op.Mul(x, _exactly(1)),
        lambda op, x: op.Mul(_exactly(1), x),
        lambda op, x: op.Div(x, _exactly(1)),
    ]
    dropout = [_no_op.dropout_zero_rule, _no_op.dropout_inference_rule]
    return [*(RewriteRule(pattern, same) for pattern in patterns), *dropout]


def _bounds() -> list[RewriteRule]:
    """Min, Max, Clip and Relu that follow each other; bounds of a Clip are scalars, which keep the input's shape."""
    from onnxscript.rewriter.rules.common import _fuse_relus_clips, _min_max_to_clip

    def is_scalar(self: Any, bound: Any) -> bool:
        return np.ndim(bound) == 0

    clips = [
        type(found.__name__, (found,), {"_is_scalar": is_scalar}).rule()  # type: ignore[attr-defined]
        for found in (_min_max_to_clip.FuseMinMaxToClip, _min_max_to_clip.FuseMaxMinToClip)
    ]
    relu_after_clip = _fuse_relus_clips.FuseSuccessiveReluClip

    def not_negative(self: Any, clip: Any, _: Any) -> tuple[Any, Any]:
        lowest, highest = relu_after_clip.compute_clip_min_max(self, clip, None)
        return lowest, None if highest is None else ir.tensor(np.maximum(highest.numpy(), 0))

    clips.append(type("ReluAfterClip", (relu_after_clip,), {"compute_clip_min_max": not_negative}).rule())  # type: ignore[attr-defined]
    relus = [_fuse_relus_clips.successive_clip_relu_rule, _fuse_relus_clips.successive_relu_rule]
    return [_min_max_to_clip.min_min_rule, _min_max_to_clip.max_max_rule, *clips, *relus]


def _all_rules() -> list[RewriteRule]:
    from onnxscript.rewriter.rules.common import (
        _basic_rules,
        _broadcast_to_matmul,
        _cast_constant_of_shape,
        _collapse_slices,
        _fuse_pad_into_conv,
        _materialize_reshape_shape,
        _redundant_scatter_nd,
        _remove_optional_bias,
    )

    return [
        *_neutral_elements(),
        *_broadcast_to_matmul.rules,
        *_cast_constant_of_shape.rules,
        *_collapse_slices.rules,
        *_materialize_reshape_shape.rules,
        *_bounds(),
        *(rule for rule in _basic_rules.basic_optimization_rules() if rule is not _basic_rules.flatten_to_reshape_rule),
        *_redundant_scatter_nd.rules,
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
