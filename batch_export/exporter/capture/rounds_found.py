"""Whether a captured program has loops as operators.

Arrives: a program. Leaves: whether it has any, at any depth.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op

_ROUNDS = (scan_op, while_loop_op)


def has_rounds(program: torch.export.ExportedProgram) -> bool:
    """Returns whether a program runs something several times."""
    graphs = (one for one in program.graph_module.modules() if isinstance(one, fx.GraphModule))
    return any(node.target in _ROUNDS for graph in graphs for node in graph.graph.nodes if node.op == "call_function")
