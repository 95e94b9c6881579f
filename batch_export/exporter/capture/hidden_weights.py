"""Weights that torch does not see while it captures a model: those of blocks for which one node is to stand.

torch's passes take their time for each weight, and a deep model has hundreds that no traced node reads. Arrives: a
model and its groups of modules that are alike. Leaves: a model without the parameters of those that will be copies,
until `away` is closed; `restored_weights.py` gives the program what it lacks. Where forward looks at one of them after
all (a block that is traced, a sum over all parameters), it finds it: a node stands for it until then.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import track_tensor

from batch_export.exporter.capture.alike import Alike, Place, agree
from batch_export.exporter.capture.block_agreement import without_modes
from batch_export.exporter.capture.block_operator import NAME, WEIGHT
from batch_export.exporter.capture.own_attributes import modules_of

if TYPE_CHECKING:  # the tracer is a private name, which another torch may not have
    from torch.fx.experimental.proxy_tensor import _ModuleStackTracer as Tracer

_TRACED = 2
"""So many calls of a kind are traced before another one is a copy."""
_COUNTED = (bool, int, float, str, type(None))


@dataclass(slots=True)
class _Away:
    """A module without its own parameters, their names there -> in the model, and those that it has otherwise."""

    module: torch.nn.Module
    names: dict[str, str]
    whole: dict[str, torch.nn.Parameter | None]


@dataclass(slots=True)
class HiddenWeights:
    """What is hidden of a model.

    Attributes:
        blocks: id of a block -> path in the block -> name in the model, of each hidden weight.
        away: the modules that miss some.
        given: names of those that forward looked at.
        tracer: of the capture, while forward runs.
    """

    blocks: dict[int, dict[str, str]] = field(default_factory=dict)
    away: list[_Away] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    tracer: Tracer | None = None

    @property
    def names(self) -> set[str]:
        """Of all hidden weights in the model."""
        return {name for found in self.blocks.values() for name in found.values()}

    def of(self, block: torch.nn.Module) -> dict[str, str]:
        """Path in a block -> name in the model, of each weight of it that is hidden still."""
        found = self.blocks.get(id(block), {})
        return {path: name for path, name in found.items() if name not in self.given} if self.given else found

    def give(self, block: torch.nn.Module) -> None:
        """Lets a block have all of its weights, since it is traced."""
        inside = set(map(id, block.modules()))
        for one in self.away:
            if id(one.module) in inside:
                self._give(one)

    def _give(self, away: _Away) -> None:
        """Gives a module's own weights back: tensors without content, and a node for each.

        NOTE: the nodes stand before all others; `restored_weights.py` makes them inputs.
        """
        own = vars(away.module)["_parameters"]
        if not isinstance(own, _Partial) or self.tracer is None or own.is_filled:
            return
        graph, made = self.tracer.graph, {}
        first = next((node for node in graph.nodes if node.op != "placeholder"), graph._root)
        for name, where in away.names.items():
            weight = made[name] = _fake(away.whole[name])
            with graph.inserting_before(first):
                node = graph.create_node("call_function", WEIGHT, (), {})
            node.meta = {"nn_module_stack": {}, "stack_trace": "", "val": weight, NAME: where}
            track_tensor(weight, torch.fx.Proxy(node, self.tracer), constant=None, tracer=self.tracer)
            self.given.add(where)
        own.fill(made, list(away.whole))

    @contextlib.contextmanager
    def running(self, tracer: Tracer) -> Iterator[None]:
        """While open, forward runs: a hidden weight that it looks at is given."""
        if self.tracer is not None:
            yield
            return
        self.given.clear()
        self.tracer = tracer
        try:
            yield
        finally:
            self.tracer = None
            for one in self.away:
                own = vars(one.module)["_parameters"]
                if isinstance(own, _Partial) and own.is_filled:
                    own.empty(one.names)

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """While open, a look at a hidden weight is none of forward's."""
        before, self.tracer = self.tracer, None
        try:
            yield
        finally:
            self.tracer = before

    @contextlib.contextmanager
    def hiding(self) -> Iterator[None]:
        """While open, the weights are not in the model."""
        try:
            for one in self.away:
                vars(one.module)["_parameters"] = _Partial(one.whole, one.names, functools.partial(self._give, one))
            yield
        finally:
            for one in self.away:
                vars(one.module)["_parameters"] = one.whole


def _fake(weight: torch.Tensor | None) -> torch.Tensor:
    mode = torch._guards.detect_fake_mode()
    assert mode is not None
    assert weight is not None
    with without_modes():
        made: torch.Tensor = mode.from_tensor(weight, static_shapes=True)
    return made


class _Partial(dict[str, Any]):
    """A module's own parameters without some of them; who looks at it while forward runs finds them all."""

    def __init__(self, whole: Mapping[str, object], names: Mapping[str, str], looked: Callable[[], None]) -> None:
        dict.__init__(self, {name: value for name, value in whole.items() if name not in names})
        self.looked = looked
        self.is_filled = False

    def fill(self, weights: Mapping[str, torch.Tensor], order: Sequence[str]) -> None:
        """Takes in weights; the module's own order is kept."""
        self.is_filled = True
        found = {**weights, **self}
        dict.clear(self)
        dict.update(self, {name: found[name] for name in dict.fromkeys([*order, *found]) if name in found})

    def empty(self, names: Iterable[str]) -> None:
        """Is without these again."""
        self.is_filled = False
        for name in names:
            dict.pop(self, name, None)


def _looking(name: str) -> Callable[..., object]:
    of_dict: Callable[..., object] = getattr(dict, name)

    @functools.wraps(of_dict)
    def method(self: _Partial, *args: object, **kwargs: object) -> object:
        self.looked()
        return of_dict(self, *args, **kwargs)

    return method


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__"),
    *("__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys", "pop", "popitem"),
    *("setdefault", "update", "values"),
):
    setattr(_Partial, _name, _looking(_name))


def hidden_weights(model: torch.nn.Module, groups: Mapping[int, Alike]) -> HiddenWeights:
    """What may be hidden while a model is captured; it is all still there.

    Args:
        model: what is captured.
        groups: its modules that are alike.
    """
    found = HiddenWeights()
    copies = _copies(model, groups)
    if not copies:
        return found
    modules = [one for _, one in modules_of(model)]
    tensors = [tensor for one in modules for own in (one._parameters, one._buffers) for tensor in own.values()]
    attributes = [value for one in modules for value in vars(one).values() if issubclass(type(value), torch.Tensor)]
    objects = Counter(map(id, [*tensors, *attributes]))
    storages = Counter(map(_memory, tensors))
    for path, block in copies.items():
        of_block: dict[str, str] = {}
        for inner, module in modules_of(block):
            names = {
                name: _below(_below(path, inner), name)
                for name, tensor in module._parameters.items()
                if objects[id(tensor)] == 1 and (memory := _memory(tensor)) is not None and storages[memory] == 1
            }
            if names:
                found.away.append(_Away(module, names, module._parameters))
                of_block.update({_below(inner, name): where for name, where in names.items()})
        if of_block:
            found.blocks[id(block)] = of_block
    return found


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _memory(tensor: torch.Tensor | None) -> int | None:
    """The memory of a plain tensor that starts where its memory does; None for any other."""
    if tensor is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return None
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.storage_offset():
        return None
    memory: int = tensor.untyped_storage()._cdata
    return memory


def _copies(model: torch.nn.Module, groups: Mapping[int, Alike]) -> dict[str, torch.nn.Module]:
    """The blocks, by path, that will be copies of earlier ones if they are called in their order and all alike.

    Nothing in a block that is traced to be copied is one: its own copies are written node by node.
    """
    found: dict[str, torch.nn.Module] = {}
    earlier: dict[int, list[tuple[torch.nn.Module, int]]] = {}
    repeating = {id(group): _repeating(group) for group in {id(one): one for one in groups.values()}.values()}

    def walk(path: str, module: torch.nn.Module) -> None:
        group = groups.get(id(module))
        if group is None or len(group.members) <= _TRACED:
            for name, child in module.named_children():
                walk(f"{path}.{name}" if path else name, child)
            return
        if group.reason:
            return
        kinds = earlier.setdefault(id(group), [])
        for at, (first, count) in enumerate(kinds):
            if agree(first, module, repeating[id(group)]):
                kinds[at] = (first, count + 1)
                if count >= _TRACED:
                    found[path] = module
                return
        kinds.append((module, 1))

    walk("", model)
    return found


def _repeating(group: Alike) -> frozenset[Place]:
    """The attributes in which members differ, but not each from every other: those that tell kinds apart."""
    return frozenset(
        (path, name)
        for path, name in group.differing
        if _repeats([vars(one.get_submodule(path)).get(name) for one in group.members.values()])
    )


def _repeats(values: list[object]) -> bool:
    return all(isinstance(value, _COUNTED) for value in values) and len(set(values)) < len(values)
