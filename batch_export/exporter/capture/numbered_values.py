"""The values of several captured programs by number: what is computed alike in two of them has one number in both.

Arrives: programs without writes, captured from one module. Leaves: for each of them its nodes' numbers. Nothing is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind

from batch_export.exporter.capture.way_sizes import WHERE_EQUAL, WaySizes

_OF_MODULE = {InputKind.PARAMETER, InputKind.BUFFER}


@dataclass(frozen=True, slots=True)
class Value:
    """Stands for a value among the arguments of a call."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """An operator and its arguments, in which every value is a `Value`.

    Attributes:
        node: one that is such a call in some program, for what torch knows of its result, and for its line.
    """

    target: Any
    args: Any
    kwargs: Any
    node: torch.fx.Node

    @property
    def operands(self) -> list[int]:
        """The numbers of the values that it reads, each once."""
        return list(dict.fromkeys(values_in((self.args, self.kwargs))))

    @property
    def known(self) -> Any:
        """What torch knows of its result: a tensor without content, or a symbolic number."""
        return self.node.meta.get("val")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of two values, by a truth value: the numbers of all three."""

    asked: int
    if_true: int
    if_false: int

    @property
    def operands(self) -> list[int]:
        """All three, each once."""
        return list(dict.fromkeys((self.asked, self.if_true, self.if_false)))


@dataclass(slots=True)
class Numbers:
    """Numbers of values.

    Attributes:
        calls: a number -> the call that computes the value.
        choices: a number -> what the value is chosen from.
        of: a node -> its number.
        given: numbers of what is computed by no node: weights, inputs, constants; with what they are.
        submodules: numbers of graphs that operators take, with the graphs.
    """

    calls: dict[int, Call] = field(default_factory=dict)
    choices: dict[int, Chosen] = field(default_factory=dict)
    of: dict[torch.fx.Node, int] = field(default_factory=dict)
    given: dict[int, tuple[str, Any]] = field(default_factory=dict)
    submodules: dict[int, torch.nn.Module] = field(default_factory=dict)
    _met: dict[int, Any] = field(default_factory=dict)
    _known: dict[object, int] = field(default_factory=dict)

    def add(self, program: torch.export.ExportedProgram, known: WaySizes | None = None) -> list[int]:
        """Numbers the nodes of a program; gives those of its calls, in order, each once.

        Args:
            program: one of them.
            known: what is known of sizes in it and not in others: inputs of such sizes are others than theirs.
        """
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        drawn: dict[object, int] = {}
        inputs = 0
        order: dict[int, None] = {}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                if spec.kind is InputKind.USER_INPUT:
                    self._note(node, ("input", inputs), ("input", inputs))
                    if known is not None and inputs in known.inputs:
                        order[self._of_way(node, known)] = None
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
                args, kwargs = (_with_values(one, self.of) for one in (node.args, node.kwargs))
                key: tuple[object, ...] = (node.target, _frozen(args), _frozen(kwargs))
                if draws(node):  # each draw is another one
                    drawn[key] = drawn.get(key, 0) + 1
                    key = (*key, drawn[key])
                number = self._numbered(node, key)
                self.calls.setdefault(number, Call(node.target, args, kwargs, node))
                order[number] = None
        return list(order)

    def _of_way(self, node: torch.fx.Node, known: WaySizes) -> int:
        """The number of an input with the sizes that it has on one way."""
        args = (Value(self.of[node]), known.equal)
        number = self._numbered(node, (WHERE_EQUAL, *args))
        self.calls.setdefault(number, Call(WHERE_EQUAL, args, {}, node))
        return number

    def call(self, like: Call, args: Any, kwargs: Any) -> int:
        """The number of a call with other arguments than one that is there, which draws nothing."""
        number = self._new((like.target, _frozen(args), _frozen(kwargs)))
        self.calls.setdefault(number, Call(like.target, args, kwargs, like.node))
        return number

    def condition(self, condition: Any, node: torch.fx.Node | None) -> int:
        """The number of what sizes say.

        Args:
            condition: what is asked, on names of where sizes are read.
            node: one at the line that asks.
        """
        number = self._new(("condition", condition))
        self.given.setdefault(number, ("condition", (condition, node)))
        return number

    def chosen(self, asked: int, if_true: int, if_false: int) -> int:
        """The number of one of two values."""
        number = self._new(("chosen", asked, if_true, if_false))
        self.choices.setdefault(number, Chosen(asked, if_true, if_false))
        return number

    def operands(self, number: int) -> list[int]:
        """What a value is computed from."""
        made = self.calls.get(number) or self.choices.get(number)
        return made.operands if made is not None else []

    def known(self, number: int) -> Any:
        """What torch knows of a value, in a program that has it."""
        while number in self.choices:
            number = self.choices[number].if_true
        return self.calls[number].known if number in self.calls else self._met.get(number)

    def is_made_again(self, number: int) -> bool:
        """Whether it is a truth value or a fraction of Python: a branch makes it of tensors by itself."""
        return number in self.calls and isinstance(self.calls[number].known, (torch.SymBool, torch.SymFloat))

    def _numbered(self, node: torch.fx.Node, key: object) -> int:
        number = self._new(key)
        self._met.setdefault(number, node.meta.get("val"))
        self.of[node] = number
        return number

    def _new(self, key: object) -> int:
        return self._known.setdefault(key, len(self._known))

    def _note(self, node: torch.fx.Node, what: tuple[str, Any], key: object) -> None:
        self.given.setdefault(self._numbered(node, key), what)


_DROPPING = {"dropout": 0.0, "dropout_p": 0.0, "p": 0.0, "train": False, "training": False}
"""Arguments that say how much is dropped, or whether anything is, with what says that nothing is."""


def draws(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers, or may; layers that drop nothing draw none."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and not _drops_nothing(node)


def _drops_nothing(node: torch.fx.Node) -> bool:
    """Whether an operator draws for what it drops alone (`lstm`, `scaled_dot_product_attention`), which is nothing."""
    formals = getattr(getattr(node.target, "_schema", None), "arguments", ())
    given = dict(zip((one.name for one in formals), node.args, strict=False)) | node.kwargs
    found = {one.name: given.get(one.name, one.default_value) for one in formals if one.name in _DROPPING}
    return any(name in found and found[name] == of_none for name, of_none in _DROPPING.items())


def values_in(argument: Any) -> Iterator[int]:
    """The numbers of the values in an argument."""
    if isinstance(argument, Value):
        yield argument.number
    else:
        for part in _parts(argument):
            yield from values_in(part)


def with_others(argument: Any, given: Callable[[int], Any]) -> Any:
    """An argument with something else for each value."""
    if isinstance(argument, Value):
        return given(argument.number)
    if isinstance(argument, (list, tuple)):
        return type(argument)(with_others(one, given) for one in argument)
    if isinstance(argument, dict):
        return {name: with_others(one, given) for name, one in argument.items()}
    if isinstance(argument, slice):
        return slice(*(with_others(one, given) for one in _parts(argument)))
    return argument


def _parts(argument: Any) -> Iterable[Any]:
    if isinstance(argument, (list, tuple)):
        return argument
    if isinstance(argument, dict):
        return argument.values()
    return (argument.start, argument.stop, argument.step) if isinstance(argument, slice) else ()


def _with_values(argument: Any, of: Mapping[torch.fx.Node, int]) -> Any:
    if isinstance(argument, torch.fx.Node):
        return Value(of[argument])
    if isinstance(argument, (list, tuple)):
        return (list if isinstance(argument, list) else tuple)(_with_values(one, of) for one in argument)
    if isinstance(argument, dict):
        return {name: _with_values(one, of) for name, one in argument.items()}
    if isinstance(argument, slice):
        return slice(*(_with_values(one, of) for one in _parts(argument)))
    return argument


def _frozen(argument: Any) -> object:
    """An argument by its content; numbers of several types that Python calls equal are several."""
    if isinstance(argument, Value):
        return ("value", argument.number)
    if isinstance(argument, (list, tuple)):
        return ("several", *map(_frozen, argument))
    if isinstance(argument, dict):
        return ("named", *((name, _frozen(one)) for name, one in sorted(argument.items())))
    if isinstance(argument, slice):
        return ("slice", *map(_frozen, _parts(argument)))
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
