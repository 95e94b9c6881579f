"""During capture, a buffer that forward assigns anew is as good as one that it writes to.

torch.export follows an assignment (`self.places = new`) to the outermost module's own buffers and loses one to those of
the modules within it: their program gives out the right numbers and does not say that the buffer has changed. Of the
outermost it takes another input for the buffer where some buffer has no tensor or has two names. In here all are
followed: at the program's end the new value is copied to the buffer, as torch does for the outermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.export import _trace as torchs
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.modules.module import register_module_buffer_registration_hook

from batch_export.exporter.capture.guard_sources import running_line

_NAME = "register_buffer_assignment_hook"
_LOST: ContextVar[list[str]] = ContextVar("_LOST")
_IS_ONE_OF_SEVERAL: ContextVar[Callable[[], bool]] = ContextVar("_IS_ONE_OF_SEVERAL", default=lambda: False)


class SharedBufferError(RuntimeError):
    """Two modules have one tensor as their buffers, and forward gives each of them a tensor of its own.

    Attributes:
        source: `file:line` of the second assignment.
    """

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source


@contextlib.contextmanager
def lost_assignments() -> Iterator[list[str]]:
    """Gives a list that has, in the end, what was assigned to buffers in a way that no program follows."""
    before = _LOST.set([])
    try:
        yield _LOST.get()
    finally:
        _LOST.reset(before)


@contextlib.contextmanager
def one_of_several_ways(is_one: Callable[[], bool]) -> Iterator[None]:
    """Within, a buffer that gets a tensor of another shape, in which nothing of its own is, has its own one behind.

    Ways through a model are one program only if a buffer has one shape behind all of them.

    Args:
        is_one: whether something was decided, known at the program's end.
    """
    before = _IS_ONE_OF_SEVERAL.set(is_one)
    try:
        yield
    finally:
        _IS_ONE_OF_SEVERAL.reset(before)


@contextlib.contextmanager
def assigned_buffers() -> Iterator[None]:
    """Context in which torch.export follows buffers that inner modules assign; another torch may have no such place."""
    theirs: Any = getattr(torchs, _NAME, None)
    if theirs is None:
        yield
        return
    setattr(torchs, _NAME, lambda root, found: _Assigned(root))  # torch reads `found`, which stays empty
    try:
        yield
    finally:
        setattr(torchs, _NAME, theirs)


class _Assigned:
    """Notes which node each buffer was before its first assignment, and which after its last.

    torch removes it, as a hook, once the graph is there and before it reads it.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.paths = {id(one._buffers): path for path, one in root.named_modules()}
        self.owners: dict[torch.fx.Node, str] = {}
        self.twins: dict[tuple[int, str], str] = {}
        self.before: dict[str, torch.Tensor] = {}
        self.assigned: dict[torch.fx.Node, torch.fx.Node] = {}
        self.first: dict[tuple[int, str], torch.fx.Node] = {}
        self.grown: dict[torch.fx.Node, str] = {}
        self.lost: dict[str, str] = {}
        self.hook = register_module_buffer_registration_hook(self.note)

    def note(self, module: torch.nn.Module, name: str, buffer: Any) -> None:
        after, old = _node(buffer), module._buffers.get(name)
        if id(module._buffers) not in self.paths:
            return
        if not self.before:  # the first assignment: nothing has changed
            self.before = dict(self.root.named_buffers(remove_duplicate=False))
        where = f"{self.paths[id(module._buffers)]}.{name}".removeprefix(".")
        if where in self.before:
            self._note_lost(where, after, self.before[where], buffer)
        key = (id(module._buffers), name)
        before = self.first.get(key) or _node(old)
        if before is not None and before.op == "placeholder" and after is not None:
            other = self.owners.setdefault(before, where)
            if other != where:
                line = running_line()
                raise SharedBufferError(f"the buffers {other} and {where} are one tensor, and each is assigned", line)
            self.first[key] = before
            if key not in self.twins:
                self.twins[key] = self._twin(where)
            if self.twins[key]:
                self.lost[where] = f"{where} is one tensor with {self.twins[key]} and is assigned another one"
                return
            self.assigned[before] = after
            if where in self.before:
                self.grown[before] = "" if _has_shape_of(buffer, self.before[where]) else where

    def _twin(self, where: str) -> str:
        """The other buffer that is the same tensor before forward, empty where there is none."""
        return next(
            (other for other, held in self.before.items() if other != where and held is self.before.get(where)), ""
        )

    def _note_lost(self, where: str, after: torch.fx.Node | None, before: torch.Tensor, buffer: Any) -> None:
        """Notes an assignment that a program does not follow, until the buffer is assigned something else."""
        self.lost.pop(where, None)
        if after is not None and after.op == "placeholder":
            self.lost[where] = f"{where} is assigned a tensor that is a buffer, a weight or an input itself"
        elif buffer is None:
            self.lost[where] = f"{where} is assigned None"
        elif isinstance(buffer, torch.Tensor) and buffer.dtype != before.dtype:
            self.lost[where] = f"{where} is of {before.dtype} and is assigned {buffer.dtype}"

    def remove(self) -> None:
        """Copies each new value to its buffer at the end of the graph."""
        self.hook.remove()
        is_one_way = _IS_ONE_OF_SEVERAL.get()()
        for before, after in self.assigned.items():
            graph = before.graph
            if after.graph is not graph or after is before or after not in graph.nodes:
                continue
            name = self.grown.get(before, "")
            if is_one_way and name and not _is_made_of(after, before):  # a table that grows where it is too short
                self.lost[name] = f"{name} gets another shape on one of several ways, and the file makes it anew"
                continue
            with graph.inserting_before(graph.output_node()):
                copy = graph.call_function(torch.ops.aten.copy_.default, (before, after))
                copy.meta = after.meta
        _LOST.get([]).extend(self.lost.values())


def _is_made_of(made: torch.fx.Node, of: torch.fx.Node) -> bool:
    """Whether a node is computed from another one."""
    seen, todo = set[torch.fx.Node](), [made]
    while todo:
        node = todo.pop()
        if node is of:
            return True
        if node not in seen:
            seen.add(node)
            todo += node.all_input_nodes
    return False


def _has_shape_of(one: torch.Tensor, other: torch.Tensor) -> bool:
    pairs = zip(one.shape, other.shape, strict=False)
    return one.dim() == other.dim() and all(statically_known_true(left == right) for left, right in pairs)


def _node(tensor: Any) -> torch.fx.Node | None:
    """The node that a tensor is while it is traced."""
    mode = get_proxy_mode()
    inner = tensor.from_functional() if isinstance(tensor, FunctionalTensor) else tensor
    if mode is None or not isinstance(inner, FakeTensor):
        return None
    found: Any = get_proxy_slot(inner, mode.tracer, None)
    node = getattr(getattr(found, "proxy", None), "node", None)
    return node if isinstance(node, torch.fx.Node) else None
