"""Computes one ONNX operator on weights: what moves data, and plain arithmetic, with torch; the rest with onnx.

Arrives: a node and its inputs as torch tensors. Leaves: its outputs, or None where it is not computed here. Data that
is only moved stays where it is as long as torch has a view for it, so a transposed weight takes no memory until it is
written. What torch computes is what eager would have computed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx.reference import ReferenceEvaluator
from onnx_ir import tensor_adapters
from torch import Tensor

from batch_export.exporter.optimise.resized_tables import resized
from batch_export.numbers.values import raw_dtype

_REFERENCE_ELEMENTS = 1 << 20
"""onnx's reference implementation is slow: it gets no more elements than these."""
_BY_REFERENCE = frozenset(
    [
        *("And", "Or", "Not", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf"),
        *("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
        *("Ceil", "Floor", "Round", "Sign", "Mod", "Clip", "Max", "Min", "Mean", "Sum", "Gemm", "Det", "Einsum"),
        *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
        *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin", "CumSum", "TopK"),
        *("Range", "ConstantOfShape", "Shape", "Size", "Pad", "Trilu", "OneHot", "NonZero", "Compress", "Unique"),
        *("GatherElements", "GatherND", "ScatterElements", "ScatterND", "ReverseSequence", "DepthToSpace"),
        *("SpaceToDepth", "Softmax", "LogSoftmax", "Softplus", "Softsign", "LeakyRelu", "Elu", "Selu", "Celu"),
        *("Gelu", "HardSigmoid", "HardSwish", "Mish", "PRelu", "ThresholdedRelu", "LayerNormalization"),
    ]
)
"""What onnx's reference implementation computes as runtimes do. Places that its MaxPool gives are others, for one; what
slides over its input, goes through time or resamples is left to runtimes."""
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)


def compute(node: ir.Node, inputs: Sequence[Tensor | None], opset: int) -> list[Tensor] | None:
    """The outputs of a node whose inputs are known, in order; None where it is left to the runtime.

    Args:
        node: of the standard domain, with plain attributes.
        inputs: its inputs in order; None for an absent one.
        opset: of the model.
    """
    function = _TABLE.get(node.op_type)
    is_known = function is not None or node.op_type == "Split" or node.op_type in _BY_REFERENCE
    if node.domain or not is_known or not inputs or inputs[0] is None:
        return None
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    found: Any = None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if function is not None:
                found = function(*inputs, **attributes)
            elif node.op_type == "Split":
                given: Any = inputs
                found = _split(len(node.outputs), *given, **attributes)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None  # left to the runtime, which reports it with the node's name
    if found is None and node.op_type != "Resize":  # of which onnx's reference takes seconds
        found = _by_reference(node, inputs, opset)
    outputs = [found] if isinstance(found, Tensor) else found
    return outputs if outputs is not None and _fits(node, outputs) else None


def as_tensor(content: ir.TensorProtocol | None) -> Tensor | None:
    """A constant's content as a torch tensor; None for strings and other dtypes that torch lacks."""
    if content is None:
        return None
    raw = getattr(content, "raw", None)
    if isinstance(raw, Tensor):
        return raw.detach()
    try:
        dtype = tensor_adapters.to_torch_dtype(content.dtype)
    except (TypeError, ValueError):
        return None
    array = np.array(content.numpy(), copy=True, order="C")
    if content.dtype.itemsize == 1 and dtype is not torch.bool and array.dtype.kind not in "iu":
        return torch.from_numpy(array.view(np.uint8)).view(dtype)
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(dtype)
    return torch.from_numpy(array)


def _fits(node: ir.Node, outputs: Sequence[Tensor]) -> bool:
    """Whether dtypes and shapes are those that the graph says."""
    if len(outputs) != len(node.outputs):
        return False
    for value, tensor in zip(node.outputs, outputs, strict=True):
        if value.dtype is not None and value.dtype != tensor_adapters.from_torch_dtype(tensor.dtype):
            return False
        if value.shape is None:
            continue
        if len(value.shape) != tensor.dim():
            return False
        if any(isinstance(size, int) and size != is_ for size, is_ in zip(value.shape, tensor.shape, strict=True)):
            return False
    return True


def _listed(numbers: Tensor | Sequence[int] | None) -> list[int]:
    """Axes or sizes, which are an input at later opsets and an attribute at earlier ones."""
    if numbers is None:
        return []
    return [int(one) for one in (numbers.flatten().tolist() if isinstance(numbers, Tensor) else numbers)]


def _transpose(data: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    return data.permute(*(perm if perm is not None else range(data.dim() - 1, -1, -1)))


def _reshape(data: Tensor, shape: Tensor, allowzero: int = 0) -> Tensor:
    sizes = [data.shape[place] if size == 0 and not allowzero else size for place, size in enumerate(_listed(shape))]
    return data.reshape(sizes)


def _flatten(data: Tensor, axis: int = 1) -> Tensor:
    axis = axis + data.dim() if axis < 0 else axis
    return data.reshape(int(np.prod(data.shape[:axis])), int(np.prod(data.shape[axis:])))


def _unsqueeze(data: Tensor, axes: Tensor | Sequence[int]) -> Tensor:
    listed = _listed(axes)
    rank = data.dim() + len(listed)
    for axis in sorted(axis % rank for axis in listed):
        data = data.unsqueeze(axis)
    return data


def _squeeze(data: Tensor, axes: Tensor | Sequence[int] | None = None) -> Tensor:
    chosen = range(data.dim()) if axes is None else [axis % data.dim() for axis in _listed(axes)]
    if axes is not None and any(data.shape[axis] != 1 for axis in chosen):
        raise ValueError("an axis that is not 1")
    return data.squeeze(tuple(axis for axis in chosen if data.shape[axis] == 1))


def _gather(data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    axis = axis % data.dim()
    size = data.shape[axis]
    flat = indices.flatten().to(torch.int64)
    flat = torch.where(flat < 0, flat + size, flat)
    if indices.dim() == 0:
        return data.select(axis, int(flat))
    taken = data.index_select(axis, flat)
    return taken.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])


def _slice(
    data: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    chosen = _listed(axes) if axes is not None else list(range(starts.numel()))
    strides = _listed(steps) if steps is not None else [1] * len(chosen)
    for axis, start, end, step in zip(chosen, _listed(starts), _listed(ends), strides, strict=True):
        axis = axis % data.dim()
        size = data.shape[axis]
        places = range(size)[slice(start, None if step < 0 and end < -size else end, step)]
        if step > 0:
            index = [slice(None)] * data.dim()
            index[axis] = slice(places.start, places.stop, step)
            data = data[tuple(index)]
        else:
            data = data.index_select(axis, torch.tensor(list(places), dtype=torch.int64))
    return data


def _split(
    count: int, data: Tensor, sizes: Tensor | None = None, axis: int = 0, num_outputs: int | None = None
) -> list[Tensor]:
    if sizes is not None:
        return list(data.split(_listed(sizes), dim=axis))
    size = data.shape[axis]
    each = -(-size // (num_outputs or count))
    last = size - each * (count - 1)
    if last <= 0:
        raise ValueError("a piece of nothing, which runtimes refuse")
    return list(data.split([each] * (count - 1) + [last], dim=axis))


def _concat(*parts: Tensor, axis: int) -> Tensor:
    return torch.cat(parts, dim=axis)


def _expand(data: Tensor, shape: Tensor) -> Tensor:
    return data.expand(torch.broadcast_shapes(data.shape, tuple(_listed(shape))))


def _cast(data: Tensor, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor | None:
    dtype = tensor_adapters.to_torch_dtype(ir.DataType(to))
    if data.dtype.itemsize == 1 and data.dtype not in _INTEGERS:
        return None  # float8
    if dtype.itemsize == 1 and dtype not in _INTEGERS:
        return None
    if data.is_floating_point() and dtype in _INTEGERS and dtype is not torch.bool:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        whole = data.double().trunc()
        if dtype is not torch.int64 and not bool(((whole >= low) & (whole <= high)).all()):
            return None  # runtimes differ in what becomes of numbers that do not fit, and of NaN
    return data.to(dtype)


def _floats(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """A function for floating-point tensors of one dtype; of integers the runtime has rules of its own."""

    def run(*inputs: Tensor) -> Tensor | None:
        if any(not one.is_floating_point() or one.dtype != inputs[0].dtype for one in inputs):
            return None
        return function(*inputs)

    return run


def _power(base: Tensor, exponent: Tensor) -> Tensor:
    """By one number as eager does: a square is a product there, and a half a root."""
    return torch.pow(base, exponent.item()) if exponent.dim() == 0 else torch.pow(base, exponent)


_TABLE: Mapping[str, Callable[..., Tensor | None]] = {
    "Identity": lambda data: data,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Expand": _expand,
    "Tile": lambda data, repeats: data.repeat(*_listed(repeats)) if data.dim() else data,
    "Cast": _cast,
    "Resize": resized,
    "CastLike": lambda data, like, **given: _cast(data, int(tensor_adapters.from_torch_dtype(like.dtype)), **given),
    "Where": lambda condition, one, other: torch.where(condition, one, other),
    "Add": _floats(torch.add),
    "Sub": _floats(torch.sub),
    "Mul": _floats(torch.mul),
    "Div": _floats(torch.div),
    "Neg": _floats(torch.neg),
    "Abs": _floats(torch.abs),
    "Sqrt": _floats(torch.sqrt),
    "Reciprocal": _floats(torch.reciprocal),
    "Exp": _floats(torch.exp),
    "Log": _floats(torch.log),
    "Pow": _floats(_power),
    "Sin": _floats(torch.sin),
    "Cos": _floats(torch.cos),
    "Tan": _floats(torch.tan),
    "Sinh": _floats(torch.sinh),
    "Cosh": _floats(torch.cosh),
    "Asin": _floats(torch.asin),
    "Acos": _floats(torch.acos),
    "Atan": _floats(torch.atan),
    "Asinh": _floats(torch.asinh),
    "Acosh": _floats(torch.acosh),
    "Atanh": _floats(torch.atanh),
    "Erf": _floats(torch.erf),
    "Tanh": _floats(torch.tanh),
    "Sigmoid": _floats(torch.sigmoid),
    "Relu": _floats(torch.relu),
    "MatMul": _floats(torch.matmul),
}


def _by_reference(node: ir.Node, inputs: Sequence[Tensor | None], opset: int) -> list[Tensor] | None:
    given = [tensor for tensor in inputs if tensor is not None]
    if sum(tensor.numel() for tensor in given) > _REFERENCE_ELEMENTS:
        return None
    if any(tensor.is_complex() or raw_dtype(str(tensor.dtype).removeprefix("torch.")) for tensor in given):
        return None
    names = ["" if tensor is None else f"input_{place}" for place, tensor in enumerate(inputs)]
    results = [f"output_{place}" for place in range(len(node.outputs))]
    made = onnx.helper.make_node(node.op_type, names, results)
    made.attribute.extend(ir.to_proto(attribute) for attribute in node.attributes.values())
    feeds = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True) if tensor is not None}
    described = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    leaving = [onnx.helper.make_empty_tensor_value_info(name) for name in results]
    graph = onnx.helper.make_graph([made], "folded", described, leaving)
    single = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore", invalid="raise"):  # casts of infinity to int differ between runtimes
            arrays: list[object] = list(ReferenceEvaluator(single).run(None, feeds))
        if not all(isinstance(array, (np.ndarray, np.generic)) for array in arrays):
            return None
        return [torch.from_numpy(np.array(array, order="C")) for array in arrays]
    except Exception:  # whatever the reference cannot compute stays a node
        return None
