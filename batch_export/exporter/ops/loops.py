"""Scan and Loop nodes whose bodies are Python functions over values.

Arrives: start values, sequences and a function that computes one step with ONNX operators. Leaves: the node's results.
Short loops over a fixed count are written out instead, step by step, so that small matrices need no Loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnxscript import evaluator

from batch_export.exporter.graph.bodies import around, body, fresh_value
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.graph.recorder import Recorder
from batch_export.exporter.ops import axes

UNROLLED = 8
"""Up to this count a loop is written out."""


def recorder() -> Recorder:
    """The recorder under which this translation runs."""
    current = evaluator.default()
    assert isinstance(current, Recorder)
    return current


def _unknown(value: ir.Value) -> ir.Shape | None:
    return None if value.shape is None else ir.Shape([None] * len(value.shape))


def lengthened(sequence: ir.Value) -> ir.Value:
    """A sequence for a Scan with one slice of zeros behind it where it may be empty: onnxruntime refuses none."""
    if _is_filled(sequence):
        return sequence
    more = op.Expand(axes.like(0, sequence), op.Concat([1], op.Shape(sequence, start=1), axis=0))
    longer = op.Concat(sequence, more, axis=0)
    return axes.shaped(longer, None if sequence.shape is None else [None, *list(sequence.shape)[1:]])


def shortened(stack: ir.Value, sequence: ir.Value) -> ir.Value:
    """What a Scan stacked, without the slice that `lengthened` added to the sequence."""
    return stack if _is_filled(sequence) else op.Slice(stack, [0], [-1], [0])


def _is_filled(sequence: ir.Value) -> bool:
    return bool(axes.fixed_size(sequence, 0))


def scan(
    step: Callable[[Sequence[ir.Value], Sequence[ir.Value]], tuple[Sequence[ir.Value], Sequence[ir.Value]]],
    states: Sequence[ir.Value],
    sequences: Sequence[ir.Value],
    outputs: Sequence[ir.DataType],
) -> tuple[list[RecordedValue], list[RecordedValue]]:
    """Runs `step(states, slices) -> (states, slices)` along the first axis of the sequences.

    Args:
        step: one step.
        states: what the first step starts from.
        sequences: values that are taken slice by slice.
        outputs: dtypes of the slices that a step makes.

    Returns:
        The last states, and the slices stacked along a new first axis.
    """
    here = recorder()
    carried = [fresh_value(here, "state", state.dtype, _unknown(state)) for state in states]
    slices = []
    for sequence in sequences:
        shape = None if sequence.shape is None else ir.Shape(list(sequence.shape)[1:])
        slices.append(fresh_value(here, "slice", sequence.dtype, shape))

    def one_step() -> list[ir.Value]:
        new_states, made = step(carried, slices)
        return [*new_states, *made]

    dtypes = [*(state.dtype for state in states), *outputs]
    graph = body(here, here.unique_name("scan_body"), [*carried, *slices], one_step, dtypes)
    ends = [fresh_value(here, "last", state.dtype, state.shape) for state in states]
    stacks = [fresh_value(here, "stack", dtype) for dtype in outputs]
    attributes = {"body": graph, "num_scan_inputs": len(slices)}
    around(here, "Scan", [*states, *sequences], attributes, [*ends, *stacks])
    return list(ends), list(stacks)


def count(
    times: Size,
    step: Callable[[RecordedValue, Sequence[ir.Value]], Sequence[ir.Value]],
    states: Sequence[ir.Value],
) -> list[ir.Value]:
    """Runs `step(index, states) -> states` for index 0, 1, ... up to `times`.

    Args:
        times: a number, or an `int64[]` value.
        step: one step; `index` is an `int64[]` value.
        states: what the first step starts from; shapes do not change.
    """
    here = recorder()
    if isinstance(times, int) and times <= UNROLLED:
        current = list(states)
        for index in range(times):
            current = list(step(here.constant(index, ir.DataType.INT64), current))
            for state, start in zip(current, states, strict=True):
                state.shape = start.shape
        return current
    number = fresh_value(here, "index", ir.DataType.INT64, [])
    going = fresh_value(here, "going", ir.DataType.BOOL, [])
    carried = [fresh_value(here, "state", state.dtype, state.shape) for state in states]
    graph = body(
        here,
        here.unique_name("loop_body"),
        [number, going, *carried],
        lambda: [going, *step(number, carried)],
        [going.dtype, *(state.dtype for state in states)],
    )
    ends = [fresh_value(here, "last", state.dtype, state.shape) for state in states]
    limit = times if isinstance(times, ir.Value) else here.constant(times, ir.DataType.INT64)
    return around(here, "Loop", [limit, here.constant(True, ir.DataType.BOOL), *states], {"body": graph}, ends)


def positions(length: Size) -> RecordedValue:
    """`int64[n]`: 0, 1, ... for a number, `int64[]` or `int64[1]`."""
    if isinstance(length, ir.Value) and length.shape is not None and len(length.shape) == 1:
        length = op.Squeeze(length, [0])
    return op.Range(0, length, 1)
