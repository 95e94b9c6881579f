"""Copies that eager does not make at some sizes: a write to one of the two is then a write to the other.

Arrives: the graph of a captured program that may hold in-place operators. Leaves: nothing, or an error that names the
copy, the sizes and the line. `x.t().contiguous()` is a copy, but of one row it is the row itself, and so is
`x[:, :2].contiguous()` of a tensor that has no more columns; what the model makes longer where something is missing
is none there. A program without writes is not looked through.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from batch_export.errors import TranslationError
from batch_export.exporter.graph import metadata
from batch_export.exporter.graph.sizes import expression
from batch_export.exporter.translate import aliasing, decompose, longer_at_sizes
from batch_export.exporter.translate.operator import IGNORED_NAMES
from batch_export.exporter.translate.registry import qualified_name

_RESHAPES = frozenset(
    {torch.ops.aten.reshape.default, torch.ops.aten.reshape_as.default, torch.ops.aten.flatten.using_ints}
)
_OTHER = 3
"""The size of an axis that is left alone."""
_FREE_AXES = 4
"""How many free axes of a tensor are looked at."""
_LARGEST = 2**16
"""The largest size that is looked at because an expression names it."""
_WRITE_ANYWHERE = ("index", "masked", "scatter", "put")
"""What the names of operators begin with that write to such a tensor and only warn."""
_SIZES_ONLY = ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset")

Allowed = Callable[[sympy.Symbol, int], bool]
"""Whether the axis of a symbol may have a size."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy, what it is a copy of, and sizes at which the two are one.

    Attributes:
        repeats: whether several of its elements are one there.
    """

    node: torch.fx.Node
    source: torch.fx.Node
    sizes: Mapping[sympy.Symbol, int]
    repeats: bool = False


def refuse(program: torch.export.ExportedProgram, allowed: Allowed, axis_names: Mapping[str, str]) -> None:
    """Refuses a write to one of two tensors that share memory at some sizes only, if the other is read later.

    Args:
        program: what was captured.
        allowed: which sizes the free axes may have, as far as they were declared.
        axis_names: torch's symbol -> axis name.

    Raises:
        TranslationError: naming the copy.
    """
    kept = set(program.graph_signature.inputs_to_parameters) | set(program.graph_signature.inputs_to_buffers)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            _refuse(module.graph, allowed, axis_names, kept if module is program.graph_module else set())


def _refuse(graph: torch.fx.Graph, allowed: Allowed, axis_names: Mapping[str, str], kept: set[str]) -> None:
    order = {node: at for at, node in enumerate(graph.nodes)}
    writes = [node for node in order if node.op == "call_function" and written(node)]
    if not writes:
        return
    parents = {node: parent for node in order if (parent := _parent(node)) is not None}
    shared = [copy for node in order if node not in parents for copy in _copies(node, allowed)]
    if not shared:
        return

    def root(node: torch.fx.Node) -> torch.fx.Node:
        while (parent := parents.get(node)) is not None:
            node = parent
        return node

    groups: dict[torch.fx.Node, list[torch.fx.Node]] = defaultdict(list)
    for node in order:
        groups[root(node)].append(node)
    for write in writes:
        for changed in written(write):
            for copy in shared:
                if copy.repeats and root(changed) is copy.node and _goes_on(write, changed, copy.node):
                    raise _error(copy, axis_names)
            for copy, other in _reached(root(changed), shared, root):
                is_kept = other.name in kept  # the next call reads it
                late = (one for member in groups[other] for one in member.users if order[one] > order[write])
                if order[copy.node] < order[write] and (is_kept or any(_reads(one) for one in late)):
                    raise _error(copy, axis_names)


def _goes_on(write: torch.fx.Node, changed: torch.fx.Node, copy: torch.fx.Node) -> bool:
    """Whether eager writes to what has elements that are one: to one of them, or to several by few operators."""
    if qualified_name(write.target).partition("::")[2].startswith(_WRITE_ANYWHERE):
        return True
    while changed is not copy and (parent := _parent(changed)) is not None:
        if changed.target == torch.ops.aten.select.int or _is_of_one(changed):
            return True
        changed = parent
    return False


def _is_of_one(node: torch.fx.Node) -> bool:
    """Whether a node is a slice of one element."""
    begin, end = (node.args + (None,) * 4)[2:4]
    is_slice = node.target == torch.ops.aten.slice.Tensor
    return is_slice and isinstance(begin, int) and isinstance(end, int) and end - begin == 1


def _reached(
    start: torch.fx.Node, shared: Sequence[_Copy], root: Callable[[torch.fx.Node], torch.fx.Node]
) -> Iterator[tuple[_Copy, torch.fx.Node]]:
    """The other tensors that have a tensor's memory at some sizes, by one copy or by several."""
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for copy in shared:
            ends = copy.node, root(copy.source)
            if here not in ends:
                continue
            other = ends[1] if here is ends[0] else ends[0]
            if other not in seen:
                seen.add(other)
                waiting.append(other)
                yield copy, other


def written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The tensors that a node writes to."""
    places = decompose.mutated_arguments(node.target)
    if not places or qualified_name(node.target).startswith("aten::detach"):
        return []
    formals = node.target._schema.arguments  # type: ignore[union-attr]
    given = (node.args[at] if at < len(node.args) else node.kwargs.get(formals[at].name) for at in places)
    return [one for one in given if isinstance(one, torch.fx.Node)]


def _parent(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a node is a view of; the result of an in-place operator is the tensor itself."""
    changed = written(node) if node.op == "call_function" else []
    return changed[0] if changed else aliasing.view_parent(node)


def _reads(node: torch.fx.Node) -> bool:
    """Whether a node reads numbers of a tensor, and not its sizes alone."""
    if node.op != "call_function":
        return True
    name = qualified_name(node.target)
    return name not in IGNORED_NAMES and not name.partition("::")[2].startswith(_SIZES_ONLY)


def _copies(node: torch.fx.Node, allowed: Allowed) -> list[_Copy]:
    padded = longer_at_sizes.lengthened(node)
    sizes = None if padded is None else longer_at_sizes.sizes_without(node, allowed)
    if padded is not None and sizes is not None:
        return [_Copy(node, padded, sizes)]
    source = longer_at_sizes.may_copy(node) or aliasing.may_copy(node)
    if source is None:
        return []
    if node.target in _RESHAPES:
        return _reshaped(node, source, allowed)
    sizes = _in_order_at(source.meta["val"], allowed)
    return [] if sizes is None else [_Copy(node, source, sizes)]


def _reshaped(node: torch.fx.Node, source: torch.fx.Node, allowed: Allowed) -> list[_Copy]:
    """A copy in another shape: one that is a view of an expanded tensor at some size has elements that are one."""
    found: dict[bool, _Copy] = {}
    before, after = source.meta["val"], node.meta["val"]
    sizes, strides, shape = (_expressions(each) for each in (before.shape, before.stride(), after.shape))
    for values in _tried(sizes, allowed):
        view = _as_view(sizes, strides, shape, values)
        if view is not None:
            repeats = any(size > 1 and not stride for size, stride in zip(view.shape, view.stride(), strict=True))
            found.setdefault(repeats, _Copy(node, source, values, repeats))
    return list(found.values())


def _as_view(
    sizes: Sequence[Any], strides: Sequence[Any], shape: Sequence[Any], values: Mapping[sympy.Symbol, int]
) -> torch.Tensor | None:
    """What torch makes of a tensor of some sizes in another shape, without numbers; None where it copies."""
    symbols = {symbol for one in (*sizes, *strides, *shape) for symbol in getattr(one, "free_symbols", ())}
    others = dict.fromkeys(symbols - values.keys(), _OTHER)
    try:
        known = [[int(_at(one, {**others, **values})) for one in each] for each in (sizes, strides, shape)]
        tensor = torch.empty_strided(known[0], known[1], device="meta")
        made = tensor.reshape(known[2])
    except (ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError):
        return None  # no tensor has these sizes there
    return made if tensor.numel() and made.untyped_storage()._cdata == tensor.untyped_storage()._cdata else None


def _in_order_at(tensor: torch.Tensor, allowed: Allowed) -> Mapping[sympy.Symbol, int] | None:
    """Sizes of free axes at which a tensor's elements lie in their own order; None where there are none.

    Args:
        tensor: what is copied.
        allowed: which sizes the axes may have.
    """
    sizes, strides = _expressions(tensor.shape), _expressions(tensor.stride())
    return next((values for values in _tried(sizes, allowed) if _is_in_order_at(sizes, strides, values)), None)


def _tried(sizes: Sequence[Any], allowed: Allowed) -> list[Mapping[sympy.Symbol, int]]:
    """Sizes of free axes that are looked at: those of 1, of one axis and of two; then 2 and what expressions name."""
    symbols = sorted({symbol for size in sizes for symbol in getattr(size, "free_symbols", ())}, key=str)
    named = {int(one) for size in sizes if isinstance(size, sympy.Basic) for one in size.atoms(sympy.Integer)}
    larger = [2, *sorted(one for one in named if 2 < one <= _LARGEST)]
    ones = [symbol for symbol in symbols if allowed(symbol, 1)][:_FREE_AXES]
    tried: list[Mapping[sympy.Symbol, int]] = [
        dict.fromkeys(chosen, 1) for count in (1, 2) for chosen in itertools.combinations(ones, count)
    ]
    return [*tried, *({one: size} for one in symbols[:_FREE_AXES] for size in larger if allowed(one, size))]


def _is_in_order_at(sizes: Sequence[Any], strides: Sequence[Any], values: Mapping[sympy.Symbol, int]) -> bool:
    try:
        return _is_in_order([_at(size, values) for size in sizes], [_at(stride, values) for stride in strides])
    except (ArithmeticError, AssertionError, ValueError):
        return False  # no tensor has these sizes there: one is below 0, or was left to be worked out of no elements


def _expressions(numbers: Sequence[Any]) -> list[Any]:
    return [expression(one) if isinstance(one, torch.SymInt) else one for one in numbers]


def _at(size: Any, values: Mapping[sympy.Symbol, int]) -> Any:
    return size.xreplace(values) if isinstance(size, sympy.Basic) else size


def _is_in_order(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    pairs = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    expected: Any = 1
    for size, stride in reversed(pairs):
        if stride != expected or stride == 0:
            return False
        expected = expected * size
    return 0 not in sizes


def _error(copy: _Copy, axis_names: Mapping[str, str]) -> TranslationError:
    named = [(axis_names.get(symbol.name, symbol.name), size) for symbol, size in copy.sizes.items()]
    where = " and ".join(f"{name} has a size of {size}" for name, size in named)
    is_longer = longer_at_sizes.lengthened(copy.node) is not None
    why = "one of them is written, and the other is read after it"
    if copy.repeats:
        why = "several of its elements are one there, and one of them is written"
    less = f", or declare the axis without that size (torch.export.Dim({named[0][0]!r}, min={named[0][1] + 1}))"
    return TranslationError(
        f"{copy.node.name} is a copy of {copy.source.name}, but shares its memory where {where}; {why}",
        node=copy.node.name,
        operator=str(copy.node.target),
        source=metadata.source_location(copy.node),
        next_step=f"call clone() {'before it' if is_longer else 'in its place'}{'' if is_longer else less}",
    )
