"""Where a number may be a tensor, because data choose between two: what is done with it gives the same of both.

Arrives: a function and a name. Leaves: whether all uses of it, and of names that it is handed on to, do. Powers of
whole tensors are whole, where Python's may be fractions, a sum of two truth values is none, and code elsewhere may do
anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeGuard

import torch

from batch_export.exporter.capture import function_sources

_COMPUTING = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_MODULES = frozenset(("torch", "F", "functional", "math"))
_KEEPING = frozenset(("abs", "max", "min", "round", "sum"))
"""Functions that give a tensor of a tensor."""
_ASKING = frozenset(("bool", "float", "int", "range"))
"""Those that ask a tensor for its number."""


def is_forward(function: ast.FunctionDef, module: torch.nn.Module) -> bool:
    """Whether a function is the one that gives a model's outputs.

    Args:
        function: its tree, as its file has it.
        module: the model.
    """
    called = getattr(module, "forward", None)  # of a function as a model, the function
    own = _within_modes(getattr(called, "__func__", called))
    if not isinstance(own, FunctionType) or function.name != own.__name__:
        return False
    tree = function_sources.tree_of(own.__code__)
    return tree is not None and ast.dump(tree, include_attributes=True) == ast.dump(function, include_attributes=True)


def _within_modes(function: Any) -> Any:
    """The function below torch's decorators that run it in a mode (`torch.no_grad()`) and return what it returns."""
    while isinstance(function, FunctionType) and function.__code__ in _IN_MODES and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _nothing() -> None:
    """What torch's decorators are put around, to see what code they have."""


_IN_MODES = frozenset(made.__code__ for made in (torch.no_grad()(_nothing), torch.autocast("cpu")(_nothing)))


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of a function's names.

    Attributes:
        function: the function.
        parents: by a node's identity what it is a part of.
        numbers: names that are given numbers of Python's: the steps of a loop, sizes, constants.
        gives_outputs: whether what it returns are the model's outputs, where a whole number is a tensor in any case.
    """

    function: ast.FunctionDef
    parents: dict[int, ast.AST]
    numbers: frozenset[str]
    gives_outputs: bool = False

    @classmethod
    def of(cls, function: ast.FunctionDef, *, gives_outputs: bool = False) -> Uses:
        """Those of a function and of those within it."""
        pairs = ((one, parent) for parent in ast.walk(function) for one in ast.iter_child_nodes(parent))
        parents = {id(one): parent for one, parent in pairs}
        return cls(function, parents, frozenset(_numbers(function)), gives_outputs)

    def kinds_of(self, name: str) -> tuple[str, ...]:
        """The kinds of numbers in whose place the name may be a tensor."""
        kinds = {
            "int": self.are_of_numbers(name, whole=True),
            "float": self.are_of_numbers(name, whole=False),
            "bool": self.are_of_answers(name),
        }
        return tuple(kind for kind, may_be in kinds.items() if may_be)

    def names_of(self, name: str) -> set[str]:
        """A name, and those that have its value or a number computed of it."""
        return self._reads(name)[1]

    def are_of_numbers(self, name: str, *, whole: bool) -> bool:
        """Whether whatever is done with a number may be done with a tensor of it.

        Args:
            name: its name.
            whole: whether it is a whole one, of which a tensor times a fraction has fewer digits.
        """
        nodes, known = self._reads(name)
        return not self._is_written_beside(known) and all(self._is_of_number(one, whole, known) for one in nodes)

    def are_of_answers(self, name: str, asked: frozenset[str] = frozenset()) -> bool:
        """Whether a truth value is only asked for.

        Args:
            name: its name.
            asked: names that are given it, of which that is being found out.
        """
        nodes, known = self._reads(name)
        return all(self._is_of_answer(one, asked | known) for one in nodes)

    def _reads(self, name: str) -> tuple[list[ast.Name], set[str]]:
        """The uses of a name and of names that have its value, or a number computed of it, and all of these names."""
        names, known = [name], {name}
        for _ in names:
            for node in ast.walk(self.function):
                for target, value in _pairs(node):
                    if self._is_number(value, known) and any(
                        _is_read(one) and one.id in known for one in ast.walk(value)
                    ):
                        given = [each.id for each in ast.walk(target) if _is_stored(each)]
                        names += [each for each in given if each not in known]
                        known.update(given)
        return [one for one in ast.walk(self.function) if _is_read(one) and one.id in known], known

    def _is_written_beside(self, known: set[str]) -> bool:
        """Whether a number gets a second name, or a place in a list, and `+=` follows, which writes to a tensor.

        What is given constants and changed by `+=` alone is known as a number.
        """
        parts = [*ast.walk(self.function)]
        written = (one.target for one in parts if isinstance(one, ast.AugAssign))
        if not any(isinstance(one, ast.Name) and one.id in known for one in written):
            return False
        given = [value for one in parts for target, value in _pairs(one) if _names_of(target) & known]
        if all(_is_constant(one) or (isinstance(one, ast.Name) and one.id in known) for one in given):
            return False
        return any(_is_read(one) and one.id in known and self._is_handed_on(one) for one in parts)

    def _is_handed_on(self, node: ast.AST) -> bool:
        """Whether a name's value itself is given to something, as it is."""
        while isinstance(parent := self.parents[id(node)], (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Starred)):
            node = parent
        match parent:
            case ast.Assign() | ast.NamedExpr() | ast.AnnAssign() | ast.keyword():
                return True
            case ast.Call(func=ast.Name(id=called)):
                return called not in _KEEPING | _ASKING
            case ast.Call(func=called):
                return node is not called and _root(called) not in _MODULES
            case ast.IfExp(test=test):
                return node is not test
        return isinstance(parent, ast.BoolOp)

    def _is_number(self, value: ast.expr, known: set[str]) -> bool:
        """Whether a value is a number, as far as it is told: a name's of those, or computed of numbers alone."""
        match value:
            case ast.Name(id=name):
                return name in known or name in self.numbers
            case ast.Constant(value=number):
                return isinstance(number, (int, float))
            case ast.BinOp(left=left, right=right):
                return self._is_number(left, known) and self._is_number(right, known)
            case ast.UnaryOp(operand=operand):
                return self._is_number(operand, known)
            case ast.IfExp(body=one, orelse=other):
                return self._is_number(one, known) or self._is_number(other, known)
            case ast.Tuple(elts=values) | ast.List(elts=values):
                return any(self._is_number(one, known) for one in values)
            case ast.Compare(left=left):
                return True
            case ast.Call(func=ast.Name(id=called), args=args):
                return called in _KEEPING and any(self._is_number(one, known) for one in args)
        return _is_size(value)

    def _is_of_number(self, node: ast.AST, whole: bool, known: set[str]) -> bool:
        is_tensor, is_exact = False, True
        while True:
            parent = self.parents[id(node)]
            match parent:
                case ast.BinOp(left=left, op=kind, right=right):
                    other = right if node is left else left
                    is_fraction = any(
                        isinstance(one, ast.Constant) and type(one.value) is float for one in ast.walk(other)
                    )
                    is_share = isinstance(kind, ast.Div) and (node is left or isinstance(left, ast.Constant))
                    if not isinstance(kind, _COMPUTING) or (whole and (is_fraction or is_share)):
                        return False
                    is_tensor |= not self._is_number(other, known)
                    is_exact &= _is_constant(other) or (isinstance(other, ast.Name) and other.id in known)
                case ast.UnaryOp(op=ast.USub() | ast.UAdd()) | ast.Tuple() | ast.List():
                    pass
                case ast.IfExp(test=test):
                    if node is test:
                        return True
                case ast.Call(func=ast.Name(id=called)) if called in _KEEPING:
                    pass
                case ast.Call(func=ast.Name(id=called)):
                    return called in _ASKING
                case ast.Call(func=called):
                    return node is not called and _root(called) in _MODULES
                case ast.keyword():
                    pass
                case ast.Compare(ops=kinds):
                    is_order = not any(isinstance(one, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for one in kinds)
                    return is_order and (is_exact or not whole) and self._is_of_answer(parent, frozenset(known))
                case ast.Subscript(value=value):
                    return node is not value
                case ast.Assign(targets=targets):
                    return is_tensor or all(_is_of_names(one) for one in targets)
                case ast.Return():
                    return is_tensor or (whole and self.gives_outputs)
                case ast.Dict() if self.gives_outputs:
                    pass
                case _:
                    return isinstance(parent, (ast.AugAssign, ast.Slice, ast.BoolOp, ast.If, ast.While, ast.UnaryOp))
            node = parent

    def _is_of_answer(self, node: ast.AST, known: frozenset[str]) -> bool:
        while True:
            parent = self.parents[id(node)]
            match parent:
                case ast.If() | ast.While():
                    return True
                case ast.IfExp(test=test):
                    return node is test
                case ast.Assign(targets=[ast.Name(id=name)]):
                    return name in known or self.are_of_answers(name, known)
                case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                    pass
                case _:
                    return False
            node = parent


def _numbers(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case (
                ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range")))
                | ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate")))
            ):
                yield name
        for target, value in _pairs(node):
            if isinstance(target, ast.Name) and (_is_size(value) or _is_constant(value)):
                yield target.id


def _is_size(value: ast.expr) -> bool:
    """Whether a value is a size by its form."""
    match value:
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case (
            ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim"))
            | ast.Call(func=ast.Name(id="len" | "int" | "float"))
        ):
            return True
    return False


def _is_constant(value: ast.expr) -> bool:
    return all(
        isinstance(one, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.unaryop, ast.operator)) for one in ast.walk(value)
    )


def _is_of_names(target: ast.expr) -> bool:
    """Whether an assignment gives nothing but names values."""
    return all(isinstance(one, (ast.Name, ast.Tuple, ast.List, ast.expr_context)) for one in ast.walk(target))


def _names_of(target: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(target) if _is_stored(one)}


def _is_read(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _pairs(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What an assignment gives to what."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            return list(zip(targets, values, strict=True))
        case ast.Assign(targets=targets, value=value):
            return [(target, value) for target in targets]
    return []


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
