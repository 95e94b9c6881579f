"""A file as kernels that round correctly would run it: every node in float64, its results rounded to their own dtype.

A model and feeds arrive, the outputs leave. The reference evaluator computes in the dtype of a node's inputs, and loses
what kernels of that dtype lose (`exp(x) - 1` of Elu); one node that it has not implemented leaves it without a word on
the whole file. Here each node is asked alone, on what the nodes before it gave, and rounds once:

| node | whose word |
|---|---|
| with a graph inside | the reference evaluator's, and so for each node of the graph inside |
| of narrow floats | the reference evaluator's in float64, rounded |
| that the evaluator refuses | onnxruntime's of that node alone |

A formula that cancels over several nodes loses its digits here as well: only what single kernels lose is made good.

With `sign`, zeros that ONNX leaves open have that sign: of a sum (whose order and first addend it does not name), and
of the larger or smaller of two zeros of which one is negative, be it by TopK.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from hunt.reference import MENDED, as_array, as_tensor

_NARROW = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_TAKES_DTYPES = frozenset({"Cast", "CastLike", "BitCast", "Constant", "ConstantOfShape", "EyeLike", "Identity"})
"""Operators whose dtype is not that of their inputs, and which round once in any case."""
_SUMS = frozenset(
    {
        *("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "DFT", "Resize", "GridSample", "AveragePool"),
        *("GlobalAveragePool", "ReduceSum", "ReduceMean", "CumSum", "Sum", "Mean"),
    }
)
_CHOICES = frozenset({"Max", "Min", "Clip", "Relu", "ReduceMax", "ReduceMin", "MaxPool", "TopK"})
_TINY = 1e-300


class Ideal:
    """A model in an evaluator that rounds each node's results once.

    Args:
        model: the file.
        sign: of zeros that ONNX leaves open: 1, -1, or 0 for any; None leaves them as they come.
        seed: of the signs that are any.
        alone: run each node in onnxruntime as well, alone, and fail where that fails.
    """

    def __init__(
        self, model: onnx.ModelProto, *, sign: float | None = None, seed: int = 0, alone: bool = False
    ) -> None:
        settings = {"sign": sign, "source": random.Random(seed), "alone": alone}
        evaluator = type("_Set", (_NodeByNode,), settings)
        self._evaluator = evaluator(model, new_ops=list(MENDED))

    def run(self, feeds: Mapping[str, Any]) -> list[torch.Tensor]:
        """The outputs; arrays, and bits of bfloat16, are fed.

        Raises:
            Exception: whatever a node raises in all evaluators.
        """
        given = {name: as_array(one) for name, one in feeds.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = self._evaluator.run(None, given)
        return [as_tensor(np.asarray(one)) for one in results]


class _NodeByNode(ReferenceEvaluator):
    """The evaluator, with each node that has no graph inside asked as `_Node` says."""

    sign: float | None
    source: random.Random
    alone: bool

    def _init(self) -> None:
        super()._init()
        self.rt_nodes_ = [
            one if one.need_context() or one.has_subgraph or one.has_linked_attribute else _Node(one, self)
            for one in self.rt_nodes_
        ]


class _Node:
    """One node, with what the evaluator asks of its own."""

    has_linked_attribute = False
    has_subgraph = False

    def __init__(self, node: Any, evaluator: _NodeByNode) -> None:
        self._node, self._evaluator = node, evaluator
        self.input, self.output, self.op_type = node.input, node.output, node.op_type

    def need_context(self) -> bool:
        """It reads its inputs only."""
        return False

    def run(self, *inputs: Any) -> Sequence[Any]:
        """The node's results, each rounded once."""
        results = self._rounded(inputs)
        if self._evaluator.alone:
            _in_onnxruntime(self._node, inputs, self._evaluator.opsets)
        sign = self._evaluator.sign
        if sign is None or self.op_type not in _SUMS | _CHOICES:
            return results
        return [self._turned(one, self._is_open(index, one, inputs), sign) for index, one in enumerate(results)]

    def _rounded(self, inputs: Sequence[Any]) -> Sequence[Any]:
        try:
            results: Sequence[Any] = self._node.run(*inputs)
        except Exception:  # not implemented, or not for these numbers
            return _in_onnxruntime(self._node, inputs, self._evaluator.opsets)
        if self.op_type in _TAKES_DTYPES or not any(_is_narrow(one) for one in inputs):
            return results
        try:
            exact = self._node.run(*(one.astype(np.float64) if _is_narrow(one) else one for one in inputs))
        except Exception:  # it takes some dtypes only
            return results
        return [_rounded_like(one, other) for one, other in zip(results, exact, strict=True)]

    def _is_open(self, index: int, result: Any, inputs: Sequence[Any]) -> Any:
        """Which elements are zeros whose sign ONNX leaves open."""
        array = np.asarray(result)
        nothing = np.zeros(array.shape, dtype=bool)
        if array.dtype.kind not in "fV" or index:
            return nothing
        zeros = array == 0
        if self.op_type in _SUMS or not zeros.any():
            return zeros
        if self.op_type == "TopK":
            along = int(self._node.axis)
            negative, given = np.signbit(inputs[0]), inputs[0] == 0
            return zeros & (given & negative).any(along, keepdims=True) & (given & ~negative).any(along, keepdims=True)
        chosen = []
        for side in (1.0, -1.0):
            marked = [_marked(one, side) if _is_float(one) else one for one in inputs]
            chosen.append(np.signbit(np.asarray(self._node.run(*marked)[0])))
        return zeros & (chosen[0] == chosen[1])

    def _turned(self, result: Any, is_open: Any, sign: float) -> Any:
        array = np.asarray(result)
        if not is_open.any():
            return result
        signs = np.array([sign or self._evaluator.source.choice((1.0, -1.0)) for _ in range(array.size)])
        zeros = np.copysign(np.zeros(array.shape), signs.reshape(array.shape)).astype(array.dtype)
        return np.where(is_open, zeros, array)


def _marked(array: Any, side: float) -> Any:
    """Zeros as tiny numbers of their signs, or of the other ones: then the larger of two zeros is known by its sign."""
    wide = array.astype(np.float64)
    return np.where(wide == 0, np.copysign(_TINY, wide) * side, wide)


def _is_float(one: Any) -> bool:
    return isinstance(one, (np.ndarray, np.generic)) and (one.dtype.kind == "f" or one.dtype in _NARROW)


def _is_narrow(one: Any) -> bool:
    return isinstance(one, (np.ndarray, np.generic)) and one.dtype in _NARROW


def _rounded_like(result: Any, exact: Any) -> Any:
    if not _is_narrow(result) or np.shape(result) != np.shape(exact):
        return result
    return np.asarray(exact).astype(result.dtype)


def _in_onnxruntime(node: Any, inputs: Sequence[Any], opsets: Mapping[str, int]) -> Sequence[Any]:
    """The node alone in onnxruntime, on these inputs."""
    given = {name: one for name, one in zip(node.input, inputs, strict=True) if name}
    values = [_value(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape) for name, one in given.items()]
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node.onnx_node], "alone", values, results)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = iter(session.run(None, given))
    return [next(found) if name else None for name in node.output]


def _value(name: str, dtype: int, shape: Sequence[int]) -> Any:
    return helper.make_tensor_value_info(name, dtype or TensorProto.FLOAT, list(shape))
