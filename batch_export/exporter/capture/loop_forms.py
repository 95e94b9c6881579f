"""Loops over a size in other words: `while t < n:` with a counter, and tensors that grow by `torch.cat` in each round.

Arrives: a loop. Leaves: the same as a `for` over `range` whose rounds append to lists, what stands in front of it and
behind it then, and the loop as it was, for where it is not run so.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from batch_export.exporter.capture import loop_guarded_reads
from batch_export.exporter.capture.counted_pieces import for_of
from batch_export.exporter.capture.loop_breaks import over_fewer
from batch_export.exporter.capture.loop_choices import names_given
from batch_export.exporter.capture.loop_places import degree
from batch_export.exporter.capture.loop_simple_forms import simplified
from batch_export.exporter.capture.loop_tails import TailedLoop

JOINED, FINAL, NEW = "__joined_behind_a_loop__", "__count_behind_a_loop__", "__new_list_of_a_loop__"
"""What the new code calls: a tensor that has grown, a counter behind its loop, a list in the place of an empty one."""
_JOINING = frozenset(("cat", "concat", "concatenate"))


@dataclass(frozen=True, slots=True)
class LoopForm:
    """A loop as one that is followed.

    Attributes:
        loop: the loop over its steps.
        plain: what is run where it is not followed.
        counted: what stands in front of its steps, which go by it.
        begun: what stands in front of it.
        behind: what stands behind it.
        named: names that go on by what stands behind it.
        numbers: those of them that have to be numbers.
        written: names of tensors that rounds write to by a method, which go on, too.
        is_shorter: whether it goes over less than `plain`.
    """

    loop: ast.For
    plain: ast.For | ast.While
    counted: Sequence[ast.stmt] = ()
    begun: Sequence[ast.stmt] = ()
    behind: Sequence[ast.stmt] = ()
    named: frozenset[str] = frozenset()
    numbers: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()
    is_shorter: bool = False

    @classmethod
    def of(cls, statement: ast.stmt, number: int) -> LoopForm | None:
        """A loop's form; None of what is no loop over steps.

        Args:
            statement: which stays as it is.
            number: tells the names apart.
        """
        if not isinstance(statement, (ast.For, ast.While)):
            return None
        own = loop_guarded_reads.without_looks(statement)
        if isinstance(own, ast.While):
            form = _counted(own, number)
        else:
            simple = simplified(own)
            fewer = over_fewer(simple)
            form = cls(fewer or simple, own, is_shorter=fewer is not None)
        return None if form is None else replace(form, plain=statement).followed(number)

    @classmethod
    def of_listed(cls, loop: ast.For, number: int) -> LoopForm:
        """The form of a loop that stands for a comprehension.

        Args:
            loop: the loop.
            number: tells the names apart.
        """
        tailed = TailedLoop.of(loop, number)
        if tailed is None:
            return cls(loop, loop)
        return cls(tailed.loop, tailed.plain, counted=tailed.begun, behind=[tailed.left], is_shorter=True)

    def followed(self, number: int) -> LoopForm:
        """The form without what no round does: counts, writes by a method, lists in dicts, tensors that grow.

        Args:
            number: tells the names apart.
        """
        tailed = TailedLoop.of(self.loop, number)
        form = self
        if tailed is not None:
            plain = tailed.plain if tailed.begun else self.plain
            form = replace(self, loop=tailed.loop, plain=plain, counted=tailed.begun, is_shorter=True)
        made = _grown(_listed(_in_place(_without_counts(form, number)), number), number)
        return made if tailed is None else replace(made, behind=[*made.behind, tailed.left])


def _counted(loop: ast.While, number: int) -> LoopForm | None:
    """`while t < n: ...; t += 1` over `range(t, n)`; None of other tests, and of counters that go otherwise."""
    if (pieces := for_of(loop)) is not None:
        return LoopForm(pieces, loop, named=frozenset(names_given([pieces]) & names_given(loop.body[-1:])))
    match loop.body[-1] if len(loop.body) > 1 and not loop.orelse else None:
        case ast.AugAssign(ast.Name(id=step), ast.Add(), ast.Constant(value=int(stride))) if stride > 0:
            pass
        case ast.Assign(
            [ast.Name(id=step)],
            ast.BinOp(ast.Name(id=again), ast.Add(), ast.Constant(value=int(stride))),
        ) if stride > 0 and again == step:
            pass
        case _:
            return None
    end = _end(loop.test, step)
    stored = names_given(loop.body[:-1])
    if end is None or stored & {step, *_names(end)}:
        return None
    steps = f"range({step}, {ast.unparse(end)}, {stride})"
    made = ast.For(ast.Name(step, ast.Store()), ast.parse(steps, mode="eval").body, loop.body[:-1], [])
    ast.fix_missing_locations(ast.copy_location(made, loop))
    for one in ast.walk(made.iter):
        ast.copy_location(one, loop.test)
    behind = ast.parse(f"{step} = {FINAL}(__steps_{number}__, {step}, {stride})").body
    return LoopForm(made, loop, behind=behind, named=frozenset({step}))


def _end(test: ast.expr, step: str) -> ast.expr | None:
    """What a counter stays below; None where the test is another one."""
    match test:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as operator], comparators=[right]):
            pass
        case ast.Compare(left=right, ops=[ast.Gt() | ast.GtE() as operator], comparators=[left]):
            pass
        case _:
            return None
    if degree(left, step) != 1 or degree(right, step) != 0:
        return None
    match left:
        case ast.Name():
            end = right
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=more) if name == step:
            end = ast.BinOp(right, ast.Sub(), more)
        case _:
            return None
    return end if isinstance(operator, (ast.Lt, ast.Gt)) else ast.BinOp(end, ast.Add(), ast.Constant(1))


def _without_counts(form: LoopForm, number: int) -> LoopForm:
    """A form without counters (`n += 1`) that no round reads: they are known behind the loop."""
    body, behind, names = [], [*form.behind], []
    for statement in form.loop.body:
        count = _count(statement)
        uses = sum(one.id == count[0] for one in ast.walk(form.loop) if isinstance(one, ast.Name)) if count else 0
        if count is None or uses > 2 - isinstance(statement, ast.AugAssign):
            body.append(statement)
            continue
        behind += ast.parse(f"{count[0]} = {FINAL}(__steps_{number}__, {count[0]}, {ast.unparse(count[1])})").body
        names.append(count[0])
    if not names or not body:
        return form
    loop = ast.copy_location(ast.For(form.loop.target, form.loop.iter, body, form.loop.orelse), form.loop)
    return replace(form, loop=loop, behind=behind, named=form.named.union(names), numbers=(*form.numbers, *names))


def _count(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """The name of a counter, and what is added to it."""
    match statement:
        case ast.AugAssign(ast.Name(id=name), ast.Add() | ast.Sub() as operator, ast.Constant(value=int()) as added):
            pass
        case ast.Assign(
            [ast.Name(id=name)],
            ast.BinOp(ast.Name(id=again), ast.Add() | ast.Sub() as operator, ast.Constant(value=int()) as added),
        ) if again == name:
            pass
        case _:
            return None
    return name, added if isinstance(operator, ast.Add) else ast.UnaryOp(ast.USub(), added)


_METHODS: dict[str, type[ast.operator]] = {"add_": ast.Add, "sub_": ast.Sub, "mul_": ast.Mult, "div_": ast.Div}


def _in_place(form: LoopForm) -> LoopForm:
    """A form with `h *= a; h += x` in place of `h.mul_(a).add_(x)`."""
    body: list[ast.stmt] = []
    names: set[str] = set()
    for statement in form.loop.body:
        calls, of = [], statement.value if isinstance(statement, ast.Expr) else None
        while isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr in _METHODS:
            calls.append((of.func.attr, of.args, of.keywords))
            of = of.func.value
        if not calls or not isinstance(of, ast.Name) or any(len(args) != 1 or told for _, args, told in calls):
            body.append(statement)
            continue
        for attr, (value,), _ in reversed(calls):
            made = ast.AugAssign(ast.Name(of.id, ast.Store()), _METHODS[attr](), value)
            body.append(ast.fix_missing_locations(ast.copy_location(made, statement)))
        names.add(of.id)
    if not names:
        return form
    loop = ast.copy_location(ast.For(form.loop.target, form.loop.iter, body, form.loop.orelse), form.loop)
    own = names_given(form.loop.body)
    return replace(form, loop=loop, written=frozenset(names - own))


def _listed(form: LoopForm, number: int) -> LoopForm:
    """A form with names for lists in a dict (`found["h"].append(h)`)."""
    body, begun, behind = [], [*form.begun], [*form.behind]
    known: dict[str, str] = {}
    for statement in form.loop.body:
        match statement:
            case ast.Expr(
                ast.Call(
                    func=ast.Attribute(
                        value=ast.Subscript(value=ast.Name(id=of), slice=ast.Constant(value=str(key))) as place,
                        attr="append",
                    ),
                    args=[_],
                    keywords=[],
                )
            ):
                pass
            case _:
                body.append(statement)
                continue
        if sum(one.id == of for one in ast.walk(form.loop) if isinstance(one, ast.Name)) > sum(
            isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name) and one.value.id == of
            for each in form.loop.body
            for one in ast.walk(each)
            if _is_append(each)
        ):
            return form
        text = ast.unparse(place)
        if text not in known:
            known[text] = f"__listed_{number}_{len(known)}__"
            begun += ast.parse(f"{known[text]} = {NEW}({of}, {key!r})").body
            behind += ast.parse(f"{text} = {known[text]}").body
        made = copy.deepcopy(statement)
        assert isinstance(made.value, ast.Call)
        assert isinstance(made.value.func, ast.Attribute)
        made.value.func.value = ast.copy_location(ast.Name(known[text], ast.Load()), place)
        body.append(made)
    if not known:
        return form
    loop = ast.copy_location(ast.For(form.loop.target, form.loop.iter, body, form.loop.orelse), form.loop)
    return replace(form, loop=loop, begun=begun, behind=behind)


def _is_append(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Subscript(value=ast.Name()), attr="append"))):
            return True
    return False


def _grown(form: LoopForm, number: int) -> LoopForm:
    """A form in which tensors that grow are lists, joined behind the loop."""
    found = [(place, grown) for place, one in enumerate(form.loop.body) if (grown := _growing(one)) is not None]
    names = [name for _, (name, _, _) in found]
    counts = [sum(one.id == name for one in ast.walk(form.loop) if isinstance(one, ast.Name)) for name in names]
    begun, behind, body = [*form.begun], [*form.behind], [*form.loop.body]
    joined: set[str] = set()
    for (place, (name, element, dim)), count in zip(found, counts, strict=True):
        own = sum(one.id == name for one in ast.walk(form.loop.body[place]) if isinstance(one, ast.Name))
        if count > own or name in _names(element):
            continue
        listed = f"__grown_{number}_{place}__"
        append = ast.parse(f"{listed}.append(0)").body[0]
        assert isinstance(append, ast.Expr)
        assert isinstance(append.value, ast.Call)
        append.value.args = [copy.deepcopy(element)]
        body[place] = ast.fix_missing_locations(ast.copy_location(append, form.loop.body[place]))
        begun += ast.parse(f"{listed} = []").body
        begin = f"try:\n    {listed}begun = {name}\nexcept NameError:\n    {listed}begun = None"
        behind += ast.parse(f"{begin}\n{name} = {JOINED}({listed}begun, {listed}, {ast.unparse(dim)})").body
        joined.add(name)
    if not joined:
        return form
    loop = ast.copy_location(ast.For(form.loop.target, form.loop.iter, body, form.loop.orelse), form.loop)
    return replace(form, loop=loop, begun=begun, behind=behind, named=form.named | joined)


def _growing(statement: ast.stmt) -> tuple[str, ast.expr, ast.expr] | None:
    """The name, the part and the axis of `out = torch.cat([out, part], axis)`, also where it may begin as None."""
    match statement:
        case ast.Assign([ast.Name(id=name)], ast.Call() as call):
            return _joining(name, call)
        case ast.Assign([ast.Name(id=name)], ast.IfExp(test, first, ast.Call() as call)) if _is_none(test, name):
            found = _joining(name, call)
            return found if found is not None and ast.dump(found[1]) == ast.dump(first) else None
        case ast.If(
            test, [ast.Assign([ast.Name(id=name)], first)], [ast.Assign([ast.Name(id=again)], ast.Call() as c)]
        ):
            found = _joining(name, c) if again == name and _is_none(test, name) else None
            return found if found is not None and ast.dump(found[1]) == ast.dump(first) else None
    return None


def _joining(name: str, call: ast.Call) -> tuple[str, ast.expr, ast.expr] | None:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(), attr=attr),
            args=[ast.List(elts=[ast.Name(id=of), part]) | ast.Tuple(elts=[ast.Name(id=of), part]), *others],
            keywords=keywords,
        ) if attr in _JOINING and of == name and not isinstance(part, ast.Starred):
            told = [*others, *(one.value for one in keywords if one.arg in ("dim", "axis"))]
            if len(told) > 1 or len(others) + len(keywords) != len(told):
                return None
            dim = told[0] if told else ast.Constant(0)
            return (name, part, dim) if degree(dim, "") == 0 else None
    return None


def _is_none(test: ast.expr, name: str) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id=of), ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return of == name
    return False


def _names(node: ast.AST) -> Collection[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
