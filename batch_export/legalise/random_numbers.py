"""Random numbers from operators that a runtime has at every opset.

Arrives: a model at opset 22 or above with RandomNormal, RandomUniform, their Like forms, Bernoulli or Multinomial, none
of which has a CPU kernel in ONNX Runtime at its version 22. Leaves: the same model with those nodes computed by a
counter-based generator: the numbers 0, 1, ... of the elements, a seed and a number of the node's own go through a
mixing function of 32 bits. The seed is drawn at every run from a Dropout in training mode, which does have a kernel; a
node with a `seed` attribute has that seed at every run. Below opset 22 these operators stay; Dropout in training mode
is given a form that the runtime does not remove, at every opset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.replacing import replace
from batch_export.legalise.rules import attribute, first, known
from batch_export.legalise.writing import Writer

FIRST_OPSET = 22
"""The opset at which the random operators have a version of which no kernel exists. NOTE: onnxruntime 1.31."""

_MASK = 0xFFFFFFFF
_BITS = 24
"""Random bits in a number between 0 and 1: as many as a float32 between 0.5 and 1 has."""


class Generator:
    """Writes the nodes of one random operator.

    Args:
        onto: what the nodes are written with.
        salt: a number of the operator's own; two operators with equal seeds still give different numbers.
        seed: the seed, or None for another at every run.
    """

    def __init__(self, onto: Writer, salt: int, seed: float | None) -> None:
        self.op = onto
        self._salt, self._seed = salt, seed
        self._streams = 0

    def uniform(self, shape: ir.Value) -> ir.Value:
        """`float32[shape]` in (0, 1), neither end included.

        Args:
            shape: `int64[rank]`.
        """
        op = self.op
        self._streams += 1
        count = op.ReduceProd(shape, keepdims=0)
        position = op.Range(self.op.number(0), count, self.op.number(1))
        start = op.BitwiseXor(self._seed_value(), self.op.number(self._mixed_salt()))
        mixed = self._mix(op.BitwiseAnd(op.Add(self._mix(start), position), self.op.number(_MASK)))
        # A second round with another start: neighbouring seeds do not share a shifted stream.
        mixed = self._mix(op.BitwiseXor(mixed, start))
        kept = op.Cast(op.Div(mixed, self.op.number(2 ** (32 - _BITS))), to=ir.DataType.FLOAT)
        step = self.op.number(2.0**-_BITS, ir.DataType.FLOAT)
        # Zero becomes half a step: its logarithm is taken for other distributions.
        flat = op.Max(op.Mul(kept, step), self.op.number(2.0 ** -(_BITS + 1), ir.DataType.FLOAT))
        return op.Reshape(flat, shape, allowzero=1)

    def normal(self, shape: ir.Value) -> ir.Value:
        """`float32[shape]` of mean 0 and variance 1, by the transform of Box and Muller."""
        op = self.op
        radius = op.Sqrt(op.Mul(op.Log(self.uniform(shape)), self.op.number(-2.0, ir.DataType.FLOAT)))
        angle = op.Mul(self.uniform(shape), self.op.number(2 * math.pi, ir.DataType.FLOAT))
        return op.Mul(radius, op.Cos(angle))

    def _seed_value(self) -> ir.Value:
        op = self.op
        if self._seed is not None:
            bits = int(np.asarray(self._seed, np.float32).view(np.uint32))
            return self.op.number(bits)
        ones = self.op.number(np.ones(32), ir.DataType.FLOAT)
        ratio, training = self.op.number(0.5, ir.DataType.FLOAT), self.op.number(True, ir.DataType.BOOL)
        drawn = op.Cast(op.Dropout(ones, ratio, training), to=ir.DataType.BOOL)
        weights = self.op.number([2**place for place in range(32)])
        return op.ReduceSum(op.Mul(op.Cast(drawn, to=ir.DataType.INT64), weights), keepdims=0)

    def _mixed_salt(self) -> int:
        return (self._salt * 0x9E3779B1 + self._streams * 0x85EBCA77) & _MASK

    def _mix(self, value: Any) -> Any:
        """A bijection of the numbers below 2^32: shifts, exclusive ors and odd factors below 2^31 (no overflow)."""
        op = self.op
        for shift, factor in ((16, 0x7FEB352D), (15, 0x31848BAB)):
            value = op.BitwiseXor(value, op.Div(value, self.op.number(2**shift)))
            value = op.BitwiseAnd(op.Mul(value, self.op.number(factor)), self.op.number(_MASK))
        return op.BitwiseXor(value, op.Div(value, self.op.number(2**16)))


def _shape(node: ir.Node, generator: Generator) -> ir.Value:
    if node.inputs:
        return generator.op.Shape(first(node))
    return generator.op.number(np.asarray(attribute(node, "shape"), np.int64))


def _dtype(node: ir.Node) -> ir.DataType:
    given = attribute(node, "dtype")
    if given is not None:
        return ir.DataType(given)
    found = first(node).dtype if node.inputs else None
    return found or ir.DataType.FLOAT


def _uniform(node: ir.Node, generator: Generator) -> ir.Value:
    op = generator.op
    low, high = attribute(node, "low", 0.0), attribute(node, "high", 1.0)
    drawn = generator.uniform(_shape(node, generator))
    scaled = op.Mul(drawn, generator.op.number(high - low, ir.DataType.FLOAT))
    return op.Cast(op.Add(scaled, generator.op.number(low, ir.DataType.FLOAT)), to=_dtype(node))


def _normal(node: ir.Node, generator: Generator) -> ir.Value:
    op = generator.op
    drawn = generator.normal(_shape(node, generator))
    scaled = op.Mul(drawn, generator.op.number(attribute(node, "scale", 1.0), ir.DataType.FLOAT))
    mean = generator.op.number(attribute(node, "mean", 0.0), ir.DataType.FLOAT)
    return op.Cast(op.Add(scaled, mean), to=_dtype(node))


def _bernoulli(node: ir.Node, generator: Generator) -> ir.Value:
    op = generator.op
    chance = op.Cast(first(node), to=ir.DataType.FLOAT)
    return op.Cast(op.Less(generator.uniform(_shape(node, generator)), chance), to=_dtype(node))


def _multinomial(node: ir.Node, generator: Generator) -> ir.Value:
    """Draws with replacement from unnormalised log-probabilities: the largest after adding Gumbel noise."""
    op = generator.op
    logits = op.Unsqueeze(op.Cast(first(node), to=ir.DataType.FLOAT), generator.op.number([1]))
    samples = generator.op.number([int(attribute(node, "sample_size", 1))])
    shape = op.Shape(logits)
    places = [op.Gather(shape, generator.op.number([place])) for place in (0, 2)]
    noise = generator.uniform(op.Concat(places[0], samples, places[1], axis=0))
    gumbel = op.Neg(op.Log(op.Neg(op.Log(noise))))
    given = attribute(node, "dtype")
    dtype = ir.DataType.INT32 if given is None else ir.DataType(given)
    return op.Cast(op.ArgMax(op.Add(logits, gumbel), axis=2, keepdims=0), to=dtype)


_FORMS: Mapping[str, Callable[[ir.Node, Generator], ir.Value]] = {
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
}


def write_out(model: ir.Model) -> int:
    """Replaces the random operators of a model in place, those inside branches and loops included.

    Returns:
        How many there were.
    """
    found = [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type in _FORMS]
    for salt, node in enumerate(found, 1):
        parts = Writer()
        made = _FORMS[node.op_type](node, Generator(parts, salt, attribute(node, "seed")))
        replace(node, parts.nodes, [made])
    return len(found)


def keep_dropout(model: ir.Model) -> int:
    """Makes every Dropout in training mode use its mask, in place: ONNX Runtime removes those of which only the result
    is read, as if they were not in training mode.

    The mask selects the result, which is zero elsewhere anyway. NOTE: onnxruntime 1.31, from basic optimisation on.

    Returns:
        How many there were.
    """
    count = 0
    for node in nodes_of(model.graph):
        if node.domain or node.op_type != "Dropout" or len(node.inputs) < 3 or node.inputs[2] is None:
            continue
        training = known(node.inputs[2])
        has_mask = len(node.outputs) > 1 and bool(node.outputs[1].uses() or node.outputs[1].is_graph_output())
        if has_mask or (training is not None and not bool(training)):
            continue
        count += 1
        old = node.outputs[0]
        parts = Writer()
        drawn, mask = parts.several("Dropout", node.inputs, 2, **node.attributes)
        drawn.type, drawn.shape = old.type, old.shape
        mask.type, mask.shape = ir.TensorType(ir.DataType.BOOL), old.shape
        dtype = old.dtype or ir.DataType.FLOAT
        replace(node, parts.nodes, [parts.Where(mask, drawn, parts.number(0.0, dtype))])
    return count
