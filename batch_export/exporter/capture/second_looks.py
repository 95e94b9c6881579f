"""Decisions by sizes that trials found harmless, looked at once more from the other side.

Arrives: a captured program, and a way to capture the model at other sizes. Leaves: the guards of an `if` behind which
the model does something else after all, whatever the numbers that were tried: there it calls other operators, or asks a
further question (`if t > 8 and b == 1:`) that the given example never came to.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sympy
import torch
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import chosen_points, guard_points, idle_operators
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.parsed_files import parsed

_MOST = 3
"""How many guards of one program are looked at once more."""
_POINTS = 4
_TURNS = 5
"""At how many sizes beyond a guard the model is captured, where each capture has guards of its own."""
_LOOKED_AT = 200
"""At how many of the sizes beyond a guard others are evaluated."""
_SEARCHED = 20_000
"""Up to which size of one axis it is looked for one at which the guards of a further capture are false."""
_FEW = 100
"""Operators of a program up to which it is looked at what a model does at sizes of 1. There it often calls others for
the same numbers (`length > 1` before a causal mask), so that a further question counts, or what it gives.
"""
_UNSAID = frozenset(
    (
        *(torch.ops.aten.sym_size.int, torch.ops.aten._assert_scalar.default, torch.ops.aten._assert_async.msg),
        torch.ops.aten.sym_constrain_range_for_size.default,
    )
)


_DATA = (torch.Tensor, tuple, list)
"""What an operator gives that holds data, and no size."""
_SIZE = "size"

Untried = Callable[[Captured], None]
"""What gets a captured program before its guards are tried."""
_AT = (1, 2, 3, 5, 7, 16, 63, 1000)
"""Sizes at which an equality is evaluated of which it is asked whether an axis matters."""


class _OtherwiseError(Exception):
    """The model calls other operators."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The axes of a program, of which several symbols may have one name.

    Attributes:
        names: symbol -> axis, as messages call it.
        near: axis -> its size in the example.
    """

    names: Mapping[str, str]
    near: Mapping[str, int]

    def at(self, point: Mapping[str, int]) -> dict[str, int]:
        """The size of every symbol where some axes have other sizes than in the example.

        Args:
            point: these sizes, by axis or by symbol.
        """
        sizes = {**self.near, **{self.text(name): size for name, size in point.items()}}
        return {name: sizes[text] for name, text in self.names.items() if text in sizes}

    def text(self, name: str) -> str:
        """The axis of a symbol; an axis as it is."""
        return self.names.get(name, name)

    def texts(self, names: Iterable[object]) -> set[str]:
        """The axes of some symbols."""
        return {self.text(str(one)) for one in names}


@dataclass(slots=True)
class _Beyond:
    """What a capture beyond a guard is looked at for.

    Attributes:
        own: the program.
        axes: its axes.
        at: the sizes of the capture, by symbol.
        points: all sizes that are known at which the guard is false.
        counts: whether other operators are an answer.
        is_alone: whether only those count that get data.
        searched: gets the guards of the capture that `_further` goes by, whatever trials would make of them.
    """

    own: torch.export.ExportedProgram
    axes: _Sizes
    at: Mapping[str, int]
    points: Sequence[guard_points.Point]
    counts: bool
    is_alone: bool
    searched: list[Guard] = field(default_factory=list)

    def look_at(self, captured: Captured) -> None:
        """Compares what the model calls, and leaves those guards that have to be tried.

        Raises:
            _OtherwiseError: other operators, of which some do something there.
        """
        if self.counts and self._calls_others(captured.traced):
            raise _OtherwiseError
        guards, captured.guards = captured.guards, []
        for guard in guards:
            (self.searched if self._is_searched(guard) else captured.guards).append(guard)

    def _calls_others(self, other: torch.export.ExportedProgram) -> bool:
        if self.is_alone:
            return not _same_with_data(self.own, other)
        known = idle_operators.at(self.at)
        return _calls(self.own) != _calls(other) and _busy(self.own, known) != _busy(other, idle_operators.hinted)

    def _is_searched(self, guard: Guard) -> bool:
        """Whether `_further` finds the sizes at which a guard is false, since the one axis that varies decides it."""
        axes = self.axes.texts(axis for one in self.points for axis in one)
        own = self.axes.texts(getattr(guard.expression, "free_symbols", ()))
        if len(axes) != 1 or not guard_points.is_known_function(guard.expression):
            return False
        return own <= axes or (isinstance(guard.expression, sympy.Eq) and self._is_alike(guard.expression, own - axes))

    def _is_alike(self, equality: sympy.Eq, others: Collection[str]) -> bool:
        """Whether an equality is as true at each size whatever those of other axes are, by which both sides go alike.

        That a product of two sizes can be parted is one, say.
        """
        is_false = guard_points.one_false_of([equality])
        chosen = self.points[:: max(1, len(self.points) // _LOOKED_AT)]
        if not {str(one) for one in equality.free_symbols} <= self.axes.at({}).keys() or len(chosen) < _POINTS:
            return False
        return all(
            len({is_false(self.axes.at({**dict.fromkeys(others, size), **one})) for size in _AT}) == 1 for one in chosen
        )


def otherwise_beyond(
    captured: Captured,
    examples: Examples,
    sizes: Mapping[str, int],
    capture: Callable[[Inputs, Untried, Collection[str]], Captured],
    differs: Callable[[Inputs], object],
) -> Iterator[Guard]:
    """The guards beyond which the model does something else.

    Args:
        captured: the program.
        examples: other inputs.
        sizes: those of the example, by axis as messages call it.
        capture: captures the model at some inputs by its first way, with some axes fixed; trials of guards may take far
            longer than that.
        differs: whether the program gives something else than the model at some inputs, or far larger ones.
    """
    symbols = captured.symbols
    looked_at = [one for one in captured.guards if one.holds_beyond and _is_asked(one.source)]
    calls = _calls(captured.traced)
    for guard in looked_at[:_MOST] if symbols is not None else ():
        assert symbols is not None
        names = {name: symbols.text(name) for name in symbols.axes}
        axes = _Sizes(names, {text: sizes[text] for text in names.values() if text in sizes})
        near = axes.at({})
        points = guard_points.against(guard.expression, symbols, near) or ()
        several = [one for one in points if not {0, 1} & {*one.values()}]
        filled = several or [one for one in points if 0 not in one.values()]
        if not several and len(calls) > _FEW:
            continue
        alone = _left_out_alone(guard) if several else ()

        others = [one for one in captured.guards if one is not guard]
        regions: list[Sequence[Guard]] = []
        for turn in range(_TURNS):  # between two such sizes there may be one at which the model does something else
            chosen = chosen_points.choose(filled, near, _POINTS)[:: -1 if turn % 2 else 1]  # near, then far
            inputs = next(
                examples.at_some([{axes.text(name): size for name, size in one.items()} for one in chosen]), None
            )
            if inputs is None:
                break
            at = axes.at(examples.sizes_of(inputs))
            looking = _Beyond(captured.traced, axes, at, filled, bool(several), bool(alone))
            try:
                other = capture(inputs, looking.look_at, [names[name] for name in alone if name in names])
            except (DynamicShapeError, _OtherwiseError):
                yield guard
                break
            except CaptureError:
                if several:
                    yield guard
                break
            fixed = {name: at[name] for name in alone if name in at}  # a size may be no axis that was asked for
            conditions = _conditions([*looking.searched, *other.guards], other, {})
            asked = conditions - _conditions(captured.guards, captured, fixed) if alone else ()
            is_otherwise = not several and not _same_with_data(captured.traced, other.traced)
            if other.harmful or asked or (is_otherwise and differs(inputs)):
                yield guard
                break
            regions.append([*looking.searched, *other.guards])
            filled = _further(filled, [[guard], *regions], others, axes)
            if not filled:
                break


def _further(
    points: Sequence[guard_points.Point],
    regions: Sequence[Sequence[Guard]],
    others: Sequence[Guard],
    symbols: _Sizes,
) -> list[guard_points.Point]:
    """Sizes beyond a guard at which no capture beyond it holds either, and the others of the program do.

    Args:
        points: sizes beyond the guard; of one axis all are looked at, up to some size.
        regions: the guard, and those of each capture beyond it.
        others: those of the program.
        symbols: the axes of these, and their sizes in the example.
    """
    axes = {axis for one in points for axis in one}
    known = [*points]
    if len(axes) == 1:
        (axis,) = axes
        sizes = {one[axis] for one in points}
        known += [{axis: size} for size in range(2, _SEARCHED) if size not in sizes]
    beyond = [guard_points.one_false_of(one.expression for one in guards) for guards in regions]
    is_outside = guard_points.one_false_of(one.expression for one in others)
    at = map(symbols.at, known)
    return [
        one
        for one, there in zip(known, at, strict=True)
        if all(is_beyond(there) for is_beyond in beyond) and not is_outside(there)
    ]


def _left_out_alone(guard: Guard) -> Sequence[str]:
    """The axis of which a guard leaves out one size alone, at which program and model were compared; none of others.

    What is made of weights alone, such as a table that is resized at every other size, is the same there whatever the
    data are: then it matters only whether the model does something else with these.
    """
    sides = guard.expression.args if isinstance(guard.expression, sympy.Ne) else ()
    names = [str(one) for one in sides if isinstance(one, sympy.Symbol)]
    return names if len(names) == 1 and any(isinstance(one, sympy.Integer) for one in sides) else []


def _conditions(guards: Iterable[Guard], captured: Captured, sizes: Mapping[str, int]) -> set[str]:
    """The conditions of a program, each at some sizes of its symbols, on axes as messages call them."""
    symbols = captured.symbols
    found = set()
    for guard in guards:
        expression = guard.expression
        if symbols is None or not isinstance(expression, sympy.Basic):
            found.add(guard.condition)
            continue
        known: dict[sympy.Basic, sympy.Basic] = {}
        for one in expression.free_symbols:
            name = str(one)
            known[one] = sympy.Integer(sizes[name]) if name in sizes else sympy.Symbol(symbols.text(name), integer=True)
        found.add(str(expression.xreplace(known)))
    return found


def _is_asked(place: str) -> bool:
    """Whether a line of the model (`file:line`) compares something itself; others are questions of torch's own."""
    file, _, line = place.rpartition(":")
    return line.isdecimal() and int(line) in _asking(file)


@functools.lru_cache(maxsize=16)
def _asking(file: str) -> frozenset[int]:
    tree = parsed(file)
    kinds = (ast.Compare, ast.BoolOp, ast.Match)
    asked = [one for one in ast.walk(tree) if isinstance(one, kinds)] if tree is not None else []
    tests = [one.test for one in ast.walk(tree) if isinstance(one, (ast.If, ast.IfExp, ast.While))] if tree else []
    return frozenset(line for one in (*asked, *tests) for line in range(one.lineno, (one.end_lineno or one.lineno) + 1))


def _calls(program: torch.export.ExportedProgram) -> Sequence[str]:
    """The operators of a program in their order, without those that work sizes out."""
    called = [one.target for one in program.graph.nodes if one.op == "call_function"]
    return [str(one) for one in called if isinstance(one, torch._ops.OperatorBase) and one not in _UNSAID]


def _busy(program: torch.export.ExportedProgram, known: idle_operators.Known) -> Sequence[str]:
    """The same without those that do nothing at some sizes."""
    called = [one for one in program.graph.nodes if one.op == "call_function" and one.target not in _UNSAID]
    busy = [one for one in called if isinstance(one.target, torch._ops.OperatorBase)]
    return [str(one.target) for one in busy if not idle_operators.is_idle(one, known)]


def _same_with_data(program: torch.export.ExportedProgram, other: torch.export.ExportedProgram) -> bool:
    """Whether two programs call the same operators with what inputs hold, and with the same numbers but for sizes."""
    calls, others = _calls_of_data(program), _calls_of_data(other)
    return len(calls) == len(others) and all(
        len(call) == len(each) and all(a == b or _SIZE in (a, b) for a, b in zip(call, each, strict=True))
        for call, each in zip(calls, others, strict=True)
    )


def _calls_of_data(program: torch.export.ExportedProgram) -> Sequence[Sequence[str]]:
    """The operators that get what inputs and changed buffers hold, with what stands in the calls."""
    signature = program.graph_signature
    changed = {*signature.buffers_to_mutate.values()}
    own = {name for name, target in signature.inputs_to_buffers.items() if target in changed}
    data: set[torch.fx.Node] = set()
    found = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and (node.name in own or node.name in signature.user_inputs):
            data.add(node)
        elif node.op == "call_function" and isinstance(node.meta.get("val"), _DATA) and data & {*node.all_input_nodes}:
            data.add(node)
            given = pytree.tree_leaves((node.args, node.kwargs))
            found.append([str(node.target), *(_word(program, one) for one in given)])
    return found


def _word(program: torch.export.ExportedProgram, given: object) -> str:
    """What is given to an operator: the code of a branch or round, a size, a tensor, or a number as it is."""
    if not isinstance(given, torch.fx.Node):
        return f"{type(given).__name__} {given}"
    inner = getattr(program.graph_module, str(given.target), None) if given.op == "get_attr" else None
    if isinstance(inner, torch.fx.GraphModule):
        return str(inner.code)
    return "tensor" if isinstance(given.meta.get("val"), _DATA) else _SIZE
