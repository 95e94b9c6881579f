"""Several ways through one model as one module that chooses between them by `cond`, to be captured like any other.

Arrives: the levels of a tree of ways (see `path_tree.py`), and the model. Leaves: a module with the model's parameters
of forward and its weights by their names. When it is captured, sizes are held to what held when the ways were.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import traceback as fx_traceback
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.held_sizes import hold_sizes
from batch_export.exporter.capture.levels import Fork, Level, Planner
from batch_export.exporter.capture.numbered_values import with_others
from batch_export.exporter.capture.path_tree import Constant, Tree
from batch_export.exporter.capture.size_conditions import Equality
from batch_export.exporter.capture.way_sizes import WHERE_EQUAL, Sizes


class MergedPaths(torch.nn.Module):
    """All ways through a model as one module.

    Args:
        module: the model.
        tree: its ways.
        shares: whether what both ways of a decision do alike behind it is done once.

    Raises:
        OneWayOnlyError: they do not fit together.
    """

    def __init__(self, module: torch.nn.Module, tree: Tree, *, shares: bool) -> None:
        super().__init__()
        self._planner = Planner(tree, shares=shares)
        self._ways = tree.ways
        self._sizes = Sizes()
        self._equal: tuple[Equality, ...] = ()
        self._hold(module)

        def forward(*args: object, **kwargs: object) -> object:
            return self._called(args, kwargs)

        vars(forward)["__signature__"] = inspect.signature(module.forward)
        self.forward = forward

    def _hold(self, module: torch.nn.Module) -> None:
        """Makes the model's weights this module's, each in a place of its name."""
        persistent = module.state_dict(keep_vars=True).keys()
        names = [str(what) for kind, what in self._planner.numbers.given.values() if kind == "weight"]
        for name in names:
            path, _, own = name.rpartition(".")
            holder: torch.nn.Module = self
            for part in path.split(".") if path else ():
                if part not in holder._modules:
                    holder.add_module(part, torch.nn.Module())
                holder = holder.get_submodule(part)
            held = module.get_submodule(path)
            if own in held._parameters:
                holder.register_parameter(own, held._parameters[own])
            else:
                holder.register_buffer(own, held._buffers[own], persistent=name in persistent)

    def _called(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._ways[0].program.call_spec.in_spec:
            raise OneWayOnlyError("the inputs are nested otherwise than in the model's own capture")
        mode = detect_fake_mode(leaves)
        if mode is not None and mode.shape_env is not None:
            for way in self._ways:
                hold_sizes(way.program, mode.shape_env, self._planner.known[id(way)])
        planner = self._planner
        has_own = mode is not None and any(planner.known.values())
        self._sizes = Sizes.of(leaves, mode.shape_env) if has_own and mode is not None else Sizes()
        values = {number: self._given(*what, leaves) for number, what in planner.numbers.given.items()}
        values.update(zip(self._keys, self._sizes.tensors, strict=True))
        with fx_traceback.preserve_node_meta():
            results = self._run(planner.level, values)
        for place, new in zip(planner.written, results, strict=False):
            held: Any = self._given(*place, leaves)
            if new is not held:
                held.copy_(new)
        return pytree.tree_unflatten(results[len(planner.written) :], planner.out_spec)

    def _given(self, kind: str, what: Any, leaves: Sequence[object]) -> object:
        if kind == "input":
            return leaves[what]
        if kind == "constant":
            return what
        if kind == "condition":
            return self._sizes.asked(*what)
        path, _, name = str(what).rpartition(".")
        return getattr(self.get_submodule(path), name)

    def _run(self, level: Level, values: dict[int, object]) -> list[object]:
        for step in level.steps:
            if isinstance(step, Fork):
                values.update(zip(step.gives, self._chosen(step, values), strict=True))
                continue
            call = self._planner.numbers.calls[step]
            args, kwargs = with_others((call.args, call.kwargs), lambda one: self._value(one, values))
            with fx_traceback.set_current_meta(call.node):
                target = self._sizes_among(values).where_equal if call.target == WHERE_EQUAL else call.target
                values[step] = self._as_here(target(*args, **kwargs), values)
        return [one.value if isinstance(one, Constant) else values[one] for one in level.results]

    def _as_here(self, value: object, values: Mapping[int, Any]) -> object:
        """A value as one of the sizes that are equal on all ways here, where no one symbol says so (`min(n, m)`)."""
        if not self._equal or not isinstance(value, torch.Tensor):
            return value
        return self._sizes_among(values).where_equal(value, self._equal)

    def _value(self, number: int, values: Mapping[int, object]) -> object:
        return values[number] if number in values else self._planner.numbers.submodules[number]

    def _chosen(self, fork: Fork, values: Mapping[int, object]) -> Sequence[object]:
        asked: Any = values[fork.asked]
        read = [*fork.operands, *self._keys]
        held = [values[one] for one in read]
        if isinstance(asked, bool):
            return self._run(fork.branches[0 if asked else 1], dict(zip(read, held, strict=True)))
        leaves, spec = pytree.tree_flatten(held)  # of operators with several results, which one branch may take apart
        owners = [one for one, value in zip(read, held, strict=True) for _ in pytree.tree_leaves(value)]
        given: dict[int, list[int]] = {}  # one value may stand at several places
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, (torch.Tensor, torch.SymInt)):
                given.setdefault(id(leaf), []).append(place)

        def branch(of: Level) -> Callable[..., object]:
            def run(*operands: object) -> tuple[object, ...]:
                own = list(leaves)
                for places, operand in zip(given.values(), operands, strict=True):
                    for place in places:
                        own[place] = operand
                found = dict(zip(read, pytree.tree_unflatten(own, spec), strict=True))
                with self._known_behind(fork, of is fork.branches[0]):
                    results = tuple(_own_copy(one) for one in self._run(of, found))
                    return self._of_same_sizes(results, fork, of is fork.branches[0], found)

            return run

        operands = tuple(self._operand(owners[places[0]], leaves[places[0]]) for places in given.values())
        results: Sequence[object] = torch.ops.higher_order.cond(asked, *map(branch, fork.branches), operands)
        return results

    @property
    def _keys(self) -> list[int]:
        """Places among values of the inputs that have the sizes."""
        return [-1 - place for place in range(len(self._sizes.tensors))]

    def _sizes_among(self, values: Mapping[int, Any]) -> Sizes:
        """The inputs' sizes, where values are computed."""
        return replace(self._sizes, tensors=tuple(values[key] for key in self._keys))

    @contextlib.contextmanager
    def _known_behind(self, fork: Fork, is_true: bool) -> Iterator[None]:
        """Within, what holds on all ways of a branch is known."""
        way = self._planner.behind.get((fork.asked, is_true))
        mode = detect_fake_mode(list(self._sizes.tensors))
        if way is None or mode is None or mode.shape_env is None:
            yield
            return
        before, self._equal = self._equal, way.equal
        try:
            with self._sizes.taken_for_granted(way, mode.shape_env):
                yield
        finally:
            self._equal = before

    def _of_same_sizes(
        self, results: tuple[object, ...], fork: Fork, is_true: bool, values: Mapping[int, Any]
    ) -> tuple[object, ...]:
        """What a branch gives, with the other branch's sizes where these are equal on its side."""
        way = self._planner.behind.get((fork.asked, is_true))
        if way is None or not way.equal:
            return results
        known = self._planner.numbers.known
        beside = [known(one) if isinstance(one, int) else None for one in fork.branches[1 if is_true else 0].results]
        sizes = self._sizes_among(values)
        return tuple(sizes.as_beside(*pair, way.equal) for pair in zip(results, beside, strict=True))

    def _operand(self, number: int, value: Any) -> object:
        """A constant becomes a value of the graph around: a branch's own graph holds none."""
        kind, _ = self._planner.numbers.given.get(number, ("", None))
        return torch.ops.aten.lift_fresh_copy.default(value) if kind == "constant" else value


def _own_copy(result: Any) -> object:
    return torch.ops.aten.clone.default(result, memory_format=torch.contiguous_format)
