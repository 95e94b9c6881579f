"""Writes to memory that the same operator reads at other places: `y[:, 1:] = y[:, :-1]`, `y.addmm_(y, weight)`.

Arrives: a captured program. Leaves: nothing, or an error with the line. Eager refuses such a write where it sees that
easily, and else reads some elements after it has written them, in an order that torch leaves open; a file reads first.
What comes out alike in each order of reading and of rising addresses (`y[:, :-1] = y[:, 1:]`) is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from batch_export.exporter.graph.metadata import source_location

aten = torch.ops.aten
_READS_A_NUMBER = frozenset({aten.fill_, aten.masked_fill_, aten.index_fill_})
"""Operators that take the number of a 0-d tensor before they write."""
_BY_PLACES = ("scatter", "index_", "masked_scatter", "put_")
"""How operators are called whose source has another shape than what they write to."""
_MIXED = frozenset(
    {
        *("mm", "bmm", "mv", "matmul", "linear", "dot", "inner", "outer", "ger", "kron", "tensordot", "chain_matmul"),
        *("addmm", "baddbmm", "addbmm", "addmv", "addr", "linalg_multi_dot", "cross", "linalg_cross"),
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"),
        *("index_select", "gather", "take", "roll", "flip", "rot90", "permute_copy", "transpose_copy"),
    }
)
"""Operators whose results are made of elements at other places than their own."""
_SCALED = frozenset({"addmm", "baddbmm", "addbmm", "addmv", "addr"})
"""Those of them that read `self` at the place they write, and the factors elsewhere."""
_ELEMENTS = 1 << 18
"""How many elements are looked at; of larger tensors the first along each axis."""

_Places = npt.NDArray[np.int64]


class OverlappingWriteError(RuntimeError):
    """An operator writes to what it reads.

    Attributes:
        source: `file:line` in the model.
    """

    def __init__(self, operator: str, source: str) -> None:
        super().__init__(
            f"{operator} writes to memory that it reads for other elements: eager refuses that, or gives what its "
            "order of going through the elements makes of it"
        )
        self.source = source


@dataclass(frozen=True, slots=True)
class _Memory:
    """Where a tensor lies in its storage, at the example's sizes."""

    storage: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def places(self) -> _Places:
        """The place in memory of each element, in the tensor's shape; of no more than are looked at."""
        kept = list(self.sizes)
        while math.prod(kept) > _ELEMENTS:
            longest = kept.index(max(kept))
            kept[longest] //= 2
        found = np.full([1] * len(kept), self.offset, np.int64)
        for axis, (size, stride) in enumerate(zip(kept, self.strides, strict=True)):
            found = found + np.arange(size, dtype=np.int64).reshape([-1, *[1] * (len(kept) - axis - 1)]) * stride
        return found

    def expanded(self, sizes: tuple[int, ...]) -> _Memory | None:
        """As an operator of elements reads it; None where it is not of such a shape."""
        missing = len(sizes) - len(self.sizes)
        if missing < 0:
            return None
        own = [*[1] * missing, *self.sizes]
        strides = [*[0] * missing, *self.strides]
        if any(one not in (1, size) for one, size in zip(own, sizes, strict=True)):
            return None
        repeated = [0 if one == 1 else stride for one, stride in zip(own, strides, strict=True)]
        return _Memory(self.storage, sizes, tuple(repeated), self.offset)

    def range(self) -> tuple[int, int] | None:
        """The first and the last place, where the elements fill everything between them and none is there twice."""
        expected = 1
        for stride, size in sorted(
            (stride, size) for stride, size in zip(self.strides, self.sizes, strict=True) if size != 1
        ):
            if stride != expected:
                return None
            expected *= size
        return self.offset, self.offset + expected - 1


def refuse_overlapping_writes(program: torch.export.ExportedProgram) -> None:
    """Looks at every operator that writes to a tensor.

    Raises:
        OverlappingWriteError: one reads what it has written to.
    """
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            target = node.target
            if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
                continue
            if not target._schema.is_mutable or _is_selection(node):
                continue
            if any(_is_hazard(target, *pair) for pair in _pairs(node, target)):
                raise OverlappingWriteError(f"`{target._opname}`", source_location(node) or "")


def _is_selection(node: torch.fx.Node) -> bool:
    """Whether a write is one to `y[:, n]` with n a tensor of one number, which eager copies to a view."""
    if node.target is not aten.index_put_.default:
        return False
    places: Any = node.args[1]
    found = [one.meta.get("val") for one in places if isinstance(one, torch.fx.Node)]
    return all(isinstance(one, torch.Tensor) and not one.dim() and one.dtype != torch.bool for one in found)


def _pairs(node: torch.fx.Node, target: torch._ops.OpOverload) -> Iterator[tuple[_Memory, _Memory]]:
    """What is written, with each other tensor that is read."""
    formals = target._schema.arguments
    given = [
        node.args[place] if place < len(node.args) else node.kwargs.get(one.name) for place, one in enumerate(formals)
    ]
    memories = [_memory(argument) for argument in given]
    joined = given[0] if _name(target) in _MIXED and isinstance(given[0], list | tuple) else ()
    listed = [(formals[0], _memory(part)) for part in joined]
    for formal, written in zip(formals, memories, strict=True):
        if written is None or formal.alias_info is None or not formal.alias_info.is_write:
            continue
        for other, read in (*zip(formals, memories, strict=True), *listed):
            if read is None or other is formal or read.storage != written.storage:
                continue
            if read == written and (not _is_mixed(target) or (other.name == "self" and _name(target) in _SCALED)):
                continue
            if not (target.overloadpacket in _READS_A_NUMBER and not read.sizes):
                yield written, read


def _name(target: torch._ops.OpOverload) -> str:
    return target._opname.rstrip("_")


def _is_mixed(target: torch._ops.OpOverload) -> bool:
    return target._opname.startswith(_BY_PLACES) or _name(target) in _MIXED


def _memory(argument: object) -> _Memory | None:
    tensor = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    numbers = [_at_example(one) for one in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
    if any(one is None for one in numbers):
        return None
    known: list[int] = [one for one in numbers if one is not None]
    rank = tensor.dim()
    return _Memory(tensor.untyped_storage()._cdata, tuple(known[:rank]), tuple(known[rank:-1]), known[-1])


def _at_example(number: Any) -> int | None:
    """A size of the example; None where the data decide it."""
    hint = number.node.hint if isinstance(number, torch.SymInt) else number
    return None if hint is None else int(hint)


def _is_hazard(target: torch._ops.OpOverload, written: _Memory, read: _Memory) -> bool:
    if 0 in (*written.sizes, *read.sizes):
        return False
    is_copy = target.overloadpacket is aten.copy_
    if _is_refused(written, read) and not (is_copy and written.sizes != read.sizes):
        return True
    expanded = None if _is_mixed(target) else read.expanded(written.sizes)
    if expanded is None:
        return bool(np.intersect1d(written.places(), read.places()).size)
    goals, sources = written.places().ravel(), expanded.places().ravel()
    changed = goals[goals != sources] if is_copy else goals
    return bool(np.isin(sources[sources < goals], changed).any())


def _is_refused(written: _Memory, read: _Memory) -> bool:
    """Whether eager sees it: both are dense, and some but not all of their memory is the same."""
    one, other = written.range(), read.range()
    if one is None or other is None or (one == other and written.strides == read.strides):
        return False
    return one[0] <= other[1] and other[0] <= one[1]
