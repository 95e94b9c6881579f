"""What is known of sizes on one way through a model and not on all of them.

Arrives: programs of the ways, each with the decisions by sizes that it took, captured from sizes that are so. Leaves:
for each which sizes are equal there, and which of its inputs have them; an operator that gives a tensor as one of these
sizes. Outside a way nothing is known of it, so that several ways fit into one program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind
from torch.fx import traceback as fx_traceback

from batch_export.exporter.capture import size_conditions
from batch_export.exporter.capture.forced_decisions import Decision
from batch_export.exporter.capture.guards import environment_of

_LIBRARY = torch.library.Library("batch_export_sizes", "DEF")
_LIBRARY.define("of_size(Tensor given, SymInt[] size, SymInt[] stride) -> Tensor")
OF_SIZE = torch.ops.batch_export_sizes.of_size.default
"""Gives a copy of a tensor, of which a capture takes for granted that it has some sizes."""
WHERE_EQUAL = "where_equal"
"""Stands among operators for a tensor as it is where some sizes are equal, which `Sizes.where_equal` gives."""
Taken = tuple[Decision, bool]


def _copied(given: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    del size, stride
    return given.clone()


def _of_size(given: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    if not stride:  # which lies in memory in order, whatever its sizes are
        return torch.empty(size, dtype=given.dtype, device=given.device)
    return torch.empty_strided(size, stride, dtype=given.dtype, device=given.device)


_LIBRARY.impl("of_size", _copied, "CPU")
_LIBRARY.impl("of_size", _copied, "CUDA")
torch.library.register_fake("batch_export_sizes::of_size", _of_size, lib=_LIBRARY)


@dataclass(frozen=True, slots=True)
class WaySizes:
    """What is known on one way, on names of where torch read a size (`size_conditions.named`).

    Attributes:
        path: the condition under which the way is taken.
        equal: pairs of what is equal on it.
        guards: conditions of its program that not all ways have.
        inputs: places of the inputs some of whose sizes are others than on other ways.
    """

    path: Any
    equal: tuple[size_conditions.Equality, ...]
    guards: tuple[Any, ...]
    inputs: frozenset[int]


def known_on(ways: Sequence[tuple[torch.export.ExportedProgram, Sequence[Taken]]]) -> list[WaySizes | None]:
    """What is known on each of all ways; None for those that took no decision by sizes that are equal."""
    guards = [_guards(program) for program, _ in ways]
    common = set.intersection(*guards)
    found: list[WaySizes | None] = []
    for (program, taken), own in zip(ways, guards, strict=True):
        conditions = [(condition_of(decision), is_so) for decision, is_so in taken if decision.condition is not None]
        if not conditions:
            found.append(None)
            continue
        path = sympy.And(*(one if is_so else sympy.Not(one) for one, is_so in conditions))
        equal = [pair for one, is_so in conditions for pair in size_conditions.equalities(one, holds=is_so)]
        alone = sorted(own - common, key=str)
        equal += [(one.lhs, one.rhs) for one in alone if isinstance(one, sympy.Eq)]
        tied = size_conditions.ties(equal).keys()
        found.append(WaySizes(path, tuple(equal), tuple(alone), _inputs_of(program, tied)))
    return found


def known_on_all(ways: Sequence[WaySizes | None]) -> WaySizes:
    """What is equal, and which conditions hold, on each of several ways."""
    known = [one for one in ways if one is not None]
    if len(known) < len(ways):
        return WaySizes(sympy.true, (), (), frozenset())
    first, *others = known
    equal = tuple(pair for pair in first.equal if all(pair in one.equal for one in others))
    facts = [*size_conditions.parts(first.path), *first.guards]
    held = [set([*size_conditions.parts(one.path), *one.guards]) for one in others]
    return WaySizes(sympy.true, equal, tuple(one for one in facts if all(one in some for some in held)), frozenset())


def condition_of(decision: Decision) -> Any:
    """What a decision asks of sizes, on names of where they are read."""
    return size_conditions.named(decision.condition, decision.asked.node.shape_env)


def _guards(program: torch.export.ExportedProgram) -> set[Any]:
    own = environment_of(program)
    named = (size_conditions.named(guard.expr, own) for guard in own.guards) if own is not None else ()
    return {one for one in named if one is not None}


def _inputs_of(program: torch.export.ExportedProgram, tied: Any) -> frozenset[int]:
    """The places of a program's inputs with sizes of some names."""
    known = size_conditions.names(environment_of(program))
    specs = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    nodes = program.graph.find_nodes(op="placeholder")
    given = [node.meta.get("val") for node in nodes if specs[node.name] is InputKind.USER_INPUT]
    found = set()
    for place, value in enumerate(given):
        read = {known.get(symbol) for size in _free(value) for symbol in size.node._expr.free_symbols}
        if read & set(tied):
            found.add(place)
    return frozenset(found)


def _free(tensor: object) -> list[torch.SymInt]:
    sizes: Iterable[Any] = tensor.shape if isinstance(tensor, torch.Tensor) else ()
    return [one for one in sizes if isinstance(one, torch.SymInt)]


def _expression(size: Any) -> Any:
    """A size on torch's symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _is_seen_so(tensor: torch.Tensor, sizes: Sequence[object]) -> bool:
    return all(str(one) == str(other) for one, other in zip(sizes, tensor.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a program's inputs while it is captured.

    Attributes:
        known: names of where sizes are read -> what they are, on torch's symbols.
        tensors: inputs with all of these symbols among their sizes.
    """

    known: Mapping[Any, Any] = field(default_factory=dict)
    tensors: tuple[torch.Tensor, ...] = ()

    @classmethod
    def of(cls, leaves: Sequence[object], environment: Any) -> Sizes:
        """Those of some inputs.

        Args:
            leaves: the inputs.
            environment: torch's, of sizes.
        """
        seen: set[Any] = set()
        kept: list[torch.Tensor] = []
        for one in leaves:
            symbols = {size.node.expr for size in _free(one)} - seen
            if isinstance(one, torch.Tensor) and symbols:
                seen |= symbols
                kept.append(one)
        return cls(size_conditions.sizes_there(environment), tuple(kept))

    @property
    def numbers(self) -> dict[Any, torch.SymInt]:
        """Torch's symbols -> the sizes themselves."""
        return {size.node.expr: size for one in self.tensors for size in _free(one) if size.node.expr.is_Symbol}

    def where_equal(self, tensor: torch.Tensor, equal: Sequence[size_conditions.Equality]) -> torch.Tensor:
        """A tensor as one of the sizes that it has where some sizes are equal."""
        known = self._ties(equal)

        def seen(size: object) -> Any:
            return size_conditions.number(_expression(size).xreplace(known), self.numbers)

        sizes = [seen(size) for size in tensor.shape]
        if _is_seen_so(tensor, sizes):
            return tensor
        strides = [] if is_contiguous_or_false(tensor) else [seen(one) for one in tensor.stride()]
        made: torch.Tensor = OF_SIZE(tensor, sizes, strides)
        return made

    def _ties(self, equal: Sequence[size_conditions.Equality]) -> dict[Any, Any]:
        return size_conditions.ties((one.xreplace(self.known), other.xreplace(self.known)) for one, other in equal)

    def asked(self, condition: Any, node: torch.fx.Node | None) -> torch.Tensor:
        """A condition on names as a tensor, at the line of a node."""
        with fx_traceback.set_current_meta(node) if node is not None else contextlib.nullcontext():
            return size_conditions.asked(condition.xreplace(self.known), self.numbers)

    def as_beside(self, result: object, other: object, equal: Sequence[size_conditions.Equality]) -> object:
        """A result of one side of a condition with the sizes of the other side's, where they are equal on its own.

        Args:
            result: the result, which lies in memory in order.
            other: what torch knows of the other side's, in that way's own program.
            equal: what is equal on its own side, on names.
        """
        if not isinstance(result, torch.Tensor) or not isinstance(other, FakeTensor) or other.dim() != result.dim():
            return result
        own, known = self._ties(equal), self._there(other)
        sizes: list[Any] = []
        for size, there in zip(result.shape, known, strict=True):
            here = _expression(size)
            is_other = there is not None and here != there and here.xreplace(own) == there.xreplace(own)
            sizes.append(size_conditions.number(there, self.numbers) if is_other else size)
        if not own or _is_seen_so(result, sizes):
            return result
        made: torch.Tensor = OF_SIZE(result, sizes, [])
        return made

    @contextlib.contextmanager
    def taken_for_granted(self, way: WaySizes, environment: Any) -> Iterator[None]:
        """Within, torch's environment of sizes knows what holds on a way and at the example, and asks for none of it.

        Args:
            way: with conditions on names.
            environment: torch's.
        """
        ties, before = self._ties(way.equal), dict(environment.axioms)
        for condition in way.guards:
            here = condition.xreplace(self.known)
            for one in (here, here.xreplace(ties)):
                if isinstance(one, Relational) and one.xreplace(environment.backed_var_to_val) == sympy.true:
                    environment.axioms.update(dict(environment.get_implications(environment.simplify(one))))
        environment._version_counter += 1  # torch's answers so far go by it
        try:
            yield
        finally:
            environment.axioms.clear()
            environment.axioms.update(before)
            environment._version_counter += 1

    def _there(self, tensor: FakeTensor) -> list[Any]:
        """The sizes of another program's tensor on this one's symbols; None for those that are none of its inputs."""
        names = size_conditions.names(tensor.fake_mode.shape_env)
        found: list[Any] = []
        for size in tensor.shape:
            here = _expression(size).xreplace(names).xreplace(self.known)
            found.append(here if here.free_symbols <= self.numbers.keys() else None)
        return found
