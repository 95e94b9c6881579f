"""Writes through views: which node is a view of which, and what a write to a view means for the tensor behind it.

Arrives: FX nodes of a captured graph that may still hold in-place operators. Leaves: the parent of each view, and the
operator with which a parent takes up the new content of its view. No tensor is touched.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten

VIEWS_IN_ORDER = frozenset(
    {
        aten.reshape.default,
        aten.reshape_as.default,
        aten.ravel.default,
        aten.contiguous.default,
        aten.flatten.using_ints,
    }
)
"""Operators that give the tensor itself where its elements lie in order, and a copy elsewhere."""

# Operators whose schema does not say whether their result aliases the input: they copy when they have to.
_MAYBE_VIEWS = VIEWS_IN_ORDER | frozenset(
    {
        aten.to.dtype,
        aten.to.device,
        aten.to.dtype_layout,
        aten.to.other,
        aten.type_as.default,
    }
)
_COPIES = frozenset({aten.channel_shuffle.default, aten.native_channel_shuffle.default})
"""Operators whose kernels copy, though torch's form of them without numbers may give back the tensor itself."""
_DROPOUTS = frozenset(
    {
        aten.dropout.default,
        aten.feature_dropout.default,
        aten.alpha_dropout.default,
        aten.feature_alpha_dropout.default,
    }
)
_TRANSPARENT = frozenset(
    {aten.alias.default, aten.detach.default, aten.detach_.default, aten.lift_fresh.default, aten.view_as.default}
    | _MAYBE_VIEWS - {aten.reshape.default, aten.reshape_as.default, aten.ravel.default, aten.flatten.using_ints}
    | _DROPOUTS
)
_RESHAPES = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.reshape_as.default,
        aten.ravel.default,
        aten.flatten.using_ints,
        aten.unflatten.int,
        aten.unsqueeze.default,
        aten.atleast_1d.default,
        aten.atleast_2d.default,
        aten.atleast_3d.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
    }
)

_PAIRS = {
    aten.view_as_complex.default: aten.view_as_real.default,
    aten.view_as_real.default: aten.view_as_complex.default,
}
"""Views that take pairs of real numbers for complex ones or the other way -> what undoes them."""


def _tensor(node: object) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def view_parent(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node that this node's tensor is a view of, or None if it has memory of its own."""
    return _declared_parent(node) or _sharer(node)


def _sharer(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument whose memory the node's tensor has although no schema says so (`atleast_2d`, `einsum`, ...)."""
    own = _memory(node)
    maker = node.all_input_nodes[0] if node.target is operator.getitem and node.all_input_nodes else node
    if own is None or not isinstance(maker.target, torch._ops.OpOverload) or maker.target._schema.is_mutable:
        return None
    if maker.target in _COPIES:
        return None
    return next((source for source in maker.all_input_nodes if _memory(source) == own), None)


def _memory(node: torch.fx.Node) -> int | None:
    """What stands for the memory of a node's tensor: fake tensors share it as the tensors do that they stand for."""
    tensor = _tensor(node)
    if tensor is None or tensor.layout is not torch.strided:
        return None
    storage: int = tensor.untyped_storage()._cdata
    return storage


def _declared_parent(node: torch.fx.Node) -> torch.fx.Node | None:
    """The same by the operators' schemas and what is known of some."""
    target = node.target
    if not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    source = node.args[0]
    if target is operator.getitem:  # a piece of a split is a view of what was split
        return _declared_parent(source) if isinstance(source.meta.get("val"), (list, tuple)) else None
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if target in _DROPOUTS:
        return source if drops_nothing(node) else None
    if target in _MAYBE_VIEWS:
        before, after = _tensor(source), _tensor(node)
        if before is None or after is None or before.dtype != after.dtype or not _keeps_memory(node, before):
            return None
        return source if is_contiguous_or_false(before) else None
    arguments = target._schema.arguments
    returns = target._schema.returns
    if not arguments or not returns:
        return None
    read, written = arguments[0].alias_info, returns[0].alias_info
    gives_list = isinstance(returns[0].type, torch._C.ListType)  # torch's schemas keep the mark of a list's elements
    if read is None or read.is_write or (written is None and not gives_list):
        return None
    return source


def _keeps_memory(node: torch.fx.Node, before: torch.Tensor) -> bool:
    """Whether what an operator was asked for lets it give back a dense tensor itself: no copy, and no other order."""
    layout = _argument(node, "memory_format")
    if layout in (torch.channels_last, torch.channels_last_3d) and not before.is_contiguous(memory_format=layout):
        return False
    return not _argument(node, "copy")


def _argument(node: torch.fx.Node, name: str) -> Any:
    """What an operator of torch was given for a parameter, its default where it was given nothing."""
    assert isinstance(node.target, torch._ops.OpOverload)
    for place, parameter in enumerate(node.target._schema.arguments):
        if parameter.name == name:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(name)
            return parameter.default_value if given is None and parameter.has_default_value() else given
    return None


def drops_nothing(node: torch.fx.Node) -> bool:
    """Whether a node is a dropout that gives its input back, the tensor itself: in eval mode, or with a share of 0."""
    return node.target in _DROPOUTS and (_argument(node, "p") == 0 or not _argument(node, "train"))


def gives_back(node: torch.fx.Node) -> bool:
    """Whether a node gives its input back, the tensor itself, where torch's functionalisation sees a copy."""
    if node.target is aten.type_as.default:
        before, after = _tensor(node.args[0]), _tensor(node)
        return before is not None and after is not None and (before.dtype, before.device) == (after.dtype, after.device)
    return drops_nothing(node)


@contextlib.contextmanager
def given_back_as_views(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Within, what gives its input back is a view: torch's decomposition of it makes copies, to which it writes."""
    changed: list[tuple[torch.fx.Node, Any, Any, Any]] = []
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if gives_back(node):
                changed.append((node, node.target, node.args, node.kwargs))
                node.target, node.args, node.kwargs = aten.alias.default, node.args[:1], {}
    try:
        yield
    finally:
        for node, target, args, kwargs in changed:
            node.target, node.args, node.kwargs = target, args, kwargs


def may_copy(node: torch.fx.Node) -> torch.fx.Node | None:
    """The tensor that a node has to copy here, and would give back where its elements lie in their own order."""
    if node.target not in _MAYBE_VIEWS or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    source = node.args[0]
    before, after = _tensor(source), _tensor(node)
    if before is None or after is None or before.dtype != after.dtype or view_parent(node) is not None:
        return None
    return source if _keeps_memory(node, before) else None


_REPEATING = frozenset({"expand", "expand_as", "broadcast_to", "unfold", "as_strided"})
"""Views in which several elements may be one element of what they are a view of."""


def repeats(node: torch.fx.Node) -> bool:
    """Whether a node is a view that may hold an element of its parent several times."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._opname in _REPEATING


def is_fixed(view: torch.fx.Node) -> bool:
    """Whether nothing but its parent decides which elements a view has."""
    maker = view.all_input_nodes[0] if view.target is operator.getitem else view
    read: list[torch.fx.Node] = []
    torch.fx.map_arg((maker.args, maker.kwargs), read.append)  # each time that it is read: `x.expand_as(x)`
    return len(view.all_input_nodes) == 1 and len(read) == 1


def reads_other_numbers(view: torch.fx.Node) -> bool:
    """Whether a view has its parent's elements at their places, and takes their bits for those of another dtype."""
    return view.target is aten.view.dtype


def positions(views: Sequence[torch.fx.Node], parent_sizes: Sequence[int]) -> torch.Tensor:
    """Where each element of a view of views lies in their parent: int64 of its shape, counting the parent's elements.

    Any view of a tensor of known sizes can be written through with these, whatever operators made it.

    Args:
        views: a view of the parent, a view of that, and so on.
        parent_sizes: of the parent.
    """
    numbered = torch.arange(math.prod(parent_sizes)).reshape(list(parent_sizes))
    for view in views:
        maker = view.all_input_nodes[0] if view.target is operator.getitem else view
        function: Any = maker.target
        made = function(numbered, *maker.args[1:], **maker.kwargs)
        numbered = made[view.args[1]] if view.target is operator.getitem else made
    return numbered


def merge_view(node: torch.fx.Node, parent: torch.Tensor) -> tuple[Any, tuple[Any, ...]] | None:
    """How the parent takes up a new content of the view `node`.

    Args:
        node: the view.
        parent: as the program has it.

    Returns:
        The operator and its arguments, in which `None` stands for the parent and `...` for the view; None when the view
        cannot be written through here (the whole program is then made functional by torch).
    """
    target, args, parent_sizes = node.target, node.args, parent.shape
    if reads_other_numbers(node):
        return None if parent.is_complex() else (aten.view.dtype, (..., parent.dtype))
    if target in _TRANSPARENT:
        return aten.alias.default, (...,)
    if target in _PAIRS:
        return _PAIRS[target], (...,)
    if target in _RESHAPES:
        return aten.reshape.default, (..., list(parent_sizes))
    if target == aten.select.int:
        return aten.select_scatter.default, (None, ..., *args[1:])
    if target == aten.slice.Tensor:
        return aten.slice_scatter.default, (None, ..., *args[1:])
    if target == aten.narrow.default:
        return _merge_narrow(node, parent_sizes)
    if target is operator.getitem:
        return _merge_piece(node)
    if target == aten.transpose.int:
        return aten.transpose.int, (..., *args[1:])
    if target == aten.permute.default:
        order = [int(axis) % len(args[1]) for axis in args[1]]  # type: ignore[arg-type, union-attr]
        return aten.permute.default, (..., [order.index(axis) for axis in range(len(order))])
    return None


def _merge_narrow(node: torch.fx.Node, parent_sizes: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """The same for some neighbouring places of an axis, where it is known whether they are counted from the end."""
    axis: Any = node.args[1]
    given = node.args[2]
    start: Any = given.meta.get("val") if isinstance(given, torch.fx.Node) else given
    if isinstance(start, int) and start < 0:
        start = start + parent_sizes[axis]
    elif not isinstance(start, int) and not (isinstance(start, torch.SymInt) and statically_known_true(start >= 0)):
        return None
    return aten.slice_scatter.default, (None, ..., axis, start, start + node.meta["val"].shape[axis])


def _merge_piece(node: torch.fx.Node) -> tuple[object, tuple[object, ...]] | None:
    """The same for one piece of what `unbind`, `split` and the like gave."""
    container, index = node.args
    assert isinstance(container, torch.fx.Node)
    assert isinstance(index, int)
    target, pieces = container.target, container.meta["val"]
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    names = [argument.name for argument in target._schema.arguments]
    if "dim" not in names:
        return None
    position = names.index("dim")
    axis = container.args[position] if position < len(container.args) else container.kwargs.get("dim", 0)
    if target == aten.unbind.int:
        return aten.select_scatter.default, (None, ..., axis, index)
    sizes = [piece.shape[axis] for piece in pieces]
    start = sum(sizes[:index])
    return aten.slice_scatter.default, (None, ..., axis, start, start + sizes[index])
