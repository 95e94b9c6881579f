"""Computes ONNX operators on small constants while the graph is being recorded, with numpy.

Arrives: an operator's name, its inputs and its attributes. Leaves: the result, or None when an input is not known, the
operator is not in the table or its result would not be exact. Only operators of shape arithmetic are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.draft import Draft
from batch_export.exporter.graph.recorded_value import Array, RecordedValue

_ELEMENTS = 1024
"""Larger arrays are left to the optimiser."""


def static_sizes(value: ir.Value | None, attributes: Mapping[str, Any]) -> list[int] | None:
    """The sizes that `Shape` with these attributes gives, or None when one of them is not an integer."""
    if value is None or value.shape is None:
        return None
    sizes = list(value.shape)[attributes.get("start", 0) : attributes.get("end", len(value.shape))]
    static = [size for size in sizes if isinstance(size, int)]
    return static if len(static) == len(sizes) else None


def _axes(array: Array | None) -> tuple[int, ...] | None:
    if array is None:
        return None
    chosen = array.tolist()
    return tuple(chosen) if isinstance(chosen, list) else (int(chosen),)


def _unsqueeze(data: Array, axes: Array) -> Array:
    wanted = sorted(axis % (data.ndim + axes.size) for axis in axes.tolist())
    for axis in wanted:
        data = np.expand_dims(data, axis)
    return data


def _slice(data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    index: list[slice] = [slice(None)] * data.ndim
    for position, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis = position if axes is None else int(axes[position])
        step = 1 if steps is None else int(steps[position])
        index[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(index)]


def _reshape(data: Array, shape: Array, allowzero: int = 0) -> Array:
    sizes = [
        data.shape[position] if size == 0 and not allowzero else size for position, size in enumerate(shape.tolist())
    ]
    return data.reshape(sizes)


def _divide(left: Array, right: Array) -> Array | None:
    if not np.issubdtype(left.dtype, np.integer):
        return np.asarray(left / right, dtype=left.dtype)
    if np.any(right == 0):
        return None
    return np.asarray(np.trunc(left / right) if left.size and np.abs(left).max() < 2**52 else left // right, left.dtype)


def _modulo(left: Array, right: Array, fmod: int = 0) -> Array | None:
    if np.any(right == 0):
        return None
    return np.asarray(np.fmod(left, right) if fmod else np.mod(left, right), dtype=left.dtype)


def _constant_of_shape(shape: Array, value: Any = None) -> Array:
    if value is None:
        return np.zeros(shape.tolist(), dtype=np.float32)
    fill = value.numpy() if isinstance(value, ir.TensorProtocol) else ir.serde.deserialize_tensor(value).numpy()
    return np.full(shape.tolist(), fill.reshape(-1)[0], dtype=fill.dtype)


def _reduce(function: Callable[..., object]) -> Callable[..., Array]:
    def run(data: Array, axes: Array | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        named = _axes(axes) or None  # no axes are all of them
        if noop_with_empty_axes and named is None:
            return data
        return np.asarray(function(data, axis=named, keepdims=bool(keepdims)), dtype=data.dtype)

    return run


_TABLE: dict[str, Callable[..., object]] = {
    "Cast": lambda data, to: data.astype(ir.DataType(to).numpy()),
    "CastLike": lambda data, like: data.astype(like.dtype),
    "Identity": lambda data: data,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis=axis),
    "Unsqueeze": _unsqueeze,
    "Squeeze": lambda data, axes=None: np.squeeze(data, axis=_axes(axes)),
    "Gather": lambda data, indices, axis=0: np.take(data, indices, axis=axis),
    "Slice": _slice,
    "Reshape": _reshape,
    "Transpose": lambda data, perm=None: np.transpose(data, perm),
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Mod": _modulo,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "Min": lambda *parts: np.minimum.reduce(np.broadcast_arrays(*parts)),
    "Max": lambda *parts: np.maximum.reduce(np.broadcast_arrays(*parts)),
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Where": np.where,
    "Size": lambda data: np.asarray(data.size, dtype=np.int64),
    "Shape": lambda data, start=0, end=None: np.asarray(data.shape[start:end], dtype=np.int64),
    "Range": lambda start, limit, delta: np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype),
    "ConstantOfShape": _constant_of_shape,
    "Expand": lambda data, shape: np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.tolist()))),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
}


def evaluate(name: str, inputs: Sequence[Array | None], attributes: Mapping[str, object]) -> Array | None:
    """The operator's result on constants, or None when it is not computed here."""
    function = _TABLE.get(name)
    if function is None or (inputs and inputs[0] is None):
        return None
    if any(array is not None and array.dtype.kind not in "biuf" for array in inputs):
        return None
    try:
        result = function(*inputs, **attributes)
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        return None  # left to the runtime, which reports it with the node's name
    return None if result is None else np.asarray(result)


_DEPTH = 12
"""How many operators one after the other are computed for a number that a translation asks for."""


def computed(draft: Draft, value: ir.Value | None, depth: int = _DEPTH) -> Array | None:
    """What a recorded value is, where constants and sizes that are known say so; nothing is recorded for it."""
    constant = draft.known(value)
    if value is None or constant is not None:
        return constant
    node = value.producer()
    if node is None or node.domain or depth == 0:
        return None
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    if node.op_type == "Shape":
        sizes = static_sizes(node.inputs[0], attributes)
        return None if sizes is None else np.asarray(sizes, dtype=np.int64)
    arrays = [computed(draft, one, depth - 1) for one in node.inputs]
    if any(array is None and one is not None for array, one in zip(arrays, node.inputs, strict=True)):
        return None
    return evaluate(node.op_type, arrays, attributes)


def folded(
    draft: Draft, name: str, domain: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> RecordedValue | None:
    """The constant that an operator on small known constants gives; None where it has to be recorded."""
    if domain != "":
        return None
    first = inputs[0] if inputs else None
    if name in ("Cast", "CastLike") and first is not None:
        second = inputs[1] if name == "CastLike" else None
        wanted = ir.DataType(attributes["to"]) if second is None else second.dtype
        if wanted is not None and first.dtype == wanted and isinstance(first, RecordedValue):
            return first
        array = draft.known(first)
        if wanted is not None and array is not None and array.size <= _ELEMENTS:
            return draft.constant(array, wanted)
        return None
    if name == "Shape":
        sizes = static_sizes(inputs[0], attributes)
        return None if sizes is None else draft.constant(sizes, ir.DataType.INT64)
    arrays: list[Array | None] = []
    for value in inputs:
        array = None if value is None else draft.known(value)
        if (value is not None and array is None) or (array is not None and array.size > _ELEMENTS):
            return None
        arrays.append(array)
    result = evaluate(name, arrays, attributes)
    if result is None or result.size > _ELEMENTS:
        return None
    return draft.constant(result)
