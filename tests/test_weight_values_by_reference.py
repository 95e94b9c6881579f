"""What is computed of weights by onnx's reference implementation is what onnxruntime computes of them.

Each operator that is left to it has graphs here, run by both on ordinary and on special numbers. Of NaN it is compared
where onnxruntime keeps it (docs/upstream.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from batch_export.exporter.optimise import weight_values

Array = np.ndarray[Any, Any]
F, N, B = "float", "int64", "bool"
NUMPY = {"float": "float32", "double": "float64", "int64": "int64", "int32": "int32", "uint8": "uint8", "bool": "bool"}
ORDINARY = [0.5, -1.25, 2.0, -0.75, 3.5, 0.0, 1.0, -2.5, 0.125, -3.0, 1.5, 2.5]
SPECIAL = [0.5, float("inf"), -0.0, 0.0, -float("inf"), -1.5, 2.5, 1e30, -1e-30, 1.0, -2.0, 0.49999997]
WHOLE = [3, -1, 0, 7, -4, 2, 1, 5, -2, 6, -7, 4]
TRUTH = [True, False, False, True, True, True, False, True, False, False, True, False]
FLOAT = [(F, (3, 4))]
CALLS: dict[str, list[tuple[str, list[tuple[str, Any]]]]] = {
    **{one: [("OP(x0, x1)", [(B, (3, 4)), (B, (4,))])] for one in ("And", "Or", "Xor")},
    **{
        one: [("OP(x0, x1)", [(kind, (3, 4)), (kind, (4,))]) for kind in (F, N)]
        for one in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{one: [("OP(x0, x1)", [(N, (3, 4)), (N, (4,))])] for one in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{one: [("OP(x0)", FLOAT)] for one in ("Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf", "Softplus")},
    **{one: [("OP(x0)", FLOAT)] for one in ("Softsign", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "HardSigmoid")},
    **{one: [("OP(x0)", FLOAT)] for one in ("HardSwish", "Mish", "ThresholdedRelu")},
    **{one: [("OP(x0, x1)", [(F, (3, 4)), (F, (4,))])] for one in ("Max", "Min", "Mean", "Sum", "PRelu")},
    **{
        one: [("OP(x0, x1)", [(F, (3, 4)), ([1], None)]), ("OP<keepdims=0>(x0)", FLOAT)]
        for one in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
    },
    **{one: [("OP(x0, x1)", [(F, (3, 4)), ([0], None)])] for one in ("ReduceLogSumExp", "ReduceSumSquare")},
    "ReduceLogSum": [("OP(x0, x1)", [([[1.0, 2.0], [0.5, 0.0]], None), ([0], None)])],
    **{
        one: [("OP<axis=1>(x0)", FLOAT), ("OP<axis=0, select_last_index=1>(x0)", [(N, (3, 4))])]
        for one in ("ArgMax", "ArgMin")
    },
    "Not": [("OP(x0)", [(B, (3, 4))])],
    "BitwiseNot": [("OP(x0)", [(N, (3, 4))])],
    "BitShift": [('OP<direction="LEFT">(x0, x1)', [("uint8", (3, 4)), ("uint8", (4,))])],
    "Mod": [("OP(x0, x1)", [(N, (3, 4)), ([3, -5, 7, -2], None)]), ("OP<fmod=1>(x0, x1)", [(F, (4,)), (F, ())])],
    "Clip": [("OP(x0, x1, x2)", [(F, (3, 4)), ([-1.0], ()), ([2.0], ())])],
    "Gemm": [("OP<alpha=0.5, transB=1>(x0, x1, x2)", [(F, (3, 4)), (F, (2, 4)), (F, (2,))])],
    "Det": [("OP(x0)", [(F, (3, 2, 2))])],
    "Einsum": [('OP<equation="ij,kj->ik">(x0, x1)', [(F, (3, 4)), (F, (2, 4))])],
    "CumSum": [
        ("OP(x0, x1)", [(F, (3, 4)), ([1], ())]),
        ("OP<exclusive=1, reverse=1>(x0, x1)", [(N, (3, 4)), ([0], ())]),
    ],
    "TopK": [
        ("OP(x0, x1)", [(F, (3, 4)), ([2], None)]),
        ("OP<axis=0, largest=0>(x0, x1)", [("int32", (3, 4)), ([2], None)]),
    ],
    "Range": [
        ("OP(x0, x1, x2)", [([2], ()), ([11], ()), ([3], ())]),
        ("OP(x0, x1, x2)", [([9], ()), ([0], ()), ([-2], ())]),
    ],
    "ConstantOfShape": [("OP(x0)", [([2, 3], None)]), ("OP<value=int64[1]{7}>(x0)", [([2, 0], None)])],
    "Shape": [("OP(x0)", FLOAT), ("OP<start=1>(x0)", FLOAT)],
    "Size": [("OP(x0)", FLOAT)],
    "Pad": [
        ("OP(x0, x1)", [(F, (3, 4)), ([1, 0, -1, 2], None)]),
        *((f'OP<mode="{mode}">(x0, x1)', [(F, (3, 4)), ([1, 2, 1, 0], None)]) for mode in ("reflect", "edge", "wrap")),
    ],
    "Trilu": [("OP(x0, x1)", [(F, (3, 4)), ([1], ())]), ("OP<upper=0>(x0)", FLOAT)],
    "OneHot": [("OP(x0, x1, x2)", [([1, -1, 3, 0], None), ([4], ()), (F, (2,))])],
    "NonZero": [("OP(x0)", FLOAT), ("OP(x0)", [(B, (3, 4))])],
    "Compress": [("OP<axis=1>(x0, x1)", [(F, (3, 4)), (B, (4,))])],
    "Unique": [("OP(x0)", [([3, 1, 3, 2, 1], None)])],
    "GatherElements": [("OP<axis=1>(x0, x1)", [(F, (3, 4)), ([[0, -1], [3, 1], [2, 2]], None)])],
    "GatherND": [("OP(x0, x1)", [(F, (3, 4)), ([[0, 1], [2, -1]], None)])],
    "ScatterElements": [
        (f'OP<axis=1, reduction="{how}">(x0, x1, x2)', [(F, (3, 4)), ([[0, 3], [1, 2], [2, 1]], None), (F, (3, 2))])
        for how in ("none", "add", "max")
    ],
    "ScatterND": [("OP(x0, x1, x2)", [(F, (3, 4)), ([[2], [0]], None), (F, (2, 4))])],
    "ReverseSequence": [("OP<batch_axis=1, time_axis=0>(x0, x1)", [(F, (3, 4)), ([1, 2, 3, 2], None)])],
    "DepthToSpace": [
        ("OP<blocksize=2>(x0)", [(F, (1, 4, 2, 3))]),
        ('OP<blocksize=2, mode="CRD">(x0)', [(F, (1, 4, 2, 3))]),
    ],
    "SpaceToDepth": [("OP<blocksize=2>(x0)", [(F, (1, 1, 4, 6))])],
    **{one: [("OP(x0)", FLOAT), ("OP<axis=0>(x0)", FLOAT)] for one in ("Softmax", "LogSoftmax")},
    "LayerNormalization": [("OP<epsilon=0.1>(x0, x1, x2)", [(F, (3, 4)), (F, (4,)), (F, (4,))])],
}
RESULTS = {"TopK": 2, "Unique": 4}


def test_every_operator_has_a_graph_here() -> None:
    assert set(CALLS) == set(weight_values._BY_REFERENCE)


def values(kind: Any, shape: Any, numbers: list[float], place: int) -> Array:
    if isinstance(kind, list):
        made = np.array(kind, dtype="float32" if "." in str(kind) else "int64")
        return made if shape is None else made.reshape(shape)
    given = {"bool": TRUTH, "float": numbers, "double": numbers}.get(kind, WHOLE)
    count = int(np.prod(shape))
    turned = [abs(one) if kind == "uint8" else one for one in (given * 8)[place : place + count]]
    return np.array(turned, dtype=NUMPY[kind]).reshape(shape)


@pytest.mark.parametrize("numbers", [ORDINARY, SPECIAL], ids=["ordinary", "special"])
@pytest.mark.parametrize("op", CALLS)
def test_the_reference_computes_what_onnxruntime_does(op: str, numbers: list[float]) -> None:
    compared = 0
    for call, given in CALLS[op]:
        arrays = [values(kind, shape, numbers, place) for place, (kind, shape) in enumerate(given)]
        text = _text(op, call, arrays)
        model = _typed(onnx.parser.parse_model(text))
        expected = _by_onnxruntime(model, arrays)
        if expected is None:
            continue
        node = ir.from_proto(model).graph[0]
        outputs = weight_values.compute(node, [torch.from_numpy(one) for one in arrays], 20)
        if outputs is None:  # left to the runtime
            continue
        compared += 1
        for one, other in zip(expected, outputs, strict=True):
            assert one.dtype == other.numpy().dtype, text
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-6, err_msg=text)
    assert compared or numbers is SPECIAL


def _text(op: str, call: str, arrays: list[Array]) -> str:
    kinds = {value: name for name, value in NUMPY.items()}
    inputs = ", ".join(
        f"{kinds[str(one.dtype)]}[{','.join(map(str, one.shape))}] x{place}" for place, one in enumerate(arrays)
    )
    results = [f"y{place}" for place in range(RESULTS.get(op, 1))]
    leaving = ", ".join(f"float[] {one}" for one in results)
    body = f"{', '.join(results)} = {call.replace('OP', op)}"
    return f'<ir_version: 10, opset_import: ["" : 20]> g ({inputs}) => ({leaving}) {{ {body} }}'


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the dtypes that its outputs have."""
    names = [one.name for one in model.graph.output]
    del model.graph.output[:]
    inferred = onnx.shape_inference.infer_shapes(model)
    found = {one.name: one for one in inferred.graph.value_info}
    inferred.graph.output.extend(found[name] for name in names)
    del inferred.graph.value_info[:]
    return inferred


def _by_onnxruntime(model: onnx.ModelProto, arrays: list[Array]) -> list[Array] | None:
    """What onnxruntime gives; None where it has no kernel, or takes no such numbers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return [np.asarray(one) for one in session.run(None, {f"x{at}": one for at, one in enumerate(arrays)})]
    except Exception:  # of onnxruntime's own kinds, which have no base
        return None
