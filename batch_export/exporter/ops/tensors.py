"""Casts, copies, reductions and splitting: operators of every captured graph that torchlib leaves to decompositions."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering(
    "aten::contiguous",
    "aten::detach",
    "aten::detach_",
    "aten::alias",
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
    "aten::positive",
    "aten::resolve_conj",
    "aten::resolve_neg",
)
def same(self: ir.Value) -> RecordedValue:
    """Operators that hand their input on: ONNX values have neither layout, nor aliases, nor gradients."""
    return op.Identity(self)


@lowering("aten::clone")
def clone(self: ir.Value, memory_format: str = "") -> RecordedValue:
    """`aten::clone`: ONNX values are immutable, so a copy is the value itself."""
    return op.Identity(self)


def _cast(self: ir.Value, dtype: int) -> RecordedValue:
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        real = op.Cast(self, to=ir.DataType.FLOAT if dtype == ir.DataType.COMPLEX64 else ir.DataType.DOUBLE)
        pair = op.Unsqueeze(real, [-1])
        zeros = op.Expand(axes.like(0, pair), op.Shape(pair))  # not a product: -0.0 of -1, NaN of infinity
        return op.Concat(pair, zeros, axis=-1)
    return op.Identity(self) if dtype == -1 or self.dtype == dtype else op.Cast(self, to=dtype)


@lowering("aten::to.dtype", "aten::to.dtype_layout")
def to_dtype(self: ir.Value, dtype: int = -1) -> RecordedValue:
    """`aten::to` with a dtype; layout and device have no counterpart."""
    return _cast(self, dtype)


@lowering("aten::to.device")
def to_device(self: ir.Value, device: str = "", dtype: int = -1) -> RecordedValue:
    """`aten::to` with a device, which ONNX files do not name."""
    return _cast(self, dtype)


@lowering("aten::to.other", "aten::type_as")
def to_other(self: ir.Value, other: ir.Value) -> RecordedValue:
    """The dtype of another tensor."""
    return op.CastLike(self, other)


@lowering("aten::unbind.int")
def unbind(self: ir.Value, dim: int = 0, count: int | None = None) -> list[RecordedValue]:
    """The slices along an axis, each without that axis; `operator.py` counts them, which a free axis does not tell."""
    assert self.shape is not None
    size = self.shape[dim]
    if not isinstance(size, int):
        assert count is not None
        return [op.Gather(self, op.Constant(value_int=index), axis=dim) for index in range(count)]
    count = size
    if count == 1:
        return [op.Squeeze(self, [dim])]
    pieces = op.Split(self, [1] * count, axis=dim)
    return [op.Squeeze(piece, [dim]) for piece in pieces]


@lowering(
    "aten::split.Tensor",
    "aten::split_with_sizes",
    "aten::split.sizes",
    "aten::chunk",
    "aten::unsafe_split.Tensor",
    "aten::unsafe_split_with_sizes",
    "aten::unsafe_chunk",
    "aten::tensor_split.sections",
    "aten::tensor_split.indices",
)
def split(self: ir.Value, split_size: Sequence[Size], dim: int = 0) -> list[RecordedValue]:
    """Pieces along an axis; `operator.py` rewrites the arguments to the sizes that the captured graph shows.

    Sizes are named even where they are equal: onnxruntime divides no axis of 0 into a number of pieces.
    """
    if len(split_size) == 1:
        return [op.Identity(self)]
    return list(op.Split(self, list(split_size), axis=dim))


def free_pieces(self: ir.Value, operator: str, how: Size | Sequence[Size], dim: int, count: int) -> list[ir.Value]:
    """`count` pieces of an axis of free size, by the operator's rule; an axis that is too short has empty last pieces.

    Args:
        self: what is cut.
        operator: `split` (pieces of `how`), `chunk` (`how` of them, the last one shorter) or `tensor_split` (`how` of
            them, the first ones longer, or before and behind the places in `how`).
        how: a number, or places for `tensor_split`.
        dim: the axis.
        count: of pieces.
    """
    assert self.shape is not None
    position = dim % len(self.shape)
    size = op.Shape(self, start=position, end=position + 1)
    end = op.Constant(value_ints=[2**62])
    if isinstance(how, (list, tuple)):
        places = [op.Reshape(place, [1]) if isinstance(place, ir.Value) else [place] for place in how]
        bounds = list(zip([[0], *places], [*places, end], strict=True))
    else:
        number = op.Reshape(how, [1]) if isinstance(how, ir.Value) else op.Constant(value_ints=[how])
        if operator == "tensor_split":
            length, longer = op.Div(size, number), op.Mod(size, number)
            starts = [op.Add(op.Mul(length, [i]), op.Min(longer, [i])) for i in range(count)]
            bounds = list(zip(starts, [*starts[1:], end], strict=True))
        else:
            rounded = op.Div(op.Add(size, op.Sub(number, [1])), number) if "chunk" in operator else number
            bounds = [(op.Mul(rounded, [i]), op.Mul(rounded, [i + 1])) for i in range(count)]
    return [op.Slice(self, start, stop, [position]) for start, stop in bounds]


@lowering("aten::glu")
def glu(self: ir.Value, dim: int = -1) -> RecordedValue:
    """The first half along an axis times the sigmoid of the second; an axis may turn out to have no elements."""
    assert self.shape is not None
    size = self.shape[dim]
    half: Size | None = size // 2 if isinstance(size, int) else None
    if half is None:
        position = dim % len(self.shape)
        half = op.Squeeze(op.Div(op.Shape(self, start=position, end=position + 1), [2]), [0])
        half.shape = ir.Shape([])
    first, second = op.Split(self, [half, half], axis=dim)
    return op.Mul(first, op.Sigmoid(second))


@lowering("aten::item", "aten::_local_scalar_dense")
def item(self: ir.Value) -> ir.Value:
    """The one element of a tensor, as Python's number of it: sizes are int64, fractions float64."""
    scalar = op.Reshape(self, op.Constant(value_ints=[0][:0])) if self.shape is None or len(self.shape) else self
    if self.dtype in (ir.DataType.BOOL, ir.DataType.INT64):
        return scalar
    is_float = self.dtype is not None and self.dtype.is_floating_point()
    return op.Cast(scalar, to=ir.DataType.DOUBLE if is_float else ir.DataType.INT64)


@lowering("aten::broadcast_tensors")
def broadcast_tensors(tensors: Sequence[ir.Value]) -> list[ir.Value]:
    """Each repeated as far as the others reach, which goes by the sizes of the file's inputs.

    torch's decomposition repeats nothing along free axes that the model makes one, of which one input may have a single
    element.
    """
    shapes = [op.Shape(one) for one in tensors]

    def repeated(one: ir.Value) -> ir.Value:
        for other, shape in zip(tensors, shapes, strict=True):
            if other is not one and not _reaches(one.shape, other.shape):
                one = op.Expand(one, shape)
        return one

    return [repeated(one) for one in tensors]


def _reaches(sizes: ir.Shape | None, others: ir.Shape | None) -> bool:
    """Whether sizes are known to be at least as large as others to which they are repeated."""
    if sizes is None or others is None or len(others) > len(sizes):
        return False
    behind = list(sizes)[len(sizes) - len(others) :]
    return all(isinstance(other, int) and other in (1, own) for own, other in zip(behind, others, strict=True))
