"""Higher-order operators: cond -> If, scan and map -> Scan, while_loop -> Loop, and wrappers that are looked through.

Arrives: an FX node whose target is one of torch's higher-order operators, with its submodules as graph modules. Leaves:
ONNX nodes whose bodies read weights and other outer values directly, as ONNX scoping allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.translate.operator import OperatorTranslator

_WRAPPERS = {
    "wrap_with_set_grad_enabled": 1,
    "wrap_with_autocast": 4,
    "invoke_subgraph": 2,
    "tag_activation_checkpoint": 0,
}


def translate(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> list[Any]:
    """The values of a higher-order operator, as a list."""
    assert isinstance(node.target, torch._ops.HigherOrderOperator)
    name = node.target.name()
    if name == "cond":
        result = _cond(translator, node, env)
    elif name == "scan":
        result = _scan(translator, node, env)
    elif name in ("map_impl", "map"):
        result = _map(translator, node, env)
    elif name == "while_loop":
        result = _while_loop(translator, node, env)
    elif name in _WRAPPERS:
        return _inline(translator, node, env, _WRAPPERS[name])
    else:
        raise TranslationError(
            f"torch's higher-order operator {name} has no ONNX form here",
            next_step="use torch.cond, torch.while_loop, scan or map",
        )
    count, _ = translator.operators.get(f"higher_order::{name}", (0, ""))
    translator.operators[f"higher_order::{name}"] = (count + 1, "batch_export")
    fakes = node.meta.get("val")
    if isinstance(fakes, (list, tuple)):
        for value, fake in zip(result, fakes, strict=True):
            translator.describe(value, fake)
    return result


def _inline(
    translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any], position: int
) -> list[Any]:
    """Wrappers change how torch runs a submodule, not what it computes."""
    arguments = [translator.convert(argument, env) for argument in node.args]
    if node.target.name() == "invoke_subgraph":  # type: ignore[union-attr]
        position = 0
        operands = arguments[2:]
    else:
        operands = arguments[position + 1 :]
    results: list[Any] = translator.run_nodes(arguments[position], _bind(arguments[position], operands))
    return results


def _bind(graph_module: torch.fx.GraphModule, operands: Sequence[Any]) -> dict[torch.fx.Node, Any]:
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    return dict(zip(placeholders, operands, strict=True))


def _placeholder_values(
    translator: OperatorTranslator, graph_module: torch.fx.GraphModule, positions: range, prefix: str
) -> list[RecordedValue]:
    """Fresh body inputs described by the body's own placeholders."""
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    values: list[RecordedValue] = []
    for position in positions:
        value = RecordedValue(name=translator.recorder.unique_name(f"{prefix}_{placeholders[position].name}"))
        translator.describe(value, placeholders[position].meta.get("val"))
        values.append(value)
    return values


def _body_outputs(translator: OperatorTranslator, results: Any, nodes: list[ir.Node], name: str) -> list[ir.Value]:
    """A body's outputs must be made inside it: values from outside pass through an Identity."""
    listed = list(results) if isinstance(results, (list, tuple)) else [results]
    inside = {output for made in nodes for output in made.outputs}
    outputs: list[ir.Value] = []
    for result in listed:
        value = result if isinstance(result, ir.Value) else translator.recorder.constant(result)
        if value not in inside or value in outputs:
            copy = RecordedValue(
                name=translator.recorder.unique_name(f"{name}_out"), type=value.type, shape=value.shape
            )
            translator.recorder.append(ir.Node("", "Identity", [value], outputs=[copy]))
            value = copy
        outputs.append(value)
    return outputs


def _graph(name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], nodes: Sequence[ir.Node]) -> ir.Graph:
    return ir.Graph(inputs=list(inputs), outputs=list(outputs), nodes=list(nodes), name=name)


def _outer(
    translator: OperatorTranslator,
    node: torch.fx.Node,
    op_type: str,
    inputs: Sequence[ir.Value],
    attributes: dict[str, Any],
    count: int,
) -> list[Any]:
    outputs = [RecordedValue(name=translator.recorder.unique_name(f"{node.name}_{index}")) for index in range(count)]
    translator.recorder.append(
        ir.Node("", op_type, list(inputs), ir.convenience.convert_attributes(attributes), outputs=outputs)
    )
    return list(outputs)


def _as_value(translator: OperatorTranslator, operand: Any) -> ir.Value:
    return operand if isinstance(operand, ir.Value) else translator.recorder.constant(operand)


def _cond(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> list[Any]:
    predicate, true_module, false_module, operands = (translator.convert(argument, env) for argument in node.args)
    branches: dict[str, ir.Graph] = {}
    count = 0
    metadata, prefix = dict(translator.recorder.metadata), translator.recorder.node_prefix
    for attribute, module in (("then_branch", true_module), ("else_branch", false_module)):
        with translator.recorder.scope() as nodes, translator.sizes.scope():
            results = translator.run_nodes(module, _bind(module, operands))
            outputs = _body_outputs(translator, results, nodes, node.name)
        count = len(outputs)
        branches[attribute] = _graph(f"{node.name}_{attribute}", [], outputs, nodes)
    translator.recorder.metadata, translator.recorder.node_prefix = metadata, prefix
    condition = _as_value(translator, predicate)
    if condition.shape is None or len(condition.shape):
        condition = op.Reshape(condition, translator.recorder.constant([], ir.DataType.INT64))
    return _outer(translator, node, "If", [condition], dict(branches), count)


def _scan(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> list[Any]:
    """torch's scan runs over axis 0; the body takes carries, one slice of each input, and values that do not change."""
    combine, initial, inputs, additional = (translator.convert(argument, env) for argument in node.args[:4])
    return _scan_node(translator, node, combine, initial, inputs, additional)


def _map(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> list[Any]:
    function, inputs, additional = (translator.convert(argument, env) for argument in node.args[:3])
    return _scan_node(translator, node, function, [], inputs, additional)


def _scan_node(
    translator: OperatorTranslator,
    node: torch.fx.Node,
    module: torch.fx.GraphModule,
    initial: Sequence[Any],
    inputs: Sequence[Any],
    additional: Sequence[Any],
) -> list[Any]:
    metadata, prefix = dict(translator.recorder.metadata), translator.recorder.node_prefix
    own = len(initial) + len(inputs)
    body_inputs = _placeholder_values(translator, module, range(own), node.name)
    with translator.recorder.scope() as nodes, translator.sizes.scope():
        results = translator.run_nodes(module, _bind(module, [*body_inputs, *additional]))
        outputs = _body_outputs(translator, results, nodes, node.name)
    translator.recorder.metadata, translator.recorder.node_prefix = metadata, prefix
    body = _graph(f"{node.name}_body", body_inputs, outputs, nodes)
    operands = [_as_value(translator, operand) for operand in (*initial, *inputs)]
    return _outer(translator, node, "Scan", operands, {"body": body, "num_scan_inputs": len(inputs)}, len(outputs))


def _while_loop(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> list[Any]:
    condition_module, body_module, carried, additional = (translator.convert(argument, env) for argument in node.args)
    metadata, prefix = dict(translator.recorder.metadata), translator.recorder.node_prefix
    carried = [_as_value(translator, operand) for operand in carried]
    first = translator.run_nodes(condition_module, _bind(condition_module, [*carried, *additional]))
    first = first[0] if isinstance(first, (list, tuple)) else first
    iteration = RecordedValue(
        name=translator.recorder.unique_name(f"{node.name}_iteration"),
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape([]),
    )
    going = RecordedValue(
        name=translator.recorder.unique_name(f"{node.name}_going"),
        type=ir.TensorType(ir.DataType.BOOL),
        shape=ir.Shape([]),
    )
    states = _placeholder_values(translator, body_module, range(len(carried)), node.name)
    with translator.recorder.scope() as nodes, translator.sizes.scope():
        results = translator.run_nodes(body_module, _bind(body_module, [*states, *additional]))
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        again = translator.run_nodes(condition_module, _bind(condition_module, [*results, *additional]))
        again = again[0] if isinstance(again, (list, tuple)) else again
        outputs = _body_outputs(translator, [again, *results], nodes, node.name)
    translator.recorder.metadata, translator.recorder.node_prefix = metadata, prefix
    body = _graph(f"{node.name}_body", [iteration, going, *states], outputs, nodes)
    limit = translator.recorder.constant(2**63 - 1, ir.DataType.INT64)
    return _outer(
        translator, node, "Loop", [limit, _as_value(translator, first), *carried], {"body": body}, len(outputs) - 1
    )
