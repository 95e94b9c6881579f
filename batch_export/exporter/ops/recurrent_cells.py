"""Recurrent cells, one step at a time, and layers as Scans of them where ONNX or onnxruntime has no operator for these.

torch decomposes cells in C++, which fixes symbolic sizes on the way; the formulas are those of torch's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.random import dropped

Recurring = Callable[[ir.Value | None], RecordedValue]
"""What comes from the hidden state, with a value added to it where one is given."""
Step = Callable[[ir.Value, Recurring, Sequence[ir.Value]], tuple[RecordedValue, ...]]
"""What comes from the input, what comes from the hidden state, and the states -> the new states, the hidden one first.
"""


def _linear(data: ir.Value, weight: ir.Value, bias: ir.Value | None) -> RecordedValue:
    if data.shape is not None and len(data.shape) == 2:
        return axes.shaped(op.Gemm(data, weight, bias, transB=1), [data.shape[0], axes.fixed_size(weight, 0)])
    product = op.MatMul(data, op.Transpose(weight, perm=[1, 0]))
    return product if bias is None else op.Add(product, bias)


def _recurring(state: ir.Value, weight: ir.Value, bias: ir.Value | None) -> Recurring:
    def from_state(addend: ir.Value | None) -> RecordedValue:
        if addend is None or bias is None:
            return _linear(state, weight, bias if addend is None else addend)
        product = _linear(state, weight, bias)
        return axes.shaped(op.Add(addend, product), product.shape)

    return from_state


def gru_step(entering: ir.Value, recurring: Recurring, states: Sequence[ir.Value]) -> tuple[RecordedValue, ...]:
    """A GRU, whose gates are reset, update and new."""
    reset_x, update_x, new_x = op.Split(entering, axis=1, num_outputs=3)
    reset_h, update_h, new_h = op.Split(recurring(None), axis=1, num_outputs=3)
    reset = op.Sigmoid(op.Add(reset_x, reset_h))
    update = op.Sigmoid(op.Add(update_x, update_h))
    new = op.Tanh(op.Add(new_x, op.Mul(reset, new_h)))
    return (op.Add(new, op.Mul(update, op.Sub(states[0], new))),)


def lstm_step(entering: ir.Value, recurring: Recurring, states: Sequence[ir.Value]) -> tuple[RecordedValue, ...]:
    """An LSTM, whose gates are input, forget, cell and output."""
    enter, forget, candidate, leave = op.Split(recurring(entering), axis=1, num_outputs=4)
    kept = op.Mul(op.Sigmoid(forget), states[1])
    fresh = op.Mul(op.Sigmoid(enter), op.Tanh(candidate))
    cell = op.Add(kept, fresh)
    return op.Mul(op.Sigmoid(leave), op.Tanh(cell)), cell


def tanh_step(entering: ir.Value, recurring: Recurring, states: Sequence[ir.Value]) -> tuple[RecordedValue, ...]:
    """A plain recurrent cell with tanh."""
    return (op.Tanh(recurring(entering)),)


def relu_step(entering: ir.Value, recurring: Recurring, states: Sequence[ir.Value]) -> tuple[RecordedValue, ...]:
    """A plain recurrent cell with relu."""
    return (op.Relu(recurring(entering)),)


@lowering("aten::lstm_cell")
def lstm_cell(
    input: ir.Value,
    hx: Sequence[ir.Value],
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
) -> tuple[RecordedValue, ...]:
    """One step of an LSTM: the new hidden and cell states, each `float[batch, hidden]`."""
    return lstm_step(_linear(input, w_ih, b_ih), _recurring(hx[0], w_hh, b_hh), hx)


def _cell(step: Step) -> Callable[..., RecordedValue]:
    def cell(
        input: ir.Value,
        hx: ir.Value,
        w_ih: ir.Value,
        w_hh: ir.Value,
        b_ih: ir.Value | None = None,
        b_hh: ir.Value | None = None,
    ) -> RecordedValue:
        return step(_linear(input, w_ih, b_ih), _recurring(hx, w_hh, b_hh), [hx])[0]

    return cell


gru_cell = lowering("aten::gru_cell")(_cell(gru_step))
rnn_tanh_cell = lowering("aten::rnn_tanh_cell")(_cell(tanh_step))
rnn_relu_cell = lowering("aten::rnn_relu_cell")(_cell(relu_step))


def scanned(
    step: Step,
    data: ir.Value,
    states: Sequence[ir.Value],
    params: Sequence[Sequence[ir.Value]],
    has_biases: bool,
    dropout: float,
    is_bidirectional: bool,
    lengths: ir.Value | None = None,
) -> tuple[ir.Value, ...]:
    """Layers as one Scan for each and each direction.

    Args:
        step: of the kind of layer.
        data: `float[length, batch, size]`.
        states: `float[layers * directions, batch, hidden]` each.
        params: by layer and direction: the weights of input and state, their biases, and a projection if there is one.
        has_biases: whether there are biases among them.
        dropout: the chance of dropout between layers.
        is_bidirectional: whether every second one runs backwards.
        lengths: `int64[batch]`, how many steps each sequence has; None: all.

    Returns:
        The outputs `float[length, batch, directions * hidden]`, then the last states.
    """
    directions = 2 if is_bidirectional else 1
    inside = None if lengths is None else _inside(data, lengths)
    ends: list[list[RecordedValue]] = [[] for _ in states]
    for first in range(0, len(params), directions):
        made = []
        for place in range(first, first + directions):
            start = [op.Gather(state, op.Constant(value_int=place), axis=0) for state in states]
            output, last = _scan(step, data, start, params[place], has_biases, inside, backwards=place > first)
            made.append(output)
            for found, one in zip(ends, last, strict=True):
                found.append(op.Unsqueeze(one, [0]))
        data = op.Concat(*made, axis=2) if len(made) > 1 else made[0]
        if dropout and first + directions < len(params):
            data = dropped(data, dropout)
    return (data, *(op.Concat(*found, axis=0) if len(found) > 1 else found[0] for found in ends))


def _inside(data: ir.Value, lengths: ir.Value) -> RecordedValue:
    """Which steps are within their sequence: `bool[length, batch, 1]`."""
    steps = op.Range(
        op.Constant(value_int=0), op.Squeeze(op.Shape(data, start=0, end=1), [0]), op.Constant(value_int=1)
    )
    return op.Less(op.Unsqueeze(steps, [1, 2]), op.Unsqueeze(lengths, [0, 2]))


def _scan(
    step: Step,
    data: ir.Value,
    start: Sequence[ir.Value],
    params: Sequence[ir.Value],
    has_biases: bool,
    inside: ir.Value | None,
    *,
    backwards: bool,
) -> tuple[ir.Value, Sequence[RecordedValue]]:
    """One direction of one layer: `float[length, batch, size]` to outputs and last states."""
    w_ih, w_hh = params[:2]
    b_ih, b_hh = params[2:4] if has_biases else (None, None)
    projection = params[-1] if len(params) > (4 if has_biases else 2) else None
    if b_ih is not None and b_hh is not None and step is not gru_step:  # a GRU's reset gate is between the two
        b_ih, b_hh = op.Add(b_ih, b_hh), None
    entering = _linear(data, w_ih, b_ih)
    gates = axes.fixed_size(w_ih, 0)  # a size that is known is a Split's below opset 18, and else a calculation
    entering = axes.shaped(_reversed(entering) if backwards else entering, [None, None, gates])
    for state in start:
        axes.shaped(state, [None, None])
    assert data.dtype is not None

    def one_step(
        states: Sequence[ir.Value], slices: Sequence[ir.Value]
    ) -> tuple[Sequence[RecordedValue], Sequence[RecordedValue]]:
        hidden, *others = step(slices[0], _recurring(states[0], w_hh, b_hh), states)
        if projection is not None:
            hidden = op.MatMul(hidden, op.Transpose(projection, perm=[1, 0]))
        if len(slices) == 1:
            return [hidden, *others], [hidden]
        kept = [op.Where(slices[1], new, old) for new, old in zip((hidden, *others), states, strict=True)]
        return kept, [op.Where(slices[1], hidden, op.CastLike(0.0, hidden))]

    sequences = [entering] if inside is None else [entering, _reversed(inside) if backwards else inside]
    last, (outputs,) = loops.scan(one_step, list(start), sequences, [data.dtype])
    return _reversed(outputs) if backwards else outputs, last


def _reversed(sequence: ir.Value) -> RecordedValue:
    return op.Slice(sequence, [-1], [-(2**62)], [0], [-1])
