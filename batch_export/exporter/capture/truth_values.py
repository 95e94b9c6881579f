"""Arithmetic on truth values that eager refuses (`x - True`), and that torch lets pass while it captures.

Arrives: a captured program. Leaves: nothing, or an error. Torch (2.13) works out the results of the four operations of
arithmetic by a shortcut that does not ask what eager asks. Eager itself is asked here, on tensors without elements.
"""

from __future__ import annotations

from typing import Any

import torch

from batch_export.exporter.graph.metadata import source_location

aten = torch.ops.aten
_ASKED = frozenset(
    {aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub, aten.mul, aten.mul_, aten.div, aten.div_, aten.subtract}
)


class RefusedByEagerError(RuntimeError):
    """Eager does not run what was captured.

    Attributes:
        source: `file:line` in the model.
    """

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source


def refuse_what_eager_refuses(program: torch.export.ExportedProgram) -> None:
    """Looks at every operation of arithmetic on truth values.

    Raises:
        RefusedByEagerError: eager refuses one of them.
    """
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if getattr(node.target, "overloadpacket", None) in _ASKED and _is_on_truth_values(node):
                _ask(node)


def _is_on_truth_values(node: torch.fx.Node) -> bool:
    return any(getattr(one.meta.get("val"), "dtype", None) is torch.bool for one in node.all_input_nodes)


def _ask(node: torch.fx.Node) -> None:
    operator: Any = node.target
    try:
        operator(
            *map(_without_elements, node.args), **{key: _without_elements(one) for key, one in node.kwargs.items()}
        )
    except RuntimeError as error:
        said = str(error).strip().splitlines()[0]
        raise RefusedByEagerError(f"eager refuses {operator}: {said}", source_location(node) or "") from error


def _without_elements(argument: Any) -> Any:
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    if isinstance(value, torch.Tensor):  # numbers and tensors of no axes rank below others
        return torch.empty([0] if value.dim() else [], dtype=value.dtype, device=value.device)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}[type(value)]
    return value
