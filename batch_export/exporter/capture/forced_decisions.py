"""Decisions by data that a capture is told how to take: which way, in the order in which the model asks.

Arrives: the ways to take. Leaves: a context in which a Python `if` on data goes the given way, with what was asked and
at which line. A decision beyond those given goes the way of truth. What torch asks for itself while it works out shapes
is no decision of the model's, and fails as before; where one way does nothing in any case there is no decision either.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from batch_export.exporter.capture import size_conditions
from batch_export.exporter.capture.caught_failures import is_caught
from batch_export.exporter.capture.guard_sources import is_users, quoted, users_frame, users_frames
from batch_export.exporter.capture.masked_writes import does_nothing_otherwise
from batch_export.exporter.capture.raising_lines import passing
from batch_export.exporter.capture.work_on_nothing import answer_that_works

_TORCH = os.path.dirname(torch.__file__) + os.sep
_WORKING_OUT_SHAPES = tuple(
    _TORCH + room
    for room in ("_refs", "_prims", "_meta_registrations", "_decomp", "_subclasses", "_higher_order_ops", "_inductor")
)

_INEQUALITIES = (sympy.StrictGreaterThan, sympy.GreaterThan, sympy.StrictLessThan, sympy.LessThan)
_TAKEN: ContextVar[list[Decision]] = ContextVar("_TAKEN")


class OneWayOnlyError(RuntimeError):
    """Why decisions by data are not captured both ways, in words."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision by data.

    Attributes:
        asked: what is asked, as a symbolic truth value of the capture.
        taken: which way the capture went.
        source: `file:line` in the model.
        place: how many were taken before it.
        condition: what is asked of sizes, on torch's symbols, where that is more than a question of the data.
    """

    asked: torch.SymBool
    taken: bool
    source: str
    place: int
    condition: sympy.Basic | None = None

    @property
    def is_real(self) -> bool:
        """Whether the sizes of the capture are such as are on this way."""
        known = self.asked.node.shape_env.backed_var_to_val
        return self.condition is None or bool(self.condition.xreplace(known)) == self.taken

    @property
    def place_in_file(self) -> tuple[str, int]:
        """The file and the line."""
        file, _, line = self.source.rpartition(":")
        return file, int(line)

    @property
    def text(self) -> str:
        """The line itself, with its place."""
        return quoted(*self.place_in_file)


@dataclass(slots=True)
class _Path:
    """What was decided so far.

    Attributes:
        ways: how to decide, in order.
        raising: lines that only raise an error, which were passed by.
        is_real: whether sizes have to be such as are on the way.
        decisions: those that were taken.
        answers: a condition in torch's symbols -> what was decided of it.
    """

    ways: Sequence[bool]
    most: int
    raising: dict[str, None]
    is_real: bool
    decisions: list[Decision] = field(default_factory=list)
    answers: dict[sympy.Basic, bool] = field(default_factory=dict)

    def answer(self, node: SymNode, frames: Sequence[tuple[str, int]]) -> bool:
        """What a condition is, which is asked for the first time."""
        file, line = frames[0]
        passed = None if is_caught(frames) else passing(file, line)
        if passed is not None:
            if not passed.is_assertion:
                self.raising[quoted(file, line)] = None
            is_equality = isinstance(node.expr, sympy.Eq) and not _is_of_truth(node)
            taken = passed.answer != (passed.differs and is_equality)
        else:
            if len(self.decisions) == self.most:
                raise OneWayOnlyError(
                    f"one way through the model takes more than {self.most} such decisions (the next one is "
                    f"{quoted(file, line)})"
                )
            place = len(self.decisions)
            taken = self.ways[place] if place < len(self.ways) else True
            self._decide(Decision(torch.SymBool(node), taken, f"{file}:{line}", place))
        if _is_of_whole_numbers(node.expr):
            self.answers[sympy.Not(node.expr)] = not taken
        if _is_asked_the_same(node.expr):
            self.answers[node.expr] = taken
        held = node.expr if taken else sympy.Not(node.expr)
        is_asserted = passed is not None and passed.is_certain and not _is_of_truth(node)
        is_known = is_asserted or (passed is None and isinstance(held, _INEQUALITIES))
        if is_known and all(symbol.is_integer for symbol in held.free_symbols):
            known: Any = node if taken else node.sym_not()
            known.expect_true("", 0)  # shapes on this way may hang on it
        return taken

    def _decide(self, decision: Decision) -> None:
        """Takes a decision; of sizes the capture knows then what holds of them on this way."""
        condition = size_conditions.noted(decision.asked.node) if self.is_real else None
        if condition is None:
            self.decisions.append(decision)
            return
        self.decisions.append(replace(decision, condition=condition))
        if not self.decisions[-1].is_real:
            raise OneWayOnlyError(f"the sizes of the example are not those of this side of {decision.text}")
        environment: Any = decision.asked.node.shape_env
        for held in size_conditions.held(condition, holds=decision.taken):
            if held.free_symbols:
                environment.evaluate_expr(held)


def _truth(node: SymNode) -> SymNode:
    """What is asked of a number that stands where a truth value is wanted: whether it is not 0."""
    if node.pytype is bool:
        return node
    number: Any = torch.SymInt(node) if node.pytype is int else torch.SymFloat(node)
    asked: Any = number != 0
    truth: SymNode = asked.node
    return truth


def _is_of_whole_numbers(condition: Any) -> bool:
    """Whether a condition or its opposite is true; of fractions neither `v > 0` nor `v <= 0` may be."""
    return all(symbol.is_integer for symbol in condition.free_symbols)


def _is_asked_the_same(condition: Any) -> bool:
    """Whether an equal condition is the same question: of fractions torch's algebra may have changed how it is made."""
    plain = all(one.is_Symbol or one.is_number for one in condition.args)
    return condition.free_symbols != set() and (plain or _is_of_whole_numbers(condition))


def _is_of_truth(node: SymNode) -> bool:
    """Whether a truth value of a tensor is asked, which torch has as a number of 0 and 1."""
    expression: Any = node.expr
    ranges: Any = node.shape_env.var_to_range if node.shape_env is not None else {}
    found = [ranges.get(symbol) for symbol in expression.free_symbols]
    return len(found) == 1 and found[0] is not None and (found[0].lower, found[0].upper) == (0, 1)


@contextlib.contextmanager
def forced_decisions(
    ways: Sequence[bool],
    most: int,
    raising: dict[str, None],
    passed: dict[str, None],
    *,
    is_real: bool = False,
) -> Iterator[list[Decision]]:
    """Within, decisions by data go these ways; gives a list of them, which grows.

    Args:
        ways: how to decide, in order.
        most: how many decisions there may be.
        raising: gets lines that do nothing but raise an error by what is asked; they are passed by.
        passed: gets lines that ask if there is work to do, where doing it on nothing changes nothing.
        is_real: whether sizes that a decision asks for have to be such as are on the way.

    Raises:
        OneWayOnlyError: from within, where there are more, or the last one is of sizes that are not on the way.

    What they went by is given beside the results while `decisions_returned` is open.

    NOTE: this wraps a private method of torch's symbolic numbers, by which Python's `if` asks them.
    """
    path = _Path(ways, most, raising, is_real)
    own: Any = SymNode.guard_bool

    def guard_bool(self: SymNode, file: str, line: int) -> bool:
        if path.answers and self.expr in path.answers:
            return path.answers[self.expr]
        try:
            return bool(own(self, file, line))
        except GuardOnDataDependentSymNode:
            if _torch_asks_itself():
                raise
            frames = list(users_frames())
            if not frames:
                raise
            frame = users_frame()
            if frame is not None and does_nothing_otherwise(frame):
                return True
            working = None if frame is None else answer_that_works(frame)
            if working is not None:
                passed[quoted(*frames[0])] = None
                return working
            return path.answer(_truth(self), frames)

    SymNode.guard_bool = guard_bool  # type: ignore[method-assign]
    earlier = _TAKEN.set(path.decisions)
    try:
        yield path.decisions
    finally:
        _TAKEN.reset(earlier)
        SymNode.guard_bool = own  # type: ignore[method-assign]


@contextlib.contextmanager
def decisions_returned(module: torch.nn.Module) -> Iterator[None]:
    """While open, a call of the module for which decisions are forced gives what they went by beside its results.

    It is a hook of its own, and there before anybody looks at which hooks a model has.
    """

    def returned(_module: torch.nn.Module, _given: object, outputs: object) -> object:
        if torch.compiler.is_dynamo_compiling() or (taken := _TAKEN.get(None)) is None:
            return outputs
        return outputs, [one.asked for one in taken]

    hook = module.register_forward_hook(returned)
    try:
        yield
    finally:
        hook.remove()


def _torch_asks_itself() -> bool:
    """Whether the innermost lines are those of torch's working out of shapes, and not the model's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_WORKING_OUT_SHAPES):
            return True
        frame = frame.f_back
    return False
