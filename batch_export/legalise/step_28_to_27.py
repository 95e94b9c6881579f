"""Opset 28 -> 27: SwiGLU, channels before blocks in SpaceToDepth, and remainders of fractions."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import Result, Rule, attribute, first, needed, no_longer
from batch_export.legalise.writing import Writer


def _swiglu(node: ir.Node, op: Writer) -> Result:
    gate, alpha = first(node), attribute(node, "alpha", 1.0)
    return op.Mul(op.Swish(gate, alpha=alpha), needed(node, 1))


def _space_to_depth(node: ir.Node, op: Writer) -> Result:
    """Blocks come before channels in the depth of opset 27; in mode CRD they come after them."""
    mode = attribute(node, "mode", "DCR")
    no_longer(node, "mode")
    if mode == "DCR":
        return None
    size = attribute(node, "blocksize")
    deep = op.SpaceToDepth(first(node), blocksize=size)
    shape = op.Shape(deep)
    batch = op.Slice(shape, op.number([0]), op.number([1]))
    rest = op.Slice(shape, op.number([2]), op.number([4]))
    apart = op.Reshape(deep, op.Concat(batch, op.number([size * size, -1]), rest, axis=0))
    return op.Reshape(op.Transpose(apart, perm=[0, 2, 1, 3, 4]), shape)


def _remainder(node: ir.Node, op: Writer) -> Result:
    """Of fractions with the divisor's sign: the remainder with the dividend's sign, moved where they differ."""
    value, divisor = first(node), needed(node, 1)
    if attribute(node, "fmod", 0) or value.dtype is None or not value.dtype.is_floating_point():
        return None
    rest, zero = op.Mod(value, divisor, fmod=1), op.like(0.0, value)
    differs = op.Xor(op.Less(rest, zero), op.Less(divisor, zero))
    moves = op.And(op.Not(op.Equal(rest, zero)), differs)
    return op.Where(moves, op.Add(rest, divisor), rest)


def _celu(node: ir.Node, op: Writer) -> Result:
    value, alpha = first(node), attribute(node, "alpha", 1.0)
    if value.dtype in (None, ir.DataType.FLOAT):
        return None
    zero, scale = op.like(0.0, value), op.like(alpha, value)
    below = op.Mul(scale, op.Sub(op.Exp(op.Div(value, scale)), op.like(1.0, value)))
    return op.Add(op.Max(zero, value), op.Min(zero, below))


_of = examples_at(28)

RULES = {
    "SwiGLU": Rule(_swiglu, _of("y = SwiGLU <alpha = 1.5> (x, z)", "float[2,3] x, float[2,3] z", "float[2,3] y")),
    "SpaceToDepth": Rule(
        _space_to_depth,
        _of('y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x)', "float[1,3,4,6] x", "float[1,12,2,3] y"),
    ),
    "Mod": Rule(_remainder, _of("y = Mod (x, z)", "float[8] x, float[8] z", "float[8] y")),
    "Celu": Rule(_celu, _of("y = Celu <alpha = 2.0> (x)", "double[8] x", "double[8] y")),
}
