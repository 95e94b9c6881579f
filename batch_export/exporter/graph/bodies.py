"""Bodies of If, Loop and Scan.

Arrives: a body's inputs, and a function that records what it computes. Leaves: the graph of the body, whose outputs are
made inside it as ONNX wants them. Values from outside are read directly, as ONNX scoping allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from batch_export.exporter.graph.draft import Draft
from batch_export.exporter.graph.recorded_value import RecordedValue


def body(
    draft: Draft,
    name: str,
    inputs: Sequence[ir.Value],
    make: Callable[[], Sequence[object]],
    dtypes: Sequence[ir.DataType | None] | None = None,
) -> ir.Graph:
    """The graph of a body.

    Args:
        draft: the graph that the body's node will be part of.
        name: the body's name.
        inputs: the body's inputs.
        make: records the body's nodes and returns its results: values, or numbers.
        dtypes: of the results that are numbers, where the numbers do not say it.
    """
    with draft.scope() as nodes:
        results = make()
        wanted = dtypes if dtypes is not None else [None] * len(results)
        outputs: list[ir.Value] = []
        made = {output for node in nodes for output in node.outputs}
        for result, dtype in zip(results, wanted, strict=True):
            value = result if isinstance(result, ir.Value) else draft.constant(result, dtype)
            if value not in made or value in outputs:
                copy = RecordedValue(name=draft.unique_name(f"{name}_out"), type=value.type, shape=value.shape)
                draft.append(ir.Node("", "Identity", [value], outputs=[copy]))
                value = copy
            outputs.append(value)
    return ir.Graph(inputs=list(inputs), outputs=outputs, nodes=nodes, name=name)


def fresh_value(
    draft: Draft, name: str, dtype: ir.DataType | None = None, shape: ir.Shape | Sequence[int] | None = None
) -> RecordedValue:
    """A named value without a producer: an input of a body, or an output of the node around it."""
    kind = None if dtype is None else ir.TensorType(dtype)
    sizes = shape if shape is None or isinstance(shape, ir.Shape) else ir.Shape(shape)
    return RecordedValue(name=draft.unique_name(name), type=kind, shape=sizes)


def around(
    draft: Draft, op_type: str, inputs: Sequence[ir.Value], attributes: dict[str, Any], outputs: Sequence[ir.Value]
) -> list[ir.Value]:
    """Adds the node that runs bodies, which are among its attributes; returns its outputs."""
    draft.append(ir.Node("", op_type, list(inputs), ir.convenience.convert_attributes(attributes), outputs=outputs))
    return list(outputs)
