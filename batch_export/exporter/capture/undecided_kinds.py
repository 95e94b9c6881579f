"""Programs of a strict capture in which a dtype goes by the kind of a number that the data decide: `max(k, 1.5)`.

Arrives: an exported program. Leaves: an error where such a number meets tensors of whole numbers. Dynamo writes
`torch.sym_max(torch.sym_float(k), 1.5)` and asks for no kind, so that the number is a fraction in its program whatever
the data are (`either_kinds.py` asks in the other captures). `max(float(k), 1.5)` looks alike, and is refused with it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch

from batch_export.exporter.capture.either_kinds import goes_by_no_number
from batch_export.exporter.graph.metadata import source_location

_EXTREMES = (torch.sym_max, torch.sym_min)
_KEEPING = (
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.neg),
    *_EXTREMES,
)
"""What gives a whole number of whole ones."""


class UndecidedKindError(ValueError):
    """A dtype of the model goes by whether a number of the data is a whole one."""


def refuse_undecided_kinds(program: torch.export.ExportedProgram) -> None:
    """Looks at each `max` and `min` of a whole number and a fraction.

    Args:
        program: what a strict capture gave.

    Raises:
        UndecidedKindError: the model's next dtype is that of the number that the data choose.
    """
    either: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in _KEEPING and _may_be_either(node, either):
            either.add(node)
        elif any(one in either for one in node.all_input_nodes) and _goes_by_number(node):
            raise UndecidedKindError(
                f"{node.target} gives whole numbers or fractions, as the data decide, at {source_location(node) or '?'}"
            )


def _may_be_either(node: torch.fx.Node, either: set[torch.fx.Node]) -> bool:
    if node.target in _EXTREMES:
        return any(one in either or _is_made_fraction(one) for one in node.args)
    kinds = [_kind(one, either) for one in node.args]
    return "either" in kinds and float not in kinds


def _is_made_fraction(one: object) -> bool:
    if not isinstance(one, torch.fx.Node) or one.target is not torch.sym_float:
        return False
    return isinstance(one.args[0], torch.fx.Node) and _kind(one.args[0], set()) is int


def _kind(one: object, either: set[torch.fx.Node]) -> object:
    """The kind of a number; dynamo makes the whole one in `2 * number` a fraction, too."""
    if isinstance(one, torch.fx.Node):
        if one in either:
            return "either"
        one = one.meta.get("val")
    is_whole = isinstance(one, (int, torch.SymInt)) or (isinstance(one, float) and one.is_integer())
    return int if is_whole else float


def _goes_by_number(node: torch.fx.Node) -> bool:
    made = node.meta.get("val")
    if not isinstance(made, torch.Tensor) or not made.is_floating_point() or node.kwargs.get("dtype") is not None:
        return False
    if not isinstance(node.target, torch._ops.OpOverload) or goes_by_no_number(node.target._schema.name.split("::")[1]):
        return False
    return not any(one.is_floating_point() or one.is_complex() for one in _tensors(node))


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    for one in node.all_input_nodes:
        if isinstance(value := one.meta.get("val"), torch.Tensor):
            yield value
