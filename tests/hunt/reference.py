"""onnx's reference evaluator, mended where it is known to be wrong: the word of the ONNX standard on a file.

A model and feeds arrive, arrays leave. What is mended, each against the operator's text in the ONNX standard:

| operator | the evaluator of onnx 1.23 |
|---|---|
| AveragePool | leaves NaN out of the average |
| GatherElements | refuses a negative axis, and an axis of more than 32 elements |
| GridSample | has the words of opset 20 for its modes only, not those before |
| LogSoftmax | is the logarithm of a softmax that has become 0, which is -inf |
| MaxPool | NaN gives the largest of the rest, unlike ReduceMax and Max; padding at a stride of 1 fails |

`widened` gives the model in float64: the same formulas without the limits of float32, float16 and bfloat16.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import torch
from onnx import TensorProto, numpy_helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_average_pool, op_grid_sample, op_log_softmax, op_max_pool
from torch.nn import functional as F  # noqa: N812

from batch_export.numbers.values import RawTensor

_OnnxAveragePool: Any = op_average_pool.AveragePool_19  # without types of its own
_OnnxGridSample: Any = op_grid_sample.GridSample
_OnnxLogSoftmax: Any = op_log_softmax.LogSoftmax
_OnnxMaxPool: Any = op_max_pool.MaxPool

_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class AveragePool(_OnnxAveragePool):  # type: ignore[misc]
    """The average of each window; NaN where there is one, as in ReduceMean."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> tuple[Any, ...]:
        lost = np.isnan(x.astype(np.float64))
        average = super()._run(np.where(lost, x.dtype.type(0), x), **attributes)[0]
        return (np.where(super()._run(lost.astype(x.dtype), **attributes)[0] > 0, x.dtype.type(np.nan), average),)


class GatherElements(OpRun):
    """Elements along an axis, which may count from the back."""

    op_domain = ""

    def _run(self, data: Any, indices: Any, axis: int | None = None) -> tuple[Any]:
        axis = axis or 0
        size = data.shape[axis]
        if np.any(indices < -size) or np.any(indices >= size):
            raise IndexError("an index of GatherElements is out of range")
        cut = tuple(slice(None) if one == axis % data.ndim else slice(0, n) for one, n in enumerate(indices.shape))
        return (np.take_along_axis(data[cut], indices % max(size, 1), axis),)


class LogSoftmax(_OnnxLogSoftmax):  # type: ignore[misc]
    """The distance to the largest, less the logarithm of the sum of all distances' powers."""

    op_domain = ""

    def _run(self, X: Any, axis: int | None = None) -> tuple[Any]:  # noqa: N803
        axis = self.axis if axis is None else axis
        below = X - X.max(axis=axis, keepdims=True)
        return ((below - np.log(np.exp(below).sum(axis=axis, keepdims=True))).astype(X.dtype),)


class MaxPool(_OnnxMaxPool):  # type: ignore[misc]
    """The largest of each window; NaN where there is one, as in ReduceMax."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> tuple[Any, ...]:
        rank = len(attributes["kernel_shape"])
        pads = list(attributes.get("pads") or [0] * 2 * rank)
        if pads[:rank] != pads[rank:] or len(self.onnx_node.output) > 1 or x.dtype.kind not in "fV":
            result: tuple[Any, ...] = super()._run(x, **attributes)
            return result
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        largest = pool(
            torch.from_numpy(x.astype(np.float64)),
            list(attributes["kernel_shape"]),
            list(attributes.get("strides") or [1] * rank),
            pads[:rank],
            list(attributes.get("dilations") or [1] * rank),
            bool(attributes.get("ceil_mode")),
        )
        return (largest.numpy().astype(x.dtype),)


class GridSample(_OnnxGridSample):  # type: ignore[misc]
    """Samples at the places of a grid."""

    op_domain = ""

    def _run(self, X: Any, grid: Any, mode: str | None = None, **attributes: Any) -> tuple[Any, ...]:  # noqa: N803
        word = {"bilinear": "linear", "bicubic": "cubic", None: "linear"}.get(mode, mode)
        result: tuple[Any, ...] = super()._run(X, grid, mode=word, **attributes)
        return result


MENDED: tuple[type[OpRun], ...] = (AveragePool, GatherElements, GridSample, LogSoftmax, MaxPool)
"""Operators in place of the evaluator's own."""


class Reference:
    """A model in the reference evaluator."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = onnx.reference.ReferenceEvaluator(model, new_ops=list(MENDED))

    def run(self, feeds: Mapping[str, Any]) -> list[torch.Tensor]:
        """The outputs; arrays, and bits of bfloat16, are fed.

        Raises:
            Exception: whatever the evaluator raises.
        """
        given = {name: as_array(one) for name, one in feeds.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = self._evaluator.run(None, given)
        return [as_tensor(np.asarray(one)) for one in results]


def as_array(value: Any) -> Any:
    """A feed as numpy has it."""
    return value.bits.view(ml_dtypes.bfloat16) if isinstance(value, RawTensor) else value


def as_tensor(array: Any) -> torch.Tensor:
    """A result as torch has it."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def wide(value: Any) -> Any:
    """A feed of the widened model."""
    array = as_array(value)
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 in place of every narrower float."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _widen_graph(made.graph)
    return made


def _widen_graph(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and not node.attribute:  # a zero of float32
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float32))))
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if attribute.name in ("to", "dtype") and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
