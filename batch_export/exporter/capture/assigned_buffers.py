"""During capture, a buffer of an inner module that forward assigns anew is as good as one that it writes to.

torch.export follows an assignment (`self.places = new`) to the outermost module's own buffers and loses one to those of
the modules within it: their program gives out the right numbers and does not say that the buffer has changed. In here
these are followed, too: at the program's end the new value is copied to the buffer, as torch does for the outermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.export import _trace as torchs
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn.modules.module import register_module_buffer_registration_hook

_NAME = "register_buffer_assignment_hook"
_LOST: ContextVar[list[str]] = ContextVar("_LOST")


@contextlib.contextmanager
def lost_assignments() -> Iterator[list[str]]:
    """Gives a list that has, in the end, what was assigned to buffers in a way that no program follows."""
    before = _LOST.set([])
    try:
        yield _LOST.get()
    finally:
        _LOST.reset(before)


@contextlib.contextmanager
def assigned_buffers() -> Iterator[None]:
    """Context in which torch.export follows buffers that inner modules assign; another torch may have no such place."""
    theirs: Any = getattr(torchs, _NAME, None)
    if theirs is None:
        yield
        return
    setattr(torchs, _NAME, lambda root, found: _Both(theirs(root, found), _Inner(root)))
    try:
        yield
    finally:
        setattr(torchs, _NAME, theirs)


class _Both:
    """torch's own hook and ours, which torch removes once the graph is there and before it reads it."""

    def __init__(self, theirs: Any, inner: _Inner) -> None:
        self.theirs = theirs
        self.inner = inner

    def remove(self) -> None:
        self.theirs.remove()
        self.inner.close()


class _Inner:
    """Notes which node each inner module's buffer was before its first assignment, and which after its last."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.own = root._buffers
        self.paths = {id(one._buffers): path for path, one in root.named_modules()}
        self.inner = {id(one._buffers) for one in root.modules() if one._buffers is not root._buffers}
        self.assigned: dict[torch.fx.Node, torch.fx.Node] = {}
        self.first: dict[tuple[int, str], torch.fx.Node] = {}
        self.hook = register_module_buffer_registration_hook(self.note)

    def note(self, module: torch.nn.Module, name: str, buffer: Any) -> None:
        after, old = _node(buffer), module._buffers.get(name)
        if id(module._buffers) in self.paths and isinstance(old, torch.Tensor):
            self._note_lost(f"{self.paths[id(module._buffers)]}.{name}".removeprefix("."), after, old.dtype, buffer)
        if id(module._buffers) not in self.inner:
            return
        key = (id(module._buffers), name)
        before = self.first.get(key) or _node(old)
        if before is not None and before.op == "placeholder" and after is not None:
            self.first[key] = before
            self.assigned[before] = after

    @staticmethod
    def _note_lost(where: str, after: torch.fx.Node | None, dtype: torch.dtype, buffer: Any) -> None:
        """Notes an assignment that a program does not follow."""
        if after is not None and after.op == "placeholder":
            _LOST.get([]).append(f"{where} is assigned a tensor that is a buffer, a weight or an input itself")
        elif isinstance(buffer, torch.Tensor) and buffer.dtype != dtype:
            _LOST.get([]).append(f"{where} is of {dtype} and is assigned {buffer.dtype}")

    def close(self) -> None:
        """Copies each new value to its buffer at the end of the graph."""
        self.hook.remove()
        for before, after in self.assigned.items():
            graph = before.graph
            if after.graph is not graph or after is before or after not in graph.nodes:
                continue
            with graph.inserting_before(graph.output_node()):
                copy = graph.call_function(torch.ops.aten.copy_.default, (before, after))
                copy.meta = after.meta


def _node(tensor: Any) -> torch.fx.Node | None:
    """The node that a tensor is while it is traced."""
    mode = get_proxy_mode()
    inner = tensor.from_functional() if isinstance(tensor, FunctionalTensor) else tensor
    if mode is None or not isinstance(inner, FakeTensor):
        return None
    found: Any = get_proxy_slot(inner, mode.tracer, None)
    node = getattr(getattr(found, "proxy", None), "node", None)
    return node if isinstance(node, torch.fx.Node) else None
