"""Questions on sizes (`n % 4`, `h < 10 or w < 10`), as a model's source asks them and as numbers.

Arrives: what an `if` asks, as a tree, or the sizes that are compared. Leaves: the comparisons of which it consists, and
1 or 0 for the answer of one. Nothing is run.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

_ARITHMETIC = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Starred),
    *(ast.operator, ast.unaryop, ast.expr_context),
)
"""What is worked out once more, or in vain."""
_PURE = ("abs", "max", "min")
"""What may be called meanwhile."""
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_RELATIONS: Mapping[type[Any], type[ast.cmpop]] = {
    sympy.Eq: ast.Eq,
    sympy.Ne: ast.NotEq,
    sympy.StrictLessThan: ast.Lt,
    sympy.LessThan: ast.LtE,
    sympy.StrictGreaterThan: ast.Gt,
    sympy.GreaterThan: ast.GtE,
}
KINDS = {one.__name__: one for one in _COMPARE}
"""Comparisons by name."""
NOT = "Not"
"""Stands for a comparison where what is asked is whether a number is 0."""
_OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.NotEq: ast.Eq,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,
}


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison of sizes.

    Attributes:
        left: what is compared.
        kind: how, as Python's grammar calls it.
        right: with what.
    """

    left: int | torch.SymInt
    kind: type[ast.cmpop]
    right: int | torch.SymInt

    @property
    def holds(self) -> bool | torch.SymBool:
        """The answer."""
        answer: bool | torch.SymBool = _COMPARE[self.kind](self.left, self.right)
        return answer

    @property
    def as_number(self) -> int | torch.SymInt:
        """1 where it holds, else 0."""
        more, less = self.left - self.right, self.right - self.left
        if self.kind in (ast.Eq, ast.NotEq):
            differ = _one_of(torch.sym_max(more, less))
            return differ if self.kind is ast.NotEq else 1 - differ
        count = more if self.kind in (ast.Gt, ast.GtE) else less
        return _one_of(count + 1 if self.kind in (ast.GtE, ast.LtE) else count)


def asked_of(test: ast.expr) -> tuple[ast.expr, ...]:
    """The comparisons, or numbers, of which any is enough; nothing where it asks something else."""
    is_any = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    asked = tuple(test.values) if is_any else (test,)  # type: ignore[attr-defined]
    return asked if all(map(_is_question, asked)) else ()


def without_names(test: ast.expr) -> ast.expr:
    """What is asked behind names that are given there (`(missing := n - m) > 0`), once they are: `missing > 0`.

    A name that may be given or not (`n > 2 and (missing := n - m)`) stays as it is.
    """
    match test:
        case ast.NamedExpr(target=ast.Name(id=name)):
            return ast.copy_location(ast.Name(name, ast.Load()), test)
        case ast.Compare(left=left, ops=[_], comparators=[right]):
            sides = without_names(left), without_names(right)
            return ast.copy_location(ast.Compare(sides[0], test.ops, [sides[1]]), test)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return ast.copy_location(ast.UnaryOp(ast.Not(), without_names(inner)), test)
    return test


def any_of(test: ast.expr) -> tuple[tuple[ast.expr, ...], bool]:
    """What an `if` asks as several comparisons or numbers, and whether it is so where any of them holds, or where none.

    `a and b` holds where neither the opposite of a nor that of b does, `4 < n < 9` likewise. A number under `not` is
    the question whether it is 0. There are no comparisons where it asks something else.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            asked, answer = any_of(inner)
            return asked, not answer
        case ast.BoolOp(op=kind, values=values):
            parts = [_towards(*any_of(one), answer=isinstance(kind, ast.Or)) for one in values]
            return (tuple(each for one in parts for each in one) if all(parts) else ()), isinstance(kind, ast.Or)
        case ast.Compare(left=left, ops=[_, _, *_] as kinds, comparators=others):
            sides = zip([left, *others], kinds, others, strict=False)
            return any_of(ast.BoolOp(ast.And(), [ast.Compare(one, [kind], [other]) for one, kind, other in sides]))
    return ((test,) if _is_question(test) else ()), True


def _towards(asked: tuple[ast.expr, ...], own: bool, *, answer: bool) -> tuple[ast.expr, ...]:
    """Comparisons of which any holds where the given ones have their answer, or, of `answer` False, have it not."""
    if own == answer:
        return asked
    return (_opposite(asked[0]),) if len(asked) == 1 else ()


def _opposite(asked: ast.expr) -> ast.expr:
    match asked:
        case ast.Compare(left=left, ops=[kind], comparators=[right]):
            return ast.Compare(left, [_OPPOSITE[type(kind)]()], [right])
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return inner
    return ast.UnaryOp(ast.Not(), asked)


def asked_sizes(questions: Sequence[tuple[Any, str, Any]]) -> bool | list[Question]:
    """What several questions ask of free sizes, or the answer where that is the same at all of them: any is enough.

    Args:
        questions: what is compared, how (a name of `KINDS`, nothing for a number by itself, or `NOT`), and with what.
    """
    asked: list[Question] = []
    for left, kind, right in questions:
        question = _question(left, kind, right)
        if not all(type(side) in (int, torch.SymInt) for side in (question.left, question.right)):
            if (not left) if kind == NOT else question.holds if kind else left:
                return True
        elif not isinstance(question.holds, torch.SymBool):
            if question.holds:
                return True
        else:
            asked.append(question)
    if any(free_unbacked_symbols(one.holds) for one in asked):  # decided by data
        return any(one.holds for one in asked)
    return asked or False


def _question(left: Any, kind: str, right: Any) -> Question:
    named = named_question(left) if kind in ("", NOT) else None
    if named is not None:
        return Question(named.left, _OPPOSITE[named.kind], named.right) if kind == NOT else named
    return Question(left, ast.Eq if kind == NOT else KINDS.get(kind, ast.NotEq), right)


def named_question(answer: Any) -> Question | None:
    """The comparison of sizes that a name stands for (`odd = n % 2 == 1`)."""
    compared = answer.node.expr if isinstance(answer, torch.SymBool) else None
    kind = _RELATIONS.get(type(compared))
    if compared is None or kind is None:
        return None
    env = answer.node.shape_env
    left, right = (env.create_symintnode(one, hint=None) for one in compared.args)  # which it works out
    return Question(left, kind, right)


def is_arithmetic(written: ast.expr) -> bool:
    """Whether an expression reads and computes, and calls nothing but the larger and smaller number and `x.size(1)`."""
    return all(isinstance(one, _ARITHMETIC) or _is_pure(one) for one in ast.walk(written))


def _is_pure(call: ast.AST) -> bool:
    is_call = isinstance(call, ast.Call) and not call.keywords
    is_named = is_call and isinstance(call.func, ast.Name) and call.func.id in _PURE  # type: ignore[attr-defined]
    return is_named or is_size(call)


def is_size(call: ast.AST) -> bool:
    """Whether a call reads `x.size(1)` or `x.size()`."""
    match call:
        case ast.Call(func=ast.Attribute(attr="size"), args=[] | [_], keywords=[]):
            return True
    return False


def _is_question(asked: ast.expr) -> bool:
    if isinstance(asked, ast.Compare):
        is_one = len(asked.ops) == 1 and isinstance(asked.ops[0], tuple(_COMPARE))
        return is_one and is_arithmetic(asked.left) and is_arithmetic(asked.comparators[0])
    return is_arithmetic(asked)


def _one_of(count: int | torch.SymInt) -> int | torch.SymInt:
    """1 for numbers above 0, else 0."""
    found: int | torch.SymInt = torch.sym_min(torch.sym_max(count, 0), 1)
    return found
