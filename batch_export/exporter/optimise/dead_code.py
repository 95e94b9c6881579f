"""What nothing needs: Identity nodes, and nodes, weights and operator sets without a reader.

Arrives: a model. Leaves: the same one, changed in place, and how much went.
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from batch_export.legalise.nested import WITH_BODIES, bodies_of, has, nodes_of


def remove_identities(model: ir.Model) -> int:
    """Readers of an Identity read its input."""
    if not model.functions and not has(model.graph, "Identity"):
        return 0
    return int(_IdentityEliminationPass()(model).modified)


class _IdentityEliminationPass(common_passes.IdentityEliminationPass):
    """As onnx-ir's, where a body's result is made within the body.

    NOTE: onnx-ir (1.1.0) gives a body the value of a graph around it as its result, which ONNX does not allow; two
    bodies with one such value end in an error.
    """

    def _try_eliminate_identity_node(self, node: ir.Node) -> bool:
        (given,) = node.inputs if len(node.inputs) == 1 else (None,)
        if given is not None and any(one.is_graph_output() for one in node.outputs) and _is_elsewhere(given, node):
            return False
        return bool(super()._try_eliminate_identity_node(node))


def _is_elsewhere(value: ir.Value, node: ir.Node) -> bool:
    """Whether another graph than a node's makes a value."""
    producer = value.producer()
    return producer is not None and producer.graph is not node.graph


def remove_dead_code(model: ir.Model) -> int:
    """Removes nodes, initializers and operator sets that nothing uses; returns how many of the first two."""
    changed = remove_unused_nodes(model)
    unused = [
        name for name, value in model.graph.initializers.items() if not value.uses() and not value.is_graph_output()
    ]
    for name in unused:
        del model.graph.initializers[name]
    _remove_unused_opsets(model)
    return int(changed) + len(unused)


def _remove_unused_opsets(model: ir.Model) -> None:
    if model.functions:
        common_passes.RemoveUnusedOpsetsPass()(model)
        return
    others = [domain for domain in model.graph.opset_imports if domain]
    used = {node.domain for node in nodes_of(model.graph)} if others else set()
    for domain in [one for one in others if one not in used]:
        del model.graph.opset_imports[domain]


def remove_unused_nodes(model: ir.Model) -> bool:
    """Removes nodes and outputs of nodes that nothing reads, and inputs that are left out; whether anything went.

    onnx-ir's pass asks for every node's schema, to see which outputs it may lack: it runs where some could go.
    """
    changed, may_lack = _without_readers(model.graph)
    if may_lack or model.functions:
        changed |= common_passes.RemoveUnusedNodesPass()(model).modified
    return changed


def _without_readers(graph: ir.Graph) -> tuple[bool, bool]:
    """Removes a graph's unread nodes; whether there were any, and whether one that stays may say less."""
    changed = may_lack = False
    for node in reversed(graph):
        outputs, inputs = node.outputs, node.inputs
        is_read = len(outputs) == 1 and bool(outputs[0].uses())  # most nodes
        unread = [] if is_read else [one for one in outputs if not one.uses() and not one.is_graph_output()]
        if len(unread) == len(outputs):
            graph.remove(node, safe=True)
            _let_go(node)
            changed = True
            continue
        may_lack |= bool(unread) or (bool(inputs) and inputs[-1] is None) or "training_mode" in node.attributes.data
        for body in bodies_of(node) if node.domain or node.op_type in WITH_BODIES else ():
            in_body = _without_readers(body)
            changed, may_lack = changed or in_body[0], may_lack or in_body[1]
    return changed, may_lack


def _let_go(node: ir.Node) -> None:
    """The bodies of a removed node read nothing of the graph around it any more."""
    for body in bodies_of(node) if node.domain or node.op_type in WITH_BODIES else ():
        for one in nodes_of(body):
            for place in range(len(one.inputs)):
                one.replace_input_with(place, None)
