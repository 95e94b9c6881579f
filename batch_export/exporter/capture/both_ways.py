"""A Python `if` on data, captured both ways: every way through the model by itself, then all of them as one program.

Arrives: a strategy of one capture, a module and its inputs. Leaves: one exported program with a `cond` for each
decision, and the decisions. A way on which the model raises an error by its own `raise` has none: a file has no errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from batch_export.exporter.capture import effect_tokens, real_sizes
from batch_export.exporter.capture.assigned_buffers import one_of_several_ways
from batch_export.exporter.capture.begun_anew import begun_anew
from batch_export.exporter.capture.branch_knowledge import knowledge_of_branches
from batch_export.exporter.capture.forced_decisions import Decision, OneWayOnlyError, forced_decisions
from batch_export.exporter.capture.guard_sources import line_of
from batch_export.exporter.capture.merged_paths import MergedPaths
from batch_export.exporter.capture.path_tree import Choice, Tree, Way
from batch_export.exporter.capture.raising_lines import raised_at
from batch_export.words import class_and_line

_MOST_DECISIONS = 5
"""On one way: with as many again on each, a model is captured 32 times."""
_FEW_DECISIONS = 3
_MOST_CALLS = 60_000
"""In the programs of all ways together, where there are more decisions than a few: so many take minutes."""

Strategy = Callable[..., torch.export.ExportedProgram]
Check = Callable[[torch.export.ExportedProgram, torch.nn.Module], None]


@dataclass(slots=True)
class _Ways:
    """The ways through a model that were found so far.

    Attributes:
        decided: the decisions that were captured both ways, in words.
        raising: those of which one way is an error of the model's own, in words.
        passed: those that ask if there is work to do, of which only the way with work was captured, in words.
    """

    strategy: Strategy
    module: torch.nn.Module
    args: tuple[object, ...]
    kwargs: dict[str, object]
    form: object
    check: Check
    decided: dict[str, None] = field(default_factory=dict)
    raising: dict[str, None] = field(default_factory=dict)
    passed: dict[str, None] = field(default_factory=dict)

    def tree(self, ways: tuple[bool, ...]) -> tuple[Tree | Exception, tuple[Decision, ...]]:
        """All ways that begin so, and the decisions of the first of them."""
        first, decisions = self._way(ways)
        found: Tree | Exception = first
        for decision in reversed(decisions[len(ways) :]):
            before = (*ways, *(one.taken for one in decisions[len(ways) : decision.place]))
            other, _ = self.tree((*before, False))
            if isinstance(found, Exception) or isinstance(other, Exception):
                self.raising[decision.text] = None
                found = other if isinstance(found, Exception) else found
            else:
                self.decided[decision.text] = None
                found = Choice(decision, found, other)
        return found, decisions

    def _way(self, ways: Sequence[bool]) -> tuple[Way | Exception, tuple[Decision, ...]]:
        """One way, or the error that the model itself raises on it; from inputs of its sizes, where these decide."""
        sizes, inputs = real_sizes.current(), (self.args, self.kwargs)
        for _ in range(_MOST_DECISIONS):
            found = self._captured(ways, *inputs, is_real=sizes is not None)
            wrong = next((one for one in found[1] if not one.is_real), None)
            if sizes is None or wrong is None:
                break
            other = sizes.inputs(found[1])
            if other is None:
                raise OneWayOnlyError(f"no sizes were found that are those of {wrong.text} being {wrong.taken}")
            inputs = other
        return found

    def _captured(
        self,
        ways: Sequence[bool],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        *,
        is_real: bool,
    ) -> tuple[Way | Exception, tuple[Decision, ...]]:
        with (
            begun_anew(self.module, args, kwargs),
            forced_decisions(ways, _MOST_DECISIONS, self.raising, self.passed, is_real=is_real) as decisions,
            one_of_several_ways(lambda: bool(decisions)),
        ):
            try:
                program = self.strategy(self.module, args, kwargs, self.form)
            except Exception as error:
                if any(raised_at(error, *one.place_in_file) for one in decisions) or not all(
                    one.is_real for one in decisions
                ):
                    return error, tuple(decisions)
                if not decisions or isinstance(error, OneWayOnlyError) or not line_of(error):
                    raise
                taken = " and ".join(f"{one.text} is {one.taken}" for one in decisions[-1:])
                raise OneWayOnlyError(f"where {taken}, forward fails: {class_and_line(error)}") from error
        if decisions:
            self.check(program, self.module)
        if len(decisions) > _FEW_DECISIONS and not ways:
            calls, several = len(program.graph.nodes), 2 ** len(decisions)
            if calls * several > _MOST_CALLS:
                raise OneWayOnlyError(
                    f"one way through the model takes {len(decisions)} such decisions, and {several} captures of "
                    f"{calls} operators are too many (the last one is {decisions[-1].text})"
                )
        return Way(program), tuple(decisions)


def captured_both_ways(strategy: Strategy, check: Check) -> Strategy:
    """A strategy that captures decisions by data both ways.

    Args:
        strategy: that of one capture.
        check: refuses a program that is not the model.
    """

    def run(
        module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], form: object
    ) -> torch.export.ExportedProgram:
        ways = _Ways(strategy, module, args, kwargs, form, check)
        tree, _ = ways.tree(())
        if isinstance(tree, Exception):
            raise tree
        seen = [way.program for way in tree.ways]
        tree = _without_writes(tree)
        with _without_modes(), knowledge_of_branches():
            try:
                program = strategy(MergedPaths(module, tree, shares=True), args, kwargs, form)
            except Exception:  # torch may fail at a size that is free behind a choice, and is not on each way
                program = strategy(MergedPaths(module, tree, shares=False), args, kwargs, form)
        program._both_ways = list(ways.decided)  # type: ignore[attr-defined]
        program._ways = seen  # type: ignore[attr-defined]
        program._raising = list(ways.raising)  # type: ignore[attr-defined]
        program._works_on_nothing = list(ways.passed)  # type: ignore[attr-defined]
        return program

    return run


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    """Within, no mode looks at functions of torch: what is run again are operators, for which none has a form."""
    stack: Any = torch.overrides
    modes = [stack._pop_mode() for _ in range(stack._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            stack._push_mode(mode)


def _without_writes(tree: Tree) -> Tree:
    """The ways without writes; where one writes to a buffer all have to be of one form, and are decomposed."""
    graphs = [
        one
        for way in _ways_of(tree)
        for one in way.program.graph_module.modules()
        if isinstance(one, torch.fx.GraphModule)
    ]
    for one in graphs:
        _pass_through(one)
    return _decomposed(tree) if _write(graphs) else tree


def _ways_of(tree: Tree) -> Iterator[Way]:
    if isinstance(tree, Choice):
        yield from _ways_of(tree.if_true)
        yield from _ways_of(tree.if_false)
    else:
        yield tree


def _decomposed(tree: Tree) -> Tree:
    if isinstance(tree, Choice):
        return Choice(tree.decision, _decomposed(tree.if_true), _decomposed(tree.if_false))
    return Way(effect_tokens.decomposed(tree.program, {}))


def _pass_through(graph: torch.fx.GraphModule) -> None:
    """Leaves `detach_` of what `torch.tensor` makes out: it changes no number, and gives what it is called with."""
    found = [
        node
        for node in graph.graph.nodes
        if node.target is torch.ops.aten.detach_.default and all(user.op != "output" for user in node.users)
    ]
    for node in found:
        node.replace_all_uses_with(node.args[0])
        graph.graph.erase_node(node)
    if found:
        graph.recompile()


def _write(graphs: Sequence[torch.fx.GraphModule]) -> bool:
    """Whether something is written to; an operator that is not torch's own may write unseen."""
    called = [node.target for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
    return any(isinstance(one, torch._ops.OpOverload) and one._schema.is_mutable for one in called)
