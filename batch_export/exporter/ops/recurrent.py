"""Recurrent layers: one node of ONNX for each, or Scans of `recurrent_cells.py` where there is no such node.

That is so for projections, which ONNX's LSTM lacks, and for float64, which onnxruntime's kernels lack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.random import dropped
from batch_export.exporter.ops.recurrent_cells import Step, gru_step, lstm_step, relu_step, scanned, tanh_step


class _Batch:
    """A batch of at least one for kernels that end the process on an empty batch (onnxruntime 1.31: LSTM and GRU).

    Where the batch is never empty nothing is recorded.
    """

    def __init__(self, input: ir.Value, axis: int, *, is_needed: bool = True) -> None:
        self.axis = axis
        fixed = axes.never_empty(input, axis) or not is_needed
        self._count = None if fixed else axes.size(input, axis)

    def padded(self, value: ir.Value, axis: int) -> ir.Value:
        """The value with a sample of zeros if it has none."""
        if self._count is None:
            return value
        sizes = [None if place == axis else size for place, size in enumerate(list(value.shape or ()))]
        behind = [int(place == len(sizes) + axis) for place in range(2 * len(sizes))]
        pads = op.Max(op.Sub(behind, self._count), [0])  # 1 less the size at that axis's end, and nothing elsewhere
        return axes.shaped(op.Pad(value, pads, axes.like(0, value)), sizes)

    def cut(self, value: ir.Value, axis: int) -> ir.Value:
        """The value without that sample."""
        return value if self._count is None else op.Slice(value, [0], self._count, [axis])


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of ONNX's recurrent operators.

    Attributes:
        name: of the operator.
        step: what it does at each step.
        gates: torch's gates in the order in which ONNX has them.
        states: how many states go from step to step.
        activation: the one that the operator is told, where it has no kind of its own.
        attributes: further ones of the operator.
    """

    name: str
    step: Step
    gates: tuple[int, ...]
    states: int = 1
    activation: str = ""
    attributes: tuple[tuple[str, int], ...] = ()


_LSTM = _Kind("LSTM", lstm_step, (0, 3, 1, 2), states=2)
_GRU = _Kind("GRU", gru_step, (1, 0, 2), attributes=(("linear_before_reset", 1),))
_TANH = _Kind("RNN", tanh_step, (0,), activation="Tanh")
_RELU = _Kind("RNN", relu_step, (0,), activation="Relu")


@lowering("aten::gru.input")
def gru(
    input: ir.Value,
    hx: ir.Value,
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[ir.Value, ...]:
    """GRU layers."""
    drop = dropout if train else 0.0
    return _layers(_GRU, input, [hx], params, has_biases, num_layers, drop, bidirectional, batch_first)


@lowering("aten::lstm.input")
def lstm(
    input: ir.Value,
    hx: Sequence[ir.Value],
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[ir.Value, ...]:
    """LSTM layers."""
    drop = dropout if train else 0.0
    return _layers(_LSTM, input, hx, params, has_biases, num_layers, drop, bidirectional, batch_first)


@lowering("aten::rnn_tanh.input")
def rnn_tanh(
    input: ir.Value,
    hx: ir.Value,
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[ir.Value, ...]:
    """Plain recurrent layers with tanh."""
    drop = dropout if train else 0.0
    return _layers(_TANH, input, [hx], params, has_biases, num_layers, drop, bidirectional, batch_first)


@lowering("aten::rnn_relu.input")
def rnn_relu(
    input: ir.Value,
    hx: ir.Value,
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[ir.Value, ...]:
    """Plain recurrent layers with relu."""
    drop = dropout if train else 0.0
    return _layers(_RELU, input, [hx], params, has_biases, num_layers, drop, bidirectional, batch_first)


@lowering("batch_export_recurrent::lstm")
def lstm_of_lengths(
    input: ir.Value,
    lengths: ir.Value,
    hx: Sequence[ir.Value],
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[ir.Value, ...]:
    """LSTM layers over `float[length, batch, size]`, of each sequence so many steps."""
    drop = dropout if train else 0.0
    return _layers(_LSTM, input, hx, params, has_biases, num_layers, drop, bidirectional, False, lengths)


def _of_lengths(kind: _Kind) -> Callable[..., tuple[ir.Value, ...]]:
    def layers(
        input: ir.Value,
        lengths: ir.Value,
        hx: ir.Value,
        params: Sequence[ir.Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[ir.Value, ...]:
        drop = dropout if train else 0.0
        return _layers(kind, input, [hx], params, has_biases, num_layers, drop, bidirectional, False, lengths)

    return layers


gru_of_lengths = lowering("batch_export_recurrent::gru")(_of_lengths(_GRU))
rnn_tanh_of_lengths = lowering("batch_export_recurrent::rnn_tanh")(_of_lengths(_TANH))
rnn_relu_of_lengths = lowering("batch_export_recurrent::rnn_relu")(_of_lengths(_RELU))


def _layers(
    kind: _Kind,
    input: ir.Value,
    states: Sequence[ir.Value],
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
    lengths: ir.Value | None = None,
) -> tuple[ir.Value, ...]:
    """One node or Scan for each layer, `float[length, batch, size]` between them: the outputs, then the last states."""
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    if input.dtype == ir.DataType.DOUBLE or len(params) != num_layers * directions * each:
        each = len(params) // (num_layers * directions)
        data = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        grouped = [params[start : start + each] for start in range(0, len(params), each)]
        data, *last = scanned(kind.step, data, states, grouped, has_biases, dropout, bidirectional, lengths)
        return (op.Transpose(data, perm=[1, 0, 2]) if batch_first else data, *last)
    kept = _Batch(input, 0 if batch_first else 1, is_needed=kind.name != "RNN")
    data = kept.padded(input, kept.axis)
    starts = [kept.padded(state, 1) for state in states]
    data = op.Transpose(data, perm=[1, 0, 2]) if batch_first else data
    hidden = axes.fixed_size(params[1], 1)
    until = None if lengths is None else _until(op.Cast(lengths, to=ir.DataType.INT32), kept)
    ends: list[list[RecordedValue]] = [[] for _ in starts]
    for layer in range(num_layers):
        first = layer * directions
        own = [params[(first + direction) * each : (first + direction + 1) * each] for direction in range(directions)]
        stacked = [_stacked([_ordered(one[part], kind) for one in own]) for part in (0, 1)]
        biases = (
            _stacked([op.Concat(_ordered(one[2], kind), _ordered(one[3], kind), axis=0) for one in own])
            if has_biases
            else None
        )
        beyond = first + directions
        begin = starts if num_layers == 1 else [op.Slice(one, [first], [beyond], [0]) for one in starts]
        activations = {"activations": [kind.activation] * directions} if kind.activation else {}
        outputs, *last = getattr(op, kind.name)(
            data,
            *stacked,
            biases,
            until,
            *begin,
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=hidden,
            **activations,
            **dict(kind.attributes),
        )
        # [length, directions, batch, hidden] -> [length, batch, directions * hidden]
        if directions == 1:
            data = op.Squeeze(outputs, [1])
        else:
            data = op.Reshape(op.Transpose(outputs, perm=[0, 2, 1, 3]), [0, 0, directions * int(hidden or 0)])
        if dropout and layer < num_layers - 1:
            data = dropped(data, dropout)
        for found, one in zip(ends, last, strict=True):
            found.append(one)
    data = op.Transpose(data, perm=[1, 0, 2]) if batch_first else data
    joined = [op.Concat(*found, axis=0) if len(found) > 1 else found[0] for found in ends]
    return (kept.cut(data, kept.axis), *(kept.cut(one, 1) for one in joined))


def _until(lengths: ir.Value, kept: _Batch) -> ir.Value:
    """The lengths as the operators take them: `int32[batch]`, none of them 0."""
    padded = kept.padded(lengths, 0)
    return lengths if padded is lengths else op.Max(padded, op.Constant(value=ir.tensor([1], dtype=ir.DataType.INT32)))


def _ordered(parameter: ir.Value, kind: _Kind) -> ir.Value:
    """The gates of one parameter, which lie along its first axis, in the order of ONNX."""
    if len(kind.gates) == 1:
        return parameter
    size = axes.fixed_size(parameter, 0)
    each = (size or 0) // len(kind.gates)
    parts = [op.Slice(parameter, [gate * each], [(gate + 1) * each], [0]) for gate in kind.gates]
    return op.Concat(*parts, axis=0)


def _stacked(directions: Sequence[ir.Value]) -> RecordedValue:
    parts = [op.Unsqueeze(one, [0]) for one in directions]
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]
