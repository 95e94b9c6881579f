"""Rounds of a loop as torch's scan without dynamo, which takes no attribute that a round gives a module.

Arrives: a round as a function of tensors, what the first one begins with, and what is read along the first axis.
Leaves: what scan leaves. What a round reads from outside of the loop becomes an input of the operator. A round has to
call the same functions of torch whenever it is run, or else something in it goes on that is no tensor.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.scan import scan_op
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.begun_numbers import writes_so_far
from batch_export.exporter.capture.held_values import is_filled
from batch_export.exporter.capture.loop_pieces import SizeByDataError
from batch_export.exporter.capture.size_ranges import sizes_as_before

Combine = Callable[[list[Tensor], list[Tensor]], tuple[Sequence[Tensor], Sequence[Tensor]]]


_BY_DATA = re.compile(r"\b(?:u|zuf)\d+\b")
"""The names of numbers that data say, of which each run has its own."""


class _Outside(TorchFunctionMode):
    """Notes the tensors that functions of torch get and that none of them has made, and what is called.

    Args:
        known: tensors that are given.

    Attributes:
        found: those tensors, and how often they had been written to.
        said: the functions and what they were called with, of tensors which of all they are.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._known = {id(one): one for one in known}
        self._places = {one: place for place, one in enumerate(self._known)}
        self.found: list[tuple[Tensor, int]] = []
        self.said: list[tuple[str, ...]] = []
        self._symbols: dict[str, str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        leaves = pytree.tree_leaves((args, given))
        for one in leaves:
            if isinstance(one, Tensor) and id(one) not in self._known:
                self._note(one)
                self.found.append((one, writes_so_far(one)))
        self.said.append((str(func), *map(self._word, leaves)))
        made = func(*args, **given)
        for one in pytree.tree_leaves(made):
            if isinstance(one, Tensor):
                self._note(one)
        return made

    def _note(self, one: Tensor) -> None:
        self._known[id(one)] = one
        self._places.setdefault(id(one), len(self._places))

    def _word(self, one: Any) -> str:
        if isinstance(one, Tensor):
            return f"tensor {self._places[id(one)]}"
        text = type(one).__name__ if callable(one) else str(one)
        return _BY_DATA.sub(lambda found: self._symbols.setdefault(found[0], f"size {len(self._symbols)}"), text)

    @property
    def outside(self) -> list[Tensor]:
        """The tensors that none of the functions has made."""
        return [one for one, _ in self.found]

    @property
    def is_written(self) -> bool:
        """Whether one of them was written to."""
        return any(writes_so_far(one) != count for one, count in self.found)


class _Given(TorchFunctionMode):
    """Gives functions of torch other tensors in the place of some.

    Args:
        these: for which others are given.
        others: these.
    """

    def __init__(self, these: Sequence[Any], others: Sequence[Any]) -> None:
        super().__init__()
        self._others = {id(one): other for one, other in zip(these, others, strict=True) if isinstance(one, Tensor)}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = pytree.tree_map(
            lambda one: self._others.get(id(one), one) if isinstance(one, Tensor) else one, (args, dict(kwargs or {}))
        )
        return func(*given[0], **given[1])


def traced(
    combine: Combine, begun: Sequence[Tensor], rows: Sequence[Tensor], length: Any = None
) -> tuple[Sequence[Tensor], Sequence[Tensor]] | None:
    """What goes on behind the last round, and what each round gives besides; what is known of sizes there stays there.

    None of rounds of which there may be none, and that give what has a size that data say.

    Args:
        combine: a round.
        begun: what the first one begins with.
        rows: what is read, along the first axis, at least once.
        length: how many rounds there are, if there may be none.

    Raises:
        SizeByDataError: a round changes what is no tensor, or a tensor from outside of the loop.
    """
    with sizes_as_before([*begun, *rows]):
        return _traced(combine, begun, rows, length)


def _traced(
    combine: Combine, begun: Sequence[Tensor], rows: Sequence[Tensor], length: Any
) -> tuple[Sequence[Tensor], Sequence[Tensor]] | None:
    state, elements = [one.clone() for one in begun], [one.new_zeros(one.shape[1:]) for one in rows]
    runs = [_Outside([*state, *elements]) for _ in range(2)]
    made: Sequence[Tensor] = ()
    for outside in runs:
        with outside:
            _, made = combine(list(state), list(elements))
    if any(outside.is_written for outside in runs):
        raise SizeByDataError("a round writes to a tensor from outside of the loop")
    if runs[0].said != runs[1].said or [*map(id, runs[0].outside)] != [*map(id, runs[1].outside)]:
        raise SizeByDataError("rounds differ in more than what tensors hold")
    cells = _cells(combine)
    fractions = [one for one in cells if isinstance(one.cell_contents, torch.SymFloat)]
    others = [*runs[0].outside, *_sizes(cells)]
    if length is not None and not _by_data([*state, *elements, *runs[0].outside]).issuperset(_by_data(made)):
        return None
    first, behind = len(begun), len(begun) + len(rows)

    def flat(*given: Any) -> list[Tensor]:
        *tensors, numbers = given[behind:] if fractions else (*given[behind:], None)
        with _Given(others, tensors), _holding(fractions, numbers):
            last, results = combine(list(given[:first]), list(given[first:behind]))
        return [*last, *results]

    def scanned(*given: Any) -> list[Tensor]:
        return list(scan_op(flat, list(given[:first]), list(given[first:behind]), tuple(given[behind:])))

    def some(*given: Any) -> list[Tensor]:
        found, count = scanned(*given[1:]), given[0].shape[0]
        return [*found[:first], *(one.narrow(0, 0, count).clone() for one in found[first:])]

    def none(*given: Any) -> list[Tensor]:
        count = given[0].shape[0]
        return [
            *(one.clone() for one in given[1 : first + 1]),
            *(torch.zeros((count, *one.shape), dtype=one.dtype, device=one.device) for one in made),
        ]

    operands = [*begun, *rows, *others]
    if fractions:
        values = [torch.scalar_tensor(one.cell_contents, dtype=torch.float64) for one in fractions]
        operands.append(torch.stack(values))
    if length is None:
        found = scanned(*operands)
    else:  # of a tensor, since of a size torch would decide it
        places = torch.arange(length)
        found = list(cond_op(torch.scalar_tensor(length, dtype=torch.int64) > 0, some, none, [places, *operands]))
    mode = proxy_tensor.get_proxy_mode()
    root = getattr(mode.tracer, "root", None) if mode is not None else None
    if isinstance(root, torch.nn.Module) and _reads_otherwise(root):
        raise SizeByDataError("a round reads a tensor by a way that nothing here follows")
    return found[:first], found[first:]


def _cells(function: Callable[..., Any]) -> list[CellType]:
    """The filled cells of a function and of the functions in its closure: what they have names for."""
    found: dict[int, CellType] = {}
    waiting, seen = [function], set[int]()
    while waiting:
        one = inspect.unwrap(waiting.pop())
        seen.add(id(one))
        cells = [cell for cell in getattr(one, "__closure__", None) or () if is_filled(cell)]
        found.update((id(cell), cell) for cell in cells)
        held = [cell.cell_contents for cell in cells]
        waiting += [each for each in held if isinstance(each, FunctionType) and id(each) not in seen]
    return list(found.values())


def _sizes(cells: Iterable[CellType]) -> list[torch.SymInt]:
    """The symbols of the sizes in cells."""
    found: dict[str, torch.SymInt] = {}
    for size in pytree.tree_leaves([cell.cell_contents for cell in cells]):
        if isinstance(size, torch.SymInt):
            for symbol in size.node.expr.free_symbols:
                environment = size.node.shape_env
                hint = environment.backed_var_to_val.get(symbol)
                node = SymNode(symbol, environment, int, None if hint is None else int(hint))
                found[str(symbol)] = torch.SymInt(node)
    return [found[name] for name in sorted(found)]


@contextlib.contextmanager
def _holding(cells: Sequence[CellType], numbers: Tensor | None) -> Iterator[None]:
    """Within, cells hold the numbers of a tensor: a fraction of sizes from outside is none of the operator's own."""
    before = [one.cell_contents for one in cells]
    for place, cell in enumerate(cells if numbers is not None else ()):
        assert numbers is not None
        cell.cell_contents = numbers.select(0, place).item()
    try:
        yield
    finally:
        for cell, own in zip(cells, before, strict=True):
            cell.cell_contents = own


def _reads_otherwise(root: torch.nn.Module) -> bool:
    """Whether the graph of a scan has a tensor of the model as a constant, which is none of its inputs."""
    graphs = (one for name, one in root.named_modules() if name.rpartition(".")[2].startswith("scan_combine_graph"))
    return any(isinstance(one, GraphModule) and _has_tensors(one) for one in graphs)


def _has_tensors(graph: GraphModule) -> bool:
    names = (str(node.target) for node in graph.graph.nodes if node.op == "get_attr")
    return any(isinstance(getattr(graph, name, None), (FakeTensor, FunctionalTensor)) for name in names)


def _by_data(tensors: Sequence[Tensor]) -> set[Any]:
    """The sizes of tensors that data say."""
    return {symbol for one in tensors for size in one.shape for symbol in free_unbacked_symbols(size)}
