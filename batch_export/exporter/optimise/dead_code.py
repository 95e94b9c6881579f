"""What nothing needs: Identity nodes, and nodes, weights and operator sets without a reader.

Arrives: a model. Leaves: the same one, changed in place, and how much went.
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from batch_export.legalise.nested import bodies_of


def remove_identities(model: ir.Model) -> int:
    """Readers of an Identity read its input."""
    return int(common_passes.IdentityEliminationPass()(model).modified)


def remove_dead_code(model: ir.Model) -> int:
    """Removes nodes, initializers and operator sets that nothing uses; returns how many of the first two."""
    changed = remove_unused_nodes(model)
    unused = [
        name for name, value in model.graph.initializers.items() if not value.uses() and not value.is_graph_output()
    ]
    for name in unused:
        del model.graph.initializers[name]
    common_passes.RemoveUnusedOpsetsPass()(model)
    return int(changed) + len(unused)


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
        unread = [one for one in node.outputs if not one.uses() and not one.is_graph_output()]
        if len(unread) == len(node.outputs):
            graph.remove(node, safe=True)
            changed = True
            continue
        may_lack |= (
            bool(unread) or (bool(node.inputs) and node.inputs[-1] is None) or "training_mode" in node.attributes
        )
        for body in bodies_of(node):
            in_body = _without_readers(body)
            changed, may_lack = changed or in_body[0], may_lack or in_body[1]
    return changed, may_lack
