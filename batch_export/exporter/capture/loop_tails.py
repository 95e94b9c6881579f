"""Loops over pieces of one length of which the last may be shorter: `for i in range(0, n, k): x[:, i : i + k]`.

Arrives: a loop. Leaves: one over the whole pieces only, and behind it, where something is left, one more round of what
is left; `for piece in x.split(k, 1):` is such a loop, too. Loops stay whose pieces have no length of their own.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import TypeVar

from batch_export.exporter.capture.loop_choices import names_given
from batch_export.exporter.capture.loop_places import degree

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class TailedLoop:
    """A loop over whole pieces.

    Attributes:
        loop: the loop.
        left: the round that may be left, if there is one.
        plain: the same loop over all pieces, of that name.
        first: a name for what is split, where it has none.
    """

    loop: ast.For
    left: ast.If
    plain: ast.For
    first: ast.Assign | None = None

    @property
    def begun(self) -> list[ast.stmt]:
        """What stands in front of it."""
        return [] if self.first is None else [self.first]

    @classmethod
    def of(cls, loop: ast.For, number: int) -> TailedLoop | None:
        """A loop as one over whole pieces; None of any other.

        Args:
            loop: which stays as it is.
            number: tells the names apart.
        """
        named, first = _named(loop, number)
        split = _split(named, number)
        made = loop if split is None else split
        match made:
            case ast.For(
                target=ast.Name(id=step),
                iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=0), end, stride]),
                orelse=[],
            ) if _is_told(stride):
                pass
            case _:
                return None
        given = names_given(made.body)
        is_plain = degree(end, step) == 0 and not given & {step, *_names(end), *_names(stride)}
        windows = _Windows(step, ast.unparse(stride), ast.unparse(end))
        body = [windows.visit(copy.deepcopy(one)) for one in made.body]
        is_whole = ast.unparse(end).endswith(f"- {ast.unparse(stride)} + 1")
        if not is_plain or not windows.count or is_whole or ast.unparse(stride) == "1":
            return None
        whole = ast.parse(f"range(0, {ast.unparse(end)} - {ast.unparse(stride)} + 1, {ast.unparse(stride)})").body[0]
        assert isinstance(whole, ast.Expr)
        over = ast.For(made.target, _at(whole.value, loop.iter), body, [])
        none = "" if split is None else f" or not {ast.unparse(end)}"  # torch splits nothing into one empty piece
        text = f"if {ast.unparse(end)} % {ast.unparse(stride)}{none}:\n"
        text += f"    {step} = {ast.unparse(end)} // {ast.unparse(stride)} * {ast.unparse(stride)}\n"
        left = ast.parse(text).body[0]
        assert isinstance(left, ast.If)
        for one in (*left.body, left.test):
            _at(one, loop.iter)
        left.body += copy.deepcopy(made.body)
        ast.copy_location(left, loop)
        over = ast.fix_missing_locations(ast.copy_location(over, loop))
        is_named = split is not None and first is not None
        plain = ast.fix_missing_locations(named) if is_named else loop  # what is split is computed once
        return cls(over, ast.fix_missing_locations(left), plain, first if is_named else None)


def _named(loop: ast.For, number: int) -> tuple[ast.For, ast.Assign | None]:
    """A loop over the pieces of an expression as one over those of a name, and the name's assignment."""
    over = loop.iter
    if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Attribute) or over.func.attr != "split":
        return loop, None
    is_function = isinstance(over.func.value, ast.Name) and over.func.value.id == "torch"
    whole = (over.args[0] if over.args else over.func) if is_function else over.func.value
    if isinstance(whole, ast.Name):
        return loop, None
    name = ast.copy_location(ast.Name(f"_whole_{number}_", ast.Load()), whole)
    if is_function:
        call = ast.Call(over.func, [name, *over.args[1:]], over.keywords)
    else:
        call = ast.Call(
            ast.copy_location(ast.Attribute(name, "split", ast.Load()), over.func), over.args, over.keywords
        )
    made = ast.copy_location(ast.For(loop.target, ast.copy_location(call, over), loop.body, loop.orelse), loop)
    first = ast.Assign([ast.Name(name.id, ast.Store())], whole)
    return made, ast.fix_missing_locations(ast.copy_location(first, loop.iter))


def _split(loop: ast.For, number: int) -> ast.For | None:
    """`for piece in x.split(k, axis):` over the places at which the pieces begin."""
    match loop:
        case ast.For(
            target=ast.Name(id=piece),
            iter=ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="split"), args=[whole, *given]) as call,
            orelse=[],
        ):
            pass
        case ast.For(
            target=ast.Name(id=piece),
            iter=ast.Call(func=ast.Attribute(value=whole, attr="split"), args=given) as call,
            orelse=[],
        ):
            pass
        case _:
            return None
    told = {one.arg: one.value for one in call.keywords}
    names = ("split_size", "split_size_or_sections")
    length = given[0] if given else next((told[name] for name in names if name in told), None)
    axis = given[1] if len(given) > 1 else told.get("dim", ast.Constant(0))
    axes = ast.unparse(axis)
    if not isinstance(whole, ast.Name) or length is None or not _is_told(length) or len(given) > 2:
        return None
    if not axes.lstrip("-").isdigit() or told.keys() - {*names, "dim"} or whole.id in names_given(loop.body):
        return None
    step, size = f"_piece_at_{number}_", ast.unparse(length)
    at = ", ".join([":"] * int(axes)) if int(axes) >= 0 else "..."
    behind = "".join([", :"] * (-1 - int(axes))) if int(axes) < 0 else ""
    index = f"{at + ', ' if at else ''}{step}:{step} + {size}{behind}"
    first = ast.parse(f"{piece} = {whole.id}[{index}]").body[0]
    over = ast.parse(f"range(0, {whole.id}.shape[{axes}], {size})", mode="eval").body
    made = ast.For(ast.Name(step, ast.Store()), _at(over, loop.iter), [_at(first, loop.iter), *loop.body], [])
    return ast.fix_missing_locations(ast.copy_location(made, loop))


@dataclass(slots=True)
class _Windows(ast.NodeTransformer):
    """Counts the pieces in a round, and lets them end where whole ones do."""

    step: str
    stride: str
    end: str
    count: int = 0
    _named: set[str] = field(default_factory=set)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A name for a piece's end."""
        match node:
            case ast.Assign([ast.Name(id=name)], value) if self._is_end(value):
                self._named.add(name)
                node.value = self._whole(value)
                return node
        return self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        """A piece."""
        match node:
            case ast.Slice(lower=ast.Name(id=step), upper=ast.expr() as upper, step=None) if step == self.step:
                is_named = isinstance(upper, ast.Name) and upper.id in self._named
                if is_named or self._is_end(upper):
                    self.count += 1
                    node.upper = self._whole(upper)
        return self.generic_visit(node)

    def _whole(self, upper: ast.expr) -> ast.expr:
        return _at(ast.parse(f"{self.step} + {self.stride}", mode="eval").body, upper)

    def _is_end(self, upper: ast.expr) -> bool:
        plain = f"{self.step} + {self.stride}", f"{self.stride} + {self.step}"
        bounded = [f"min({one}, {two})" for each in plain for one, two in ((each, self.end), (self.end, each))]
        return ast.unparse(upper) in (*plain, *bounded)


def _is_told(length: ast.expr) -> bool:
    """Whether a length is a number, a name or an attribute (`self.size`), of which there is no more to be computed."""
    while isinstance(length, ast.Attribute):
        length = length.value
    return isinstance(length, (ast.Constant, ast.Name))


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _at(made: Node, where: ast.AST) -> Node:
    """New code at a place of the old one."""
    for one in ast.walk(made):
        ast.copy_location(one, where)
    return made
