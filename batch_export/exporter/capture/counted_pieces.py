"""Loops over pieces that are counted, `for i in range((n + k - 1) // k): x[:, i * k : (i + 1) * k]`, or found by while.

Arrives: a function's tree. Leaves: the same loops over the places at which pieces begin, `range(0, n, k)`, of which
`loop_tails.py` knows that the last piece alone may be shorter. Each does what it did: a loop stays whose numbers may be
no sizes, may change meanwhile, or are read behind it.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import TypeVar

from batch_export.exporter.capture.counted_names import Names

Node = TypeVar("Node", bound=ast.AST)

PIECES = "_pieces"
"""An attribute of the tree of a `while` over such places: their name, their end, how far one is from the next."""


def over_places(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function with such loops over places; its tree is changed."""
    if any(isinstance(one, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)) for one in ast.walk(function)):
        _Loops(Names.of(function)).visit(function)
    return function


@dataclass(slots=True)
class _Loops(ast.NodeTransformer):
    """Writes such loops anew."""

    names: Names

    def visit_For(self, node: ast.For) -> ast.AST:
        """`for i in range(count):`."""
        self.generic_visit(node)
        step, found = self._counted(node.target, node.iter)
        if found is None or node.orelse or self.names.outside[step]:
            return node
        writing = _OfPlaces(step, ast.unparse(found[1]), self.names)
        body = [writing.visit(copy.deepcopy(one)) for one in node.body]
        if writing.count:
            node.iter, node.body = _at(_range(*found), node.iter), body
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """`[... for i in range(count)]`."""
        return self._listed(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """The same without brackets."""
        return self._listed(node)

    def _listed(self, node: ast.ListComp | ast.GeneratorExp) -> ast.AST:
        self.generic_visit(node)
        (one, *more) = node.generators
        step, found = self._counted(one.target, one.iter)
        if found is None or more or one.ifs or one.is_async:
            return node
        writing = _OfPlaces(step, ast.unparse(found[1]), self.names)
        element = writing.visit(copy.deepcopy(node.elt))
        if writing.count:
            node.elt, one.iter = element, _at(_range(*found), one.iter)
        return node

    def _counted(self, target: ast.expr, over: ast.expr) -> tuple[str, tuple[ast.expr, ast.expr] | None]:
        match target, over:
            case ast.Name(id=step), ast.Call(
                func=ast.Name(id="range"), args=[count] | [ast.Constant(value=0), count], keywords=[]
            ):
                return step, self.names.pieces(count)
        return "", None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Whatever else stands there; a `while` is known by what stands in front of it."""
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, part, None), list):
                for place, one in enumerate(statements):
                    if isinstance(one, ast.While):
                        self._note(one, statements[:place])
        return super(_Loops, self).generic_visit(node)

    def _note(self, node: ast.While, before: list[ast.stmt]) -> None:
        """Notes the places of `i = 0; while i < n: ...; i += k`."""
        match node.test:
            case ast.Compare(left=ast.Name(id=step), ops=[ast.Lt()], comparators=[end]):
                pass
            case ast.Compare(left=end, ops=[ast.Gt()], comparators=[ast.Name(id=step)]):
                pass
            case _:
                return
        begun = [one for one in before if _is_beginning(one, step)]
        length = self._stride(node.body, step, end)
        is_left = any(isinstance(one, (ast.Continue, ast.Break)) for one in ast.walk(node))
        is_counter = self.names.stored[step] == len(begun) + 1 == 2 and step not in self.names.parameters
        if length is None or not is_counter or is_left or not self.names.is_size(end):
            return
        own = [one for part in (*begun, node) for one in ast.walk(part) if isinstance(one, ast.Name) and one.id == step]
        if len(own) == self.names.outside[step]:
            setattr(node, PIECES, (step, end, length))

    def _stride(self, body: list[ast.stmt], step: str, end: ast.expr) -> ast.expr | None:
        """How far the next round's place is, of a counter that goes on at the end of each round."""
        if len(body) < 2:
            return None
        match body[-1]:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=length) if name == step:
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == step:
                known = self.names.value(value)
                is_there = known is value or any(isinstance(one, ast.Assign) and one.value is known for one in body)
                inside = ast.unparse(known)
                lengths = [one for one in ast.walk(known) if isinstance(one, ast.expr)] if is_there else []
                forms = "min({0} + {1}, {2})", "min({2}, {0} + {1})", "{0} + {1}"
                texts = {
                    one: [form.format(step, ast.unparse(one), ast.unparse(end)) for form in forms] for one in lengths
                }
                length = next((one for one, each in texts.items() if inside in each), ast.Constant(0))
            case _:
                return None
        return length if self.names.is_length(length) else None


def _is_beginning(node: ast.stmt, step: str) -> bool:
    """Whether a statement gives a name 0, perhaps beside others."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=0)):
            return name == step
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            pairs = zip(names, values, strict=True)
            return any(_is_beginning(ast.Assign([one], value), step) for one, value in pairs)
    return False


@dataclass(slots=True)
class _OfPlaces(ast.NodeTransformer):
    """Writes a round by the place at which its piece begins, in place of its number.

    Attributes:
        step: the number's name.
        length: that of a piece, as source.
        count: how often the place, which has the number's name, is where a slice begins: it is a whole number.
    """

    step: str
    length: str
    names: Names
    count: int = 0
    _begins: set[str] = field(default_factory=set)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`i * k`, `(i + 1) * k`."""
        step, length = self.step, self.length
        text = ast.unparse(node)
        if self._is_begin(node):
            return self._made(step, node)
        ends = f"({step} + 1) * {length}", f"{length} * ({step} + 1)"
        sums = f"{step} * {length} + {length}", f"{length} + {step} * {length}", f"{length} * {step} + {length}"
        if text in (*ends, *sums, f"(1 + {step}) * {length}", f"{length} * (1 + {step})"):
            return self._made(f"{step} + {length}", node)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """`begin = i * k`."""
        is_begin = self._is_begin(node.value)
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Name(id=name)]) if is_begin and self.names.is_fixed(name):
                self._begins.add(name)
        return node

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        """`i * k : ...`."""
        is_named = isinstance(node.lower, ast.Name) and node.lower.id in self._begins
        self.count += is_named or self._is_begin(node.lower)
        return self.generic_visit(node)

    def _is_begin(self, node: ast.expr | None) -> bool:
        step, length = self.step, self.length
        return node is not None and ast.unparse(node) in (f"{step} * {length}", f"{length} * {step}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The number itself."""
        if isinstance(node.ctx, ast.Load) and node.id in self._begins:
            return self._made(self.step, node)
        if node.id != self.step or not isinstance(node.ctx, ast.Load):
            return node
        return _at(ast.parse(f"{self.step} // {self.length}", mode="eval").body, node)

    @staticmethod
    def _made(text: str, node: ast.expr) -> ast.expr:
        return _at(ast.parse(text, mode="eval").body, node)


def _range(end: ast.expr, length: ast.expr) -> ast.expr:
    return ast.parse(f"range(0, {ast.unparse(end)}, {ast.unparse(length)})", mode="eval").body


def for_of(loop: ast.While) -> ast.For | None:
    """A `while` over places at which pieces begin as a `for` over them; None of any other."""
    found: tuple[str, ast.expr, ast.expr] | None = getattr(loop, PIECES, None)
    if found is None:
        return None
    step, end, length = found
    over = _at(_range(end, length), loop.test)
    return _at(ast.For(ast.Name(step, ast.Store()), over, loop.body[:-1], []), loop)


def _at(made: Node, where: ast.AST) -> Node:
    """New code at the place of the old one; of what it consists of, parts with a place of their own keep it."""
    if isinstance(made, ast.expr):
        for one in ast.walk(made):
            ast.copy_location(one, where)
    return ast.fix_missing_locations(ast.copy_location(made, where))
