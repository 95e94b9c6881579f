"""One round of a loop of a model's code, as a function of what goes on and of what is read at the step's place.

Arrives: the statements of a round. Leaves: the same with names in place of what is read (`loop_reads.py`), of list
elements and of what is written. What nothing here follows is said, and the loop stays as it is.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from batch_export.exporter.capture import loop_choices, loop_statements, step_numbers
from batch_export.exporter.capture.loop_places import StepIndex
from batch_export.exporter.capture.loop_reads import RoundReads

AS_SLICE = "__as_a_slice_in_a_loop__"
"""What a round calls: what is written as it is read again."""
_OWN = re.compile(r"__\w+?(?<!_in_a_loop)(?<!_free_loop)__$")
_NUMBERED = re.compile(r"_of_\d+__$")


def own_name(name: str, number: int) -> str:
    """The name that a loop's round has for something of its own; any other name as it is.

    Args:
        name: a name in a round.
        number: the loop's.
    """
    return f"{name[:-2]}_of_{number}__" if _OWN.match(name) and not _NUMBERED.search(name) else name


def _root(node: ast.expr) -> ast.expr:
    """What an element of an element is one of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


@dataclass(slots=True)
class Round(RoundReads, ast.NodeTransformer):
    """One round: what it reads at the step's place, and what it gives besides the names that go on.

    Attributes:
        turned: lists that get their elements at their beginning.
        changed: lists and dicts that get other elements in the places of what they hold.
    """

    turned: list[str] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)

    def statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A round's statements, and behind them what the next one reads of what this one has written."""
        begun = [self._begun_in_part(of, at) for of, at in self.parted.items()]
        made = [*begun, *(each for one in body for each in self._given(one))]
        for one in self.before.values():
            if one.of in self.written:
                if self.written[one.of][2]:
                    self._refused(body[-1])
                given = ast.Name(self.written[one.of][0], ast.Load())
                taken = ast.Call(ast.Name(AS_SLICE, ast.Load()), [given, ast.Name(one.name, ast.Load())], [])
                made.append(ast.Assign([ast.Name(one.name, ast.Store())], taken))
        return made

    def renamed(self, statements: Sequence[ast.stmt], number: int, others: Collection[str]) -> None:
        """Gives names that only the round has a number, which tells them apart from those of loops within.

        Args:
            statements: the round's.
            number: the loop's.
            others: names of the loop's function.
        """
        for one in loop_statements.parts(statements):
            if isinstance(one, ast.Name) and one.id in others:
                continue
            if isinstance(one, ast.Name):
                one.id = own_name(one.id, number)
            elif isinstance(one, ast.arg):
                one.arg = own_name(one.arg, number)
        self.read = [replace(one, name=own_name(one.name, number)) for one in self.read]
        self.lists = {of: [own_name(one, number) for one in names] for of, names in self.lists.items()}
        self.written = {of: (own_name(name, number), *rest) for of, (name, *rest) in self.written.items()}  # type: ignore[misc]
        for before in self.before.values():
            before.name = own_name(before.name, number)

    def _given(self, statement: ast.stmt) -> list[ast.stmt]:
        self._statement = copy.deepcopy(statement)
        made: ast.stmt | list[ast.stmt] = self.visit(statement)
        self._known |= loop_choices.names_given([statement])
        return made if isinstance(made, list) else [made]

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop over what the model holds."""
        self._depth += 1
        made = self.generic_visit(node)
        self._depth -= 1
        return made

    def _begun_in_part(self, of: str, at: StepIndex) -> ast.stmt:
        """What is at the step's place of a tensor, of which a round writes parts to a copy."""
        if not self._stay(at.reads):
            self._refused(ast.Name(of, ast.Load()))
        whole = replace(at, behind=(), before=(), is_window=False)
        taken = self._taken(whole, is_own=True)
        name = f"__written_{len(self.written)}__"
        self.written[of] = name, at, False
        copied = ast.Call(ast.Attribute(taken, "clone", ast.Load()), [], [])
        return ast.Assign([ast.Name(name, ast.Store())], copied)

    def _changing(self, node: ast.Subscript) -> ast.AST:
        """Another element for a list or a dict."""
        if self._is_own(node):
            node.slice = self._by_tensors(node.slice) or node.slice
            return self.generic_visit(node)
        root = _root(node)
        if not isinstance(root, ast.Name) or root.id in self.filled or StepIndex.of_node(node, self.step or ""):
            return self._refused(node)
        self.changed.add(root.id)
        return self.generic_visit(node)

    def _is_own(self, node: ast.Subscript) -> bool:
        """Whether something is a part of what a round has made itself."""
        root = _root(node)
        return isinstance(root, ast.Name) and root.id in self.own

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A write at the step's place, or a value for a name."""
        target = node.targets[0]
        found = StepIndex.of_node(target, self.step) if isinstance(target, ast.Subscript) and self.step else None
        if found is None or found.of in self.own:
            is_tensor = self._depth == 0 and self._kind(node.value) is step_numbers.TENSOR
            made = self.generic_visit(node)
            names = {one.id for one in loop_statements.parts(node.targets) if isinstance(one, ast.Name)}
            self.tensors -= names
            if is_tensor and isinstance(target, ast.Name):
                self.tensors |= names
            return made
        others = node.targets[1:]
        if found.of in self.parted and not others:
            value = self.visit(node.value)
            return ast.Assign([self._part(found, ast.Store())], value)
        if not all(isinstance(one, ast.Name) for one in others):
            return self._refused(node)
        return self._write(node, found, node.value, is_added=False, others=others)

    def _write(
        self, node: ast.stmt, found: StepIndex, value: ast.expr, *, is_added: bool, others: Sequence[ast.expr] = ()
    ) -> ast.AST:
        if not found.is_all or found.of in self.written or self._depth or not self._stay(found.reads):
            return self._refused(node)
        name = f"__written_{len(self.written)}__"
        self._writing = found.of  # behind that statement a name for the slice would stand for what is written
        made = self.visit(value)
        self._writing = ""
        self.written[found.of] = name, found, is_added
        return ast.Assign([ast.Name(name, ast.Store()), *others], made)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """An element of a list, as one that is added to it, or what is added to a tensor at the step's place."""
        added = loop_statements.added(node)
        if added is not None and added[0] not in self.own:
            return self._element(*added, node, is_first=False)
        at = StepIndex.of_node(node.target, self.step) if isinstance(node.target, ast.Subscript) and self.step else None
        if at is not None and at.of in self.parted:
            value = self.visit(node.value)
            return ast.AugAssign(self._part(at, ast.Store()), node.op, value)
        if self.step and (found := loop_statements.summed_at(node, self.step)) is not None:
            if found.of in self.read_again and isinstance(found.beside, int):
                there = copy.deepcopy(node.target)
                there.ctx = ast.Load()
                return self._write(node, found, ast.BinOp(there, node.op, node.value), is_added=False)
            value = node.value if isinstance(node.op, ast.Add) else ast.UnaryOp(ast.USub(), node.value)
            return self._write(node, found, value, is_added=True)
        if isinstance(node.target, ast.Subscript):
            return self.generic_visit(node) if self._is_own(node.target) else self._refused(node)
        if not isinstance(node.target, ast.Name) or node.target.id not in self.summed | self.counted:
            return self.generic_visit(node)
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.Assign([node.target], self.visit(value))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """An element of a list, behind the others or before them."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of))) if of in self.own:
                return self.generic_visit(node)  # a list of the round's own
            case ast.Constant():
                return node
        added = loop_statements.appended(node)
        return self._refused(node) if added is None else self._element(*added[:2], node, is_first=added[2])

    def _element(self, of: str, element: ast.expr, node: ast.stmt, *, is_first: bool) -> ast.AST:
        value = self.visit(element)
        names = self.lists.setdefault(of, [])
        is_asked = of in self.before and self.before[of].is_by_place
        if self._depth or (names and (is_first or is_asked or of in self.turned)):
            return self._refused(node)
        names.append(f"__element_{sum(map(len, self.lists.values()))}__")
        self.turned += [of] if is_first else []
        made: list[ast.expr] = [ast.Name(names[-1], ast.Store())]
        if of in self.read_again:
            made.append(ast.Name(self._before(of, None, is_by_place=False), ast.Store()))
        return ast.Assign(made, value)

    def others(self, rounds: ast.FunctionDef, carried: Sequence[str]) -> list[str]:
        """What a round reads of the function's names besides."""
        names = [one for each in rounds.body for one in ast.walk(each) if isinstance(one, ast.Name)]
        stored = {one.id for one in names if loop_statements.is_store(one)}
        return sorted({one.id for one in names if one.id in self.known} - stored - {*carried})

    def touches(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether a round does more with a list or a tensor that it writes to."""
        names = {one.id for each in statements for one in ast.walk(each) if isinstance(one, ast.Name)}
        read = {one.of for one in self.read}
        own = {one.of for one in self.read if one.is_own} - {one.of for one in self.read if not one.is_own}
        filled = {*self.written, *self.changed, *self.lists}
        return bool(names & {*self.lists, *self.written}) or bool((read - own) & filled)
