"""One round of a loop of a model's code, as a function of what goes on and of what is read at the step's place.

Arrives: the statements of a round. Leaves: the same with names in place of slices, of list elements and of what is
written; what the last round gave (`out[:, t - 1]`, `found[-1]`) goes on under a name of its own. What nothing here
follows is said, and the loop stays as it is.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from batch_export.exporter.capture import (
    loop_choices,
    loop_places,
    loop_reasons,
    loop_statements,
    step_numbers,
    step_tests,
)
from batch_export.exporter.capture.loop_places import StepIndex
from batch_export.exporter.capture.loop_ways import LoopWay

TURNED, AS_SLICE, SCALED = "__turned_in_a_loop__", "__as_a_slice_in_a_loop__", "__scaled_in_a_loop__"
"""What a round calls: an attribute, what is written as it is read again, a number that goes by the step."""
COUNT, FIRST = "__count_of_a_loop__", "__is_first_of_a_loop__"
"""A round's names for the step as a tensor, and for whether it is the first one."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A tensor that is read at the step's place along one of its axes, or so many places behind it.

    Attributes:
        of: the tensor's name.
        axis: the axis.
        beside: as `StepIndex` has it.
        name: the round's name for the slice.
        is_later: whether the first round does not read it.
        is_own: whether rounds write there, behind their read.
    """

    of: str
    axis: int
    beside: int | str
    name: str
    is_later: bool = False
    is_own: bool = False


@dataclass(slots=True)
class Before:
    """What the round before has written or put into a list, as a name that goes on.

    Attributes:
        name: that name.
        of: the tensor or the list.
        at: where the tensor is written to; None of a list.
        is_by_place: whether a list is asked for it by its place.
    """

    name: str
    of: str
    at: StepIndex | None
    is_by_place: bool = False


@dataclass(slots=True)
class Round(ast.NodeTransformer):
    """One round: what it reads at the step's place, and what it gives besides the names that go on.

    Attributes:
        known: the names of the loop's function.
        way: what the loop goes over.
        own: names that each round gives values of its own.
        stored: names that rounds give values.
        filled: lists that get an element, and tensors that are written to at the step's place, and how.
        read_again: lists of which a round reads an element.
        tensors: names that are known to stand for tensors.
        summed: names that go on and that `+=` and its like give a new value, if a number is what they begin with.
        counted: names that go on, are changed so and read otherwise, which have to stand for numbers.
        read: tensors that are read at the step's place.
        lists: lists that get elements, and the names of these elements.
        turned: those of them that get them at their beginning.
        written: tensors that are written at the step's place, or beside it: the name of what is written, where, and
            whether it is added to what is there.
        before: what the last round gave besides, where this one reads it.
        changed: lists and dicts that get other elements in the places of what they hold.
        numbers: expressions that have to be numbers, for a number that goes by the step.
        compared: expressions that have to be tensors, since the step is compared with them.
        is_counted: whether a number that the step is a part of goes into a tensor.
        is_tried: whether it has to turn out that something is a tensor.
        has_first: whether the first round does something else.
        unfollowed: the first part that nothing here follows, as what is done else with the step or the lists.
    """

    known: frozenset[str]
    way: LoopWay
    own: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    filled: dict[str, StepIndex | None] = field(default_factory=dict)
    read_again: frozenset[str] = frozenset()
    tensors: set[str] = field(default_factory=set)
    summed: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()
    read: list[Slice] = field(default_factory=list)
    lists: dict[str, list[str]] = field(default_factory=dict)
    turned: list[str] = field(default_factory=list)
    written: dict[str, tuple[str, StepIndex, bool]] = field(default_factory=dict)
    before: dict[str, Before] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    numbers: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    is_counted: bool = False
    is_tried: bool = False
    has_first: bool = False
    unfollowed: str = ""
    _depth: int = 0
    _choices: int = 0
    _beside: int = 0
    _is_later: bool = False
    _writing: str = ""
    _known: set[str] = field(default_factory=set)
    _statement: ast.stmt | None = None

    @property
    def step(self) -> str:
        """The loop's name for the step."""
        return self.way.step

    def statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A round's statements, and behind them what the next one reads of what this one has written."""
        made = [each for one in body for each in self._given(one)]
        for one in self.before.values():
            if one.of in self.written:
                if self.written[one.of][2]:
                    self._refused(body[-1])
                given = ast.Name(self.written[one.of][0], ast.Load())
                taken = ast.Call(ast.Name(AS_SLICE, ast.Load()), [given, ast.Name(one.name, ast.Load())], [])
                made.append(ast.Assign([ast.Name(one.name, ast.Store())], taken))
        return made

    def _given(self, statement: ast.stmt) -> list[ast.stmt]:
        self._statement = copy.deepcopy(statement)
        made: ast.stmt | list[ast.stmt] = self.visit(statement)
        self._known |= loop_choices.names_given([statement])
        return made if isinstance(made, list) else [made]

    def _refused(self, node: ast.AST) -> ast.AST:
        self.unfollowed = self.unfollowed or loop_reasons.part(self._statement or node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Arithmetic of a tensor with numbers that the step is a part of, which is then a tensor too."""
        steps = self._has_number(node.left), self._has_number(node.right)
        kinds = self._kind(node.left), self._kind(node.right)
        is_unknown = sum(steps) == 1 and kinds[steps.index(False)] is None and kinds[steps.index(True)] is not None
        is_unknown = is_unknown and step_numbers.may_be_beside(node.op, is_right=steps[1])
        if not any(steps) or not (is_unknown or self._kind(node) is step_numbers.TENSOR):
            return self.generic_visit(node)
        self.is_tried = self.is_tried or is_unknown
        if steps[0] and kinds[0] is not step_numbers.TENSOR:
            name = self._named()
            number = self._counted(node.left, ast.NamedExpr(ast.Name(name, ast.Store()), self.visit(node.right)))
            return ast.BinOp(number, node.op, ast.Name(name, ast.Load()))
        if steps[1] and kinds[1] is not step_numbers.TENSOR:
            name = self._named()
            other = ast.NamedExpr(ast.Name(name, ast.Store()), self.visit(node.left))
            return ast.BinOp(other, node.op, self._counted(node.right, ast.Name(name, ast.Load())))
        return self.generic_visit(node)

    def _named(self) -> str:
        self._beside += 1
        return f"__beside_{self._beside}__"

    def _counted(self, node: ast.expr, beside: ast.expr) -> ast.expr:
        """A number that goes by the step, beside a tensor, with the step's tensor in the place of the step."""
        self.is_counted = True
        names = list(step_numbers.unknown(node, self.step))
        self.numbers += [ast.unparse(one) for one in names]
        made = step_numbers.as_tensor(node, self.step, COUNT)
        number = ast.Lambda(
            ast.arguments(posonlyargs=[], args=[ast.arg(COUNT)], kwonlyargs=[], kw_defaults=[], defaults=[]), made
        )
        is_fraction = ast.Constant(self._kind(node) is step_numbers.FRACTION)
        others = ast.Tuple(names, ast.Load())
        given = [number, ast.Name(COUNT, ast.Load()), beside, is_fraction, others]
        return ast.Call(ast.Name(SCALED, ast.Load()), given, [])

    def _kind(self, node: ast.expr) -> str | None:
        return step_numbers.kind(node, self.step, self._is_tensor, self._may_be_number)

    def _has_step(self, node: ast.expr) -> bool:
        return any(isinstance(one, ast.Name) and one.id == self.step for one in ast.walk(node))

    def _has_number(self, node: ast.AST) -> bool:
        """Whether the step stands somewhere else than in an index of a tensor."""
        if isinstance(node, ast.Subscript) and StepIndex.of_node(node, self.step) is not None:
            return any(self._has_number(one) for one in StepIndex.of_node(node, self.step).others)  # type: ignore[union-attr]
        if isinstance(node, ast.Name):
            return node.id == self.step
        return any(map(self._has_number, ast.iter_child_nodes(node)))

    def _is_tensor(self, node: ast.expr) -> bool:
        match node:
            case ast.Subscript():
                return StepIndex.of_node(node, self.step) is not None
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return attr in step_numbers.GIVE_TENSORS and self._is_tensor(value)
        return isinstance(node, ast.Name) and node.id in self.tensors

    def _may_be_number(self, node: ast.expr) -> bool:
        """Whether something is the same in all rounds, and may be a number."""
        return self._stay({one.id for one in ast.walk(node) if isinstance(one, ast.Name)})

    def _stay(self, names: Collection[str]) -> bool:
        """Whether names stand for the same in all rounds."""
        return not {*names} & {*self.stored, *self.own, self.step, *self.way.elements}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The step by itself."""
        return self._refused(node) if node.id == self.step else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """A choice, by whether the round is the first one, or by the step."""
        node.test = self._tested(node.test)
        test = self._by_step(node.test, [*node.body, *node.orelse])
        if test is None:
            return self._by_first(node)
        sides = node.body, node.orelse
        known = {*self._known, *(self.stored - self.own)}
        given = [loop_choices.names_given(one) for one in sides]
        in_place = {one.target.id for one in ast.walk(node) if isinstance(one, ast.AugAssign)}  # type: ignore[union-attr]
        if self._depth or not (given[0] ^ given[1]) <= known or not in_place <= self.summed | self.counted:
            return self._refused(node)
        self._choices += 1
        number = self._choices
        visited = [[each for one in side for each in self._all(one)] for side in sides]
        return loop_choices.both_sides(test, visited, given[0] | given[1], known, number)

    def _by_first(self, node: ast.If | ast.IfExp) -> ast.AST:
        """A choice of which one side may be for the rounds behind the first one."""
        match node.test:
            case ast.Name(id=name) if name == FIRST:
                later: object = node.orelse
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)) if name == FIRST:
                later = node.body
            case _:
                return self.generic_visit(node)
        before = self._is_later
        for name in ("body", "orelse"):
            side = getattr(node, name)
            self._is_later = before or side is later
            is_list = isinstance(side, list)
            setattr(node, name, [each for one in side for each in self._all(one)] if is_list else self.visit(side))
        self._is_later = before
        return node

    def _all(self, statement: ast.stmt) -> list[ast.stmt]:
        made: ast.stmt | list[ast.stmt] = self.visit(statement)
        return made if isinstance(made, list) else [made]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """The same as an expression."""
        node.test = self._tested(node.test)
        test = self._by_step(node.test, [node.body, node.orelse])
        if test is None:
            return self._by_first(node)
        sides = [self.visit(node.body), self.visit(node.orelse)]
        return ast.Call(ast.Name(loop_choices.CHOSEN, ast.Load()), [test, *sides], [])

    def _by_step(self, test: ast.expr, sides: Sequence[ast.AST]) -> ast.expr | None:
        """A test by the step as a tensor; None of another one, and of sides that not every round may compute."""
        if not self._has_step(test) or not loop_choices.is_safe(sides, self.step):
            return None
        numbers: list[str] = []

        def counted(node: ast.expr) -> ast.expr:
            numbers.extend(ast.unparse(one) for one in step_numbers.unknown(node, self.step))
            return step_numbers.as_tensor(node, self.step, COUNT)

        made = loop_choices.as_tensor(test, lambda one: self._kind(one) is step_numbers.NUMBER, counted, FIRST)
        self.numbers += [] if made is None else numbers
        return made

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """The step beside the first one."""
        made = self._tested(node)
        if made is not node:
            return made
        return self._compared(node) or self.generic_visit(node)

    def _compared(self, node: ast.Compare) -> ast.AST | None:
        """The step beside a tensor (`t < lengths`), which gives a tensor."""
        sides = [node.left, node.comparators[0]]
        steps = [self._has_step(one) for one in sides]
        if len(node.comparators) > 1 or sum(steps) != 1 or not isinstance(node.ops[0], step_numbers.COMPARING):
            return None
        place = steps.index(True)
        root = self._root(sides[1 - place])
        if root is None or self._kind(sides[place]) is not step_numbers.NUMBER:
            return None
        self.compared += [root] if root else []
        self.numbers += [ast.unparse(one) for one in step_numbers.unknown(sides[place], self.step)]
        sides[place] = step_numbers.as_tensor(sides[place], self.step, COUNT)
        sides[1 - place] = self.visit(sides[1 - place])
        return ast.Compare(sides[0], node.ops, [sides[1]])

    def _root(self, node: ast.expr) -> str | None:
        """What has to turn out to be a tensor for something to be one; nothing of what is one; None of others."""
        if self._is_tensor(node):
            return ""
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in step_numbers.GIVE_TENSORS:
                return self._root(value)
            case ast.Subscript(value=value) if not isinstance(value, ast.Attribute) or value.attr != "shape":
                return self._root(value)
        is_plain = isinstance(node, (ast.Name, ast.Attribute)) and step_numbers.is_plain(node)
        return ast.unparse(node) if is_plain and self._may_be_number(node) else None

    def _tested(self, node: ast.expr) -> ast.expr:
        """A test with a name where it says whether the round is the first one."""
        begin = self.way.first() if self._has_step(node) else None
        if begin is None or not self._may_be_number(begin[0]):
            return node
        if isinstance(node, ast.BoolOp):
            node.values = [self._tested(one) for one in node.values]
            return node
        holds = step_tests.holds_first(node, self.step, *begin)
        if holds is None:
            return node
        self.has_first = True
        made: ast.expr = ast.Name(FIRST, ast.Load())
        return made if holds else ast.UnaryOp(ast.Not(), made)

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop over what the model holds."""
        self._depth += 1
        made = self.generic_visit(node)
        self._depth -= 1
        return made

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A matrix turned round: as an attribute dynamo takes it for an input that shares the memory of another."""
        turned = self.generic_visit(node)
        if node.attr not in ("T", "mT") or not isinstance(node.ctx, ast.Load):
            return turned
        return ast.Call(ast.Name(TURNED, ast.Load()), [node.value, ast.Constant(node.attr)], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`x.select(1, t)`, and the step as a value of `torch.where`."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name() as of, attr="select"),
                args=[ast.Constant(value=int(axis)), place],
                keywords=[],
            ) if axis >= 0 and self.step and self._has_step(place):
                whole: list[ast.expr] = [ast.Slice() for _ in range(axis)]
                index = ast.Subscript(of, ast.Tuple([*whole, place], ast.Load()), ast.Load())
                return self.visit_Subscript(index)
            case ast.Call(func=ast.Attribute(attr="where", value=ast.Name()), args=[_, *values], keywords=[]) if (
                len(values) == 2 and self.step
            ):
                bare = [
                    place for place, one in enumerate(node.args) if isinstance(one, ast.Name) and one.id == self.step
                ]
                if bare and 0 not in bare:
                    self.is_tried = True
                    for at in bare:
                        node.args[at] = ast.Name(COUNT, ast.Load())
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """A slice at the step's place, what the last round gave, or another element of a list or dict."""
        if not isinstance(node.ctx, ast.Load):
            return self._changing(node)
        of = node.value.id if isinstance(node.value, ast.Name) else None
        if of in self.filled and self.filled[of] is None and of not in self.own and loop_places.is_last(node):
            return ast.Name(self._before(of, None, is_by_place=False), ast.Load())
        found = StepIndex.of_node(node, self.step) if self.step else None
        if found is None:
            return self.generic_visit(node)
        if not self._stay(found.reads):
            return self._refused(node)
        if found.of in self.filled:
            return self._given_before(node, found)
        return self._taken(found)

    def _taken(self, found: StepIndex, *, is_own: bool = False) -> ast.expr:
        place = (*self._place(found), self._is_later, is_own)
        known = next(
            (one for one in self.read if (one.of, one.axis, one.beside, one.is_later, one.is_own) == place), None
        )
        if known is None:
            known = Slice(*self._place(found), f"__slice_{len(self.read)}__", self._is_later, is_own)
            self.read.append(known)
        return self._rest(ast.Name(known.name, ast.Load()), found)

    @staticmethod
    def _place(found: StepIndex) -> tuple[str, int, int | str]:
        return found.of, found.axis, found.beside

    def _rest(self, taken: ast.expr, found: StepIndex) -> ast.expr:
        rest = [self.visit(one) for one in found.others]
        return ast.Subscript(taken, ast.Tuple(rest, ast.Load()), ast.Load()) if rest else taken

    def _given_before(self, node: ast.Subscript, found: StepIndex) -> ast.AST:
        """What the round before wrote, which the place beside the step's, towards the loop's beginning, still holds."""
        begin, at = self.way.first(), self.filled[found.of]
        place, axis = (0, 0) if at is None else (at.beside, at.axis)
        is_same = (
            found.of == self._writing
            and at is not None
            and isinstance(place, int)
            and (found.axis, found.beside) == (axis, place)
        )
        if is_same and found.of not in self.written:
            return self._taken(found, is_own=True)
        is_list = at is None and not found.others and not self.lists.get(found.of)
        is_before = begin is not None and isinstance(place, int) and found.beside == place - begin[1]
        if not is_before or found.axis != axis or not (is_list or at):
            return self._refused(node)
        name = self._before(found.of, at, is_by_place=True)
        return self._rest(ast.Name(name, ast.Load()), found)

    def _before(self, of: str, at: StepIndex | None, *, is_by_place: bool) -> str:
        one = self.before.setdefault(of, Before(f"__before_{len(self.before)}__", of, at))
        one.is_by_place = one.is_by_place or is_by_place
        return one.name

    def _changing(self, node: ast.Subscript) -> ast.AST:
        """Another element for a list or a dict."""
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self.filled or StepIndex.of_node(node, self.step or ""):
            return self._refused(node)
        if root.id not in self.own:
            self.changed.add(root.id)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A write at the step's place, or a value for a name."""
        target = node.targets[0]
        found = StepIndex.of_node(target, self.step) if isinstance(target, ast.Subscript) and self.step else None
        if found is None:
            is_tensor = self._depth == 0 and self._kind(node.value) is step_numbers.TENSOR
            made = self.generic_visit(node)
            names = {one.id for one in loop_statements.parts(node.targets) if isinstance(one, ast.Name)}
            self.tensors -= names
            if is_tensor and isinstance(target, ast.Name):
                self.tensors |= names
            return made
        others = node.targets[1:]
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
        if self.step and (found := loop_statements.summed_at(node, self.step)) is not None:
            if found.of in self.read_again and isinstance(found.beside, int):
                there = copy.deepcopy(node.target)
                there.ctx = ast.Load()
                return self._write(node, found, ast.BinOp(there, node.op, node.value), is_added=False)
            value = node.value if isinstance(node.op, ast.Add) else ast.UnaryOp(ast.USub(), node.value)
            return self._write(node, found, value, is_added=True)
        if isinstance(node.target, ast.Subscript):
            return self._refused(node)
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
