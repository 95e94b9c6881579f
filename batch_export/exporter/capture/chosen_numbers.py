"""Numbers chosen by a condition on sizes (`pad = 8 - n % 8 if n % 8 else 0`), which stay functions of them.

Arrives: lines of a model, or nothing; a context is opened round a capture. Leaves: a capture in which an `if` takes no
side where it does nothing but give numbers to names: both numbers are worked out, and one of them is chosen by
arithmetic (`number_choice.py`). So is the length of a tensor that it crops or joins something to (`chosen_parts.py`).
What is no whole number is decided as before.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from batch_export.exporter.capture import choice_calls, chosen_pads, chosen_parts, decided_lines, named_questions
from batch_export.exporter.capture.own_names import may_reach
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.rewritten_code import rewritten
from batch_export.exporter.capture.size_questions import NOT, any_of, asked_of, is_arithmetic, without_names

_ASKED = "__asked_of_sizes_"
"""How what it asks is named, with the line behind it."""
_DENIED = "__denied_of_sizes_"
"""The same where none of it may hold."""


def any_choice(places: Iterable[str]) -> bool:
    """Returns whether some of several places (`file:line`) do nothing but choose numbers."""
    return decided_lines.any_of(places, _lines)


@contextlib.contextmanager
def numbers_chosen(module: torch.nn.Module, places: Iterable[str]) -> Iterator[None]:
    """Within, such lines of a model's functions choose by arithmetic, and leave no guard.

    Args:
        module: the model.
        places: the lines.
    """
    changed = decided_lines.written_anew(module, places, _lines, _written_anew)
    with rewritten(changed, choice_calls.CALLED):
        yield


def _written_anew(function: ast.FunctionDef, lines: set[int]) -> ast.FunctionDef | None:
    """A function that chooses numbers by arithmetic at some lines; None where there is nothing of that."""
    choices, function = _Choices(lines), copy.deepcopy(function)
    named_questions.put_in_place(function)
    changed: ast.FunctionDef = choices.visit(function)
    return changed if choices.lines else None


@functools.lru_cache(maxsize=16)
def _lines(file: str) -> frozenset[int]:
    tree = parsed(file)
    choices = _Choices()
    if tree is not None:
        tree = copy.deepcopy(tree)
        named_questions.put_in_place(tree)
        choices.visit(tree)
    return frozenset(choices.lines)


@dataclass(slots=True)
class _Choices(ast.NodeTransformer):
    """Writes such choices as calls.

    Attributes:
        only: the lines at which it does; None for all.
        functions: those in which what is visited is, the innermost one last.
        lines: of what is asked there.
    """

    only: set[int] | None = None
    functions: list[ast.FunctionDef] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`a if question else b`."""
        self.generic_visit(node)
        asked, answer = self._asked(node)
        then, otherwise = (node.body, node.orelse) if answer else (node.orelse, node.body)
        if not asked:
            return node
        if _is_number(then) and _is_number(otherwise):
            return self._call(node, asked, then, otherwise)
        questions = _questions(asked)
        for kept, value, holds in ((otherwise, then, True), (then, otherwise, False)):
            made = chosen_parts.crop(kept, value, questions, answer=holds)
            if isinstance(kept, ast.Name):
                made = made or chosen_parts.join(kept.id, value, questions, answer=holds)
            made = made or chosen_pads.pad(kept, value, questions, answer=holds)
            if made is not None:
                return self._made(node, made)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """`name = a or b` of numbers, which is `a if a else b`."""
        if isinstance(node.value, ast.BoolOp) and all(map(_is_number, node.value.values)):
            node.value = _as_choice(node.value)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """`if question: name = a`, and `else: name = b` where it has that."""
        if (named := _named_first(node.test)) is not None:
            asks = ast.copy_location(ast.If(without_names(node.test), node.body, node.orelse), node)
            made = self.visit_If(asks)
            return [named, *(made if isinstance(made, list) else [made])]
        self._ask_as_well(node)
        is_chain = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        self.generic_visit(node)
        then, otherwise = _named(node.body), _named(node.orelse)
        asked, answer = self._asked(node)
        if not asked or not then or otherwise is None:
            return self._parts(node, asked, answer, is_chain=is_chain)
        names = list(dict.fromkeys((*then, *otherwise)))
        first, second = (then, otherwise) if answer else (otherwise, then)
        either = [(first.get(name, _read(name)), second.get(name, _read(name))) for name in names]
        numbers = [self._call(node, asked, *copy.deepcopy(two)) for two in either]
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
        is_one = len(names) == 1
        target = targets[0] if is_one else ast.Tuple(targets, ast.Store())
        made = ast.Assign([target], numbers[0] if is_one else ast.Tuple(numbers, ast.Load()))
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A name that is read elsewhere in the function has its number at all sizes."""
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()
        return node

    def _ask_as_well(self, node: ast.If) -> None:
        """What an `elif` asks is looked at with what the `if` before it does."""
        if self.only is not None and not self.only.isdisjoint(_lines_of(node)):
            for one in node.orelse if len(node.orelse) == 1 else ():
                self.only.update(_lines_of(one) if isinstance(one, ast.If) else ())

    def _parts(
        self, node: ast.If, asked: Sequence[ast.expr], answer: bool, *, is_chain: bool
    ) -> ast.AST | list[ast.stmt]:
        """`if question: name = name[:, :-1]`, or parts joined to it, and numbers beside it.

        What is asked is asked once, and first: a tensor that is cropped already has another size. An `elif` that asks
        for what is never the case beside it stands by itself.
        """
        if not asked or (is_chain and not answer):
            return node
        questions = f"{_ASKED if answer else _DENIED}{node.test.lineno}"
        first = [self._assigned(node, questions, _questions(asked))]
        either = {} if is_chain else _given_on_both(node)
        made = self._made_of(node.body, node, questions, answer, either)
        behind: Sequence[ast.stmt] | None = []
        if is_chain and made is not None:
            changed = {one.targets[0].id for one in made}  # type: ignore[attr-defined]
            others = _other_questions(node.orelse, changed)
            if others is None:
                return node
            hoisted, asked_else = others
            first.extend(hoisted)
            for other in asked_else:
                apart = ast.Expr(ast.Call(_read(choice_calls.APART), [_read(questions), other], []))
                first.append(ast.fix_missing_locations(ast.copy_location(apart, node.test)))
            behind = [one for one in node.orelse if one not in hoisted]
        elif made is not None:
            rest = [one for one in node.orelse if _name_of(one) not in either]
            behind = self._made_of(rest, node, questions, not answer, {})
        if made is None or behind is None:
            return node
        if not any(isinstance(one, ast.Assign) and _is_chosen(one.value) for one in (*made, *behind)):
            return node
        self.lines.update(_lines_of(node))
        return [*first, *made, *behind]

    def _made_of(
        self,
        body: Sequence[ast.stmt],
        node: ast.If,
        questions: str,
        answer: bool,
        either: Mapping[str, ast.expr],
    ) -> list[ast.stmt] | None:
        """One side of an `if`, as statements that change nothing at the other answer; None where it is more.

        Args:
            body: the side.
            node: the `if`.
            questions: how what it asks is named.
            answer: the answer to it on this side.
            either: names that both sides give a number, and the one that the other side gives.
        """
        made: list[ast.stmt] = []
        for name, value in chosen_parts.parts_of(body):
            call = self._part(name, value, questions, node, answer)
            if name in either and isinstance(value, ast.expr):
                two = (value, either[name]) if answer else (either[name], value)
                call = ast.Call(_read(choice_calls.CHOSEN), [_read(questions), *copy.deepcopy(two)], [])
            if call is None:
                return None
            made.append(self._assigned(node, name, call))
        return made

    def _part(
        self, name: str, value: ast.expr | ast.AugAssign, questions: str, node: ast.If, answer: bool
    ) -> ast.expr | None:
        """What a name is given in the place of a value that it has at some sizes only."""
        if not name:
            return None
        if isinstance(value, ast.AugAssign):
            kind = ast.Constant(type(value.op).__name__)
            is_told = kind.value in choice_calls.IN_PLACE and _is_number(value.value)
            arguments = [_read(questions), _read(name), kind, value.value, ast.Constant(answer)]
            return ast.Call(_read(choice_calls.ADDED), arguments, []) if is_told else None
        call = chosen_parts.crop(_read(name), value, _read(questions), answer=answer)
        call = call or chosen_parts.join(name, value, _read(questions), answer=answer)
        call = call or chosen_pads.pad(_read(name), value, _read(questions), answer=answer)
        if call is not None:
            return call
        is_own = not may_reach(name, self.functions[-1] if self.functions else node, node)
        if is_own and (is_arithmetic(value) or chosen_parts.is_part(value)):
            return value if is_arithmetic(value) else chosen_parts.made_in_vain(value)
        either = [value, _read(name)] if answer else [_read(name), value]
        return ast.Call(_read(choice_calls.CHOSEN), [_read(questions), *either], []) if _is_number(value) else None

    def _assigned(self, node: ast.If, name: str, value: ast.expr) -> ast.stmt:
        made = ast.Assign([ast.Name(name, ast.Store())], value)
        return ast.fix_missing_locations(ast.copy_location(made, node.test))

    def _made(self, node: ast.If | ast.IfExp, call: ast.expr) -> ast.expr:
        self.lines.update(_lines_of(node))
        return ast.fix_missing_locations(ast.copy_location(call, node.test))

    def _asked(self, node: ast.If | ast.IfExp) -> tuple[Sequence[ast.expr], bool]:
        """What is asked, and whether it is so where any of it holds, or where none of it does."""
        lines = _lines_of(node)
        return any_of(node.test) if self.only is None or not self.only.isdisjoint(lines) else ((), True)

    def _call(self, node: ast.If | ast.IfExp, asked: Sequence[ast.expr], then: ast.expr, other: ast.expr) -> ast.expr:
        return self._made(
            node, ast.Call(ast.Name(choice_calls.CHOSEN, ast.Load()), [_questions(asked), then, other], [])
        )


def _as_choice(joined: ast.BoolOp) -> ast.expr:
    """`a or b` as `a if a else b`, and `a and b` as `b if a else a`, from the last one on."""
    first, *rest = joined.values
    if not rest:
        return first
    other = _as_choice(ast.copy_location(ast.BoolOp(joined.op, rest), joined))
    either = (first, other) if isinstance(joined.op, ast.Or) else (other, first)
    made = ast.IfExp(copy.deepcopy(first), *map(copy.deepcopy, either))
    return ast.fix_missing_locations(ast.copy_location(made, joined))


def _name_of(statement: ast.stmt) -> str:
    """The one name that a statement gives a value; nothing for any other statement."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _given_on_both(node: ast.If) -> dict[str, ast.expr]:
    """Names that both sides of an `if` give a number once, and what the second side gives them.

    That is worked out in front of what the second side does besides, so it reads nothing of that.
    """
    sides = [[_name_of(one) for one in side] for side in (node.body, node.orelse)]
    changed = {name for name, _ in chosen_parts.parts_of(node.orelse)}
    found: dict[str, ast.expr] = {}
    for name, value in chosen_parts.parts_of(node.orelse):
        is_once = bool(name) and all(side.count(name) == 1 for side in sides)
        if not is_once or not isinstance(value, ast.expr) or not _is_number(value):
            continue
        others = [one.value for one in node.body if isinstance(one, ast.Assign) and _name_of(one) == name]
        if all(map(_is_number, others)) and not any(
            isinstance(one, ast.Name) and one.id in changed for one in ast.walk(value)
        ):
            found[name] = value
    return found


def _is_chosen(made: ast.expr) -> bool:
    """Whether it is the call for a tensor, or for a number that something is added to."""
    is_named = isinstance(made, ast.Call) and isinstance(made.func, ast.Name)
    return chosen_parts.is_call(made) or (is_named and made.func.id in (chosen_pads.NAME, choice_calls.ADDED))  # type: ignore[attr-defined]


def _named_first(test: ast.expr) -> ast.Assign | None:
    """What an `if` gives to a name before anything else (`(missing := n - m) > 0`), as a statement before it."""
    match test:
        case ast.NamedExpr(target=target, value=value):
            return ast.copy_location(ast.Assign([copy.deepcopy(target)], value), test)
        case ast.Compare(left=first, ops=[_], comparators=[other]) if without_names(other) is other:
            return _named_first(first)
        case ast.UnaryOp(op=ast.Not(), operand=first):
            return _named_first(first)
    return None


def _lines_of(node: ast.If | ast.IfExp) -> set[int]:
    """The lines at which it is asked, and those of the question: one with a name is answered there, or in part."""
    end = node.orelse.lineno if isinstance(node, ast.IfExp) else node.lineno
    return {*range(node.lineno, end + 1), *range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)}


def _other_questions(other: Sequence[ast.stmt], changed: set[str]) -> tuple[list[ast.stmt], list[ast.expr]] | None:
    """Of what stands behind an `if`: statements that ask what each `elif` asks, and what is asked, by any of them.

    Args:
        other: the first `elif`, as calls or as it is, with all that stand behind it, and nothing else.
        changed: names to which the `if` gives something, of which nothing may be asked afterwards.
    """
    hoisted: list[ast.stmt] = []
    asked: list[ast.expr] = []
    for one in other:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith(_DENIED):
                return None
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith(_ASKED):
                hoisted.append(one)
                asked.append(_read(name))
            case ast.If(test=test, orelse=[]):
                reads = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
                questions = asked_of(test)
                if reads & changed or not questions:
                    return None
                asked.append(_questions(questions))
    is_chain = bool(hoisted) or (len(other) == 1 and bool(asked))
    return (hoisted, asked) if is_chain else None


def _questions(asked: Sequence[ast.expr]) -> ast.Tuple:
    return ast.Tuple([_written(one) for one in asked], ast.Load())


def _written(asked: ast.expr) -> ast.expr:
    """A question as the new code hands it over: what is compared, how, and with what."""
    match asked:
        case ast.Compare(left=left, ops=[kind], comparators=[right]):
            parts = [left, ast.Constant(type(kind).__name__), right]
        case ast.UnaryOp(op=ast.Not(), operand=number):
            parts = [number, ast.Constant(NOT), ast.Constant(0)]
        case _:
            parts = [asked, ast.Constant(""), ast.Constant(0)]
    return ast.Tuple([copy.deepcopy(one) for one in parts], ast.Load())


def _named(body: Sequence[ast.stmt]) -> dict[str, ast.expr] | None:
    """What statements give to names, each of which reads only what was there before; None where they do more."""
    named: dict[str, ast.expr] = {}
    for one in body:
        match one:
            case ast.Assign(targets=[ast.Name() as target], value=value):
                given: list[tuple[ast.expr, ast.expr]] = [(target, value)]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                given = [*zip(targets, values, strict=False)] if len(targets) == len(values) else []
            case _:
                return None
        reads = {each.id for _, value in given for each in ast.walk(value) if isinstance(each, ast.Name)}
        made = {target.id: value for target, value in given if isinstance(target, ast.Name) and _is_number(value)}
        if not made or len(made) < len(given) or (reads | made.keys()) & named.keys():
            return None
        named.update(made)
    return named


def _is_number(written: ast.expr) -> bool:
    """Whether it is arithmetic, with choices that are written as calls already."""
    if isinstance(written, ast.Call) and isinstance(written.func, ast.Name) and written.func.id == choice_calls.CHOSEN:
        return True
    return is_arithmetic(written) and not isinstance(written, ast.List)


def _read(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())
