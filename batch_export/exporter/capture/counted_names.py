"""What names of a function stand for, as far as its source says, and which number counts the pieces of which length.

Arrives: a function's tree. Leaves: whether something is a size, or the length of a piece, that stays what it is in all
of the function; for a quotient that is rounded up the two numbers.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

_MOST = 4
"""How many names a number may stand behind."""


@dataclass(slots=True)
class Names:
    """What a function's names stand for.

    Attributes:
        stored: how often each is given a value.
        values: what they were given by `name = value`.
        sizes: those given by `_, name = x.shape`.
        parameters: the function's own.
        outside: how often each is read or given a value outside of loops that do so in their head.
    """

    stored: Counter[str] = field(default_factory=Counter)
    values: dict[str, ast.expr] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    outside: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, function: ast.FunctionDef) -> Names:
        """The names of a function and of those within it."""
        made = cls()
        inside: set[int] = set()
        for node in ast.walk(function):
            match node:
                case ast.Name(id=name, ctx=context):
                    made.stored[name] += not isinstance(context, ast.Load)
                    made.outside[name] += id(node) not in inside
                case (
                    ast.For(target=ast.Name(id=name)) | ast.ListComp(generators=[ast.comprehension(ast.Name(id=name))])
                ):
                    inside |= {id(one) for one in ast.walk(node) if isinstance(one, ast.Name) and one.id == name}
                case ast.arg(arg=name):
                    made.parameters.add(name)
                case ast.Global(names=names) | ast.Nonlocal(names=names):
                    made.stored.update({name: 2 for name in names})
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    made.values[name] = value
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    pairs = zip(names, values, strict=False) if len(names) == len(values) else ()
                    made.values.update({one.id: value for one, value in pairs if isinstance(one, ast.Name)})
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value) if _is_shape(value):
                    made.sizes.update(one.id for one in names if isinstance(one, ast.Name))
        return made

    def is_fixed(self, name: str) -> bool:
        """Whether a name has one value at most in all of the function."""
        return self.stored[name] + (name in self.parameters) <= 1

    def value(self, node: ast.expr) -> ast.expr:
        """What a name was given, once and for all; anything else itself."""
        for _ in range(_MOST):
            if not isinstance(node, ast.Name) or not self.is_fixed(node.id) or node.id not in self.values:
                break
            node = self.values[node.id]
        return node

    def is_size(self, node: ast.expr) -> bool:
        """Whether something is a whole number by its form, of names that stay what they are."""
        if isinstance(node, ast.Name) and node.id in self.sizes and self.is_fixed(node.id):
            return True
        if isinstance(node, ast.Name) and self.value(node) is node:
            return False
        match self.value(node):
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=of), attr="shape"), slice=place):
                return self.is_fixed(of) and ast.unparse(place).lstrip("-").isdigit()
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="size"), args=[_], keywords=[]):
                return self.is_fixed(of)
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=of)], keywords=[]):
                return self.is_fixed(of)
            case ast.Constant(value=int(number)):
                return not isinstance(number, bool)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right=right):
                return self.is_size(left) and self.is_size(right)
        return False

    def is_length(self, node: ast.expr) -> bool:
        """Whether something may be the length of a piece, which stays what it is: a number, a name, an attribute."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int and node.value > 1
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and self.is_fixed(node.id)

    def pieces(self, count: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        """What is cut, and how long a piece is, if a number counts the pieces; None of any other."""
        found = _quotient(self.value(count))
        if found is None or not self.is_size(found[0]) or not self.is_length(found[1]):
            return None
        return found


def _is_shape(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(), attr="shape"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="size"), args=[], keywords=[]):
            return True
    return False


def _quotient(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The two numbers of a quotient that is rounded up."""
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[inner], keywords=[]):
            return _quotient(inner)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="math" | "np" | "numpy"), attr="ceil") | ast.Name(id="ceil"),
            args=[ast.BinOp(left=whole, op=ast.Div(), right=length)],
            keywords=[],
        ):
            return whole, length
        case ast.UnaryOp(
            op=ast.USub(),
            operand=ast.BinOp(left=ast.UnaryOp(op=ast.USub(), operand=whole), op=ast.FloorDiv(), right=length),
        ):
            return whole, length
        case ast.BinOp(left=above, op=ast.FloorDiv(), right=length):
            return _without_rest(above, length)
        case ast.BinOp(
            left=ast.BinOp(
                left=ast.BinOp(left=whole, op=ast.Sub(), right=ast.Constant(value=1)), op=ast.FloorDiv(), right=length
            ),
            op=ast.Add(),
            right=ast.Constant(value=1),
        ):
            return whole, length
        case ast.BinOp(left=ast.BinOp(left=whole, op=ast.FloorDiv(), right=length), op=ast.Add(), right=rest):
            is_rest = ast.unparse(rest) in _rests(f"{ast.unparse(whole)} % {ast.unparse(length)}")
            return (whole, length) if is_rest else None
    return None


def _without_rest(above: ast.expr, length: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """`n` of `n + k - 1`."""
    text = ast.unparse(length)
    match above:
        case ast.BinOp(
            left=ast.BinOp(left=whole, op=ast.Add(), right=more), op=ast.Sub(), right=ast.Constant(value=1)
        ) if ast.unparse(more) == text:
            return whole, length
        case ast.BinOp(left=whole, op=ast.Add(), right=more) if ast.unparse(more) == f"{text} - 1":
            return whole, length
        case ast.BinOp(left=whole, op=ast.Add(), right=ast.Constant(value=int(number))):
            return (whole, length) if text == str(number + 1) else None
    return None


def _rests(rest: str) -> list[str]:
    """How it is written that something is left."""
    tests = f"{rest} > 0", f"{rest} != 0"
    asked = *tests, rest
    return [*tests, *(f"int({one})" for one in tests), f"bool({rest})", f"int(bool({rest}))"] + [
        f"1 if {one} else 0" for one in asked
    ]
