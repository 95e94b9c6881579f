"""What nothing needs: Identity nodes, and nodes, weights and operator sets without a reader.

Arrives: a model. Leaves: the same one, changed in place, and how much went.
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes


def remove_identities(model: ir.Model) -> int:
    """Readers of an Identity read its input."""
    return int(common_passes.IdentityEliminationPass()(model).modified)


def remove_dead_code(model: ir.Model) -> int:
    """Removes nodes, initializers and operator sets that nothing uses; returns how many of the first two."""
    changed = common_passes.RemoveUnusedNodesPass()(model).modified
    unused = [
        name for name, value in model.graph.initializers.items() if not value.uses() and not value.is_graph_output()
    ]
    for name in unused:
        del model.graph.initializers[name]
    common_passes.RemoveUnusedOpsetsPass()(model)
    return int(changed) + len(unused)
