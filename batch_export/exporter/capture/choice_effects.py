"""What the sides of a small `if` do besides giving names values: `out.append(x)` on both, `out[i] = x` on either.

Arrives: an `if`. Leaves: one that gives names of its own those values, with what stands in front of it and behind it.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

PART, AS_PART = "__part_in_a_choice__", "__as_part_in_a_choice__"
"""What the new code calls: an element, or a slice, as it is now, and a value as it would stand there."""


@dataclass(frozen=True, slots=True)
class Effects:
    """An `if` without such statements.

    Attributes:
        node: the `if`.
        names: the names that it gives values for them.
        begun: those of them that have values in front of it.
        containers: names of what is written to.
        before: statements in front of it.
        behind: statements behind it.
    """

    node: ast.If
    names: frozenset[str]
    begun: frozenset[str]
    containers: frozenset[str]
    before: Sequence[ast.stmt]
    behind: Sequence[ast.stmt]

    @classmethod
    def of(cls, node: ast.If) -> Effects:
        """Those of an `if`; what is no such effect stays in it."""
        sides, leaves = (node.body, node.orelse), [*_leaves(node)]
        lists = Counter(name for one in leaves if (name := _appended(one)))
        joined = {name for name in lists if _is_joined(sides, name) and _mentions(node, name) == lists[name]}
        parts: dict[str, tuple[str, ast.expr]] = {}
        for one in filter(_is_part, leaves):
            (target,) = one.targets  # type: ignore[attr-defined]
            if _is_written_once(node, leaves, target):
                parts.setdefault(ast.unparse(target), (f"__part_{len(parts)}__", target))
        made = ast.If(node.test, *([_computed(one, joined, parts) for one in side] for side in sides))
        before = [_line(f"{name} = {PART}({text}{_places(target)})") for text, (name, target) in parts.items()]
        behind = [_line(f"{text} = {name}") for text, (name, _) in parts.items()]
        behind += [_line(f"{name}.append({_element(name)})") for name in sorted(joined)]
        begun = frozenset(name for name, _ in parts.values())
        own = frozenset(
            one.id for _, target in parts.values() for one in ast.walk(target) if _is_stored_into(one, target)
        )
        return cls(ast.copy_location(made, node), begun | {*map(_element, joined)}, begun, own | joined, before, behind)


def _appended(node: ast.stmt) -> str:
    """The name of a list that gets an element."""
    match node:
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[_], keywords=[])):
            return name
    return ""


def _element(name: str) -> str:
    return f"__element_of_{name}__"


def _is_part(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name())]):
            return True
    return False


def _leaves(node: ast.If) -> Iterator[ast.stmt]:
    """The statements of an `if` and of those within it."""
    for one in (*node.body, *node.orelse):
        yield from _leaves(one) if isinstance(one, ast.If) else (one,)


def _is_joined(sides: Iterable[Sequence[ast.stmt]], name: str) -> bool:
    """Whether a list gets one element whichever way is taken."""
    for side in sides:
        count = sum(_appended(one) == name for one in side)
        within = [one for one in side if isinstance(one, ast.If) and _mentions(one, name)]
        if count + len(within) != 1 or not all(_is_joined((one.body, one.orelse), name) for one in within):
            return False
    return True


def _mentions(node: ast.AST, name: str) -> int:
    return sum(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


def _is_written_once(node: ast.If, leaves: Sequence[ast.stmt], target: ast.Subscript) -> bool:
    """Whether what is written to is mentioned by writes at one place alone, and read by no statement behind one."""
    assert isinstance(target.value, ast.Name)
    name, text = target.value.id, ast.unparse(target)
    own = [one for one in leaves if _mentions(one, name)]
    if any(not _is_part(one) or ast.unparse(one.targets[0]) != text for one in own):  # type: ignore[attr-defined]
        return False
    is_read = any(_mentions(one, name) > 1 for one in own)
    if is_read and any(sum(one in own for one in side) > 1 for side in (node.body, node.orelse)):
        return False
    if is_read and any(one not in (*node.body, *node.orelse) for one in own):
        return False
    places = {one.id for one in ast.walk(target.slice) if isinstance(one, ast.Name)}
    stored = {one.id for each in leaves for one in ast.walk(each) if _is_stored(one)}
    tests = [one.test for one in ast.walk(node) if isinstance(one, ast.If)]
    return not places & stored and not any(_mentions(one, name) for one in tests)


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _places(target: ast.expr) -> str:
    """The names in an index, as further arguments."""
    assert isinstance(target, ast.Subscript)
    names = {one.id: None for one in ast.walk(target.slice) if isinstance(one, ast.Name)}
    return "".join(f", {name}" for name in names)


def _is_stored_into(node: ast.AST, target: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(target, ast.Subscript) and node is target.value


def _computed(statement: ast.stmt, joined: set[str], parts: dict[str, tuple[str, ast.expr]]) -> ast.stmt:
    made = statement
    if isinstance(statement, ast.If):
        sides = ([_computed(one, joined, parts) for one in side] for side in (statement.body, statement.orelse))
        made = ast.If(statement.test, *sides)
    elif (name := _appended(statement)) in joined:
        value = statement.value.args[0]  # type: ignore[attr-defined]
        made = ast.Assign([ast.Name(_element(name), ast.Store())], copy.deepcopy(value))
    elif _is_part(statement) and (text := ast.unparse(statement.targets[0])) in parts:  # type: ignore[attr-defined]
        own, target = parts[text]
        given = [copy.deepcopy(target.value), ast.Name(own, ast.Load()), copy.deepcopy(statement.value)]  # type: ignore[attr-defined]
        made = ast.Assign([ast.Name(own, ast.Store())], ast.Call(ast.Name(AS_PART, ast.Load()), given, []))
    return made if made is statement else ast.fix_missing_locations(ast.copy_location(made, statement))


def _line(text: str) -> ast.stmt:
    return ast.parse(text).body[0]
