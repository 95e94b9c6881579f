"""The values of several captured programs by number: what is computed alike in two of them has one number in both.

Arrives: programs without writes, captured from one module. Leaves: for each of them its nodes' numbers. Nothing is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind

_OF_MODULE = {InputKind.PARAMETER, InputKind.BUFFER}


@dataclass(slots=True)
class Numbers:
    """Numbers of values.

    Attributes:
        nodes: a number -> a node that computes the value.
        of: a node -> its number.
        given: numbers of what is computed by no node: weights, inputs, constants; with what they are.
        submodules: numbers of graphs that operators take, with the graphs.
    """

    nodes: dict[int, torch.fx.Node] = field(default_factory=dict)
    of: dict[torch.fx.Node, int] = field(default_factory=dict)
    given: dict[int, tuple[str, Any]] = field(default_factory=dict)
    submodules: dict[int, torch.nn.Module] = field(default_factory=dict)
    _known: dict[object, int] = field(default_factory=dict)

    def add(self, program: torch.export.ExportedProgram) -> list[int]:
        """Numbers the nodes of a program; gives those of its calls, in order, each once."""
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        drawn: dict[object, int] = {}
        inputs = 0
        order: dict[int, None] = {}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                if spec.kind is InputKind.USER_INPUT:
                    self._note(node, ("input", inputs), ("input", inputs))
                    inputs += 1
                elif spec.kind in _OF_MODULE:
                    self._note(node, ("weight", spec.target), ("weight", spec.target))
                elif spec.kind is InputKind.CONSTANT_TENSOR:
                    constant = program.constants[spec.target]
                    self._note(node, ("constant", constant), _content(constant))
                else:
                    raise NotImplementedError(f"an input of the kind {spec.kind.name.lower()}")
            elif node.op == "get_attr":
                module = getattr(program.graph_module, node.target)
                number = self._numbered(node, ("graph", _text(module)))
                self.submodules.setdefault(number, module)
            elif node.op == "call_function":
                key: tuple[object, ...] = (node.target, _frozen(node.args, self.of), _frozen(node.kwargs, self.of))
                if draws(node):  # each draw is another one
                    drawn[key] = drawn.get(key, 0) + 1
                    key = (*key, drawn[key])
                order[self._numbered(node, key)] = None
        return list(order)

    def _numbered(self, node: torch.fx.Node, key: object) -> int:
        number = self._known.setdefault(key, len(self._known))
        self.nodes.setdefault(number, node)
        self.of[node] = number
        return number

    def _note(self, node: torch.fx.Node, what: tuple[str, Any], key: object) -> None:
        self.given.setdefault(self._numbered(node, key), what)


def draws(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers, or may."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _frozen(argument: Any, of: Mapping[torch.fx.Node, int]) -> object:
    """An argument by its content; numbers of several types that Python calls equal are several."""
    if isinstance(argument, torch.fx.Node):
        return ("value", of[argument])
    if isinstance(argument, (list, tuple)):
        return ("several", *(_frozen(one, of) for one in argument))
    if isinstance(argument, dict):
        return ("named", *((name, _frozen(one, of)) for name, one in sorted(argument.items())))
    if isinstance(argument, slice):
        return ("slice", *(_frozen(one, of) for one in (argument.start, argument.stop, argument.step)))
    return (type(argument).__name__, repr(argument))


def _content(constant: Any) -> object:
    if not isinstance(constant, torch.Tensor) or isinstance(constant, FakeTensor) or constant.layout != torch.strided:
        return ("object", id(constant))
    data = constant.detach().cpu().contiguous().reshape(-1).view(torch.uint8) if constant.numel() else None
    digest = b"" if data is None else hashlib.sha256(data.numpy().tobytes()).digest()
    return ("constant", str(constant.dtype), tuple(constant.shape), digest)


def _text(module: torch.nn.Module) -> object:
    """A graph that an operator takes, by its code where that says all."""
    parts = [one for one in module.modules() if isinstance(one, torch.fx.GraphModule)]
    tensors = [one for part in parts for one in vars(part).values() if isinstance(one, torch.Tensor)]
    tensors += [*module.parameters(), *module.buffers()]
    plain = len(parts) == len(list(module.modules())) and not tensors
    random = any(draws(node) for one in parts for node in one.graph.nodes)
    return ("object", id(module)) if not plain or random else tuple(one.code for one in parts)
