"""Branches of `torch.cond` that return an operand as it is, which eager refuses and dynamo captures wrongly.

Arrives: a captured program. Leaves: nothing, or an error. In such a program everything that reads the operand after
the branches reads their result. May go when dynamo keeps the two apart.
"""

from __future__ import annotations

import torch


class ReturnedOperandError(RuntimeError):
    """A branch returns what it was given."""


def refuse_returned_operands(program: torch.export.ExportedProgram) -> None:
    """Looks at every branch.

    Raises:
        ReturnedOperandError: one of them returns an operand.
    """
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.target is torch.ops.higher_order.cond:
                    _refuse(module, node)


def _refuse(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    for branch in node.args[1:3]:
        graph = getattr(module, str(branch.target)).graph if isinstance(branch, torch.fx.Node) else None
        if graph is None:
            continue
        given = set(graph.find_nodes(op="placeholder"))
        returned = graph.output_node().all_input_nodes
        if given.intersection(returned):
            operand = next(iter(given.intersection(returned)))
            raise ReturnedOperandError(f"a branch of torch.cond returns its operand {operand} as it is")
