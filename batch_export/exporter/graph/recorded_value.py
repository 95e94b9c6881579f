"""ONNX values that take part in Python arithmetic, so that translations read like formulas.

Arrives: an operand beside the value: another value, or a number. Leaves: what the operator's ONNX node gives, recorded
by the recorder that is active. While one is, a value's truth and a dynamic length are refused: they are known only when
the model runs. In a finished model it is a value like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import onnx_ir as ir
from numpy.typing import NDArray
from onnxscript import evaluator
from onnxscript.onnx_opset import opset18

from batch_export.errors import TranslationError

Number = int | float | ir.Value
"""What stands for a real number in a translation: one that is known, or a value that is known when the model runs."""

Size = int | ir.Value
"""The size of an axis, a place on it or a number of elements, likewise; a value is `int64[]` or `int64[1]`."""


ComplexNumber = complex | ir.Value
"""What stands for a number that may be complex; a value is real, or pairs of real and imaginary parts."""


Array = NDArray[Any]
"""The content of a constant, of whatever dtype."""


class Operators(Protocol):
    """An opset as the recorder runs it: each operator gives one value, but for those named here."""

    LSTM: Callable[..., tuple[RecordedValue, ...]]
    GRU: Callable[..., tuple[RecordedValue, ...]]
    RNN: Callable[..., tuple[RecordedValue, ...]]
    TopK: Callable[..., tuple[RecordedValue, ...]]
    Unique: Callable[..., tuple[RecordedValue, ...]]
    Split: Callable[..., Any]  # one value when there is one piece
    BatchNormalization: Callable[..., Any]  # three in training mode
    MaxPool: Callable[..., tuple[RecordedValue, ...]]
    Dropout: Callable[..., tuple[RecordedValue, ...]]
    SoftmaxCrossEntropyLoss: Callable[..., tuple[RecordedValue, ...]]
    LayerNormalization: Callable[..., Any]  # two in training mode

    def __getattr__(self, name: str) -> Callable[..., RecordedValue]: ...


_op = cast("Operators", opset18)  # `operators.op`, which imports this module


class RecordedValue(ir.Value):
    """An ONNX value that takes part in Python arithmetic while a function is being recorded.

    Attributes:
        unnamed: whether its name is only a number of the recorder's, so that whoever knows a better one may give it.
    """

    __slots__ = ("unnamed",)

    def __init__(
        self,
        *,
        name: str,
        type: ir.TypeProtocol | None = None,
        shape: ir.Shape | None = None,
        const_value: ir.TensorProtocol | None = None,
        unnamed: bool = False,
    ) -> None:
        super().__init__(name=name, type=type, shape=shape, const_value=const_value)
        self.unnamed = unnamed

    @property
    def rank(self) -> int | None:
        """Number of axes, None when unknown."""
        return None if self.shape is None else len(self.shape)

    def __bool__(self) -> bool:
        current: Any = evaluator.default()
        if not getattr(current, "records", False):
            return True  # onnx-ir's own functions ask whether there is a value
        if self.const_value is not None and self.const_value.size == 1:
            return bool(self.const_value.numpy().item())
        if (number := current.computed(self)) is not None:
            return bool(number)
        raise TranslationError(
            "a translation asked for the truth of a tensor, which is known only when the model runs",
            next_step="write the translation with Where or If",
        )

    def __len__(self) -> int:
        sizes = None if self.shape is None else list(self.shape)
        if not sizes or not isinstance(sizes[0], int):
            raise TypeError(f"the length of {self.name} is known only when the model runs")
        return sizes[0]

    def __add__(self, other: Number) -> RecordedValue:
        return _op.Add(self, other)

    def __radd__(self, other: Number) -> RecordedValue:
        return _op.Add(other, self)

    def __sub__(self, other: Number) -> RecordedValue:
        return _op.Sub(self, other)

    def __rsub__(self, other: Number) -> RecordedValue:
        return _op.Sub(other, self)

    def __mul__(self, other: Number) -> RecordedValue:
        return _op.Mul(self, other)

    def __rmul__(self, other: Number) -> RecordedValue:
        return _op.Mul(other, self)

    def __truediv__(self, other: Number) -> RecordedValue:
        return _op.Div(self, other)

    def __rtruediv__(self, other: Number) -> RecordedValue:
        return _op.Div(other, self)

    def __pow__(self, other: Number) -> RecordedValue:
        return _op.Pow(self, other)

    def __mod__(self, other: Number) -> RecordedValue:
        fmod = 1 if self.dtype is not None and self.dtype.is_floating_point() else 0
        return _op.Mod(self, other, fmod=fmod)

    def __matmul__(self, other: Number) -> RecordedValue:
        return _op.MatMul(self, other)

    def __neg__(self) -> RecordedValue:
        return _op.Neg(self)

    def __and__(self, other: Number) -> RecordedValue:
        return _op.And(self, other)

    def __rand__(self, other: Number) -> RecordedValue:
        return _op.And(other, self)

    def __or__(self, other: Number) -> RecordedValue:
        return _op.Or(self, other)

    def __ror__(self, other: Number) -> RecordedValue:
        return _op.Or(other, self)

    def __invert__(self) -> RecordedValue:
        return _op.Not(self)

    def __lt__(self, other: Number) -> RecordedValue:
        return _op.Less(self, other)

    def __le__(self, other: Number) -> RecordedValue:
        return _op.LessOrEqual(self, other)

    def __gt__(self, other: Number) -> RecordedValue:
        return _op.Greater(self, other)

    def __ge__(self, other: Number) -> RecordedValue:
        return _op.GreaterOrEqual(self, other)


def is_unnamed(value: ir.Value) -> bool:
    """Whether a node makes the value, and it has no name yet but the recorder's number."""
    return isinstance(value, RecordedValue) and value.unnamed and value.producer() is not None


def give_name(value: ir.Value, name: str) -> None:
    """Names a value for good."""
    value.name = name
    if isinstance(value, RecordedValue):
        value.unnamed = False


def let_name_go(value: object) -> None:
    """Lets a value that was named as a step on the way be named, and described, once more: as the result itself."""
    if isinstance(value, RecordedValue):
        value.unnamed = True
