"""Higher-order operators: cond -> If, scan and map -> Scan, while_loop -> Loop, and wrappers that are looked through.

Arrives: an FX node whose target is one of torch's higher-order operators, with its submodules as graph modules. Leaves:
ONNX nodes whose bodies read weights and other outer values directly, as ONNX scoping allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from batch_export.errors import MissingOperatorError, TranslationError
from batch_export.exporter.graph.bodies import around, body, fresh_value
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.translate import decompose
from batch_export.exporter.translate.autocast import with_conversions
from batch_export.exporter.translate.operator import OperatorTranslator
from batch_export.exporter.translate.registry import qualified_name

_WRAPPERS = {
    "wrap_with_set_grad_enabled": 1,
    "wrap_with_autocast": 4,
    "invoke_subgraph": 2,
    "tag_activation_checkpoint": 0,
}


def _writes_by_itself(node: torch.fx.Node) -> MissingOperatorError:
    """torch's form of an operator that writes to its arguments, and of which torch knows no other form."""
    target = node.args[0]
    name = qualified_name(target)
    written = decompose.mutated_arguments(target)
    formals = [target._schema.arguments[at].name for at in written]  # type: ignore[union-attr]
    return MissingOperatorError(
        f"{name} writes to {' and '.join(formals)}, and has no ONNX translation and no decomposition",
        (name,),
        next_step=f"pass custom_translation_table={{torch.ops.{name.replace('::', '.')}: function}}, whose results are "
        f"the operator's own, then the new content of {' and '.join(formals)}",
    )


def translate(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> object:
    """The values of a higher-order operator, as a list; the value of one whose functions give a tensor by itself."""
    assert isinstance(node.target, torch._ops.HigherOrderOperator)
    name = node.target.name()
    if name in ("cond", "scan", "map_impl", "map", "while_loop"):
        _refuse_writes(translator, node, env)
    if name == "cond":
        result = _cond(translator, node, env)
    elif name == "scan":
        result = _scan(translator, node, env)
    elif name in ("map_impl", "map"):
        result = _map(translator, node, env)
    elif name == "while_loop":
        result = _while_loop(translator, node, env)
    elif decompose.decomposition_of(node.target) is not None:
        result = _composed(translator, node, env)
    elif name in _WRAPPERS:
        return _inline(translator, node, env, _WRAPPERS[name])
    elif name.startswith("auto_functionalized"):
        raise _writes_by_itself(node)
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
    translator.describe(result[0], fakes)
    return result[0]  # of a function that gives one tensor by itself


def _inline(
    translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object], position: int
) -> list[object]:
    """Wrappers change how torch runs a submodule, not what it computes; but for autocast."""
    arguments = [translator.convert(argument, env) for argument in node.args]
    if node.target.name() == "invoke_subgraph":  # type: ignore[union-attr]
        position = 0
        operands = arguments[2:]
    else:
        operands = arguments[position + 1 :]
    if node.target.name() == "wrap_with_autocast" and arguments[2]:  # type: ignore[union-attr]
        arguments[position] = with_conversions(arguments[position])
    results: list[object] = translator.run_nodes(arguments[position], _bind(arguments[position], operands))
    return results


def _composed(
    translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]
) -> list[ir.Value]:
    """What torch composes of its functions for all numbers at once, in place of one number after the other."""

    def fake_of(argument: torch.fx.Node) -> Any:  # what torch has for it: an fx.Argument as well
        return env[argument] if argument.op == "get_attr" else argument.meta["val"]

    values = {
        id(argument.meta["val"]): env[argument]
        for argument in node.all_input_nodes
        if isinstance(argument.meta.get("val"), torch.Tensor)
    }
    arguments = torch.fx.map_arg(node.args, fake_of)
    keywords = torch.fx.map_arg(node.kwargs, fake_of)
    results = translator.decompose(node.target, arguments, keywords, values, node.name)
    assert isinstance(results, (list, tuple))
    return list(results)


def _bind(graph_module: torch.fx.GraphModule, operands: Sequence[object]) -> dict[torch.fx.Node, object]:
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


def _body(
    translator: OperatorTranslator,
    name: str,
    inputs: Sequence[ir.Value],
    module: torch.fx.GraphModule,
    operands: Sequence[object],
) -> ir.Graph:
    """A submodule as the body of a node."""
    with translator.sizes.scope():
        return body(translator.recorder, name, inputs, lambda: _results(translator, module, operands))


def _refuse_writes(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> None:
    """A body that writes to what it is given: what is outside of it would not see that.

    Raises:
        TranslationError: naming the operator that writes.
    """
    given = [translator.convert(one, env) for one in node.args]
    modules = [one for one in given if isinstance(one, torch.fx.GraphModule)]
    for one in (each for module in modules for each in module.graph.nodes):
        schema = getattr(one.target, "_schema", None)
        if one.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        written = one.args[0] if one.args else None
        while isinstance(written, torch.fx.Node) and written.op == "call_function" and _is_view(written):
            written = written.args[0] if written.args else None
        if isinstance(written, torch.fx.Node) and written.op in ("placeholder", "get_attr"):
            raise TranslationError(
                f"{one.target} writes within {node.target} to what lies outside of it, which a file cannot say",
                next_step="write to a copy (`.clone()`) that goes on from round to round",
            )


def _is_view(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(one.alias_info is not None for one in schema.returns)


def _results(translator: OperatorTranslator, module: torch.fx.GraphModule, operands: Sequence[object]) -> list[object]:
    """The results of a submodule's nodes.

    Raises:
        TranslationError: if they are neither a tensor nor a tuple or list of them.
    """
    results = translator.run_nodes(module, _bind(module, operands))
    found = list(results) if isinstance(results, (list, tuple)) else [results]
    if any(isinstance(one, (Mapping, list, tuple)) for one in found):
        raise TranslationError(
            "a function of torch's higher-order operator gives results that are no tensors in a tuple",
            next_step="return a tensor, or a tuple or list of them, from it",
        )
    return found


def _outer(
    translator: OperatorTranslator,
    node: torch.fx.Node,
    op_type: str,
    inputs: Sequence[ir.Value],
    attributes: dict[str, object],
    count: int,
) -> list[ir.Value]:
    outputs = [fresh_value(translator.recorder, f"{node.name}_{index}") for index in range(count)]
    return around(translator.recorder, op_type, inputs, attributes, outputs)


def _as_value(translator: OperatorTranslator, operand: object) -> ir.Value:
    return operand if isinstance(operand, ir.Value) else translator.recorder.constant(operand)


def _cond(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> list[ir.Value]:
    predicate, true_module, false_module, operands = (translator.convert(argument, env) for argument in node.args)
    branches = {
        attribute: _body(translator, f"{node.name}_{attribute}", [], module, operands)
        for attribute, module in (("then_branch", true_module), ("else_branch", false_module))
    }
    condition = _as_value(translator, predicate)
    if condition.shape is None or len(condition.shape):
        condition = op.Reshape(condition, translator.recorder.constant([], ir.DataType.INT64))
    return _outer(translator, node, "If", [condition], dict(branches), len(branches["else_branch"].outputs))


def _scan(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> list[ir.Value]:
    """torch's scan runs over axis 0; the body takes carries, one slice of each input, and values that do not change."""
    combine, initial, inputs, additional = (translator.convert(argument, env) for argument in node.args[:4])
    return _scan_node(translator, node, combine, initial, inputs, additional)


def _map(translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]) -> list[ir.Value]:
    function, inputs, additional = (translator.convert(argument, env) for argument in node.args[:3])
    return _scan_node(translator, node, function, [], inputs, additional)


def _scan_node(
    translator: OperatorTranslator,
    node: torch.fx.Node,
    module: torch.fx.GraphModule,
    initial: Sequence[object],
    inputs: Sequence[object],
    additional: Sequence[object],
) -> list[ir.Value]:
    own = _placeholder_values(translator, module, range(len(initial) + len(inputs)), node.name)
    graph = _body(translator, f"{node.name}_body", own, module, [*own, *additional])
    operands = [_as_value(translator, operand) for operand in (*initial, *inputs)]
    attributes = {"body": graph, "num_scan_inputs": len(inputs)}
    return _outer(translator, node, "Scan", operands, attributes, len(graph.outputs))


def _while_loop(
    translator: OperatorTranslator, node: torch.fx.Node, env: Mapping[torch.fx.Node, object]
) -> list[ir.Value]:
    condition_module, body_module, carried, additional = (translator.convert(argument, env) for argument in node.args)
    carried = [_as_value(translator, operand) for operand in carried]

    def goes_on(states: Sequence[object]) -> object:
        return _results(translator, condition_module, [*states, *additional])[0]

    def one_step() -> list[object]:
        results = _results(translator, body_module, [*states, *additional])
        return [goes_on(results), *results]

    with translator.recorder.attribution():
        first = goes_on(carried)
    iteration = fresh_value(translator.recorder, f"{node.name}_iteration", ir.DataType.INT64, [])
    going = fresh_value(translator.recorder, f"{node.name}_going", ir.DataType.BOOL, [])
    states = _placeholder_values(translator, body_module, range(len(carried)), node.name)
    with translator.sizes.scope():
        graph = body(translator.recorder, f"{node.name}_body", [iteration, going, *states], one_step)
    limit = translator.recorder.constant(2**63 - 1, ir.DataType.INT64)
    operands = [limit, _as_value(translator, first), *carried]
    return _outer(translator, node, "Loop", operands, {"body": graph}, len(graph.outputs) - 1)
