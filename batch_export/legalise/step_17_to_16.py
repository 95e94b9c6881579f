"""Opset 17 -> 16: layer normalisation, Fourier transforms and windows, written with what there was."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise import fourier
from batch_export.legalise.examples import examples_at
from batch_export.legalise.function_bodies import written_out
from batch_export.legalise.normalising import layer_normalisation
from batch_export.legalise.rules import Result, Rule, attribute, first, given, needed
from batch_export.legalise.writing import Writer


def _layer_normalisation(node: ir.Node, op: Writer) -> Result:
    value, scale, bias = first(node), needed(node, 1), given(node, 2)
    stash = ir.DataType(attribute(node, "stash_type", 1))
    normal, mean, inverse = layer_normalisation(
        op, value, attribute(node, "axis", -1), attribute(node, "epsilon", 1e-5), stash
    )
    scaled = op.Mul(normal, scale)
    return [scaled if bias is None else op.Add(scaled, bias), mean, inverse][: len(node.outputs)]


def _dft(node: ir.Node, op: Writer) -> Result:
    return fourier.transform(op, node, attribute(node, "axis", 1))


_of = examples_at(17)


def _window(name: str) -> Rule:
    return written_out(17, _of(f"y = {name} (n)", "float[1] x", "float[8] y", "int64 n = {8}"))


RULES = {
    "LayerNormalization": Rule(
        _layer_normalisation,
        _of(
            "y = LayerNormalization <axis = 1> (x, scale, bias)",
            "float[2,3,4] x, float[3,4] scale, float[3,4] bias",
            "float[2,3,4] y",
        ),
    ),
    "DFT": Rule(
        _dft, _of("y = DFT <axis = 1, onesided = 1> (x)", "float[2,6,1] x", "float[2,4,2] y"), "a one-sided inverse"
    ),
    "STFT": Rule(
        fourier.short_time,
        _of("y = STFT (x, step, w)", "float[2,16,1] x, float[8] w", "float[2,5,5,2] y", "int64 step = {2}"),
    ),
    "BlackmanWindow": _window("BlackmanWindow"),
    "HammingWindow": _window("HammingWindow"),
    "HannWindow": _window("HannWindow"),
}
