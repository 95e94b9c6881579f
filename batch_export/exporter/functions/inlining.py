"""A model with functions made of calls of modules, written out again: each call's nodes in its place.

Arrives: a model that `making.py` made functions in. Leaves: a copy without functions, whose nodes are noted
with the calls around them, so that the functions can be made again. The model itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from batch_export.exporter.functions import calls as module_calls
from batch_export.exporter.functions.calls import Calls, ModuleCall
from batch_export.exporter.functions.making import MODULE, ModuleFunction
from batch_export.exporter.graph.free_names import free_name


def written_out(model: ir.Model, functions: Sequence[ModuleFunction]) -> ir.Model:
    """A copy of a model in which no function that was made of calls of modules is left.

    Args:
        model: what is copied; weights are shared.
        functions: those that were made.
    """
    copy = model.clone()
    known = {(one.domain, one.name, ""): one for one in functions if (one.domain, one.name, "") in copy.functions}
    names: set[str | None] = {value.name for node in copy.graph for value in node.outputs}
    names |= {value.name for value in (*copy.graph.inputs, *copy.graph.initializers.values())}
    for node in list(copy.graph):
        if node.op_identifier() in known:
            _write_out(copy, node, (), known, names)
        else:
            module_calls.write(node, ())
    for identifier in known:
        del copy.functions[identifier]
    for domain in {domain for domain, _, _ in known} - {node.domain for node in copy.graph.all_nodes()}:
        copy.graph.opset_imports.pop(domain, None)
    common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy)
    return copy


def _write_out(
    model: ir.Model,
    call: ir.Node,
    around: Calls,
    known: dict[ir.OperatorIdentifier, ModuleFunction],
    names: set[str | None],
    instead: tuple[ModuleCall, ModuleCall] | None = None,
) -> None:
    kind = known[call.op_identifier()].kind
    original = model.functions[call.op_identifier()]
    function = original.clone()
    own = _parsed(call.metadata_props[MODULE], kind)
    if instead is not None:
        own = own.instead(*instead)
    source = _parsed(original.metadata_props[MODULE], kind)
    here = (*around, own)
    nodes = list(function)
    function.graph.remove(nodes)
    for stands, given in zip(function.inputs, call.inputs, strict=True):
        for user, index in tuple(stands.uses()):
            user.replace_input_with(index, given)
    outputs = list(function.outputs)
    function.outputs.clear()
    for node in nodes:
        node.name = free_name(f"{call.name}/{node.name}", names)
        for value in node.outputs:
            if value.name:
                value.name = free_name(f"{own}/{value.name}", names)
    graph = model.graph
    graph.insert_before(call, nodes)
    for old, new in zip(call.outputs, outputs, strict=True):
        name, shape, kind_of, properties = old.name, old.shape, old.type, dict(old.metadata_props)
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        old.name, new.name = None, name
        new.type = kind_of if kind_of is not None else new.type
        new.shape = shape if shape is not None else new.shape
        new.metadata_props.update(properties)
    graph.remove(call, safe=True)
    for node in nodes:
        if node.op_identifier() in known:
            _write_out(model, node, here, known, names, (source, own))
        else:
            module_calls.write(node, here)


def _parsed(text: str, kind: str) -> ModuleCall:
    path, _, number = text.partition("@")
    return ModuleCall(path, int(number or 0), kind)
