"""Loops that end where the data say so (`while error > 1e-3:`, `if done.all(): break`), captured as one operator.

Arrives: lines of a model at which such a loop goes on or ends; a context is opened round a capture. Leaves: a capture
in which a round is a function of what goes on from round to round (`data_rounds.py`). Loops stay that write to
attributes, leave the function, or hand on what no tensor is.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from batch_export.exporter.capture import (
    data_lists,
    data_rounds,
    decided_lines,
    loop_soundness,
    size_answers,
    size_decisions,
)
from batch_export.exporter.capture.choice_numbers import Uses, is_forward
from batch_export.exporter.capture.joined_sequences import joining
from batch_export.exporter.capture.loop_choices import names_given
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.rewritten_code import rewritten

_ROUNDS, _CHOSEN, _KEPT = "__rounds_by_data__", "__chosen_by_an_end__", "__kept_before_an_end__"
_TURNED, _AT, _NUMBER, _ALIKE = (
    "__turned_in_a_round__",
    "__at_a_step__",
    "__number_in_a_round__",
    "__alike_in_a_round__",
)
_NUMBERS = ("float", "int")
_CALLED: Mapping[str, Any] = {
    **size_answers.CALLED,
    **data_lists.CALLED,
    _ROUNDS: data_rounds.rounds_by_data,
    _CHOSEN: data_rounds.chosen,
    _KEPT: data_rounds.kept,
    _TURNED: data_rounds.turned,
    _AT: data_rounds.at_step,
    _NUMBER: data_rounds.number,
    _ALIKE: data_rounds.alike,
}


def any_loop(places: Iterable[str]) -> bool:
    """Returns whether a loop goes on or ends at some of several places (`file:line`)."""
    return decided_lines.any_of(places, _lines)


@contextlib.contextmanager
def loops_as_operators(module: torch.nn.Module, places: Iterable[str]) -> Iterator[list[str]]:
    """Within, loops of a model's functions that go on or end at such lines are one operator each.

    Args:
        module: the model.
        places: the lines.

    Yields:
        Why loops are not.
    """
    why: list[str] = []
    write = functools.partial(_written_anew, why=why, module=module)
    with joining(), rewritten(decided_lines.written_anew(module, places, _lines, write), _CALLED):
        yield why


@functools.lru_cache(maxsize=64)
def _lines(file: str) -> frozenset[int]:
    tree = parsed(file)
    loops = [one for one in ast.walk(tree) if isinstance(one, (ast.For, ast.While))] if tree is not None else []
    return frozenset(line for one in loops for line in _lines_of(one))


def _lines_of(loop: ast.For | ast.While) -> Iterator[int]:
    """The lines at which it is decided whether a loop goes on."""
    end = _end(loop.body)
    for test in (*([loop.test] if isinstance(loop, ast.While) else []), *([end.test] if end is not None else [])):
        yield from range(test.lineno, (test.end_lineno or test.lineno) + 1)


def _end(body: Sequence[ast.stmt]) -> ast.If | None:
    """The first `if` of a round that ends with `break`."""
    for one in body:
        match one:
            case ast.If(body=[*_, ast.Break()], orelse=[]):
                return one
    return None


def _written_anew(
    function: ast.FunctionDef, lines: set[int], why: list[str], module: torch.nn.Module
) -> ast.FunctionDef | None:
    """A function with its loops at some lines as calls; None where none can be, and why."""
    loops = _Loops(function, lines, why, is_forward(function, module))
    changed: ast.FunctionDef = loops.visit(function)
    return changed if loops.count else None


@dataclass(slots=True)
class _Loops(ast.NodeTransformer):
    """Writes loops as calls.

    Attributes:
        function: in which they stand.
        only: the lines at which they go on or end.
        why: why loops stay as they are.
        gives_outputs: whether what the function returns are the model's outputs.
        count: how many were written.
    """

    function: ast.FunctionDef
    only: set[int]
    why: list[str]
    gives_outputs: bool = False
    count: int = 0
    _read: list[ast.Name] = field(default_factory=list)
    _uses: Uses = field(init=False)

    def __post_init__(self) -> None:
        self._uses = Uses.of(copy.deepcopy(self.function), gives_outputs=self.gives_outputs)
        self._read = [copy.copy(one) for one in ast.walk(self.function) if isinstance(one, ast.Name)]

    def visit_While(self, node: ast.While) -> Any:
        """`while test:`."""
        return self._of(node)

    def visit_For(self, node: ast.For) -> Any:
        """`for step in range(...):`."""
        return self._of(node)

    def _of(self, node: ast.For | ast.While) -> Any:
        made = self._made(node) if self.only.intersection(_lines_of(node)) else None
        if made is None:
            return self.generic_visit(node)
        self.count += 1
        return [ast.fix_missing_locations(_at(one, node)) for one in made]

    def _made(self, node: ast.For | ast.While) -> list[ast.stmt] | None:
        made = self._written(node)
        if isinstance(made, str):
            self.why.append(made)
            return None
        return made

    def _written(self, node: ast.For | ast.While) -> list[ast.stmt] | str:
        """The loop as a call, with what it needs round it; or why it stays."""
        over, step, test = _head(node)
        end = _end(node.body)
        lists, end = data_lists.without_lists(self.function, node, over, end, self.count + 1)
        node, over = copy.copy(node), lists.over
        node.body = lists.body
        if reason := loop_soundness.unfit(node, over, test, end):
            return reason
        changed = names_given(node.body) | _written_to(node.body)
        if reason := loop_soundness.unsound(self.function, node, step, changed):
            return reason
        before = {one.id for one in self._read if one.lineno < node.lineno and isinstance(one.ctx, ast.Store)}
        before |= {one.arg for one in ast.walk(self.function.args) if isinstance(one, ast.arg)} | lists.known
        behind = {
            one.id
            for one in self._read
            if one.lineno > (node.end_lineno or node.lineno) and isinstance(one.ctx, ast.Load)
        }
        if step in changed or (step in behind and isinstance(node, ast.While)):
            return f"its rounds change `{step}`"
        asked = _names(test) if test is not None else set()
        if test is not None and (unknown := (changed - before) & (behind | asked)):  # perhaps there is no round
            return f"`{min(unknown)}` is not there where no round is run"
        going = sorted(changed & (before | behind))
        number = self.count + 1
        name, ended = f"__round_by_data_{number}__", f"__ended_{number}__"
        taken = ast.arguments(
            posonlyargs=[], args=[ast.arg(one) for one in (step, *going)], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        body = _round(node.body, end, ended, before | {*going}, changed - lists.rows)
        values = ast.Tuple([ast.Name(one, ast.Load()) for one in going], ast.Load())
        result = ast.Tuple(
            [ast.Name(ended, ast.Load()) if end is not None else ast.Constant(False), values], ast.Load()
        )
        body = [_Read(step).visit(one) for one in body]
        made: list[ast.stmt] = [ast.FunctionDef(name, taken, [*body, ast.Return(result)], [])]
        goes_on: ast.expr = ast.Constant(None)
        if test is not None:
            own = copy.deepcopy(taken)
            own.args = own.args[1:]
            goes_on = ast.Lambda(own, size_decisions.as_calls(_as_tensors(test)))
        begun = ast.Tuple(
            [ast.Name(one, ast.Load()) if one in before else ast.Constant(None) for one in going], ast.Load()
        )
        call = ast.Call(
            ast.Name(_ROUNDS, ast.Load()),
            [
                *(
                    ast.Name(name, ast.Load()),
                    goes_on,
                    over or ast.Constant(None),
                    ast.Constant(end is not None),
                    begun,
                ),
                ast.parse(repr(tuple(self._uses.kinds_of(one) for one in going)), mode="eval").body,
            ],
            [],
        )
        last = step if step in behind else "__last_step__"
        target = ast.Tuple([ast.Name(one, ast.Store()) for one in (last, *going)], ast.Store())
        return [*lists.before, *made, ast.Assign([target], call), *lists.behind]


def _head(node: ast.For | ast.While) -> tuple[ast.expr | None, str, ast.expr | None]:
    """The range that a loop goes over, the name of its step, and what it asks before each round; None of either."""
    match node:
        case ast.While(test=ast.Constant(value=True | 1)):
            return None, "__step__", None
        case ast.While(test=test):
            return None, "__step__", test
        case ast.For(target=ast.Name(id=step), iter=ast.Call(func=ast.Name(id="range"), keywords=[]) as over):
            return over, step, None
    return None, "__step__", None


def _written_to(body: Iterable[ast.stmt]) -> set[str]:
    """Names of tensors that a round writes to: `y[:, 0] = x`, `y.add_(x)`."""
    written = (loop_soundness.target(each) for part in body for each in ast.walk(part))
    return {one.id for one in written if isinstance(one, ast.Name)}


def _round(
    body: Sequence[ast.stmt], end: ast.If | None, ended: str, known: set[str], changed: set[str]
) -> list[ast.stmt]:
    """A round in which nothing changes any more behind its end."""
    if end is None:
        return list(body)
    at = list(body).index(end)
    before, behind = list(body[:at]), list(body[at + 1 :])
    known = known | names_given(before)
    made = [*before, ast.Assign([ast.Name(ended, ast.Store())], size_decisions.as_calls(_as_tensors(end.test)))]
    for part, stays in ((end.body[:-1], False), (behind, True)):
        names = sorted((names_given(part) | _written_to(part)) & known & changed)
        made += [ast.parse(f"__before_{one}__ = {_KEPT}({one})").body[0] for one in names]
        made += part
        made += [ast.parse(f"{one} = {_CHOSEN}({ended}, {_sides(one, stays)})").body[0] for one in names]
    return made


def _sides(name: str, stays: bool) -> str:
    return f"__before_{name}__, {name}" if stays else f"{name}, __before_{name}__"


def _as_tensors(test: ast.expr) -> ast.expr:
    """What is asked, with tensors in place of the numbers that `int(x)` and `x.item()` make of them."""
    return _Tensors().visit(copy.deepcopy(test))  # type: ignore[no-any-return]


@dataclass(slots=True)
class _Read(ast.NodeTransformer):
    """Writes what a round reads of tensors as calls.

    Attributes:
        step: the name of the loop's step.
    """

    step: str

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`x[:, t]`, of which Python would ask for the step's number."""
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_plain = all(isinstance(one, (ast.Name, ast.Constant, ast.BinOp, ast.Slice)) for one in parts)
        read = [one for one in parts if not isinstance(one, ast.Slice) and self.step in _names(one)]
        if not isinstance(node.ctx, ast.Load) or not is_plain or len(read) != 1:
            return node
        made = [_slice(one) if isinstance(one, ast.Slice) else one for one in parts]
        return ast.Call(ast.Name(_AT, ast.Load()), [node.value, *made], [])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`x.T` as a call: dynamo takes what an attribute gives for another tensor in the same memory."""
        self.generic_visit(node)
        if node.attr in data_rounds.TURNS and isinstance(node.ctx, ast.Load):
            return ast.Call(ast.Name(_TURNED, ast.Load()), [node.value, ast.Constant(node.attr)], [])
        return node


class _Tensors(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A tensor in place of its number."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="bool"), args=[value], keywords=[]):
                return value
            case ast.Call(func=ast.Name(id=name), args=[value], keywords=[]) if name in _NUMBERS:
                return ast.Call(ast.Name(_NUMBER, ast.Load()), [value, ast.Constant(name)], [])
            case ast.Call(func=ast.Attribute(value=value, attr="item"), args=[], keywords=[]):
                return ast.Call(ast.Name(_NUMBER, ast.Load()), [value, ast.Constant("item")], [])
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in data_rounds.COMPARISONS:
                of_torch = [] if isinstance(value, ast.Name) and value.id == "torch" else [value]
                return ast.Call(ast.Name(_ALIKE, ast.Load()), [ast.Constant(name), *of_torch, *args], node.keywords)
        return node


def _slice(one: ast.Slice) -> ast.expr:
    parts = [part if part is not None else ast.Constant(None) for part in (one.lower, one.upper, one.step)]
    return ast.Call(ast.Name("slice", ast.Load()), parts, [])


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _at(made: ast.stmt, loop: ast.stmt) -> ast.stmt:
    """New code at the loop's place, where it has none of its own."""
    for one in ast.walk(made):
        if isinstance(one, (ast.stmt, ast.expr, ast.arg)) and not hasattr(one, "lineno"):
            ast.copy_location(one, loop)
    return made
