"""Recurrent cells, one step at a time, and LSTM layers with projections. (Other recurrent layers are torchlib's.)

torch decomposes cells in C++, which fixes symbolic sizes on the way; the formulas are those of torch's documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from batch_export.exporter.operators import op
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering


def _linear(data: ir.Value, weight: ir.Value, bias: ir.Value | None) -> Any:
    product = op.MatMul(data, op.Transpose(weight, perm=[1, 0]))
    return product if bias is None else op.Add(product, bias)


@lowering("aten::gru_cell")
def gru_cell(
    input: ir.Value,
    hx: ir.Value,
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
) -> Any:
    """One step of a GRU: `float[batch, input]` and `float[batch, hidden]` to `float[batch, hidden]`."""
    reset_x, update_x, new_x = op.Split(_linear(input, w_ih, b_ih), axis=1, num_outputs=3)
    reset_h, update_h, new_h = op.Split(_linear(hx, w_hh, b_hh), axis=1, num_outputs=3)
    reset = op.Sigmoid(op.Add(reset_x, reset_h))
    update = op.Sigmoid(op.Add(update_x, update_h))
    new = op.Tanh(op.Add(new_x, op.Mul(reset, new_h)))
    return op.Add(new, op.Mul(update, op.Sub(hx, new)))


@lowering("aten::lstm_cell")
def lstm_cell(
    input: ir.Value,
    hx: Sequence[ir.Value],
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
) -> Any:
    """One step of an LSTM: the new hidden and cell states, each `float[batch, hidden]`."""
    hidden, cell = hx
    gates = op.Add(_linear(input, w_ih, b_ih), _linear(hidden, w_hh, b_hh))
    enter, forget, candidate, leave = op.Split(gates, axis=1, num_outputs=4)
    kept = op.Mul(op.Sigmoid(forget), cell)
    fresh = op.Mul(op.Sigmoid(enter), op.Tanh(candidate))
    new_cell = op.Add(kept, fresh)
    return op.Mul(op.Sigmoid(leave), op.Tanh(new_cell)), new_cell


@lowering("aten::rnn_tanh_cell")
def rnn_tanh_cell(
    input: ir.Value,
    hx: ir.Value,
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
) -> Any:
    """One step of a plain recurrent cell with tanh."""
    return op.Tanh(op.Add(_linear(input, w_ih, b_ih), _linear(hx, w_hh, b_hh)))


@lowering("aten::rnn_relu_cell")
def rnn_relu_cell(
    input: ir.Value,
    hx: ir.Value,
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
) -> Any:
    """One step of a plain recurrent cell with relu."""
    return op.Relu(op.Add(_linear(input, w_ih, b_ih), _linear(hx, w_hh, b_hh)))


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
) -> Any:
    """LSTM layers; those with `proj_size`, which ONNX's LSTM lacks, as one Scan for each layer and direction."""
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    if each == (4 if has_biases else 2):
        from onnxscript.function_libs.torch_lib.ops import core  # fills torchlib's registry, which is slow

        whole: Any = core.aten_lstm
        return whole(
            input,
            list(hx),
            list(params),
            has_biases=has_biases,
            num_layers=num_layers,
            dropout=dropout,
            train=train,
            bidirectional=bidirectional,
            batch_first=batch_first,
        )
    data = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
    hidden_ends, cell_ends = [], []
    for layer in range(num_layers):
        made = []
        for direction in range(directions):
            place = layer * directions + direction
            start = [op.Gather(state, op.Constant(value_int=place), axis=0) for state in hx]
            output, hidden, cell = _projected(
                data, start, params[place * each : (place + 1) * each], has_biases, direction == 1
            )
            made.append(output)
            hidden_ends.append(op.Unsqueeze(hidden, [0]))
            cell_ends.append(op.Unsqueeze(cell, [0]))
        data = op.Concat(*made, axis=2) if directions == 2 else made[0]
    data = op.Transpose(data, perm=[1, 0, 2]) if batch_first else data
    return data, op.Concat(*hidden_ends, axis=0), op.Concat(*cell_ends, axis=0)


def _reversed(sequence: Any) -> Any:
    return op.Slice(sequence, [-1], [-(2**62)], [0], [-1])


def _projected(
    data: Any, start: Sequence[Any], params: Sequence[ir.Value], has_biases: bool, backwards: bool
) -> tuple[Any, Any, Any]:
    """One direction of one layer: `float[seq, batch, size]` to outputs, last hidden state and last cell state."""
    w_ih, w_hh, w_hr = params[0], params[1], params[-1]
    entering = op.MatMul(data, op.Transpose(w_ih, perm=[1, 0]))
    if has_biases:
        entering = op.Add(entering, op.Add(params[2], params[3]))
    entering = axes.shaped(_reversed(entering) if backwards else entering, [None, None, None])
    for state in start:
        axes.shaped(state, [None, None])
    assert data.dtype is not None

    def step(states: Sequence[Any], slices: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        gates = op.Add(slices[0], op.MatMul(states[0], op.Transpose(w_hh, perm=[1, 0])))
        enter, forget, candidate, leave = op.Split(gates, axis=1, num_outputs=4)
        cell = op.Add(op.Mul(op.Sigmoid(forget), states[1]), op.Mul(op.Sigmoid(enter), op.Tanh(candidate)))
        hidden = op.MatMul(op.Mul(op.Sigmoid(leave), op.Tanh(cell)), op.Transpose(w_hr, perm=[1, 0]))
        return [hidden, cell], [hidden]

    (hidden, cell), (outputs,) = loops.scan(step, list(start), [entering], [data.dtype])
    return _reversed(outputs) if backwards else outputs, hidden, cell
