"""Scan and Loop nodes whose bodies are Python functions over values.

Arrives: start values, sequences and a function that computes one step with ONNX operators. Leaves: the node's results.
Short loops over a fixed count are written out instead, step by step, so that small matrices need no Loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript import evaluator

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.graph.recorder import Recorder
from batch_export.exporter.ops import axes

UNROLLED = 8
"""Up to this count a loop is written out."""


def recorder() -> Recorder:
    """The recorder under which this translation runs."""
    current = evaluator.default()
    assert isinstance(current, Recorder)
    return current


def _fresh(name: str, dtype: ir.DataType | None, shape: ir.Shape | None) -> RecordedValue:
    kind = None if dtype is None else ir.TensorType(dtype)
    return RecordedValue(name=recorder().unique_name(name), type=kind, shape=shape)


def _closed(results: Sequence[Any], nodes: Sequence[ir.Node], like: Sequence[Any]) -> list[ir.Value]:
    """Body outputs: each made inside the body, and each a value of its own, in its state's dtype."""
    made = {output for node in nodes for output in node.outputs}
    listed: list[ir.Value] = []
    for result, source in zip(results, like, strict=True):
        value = result if isinstance(result, ir.Value) else recorder().constant(result, source.dtype)
        if value not in made or value in listed:
            copy = _fresh("body_out", value.dtype, None)
            recorder().append(ir.Node("", "Identity", [value], outputs=[copy]))
            value = copy
        listed.append(value)
    return listed


def _unknown(value: ir.Value) -> ir.Shape | None:
    return None if value.shape is None else ir.Shape([None] * len(value.shape))


def lengthened(sequence: Any) -> Any:
    """A sequence for a Scan with one slice of zeros behind it where it may be empty: onnxruntime refuses none."""
    if _is_filled(sequence):
        return sequence
    more = op.Expand(axes.like(0, sequence), op.Concat([1], op.Shape(sequence, start=1), axis=0))
    longer = op.Concat(sequence, more, axis=0)
    return axes.shaped(longer, None if sequence.shape is None else [None, *list(sequence.shape)[1:]])


def shortened(stack: Any, sequence: Any) -> Any:
    """What a Scan stacked, without the slice that `lengthened` added to the sequence."""
    return stack if _is_filled(sequence) else op.Slice(stack, [0], [-1], [0])


def _is_filled(sequence: Any) -> bool:
    return bool(axes.fixed_size(sequence, 0))


def scan(
    step: Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]],
    states: Sequence[ir.Value],
    sequences: Sequence[ir.Value],
    outputs: Sequence[ir.DataType],
) -> tuple[list[Any], list[Any]]:
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
    carried = [_fresh("state", state.dtype, _unknown(state)) for state in states]
    slices = []
    for sequence in sequences:
        shape = None if sequence.shape is None else ir.Shape(list(sequence.shape)[1:])
        slices.append(_fresh("slice", sequence.dtype, shape))
    with here.scope() as nodes:
        new_states, made = step(carried, slices)
        likes = [*states, *(_fresh("like", dtype, None) for dtype in outputs)]
        results = _closed([*new_states, *made], nodes, likes)
    body = ir.Graph(inputs=[*carried, *slices], outputs=results, nodes=nodes, name=here.unique_name("scan_body"))
    ends = [_fresh("last", state.dtype, state.shape) for state in states]
    stacks = [_fresh("stack", dtype, None) for dtype in outputs]
    attributes = ir.convenience.convert_attributes({"body": body, "num_scan_inputs": len(slices)})
    here.append(ir.Node("", "Scan", [*states, *sequences], attributes, outputs=[*ends, *stacks]))
    return list(ends), list(stacks)


def count(
    times: Any, step: Callable[[Any, Sequence[Any]], Sequence[Any]], states: Sequence[ir.Value]
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
    number = _fresh("index", ir.DataType.INT64, ir.Shape([]))
    going = _fresh("going", ir.DataType.BOOL, ir.Shape([]))
    carried = [_fresh("state", state.dtype, state.shape) for state in states]
    with here.scope() as nodes:
        results = _closed([going, *step(number, carried)], nodes, [going, *states])
    body = ir.Graph(inputs=[number, going, *carried], outputs=results, nodes=nodes, name=here.unique_name("loop_body"))
    ends = [_fresh("last", state.dtype, state.shape) for state in states]
    limit = times if isinstance(times, ir.Value) else here.constant(times, ir.DataType.INT64)
    inputs = [limit, here.constant(True, ir.DataType.BOOL), *states]
    here.append(ir.Node("", "Loop", inputs, ir.convenience.convert_attributes({"body": body}), outputs=ends))
    return list(ends)


def positions(length: Any) -> Any:
    """`int64[n]`: 0, 1, ... for a number, `int64[]` or `int64[1]`."""
    if isinstance(length, ir.Value) and length.shape is not None and len(length.shape) == 1:
        length = op.Squeeze(length, [0])
    return op.Range(0, length, 1)
