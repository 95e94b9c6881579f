"""In-place operators that change a tensor's axes and none of its numbers (`unsqueeze_`, `t_`): views, to a translation.

Arrives: a captured program. Leaves: a context in which such a node has the operator's functional form, which is a view
of the tensor as it was. torch gives every later reader the node's result, so that what else shares the memory keeps its
own axes, and still sees what is written to either. An input or a buffer that is changed so stays one that is written.
Where `resize_` may leave the memory to others that are read later, it is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from batch_export.errors import TranslationError
from batch_export.exporter.translate.decompose import functional_variant, mutated_arguments

_OTHER_SIZES = frozenset({torch.ops.aten.resize_.default, torch.ops.aten.resize_as_.default})


@contextlib.contextmanager
def changed_axes_as_views(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Within, such nodes are views; afterwards they are what they were."""
    changed: list[tuple[torch.fx.Node, Any]] = []
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if (view := _view(node)) is not None:
                changed.append((node, node.target))
                node.target = view
    try:
        yield
    finally:
        for node, target in changed:
            node.target = target


def _view(node: torch.fx.Node) -> Any | None:
    """The operator that gives a view with the new axes; None for every other node."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.inplace_view not in target.tags or not node.args:
        return None
    functional = functional_variant(target)
    if functional is None or functional._schema.arguments[0].alias_info is None:  # `resize_` may take other memory
        return None
    origin = node.args[0]
    return functional if isinstance(origin, torch.fx.Node) and _itself(origin).op == "call_function" else None


def _itself(node: torch.fx.Node) -> torch.fx.Node:
    """The node that a tensor comes from, which operators in place give back."""
    while mutated_arguments(node.target) == (0,) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node


def refuse_other_size(
    node: torch.fx.Node, views: Mapping[torch.fx.Node, torch.fx.Node], env: Mapping[torch.fx.Node, object]
) -> None:
    """Looks at a node that may give a tensor another size, while others have its memory.

    Args:
        node: an operator that writes to its argument.
        views: the views that were translated so far, each with what it is a view of.
        env: what was translated so far.

    Raises:
        TranslationError: one of the others is read later.
    """
    changed = node.args[0] if node.target in _OTHER_SIZES else None
    if not isinstance(changed, torch.fx.Node):
        return

    def root(one: torch.fx.Node) -> torch.fx.Node:
        while one in views:
            one = views[one]
        return one

    itself, memory = _itself(changed), root(changed)
    others = [one for one in (memory, *views) if root(one) is memory and _itself(one) is not itself]
    if any(user is not node and user not in env for one in others for user in one.users):
        raise TranslationError(
            f"a tensor gets another size while {others[0].name} has its memory, and is read later",
            next_step="give a copy another size: `.clone()` in front of it",
        )
