"""Where a number may be a tensor, because data choose between two: what is done with it gives the same of both.

Arrives: a function and a name. Leaves: whether all uses of it, and of names that it is handed on to, do. Powers of
whole tensors are whole, where Python's may be fractions, a sum of two truth values is none, and code elsewhere may do
anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

_COMPUTING = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_MODULES = frozenset(("torch", "F", "functional", "math"))
_KEEPING = frozenset(("abs", "max", "min", "round", "sum"))
"""Functions that give a tensor of a tensor."""
_ASKING = frozenset(("bool", "float", "int", "range"))
"""Those that ask a tensor for its number."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of a function's names.

    Attributes:
        function: the function.
        parents: by a node's identity what it is a part of.
    """

    function: ast.FunctionDef
    parents: dict[int, ast.AST]

    @classmethod
    def of(cls, function: ast.FunctionDef) -> Uses:
        """Those of a function and of those within it."""
        pairs = ((one, parent) for parent in ast.walk(function) for one in ast.iter_child_nodes(parent))
        return cls(function, {id(one): parent for one, parent in pairs})

    def kinds_of(self, name: str) -> tuple[str, ...]:
        """The kinds of numbers in whose place the name may be a tensor."""
        kinds = {
            "int": self.are_of_numbers(name, whole=True),
            "float": self.are_of_numbers(name, whole=False),
            "bool": self.are_of_answers(name),
        }
        return tuple(kind for kind, may_be in kinds.items() if may_be)

    def are_of_numbers(self, name: str, *, whole: bool) -> bool:
        """Whether whatever is done with a number may be done with a tensor of it.

        Args:
            name: its name.
            whole: whether it is a whole one, of which a tensor times a fraction has fewer digits.
        """
        return all(self._is_of_number(one, whole) for one in self._reads(name))

    def are_of_answers(self, name: str, asked: frozenset[str] = frozenset()) -> bool:
        """Whether a truth value is only asked for, or returned.

        Args:
            name: its name.
            asked: names that have its value, of which that is being found out.
        """
        return all(self._is_of_answer(one, asked | {name}) for one in self._reads(name))

    def _reads(self, name: str) -> Iterator[ast.Name]:
        """The uses of a name, and of names that have its value."""
        names, known = [name], {name}
        for one in names:
            for node in ast.walk(self.function):
                if isinstance(node, ast.Name) and node.id == one and isinstance(node.ctx, ast.Load):
                    yield node
                for target, value in _pairs(node):
                    if self._hands_on(value, known):
                        given = [each.id for each in ast.walk(target) if _is_stored(each)]
                        names += [each for each in given if each not in known]
                        known.update(given)

    @staticmethod
    def _hands_on(value: ast.expr, known: set[str]) -> bool:
        """Whether a value is a name's, or arithmetic of such and of numbers, also beside others in a tuple."""
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        plain = (ast.Name, ast.Constant, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.operator, ast.unaryop, ast.expr_context)
        for one in values:
            parts = [*ast.walk(one.body), *ast.walk(one.orelse)] if isinstance(one, ast.IfExp) else [*ast.walk(one)]
            is_plain = all(isinstance(part, plain) for part in parts)
            if is_plain and any(isinstance(part, ast.Name) and part.id in known for part in parts):
                return True
        return False

    def _is_of_number(self, node: ast.AST, whole: bool) -> bool:
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
                    return is_order and self._is_of_answer(parent)
                case ast.Subscript(value=value):
                    return node is not value
                case _:
                    return isinstance(
                        parent,
                        (ast.Assign, ast.AugAssign, ast.Return, ast.Slice, ast.BoolOp, ast.If, ast.While, ast.UnaryOp),
                    )
            node = parent

    def _is_of_answer(self, node: ast.AST, asked: frozenset[str] = frozenset()) -> bool:
        while True:
            parent = self.parents[id(node)]
            match parent:
                case ast.If() | ast.While() | ast.Return():
                    return True
                case ast.IfExp(test=test):
                    return node is test
                case ast.Assign(targets=[ast.Name(id=name)]):
                    return name in asked or self.are_of_answers(name, asked)
                case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                    pass
                case ast.Tuple():
                    return isinstance(self.parents[id(parent)], ast.Return)
                case _:
                    return False
            node = parent


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
