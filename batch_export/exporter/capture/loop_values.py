"""Values by the step of a loop of a model's code: numbers beside tensors, comparisons, choices, the first round.

Arrives: the statements of a round. Leaves: the same with the step's tensor where the step is a number, and with both
sides of a choice by it. What is no part of one operator is said.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from batch_export.exporter.capture import loop_choices, loop_reasons, step_numbers, step_tests
from batch_export.exporter.capture.loop_places import StepIndex
from batch_export.exporter.capture.loop_ways import LoopWay

TURNED, SCALED = "__turned_in_a_loop__", "__scaled_in_a_loop__"
"""What a round calls: an attribute, a number that goes by the step."""
NUMBER_OF, NUMBER = "__number_in_a_loop__", "__number__"
"""What a round calls for the step as a number, and its name for that."""
COUNT, FIRST = "__count_of_a_loop__", "__is_first_of_a_loop__"
"""A round's names for the step as a tensor, and for whether it is the first one."""
LOWEST, HIGHEST = "__lowest_of_a_loop__", "__highest_of_a_loop__"
"""The names outside of a round for the lowest step and the highest one."""


@dataclass(slots=True)
class StepValues(ast.NodeTransformer):
    """A round's values by the step.

    Attributes:
        known: the names of the loop's function.
        way: what the loop goes over.
        own: names that each round gives values of its own.
        stored: names that rounds give values.
        tensors: names that are known to stand for tensors.
        summed: names that go on and that `+=` and its like give a new value, if a number is what they begin with.
        counted: names that go on, are changed so and read otherwise, which have to stand for numbers.
        numbers: expressions that have to be numbers, for a number that goes by the step.
        compared: expressions that have to be tensors, since the step is compared with them.
        is_counted: whether a number that the step is a part of goes into a tensor.
        is_tried: whether it has to turn out that something is a tensor.
        has_first: whether the first round does something else.
        is_numbered: whether the step stands by itself, as a number.
        has_choice: whether both sides of a choice by the step are computed.
        unfollowed: the first part that nothing here follows, as what is done else with the step or the lists.
    """

    known: frozenset[str]
    way: LoopWay
    own: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    tensors: set[str] = field(default_factory=set)
    summed: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()
    numbers: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    is_counted: bool = False
    is_tried: bool = False
    has_first: bool = False
    is_numbered: bool = False
    has_choice: bool = False
    unfollowed: str = ""
    _depth: int = 0
    _choices: int = 0
    _beside: int = 0
    _is_later: bool = False
    _known: set[str] = field(default_factory=set)
    _statement: ast.stmt | None = None

    @property
    def step(self) -> str:
        """The loop's name for the step."""
        return self.way.step

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
        """The step by itself, as a number whose size data say."""
        if node.id != self.step:
            return node
        if not isinstance(node.ctx, ast.Load):
            return self._refused(node)
        self.is_numbered = True
        return ast.Name(NUMBER, ast.Load())

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
        self.has_choice = True
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
        self.has_choice = True
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

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A matrix turned round: as an attribute dynamo takes it for an input that shares the memory of another."""
        turned = self.generic_visit(node)
        if node.attr not in ("T", "mT") or not isinstance(node.ctx, ast.Load):
            return turned
        return ast.Call(ast.Name(TURNED, ast.Load()), [node.value, ast.Constant(node.attr)], [])
