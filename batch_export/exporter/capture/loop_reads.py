"""What one round of a loop reads at the step's place, or beside it, under names of its own.

Arrives: the expressions of a round. Leaves: the same with names in place of slices and of list elements; what the last
round gave (`out[:, t - 1]`, `found[-1]`) goes on under a name of its own. What nothing here follows is said.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from batch_export.exporter.capture import loop_places, step_numbers
from batch_export.exporter.capture.loop_places import StepIndex
from batch_export.exporter.capture.loop_values import COUNT, StepValues

AS_TENSOR, ELEMENT = "__as_a_tensor_in_a_loop__", "__element_in_a_loop__"
"""What a round calls: numbers as a tensor, and an element at the step's place."""


def _as_call(index: ast.expr) -> ast.expr:
    """`a : b` as a call, which stands outside of an index, too."""
    if not isinstance(index, ast.Slice):
        return index
    ends = [one or ast.Constant(None) for one in (index.lower, index.upper, index.step)]
    return ast.Call(ast.Name("slice", ast.Load()), ends, [])


def _may_be_of_tensors(index: ast.expr) -> bool:
    """Whether an index has a name in it, and beside names only what an index of tensors may have."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    names = [one for one in parts if isinstance(one, ast.Name)]
    return bool(names) and all(isinstance(one, (ast.Name, ast.Slice, ast.Constant)) for one in parts)


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
class RoundReads(StepValues, ast.NodeTransformer):
    """What a round reads.

    Attributes:
        filled: lists that get an element, and tensors that are written to at the step's place, and how.
        parted: those of the tensors of which only parts are written to.
        read_again: lists of which a round reads an element.
        read: tensors that are read at the step's place.
        lists: lists that get elements, and the names of these elements.
        written: tensors that are written at the step's place, or beside it: the name of what is written, where, and
            whether it is added to what is there.
        before: what the last round gave besides, where this one reads it.
        has_elements: whether what is read by a name may be a copy, where the name is that of a tensor of one number.
    """

    filled: dict[str, StepIndex | None] = field(default_factory=dict)
    parted: dict[str, StepIndex] = field(default_factory=dict)
    read_again: frozenset[str] = frozenset()
    read: list[Slice] = field(default_factory=list)
    lists: dict[str, list[str]] = field(default_factory=dict)
    written: dict[str, tuple[str, StepIndex, bool]] = field(default_factory=dict)
    before: dict[str, Before] = field(default_factory=dict)
    has_elements: bool = False
    _writing: str = ""

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
            case ast.Call(
                func=ast.Attribute(attr="tensor" | "as_tensor" | "LongTensor", value=ast.Name(id="torch"))
            ) if len(node.args) == 1 and self.step and self._has_step(node.args[0]):
                parts = node.args[0].elts if isinstance(node.args[0], ast.List) else [node.args[0]]
                if all(self._kind(one) is step_numbers.NUMBER for one in parts):
                    made = [self._by_tensor(one) or one for one in parts]
                    node.args = [ast.List(made, ast.Load()) if isinstance(node.args[0], ast.List) else made[0]]
                    node.func = ast.Name(AS_TENSOR, ast.Load())
                    return node
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
        if found is None or (found.of in self.stored and found.of not in self.filled):
            return self._element_of(node)
        if not self._stay(found.reads):
            return self._refused(node)
        if found.of in self.parted and self._place(found) == self._place(self.parted[found.of]):
            return self._part(found, ast.Load())
        if found.of in self.filled:
            return self._given_before(node, found)
        return self._taken(found)

    def _element_of(self, node: ast.Subscript) -> ast.AST:
        """An element of whatever is there."""
        index = self._by_tensors(node.slice)
        if index is None and self.has_elements and _may_be_of_tensors(node.slice):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            made = [_as_call(one) for one in parts]
            index = ast.Tuple(made, ast.Load()) if isinstance(node.slice, ast.Tuple) else made[0]
        if index is None:
            return self.generic_visit(node)
        of = self.visit(node.value)
        return ast.Call(ast.Name(ELEMENT, ast.Load()), [of, self.visit(index)], [])

    def _by_tensors(self, index: ast.expr) -> ast.expr | None:
        """An index with the step's tensor for the step: torch takes no number that data say; None without the step."""
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        found = [self._by_tensor(one) for one in parts]
        if all(one is None for one in found):
            return None
        made = [other or _as_call(one) for other, one in zip(found, parts, strict=True)]
        return ast.Tuple(made, ast.Load()) if isinstance(index, ast.Tuple) else made[0]

    def _by_tensor(self, index: ast.expr) -> ast.expr | None:
        if not self._has_step(index) or self._kind(index) is not step_numbers.NUMBER:
            return None
        self.is_tried = True
        self.numbers += [ast.unparse(one) for one in step_numbers.unknown(index, self.step)]
        return step_numbers.as_tensor(index, self.step, COUNT)

    def _part(self, found: StepIndex, context: ast.expr_context) -> ast.Subscript:
        """The part of such a copy."""
        name: ast.expr = ast.Name(self.written[found.of][0], ast.Load())
        rest = [self.visit(one) for one in found.others]
        whole: ast.expr = ast.Constant(...)
        return ast.Subscript(name, ast.Tuple(rest, ast.Load()) if rest else whole, context)

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
        """Another element for a list or a dict, which is no read."""
        return self._refused(node)
