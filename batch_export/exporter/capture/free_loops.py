"""Which loops over a free size can be run as one operator: those that go on from tensors to tensors.

Arrives: what the code of `loop_code.py` hands over: a loop's length, one round as a function, what goes on, the
tensors that are read along an axis, the lists and tensors that are filled. Leaves: the loop, for `loop_operator.py` to
run, or nothing, with the reason noted. What goes on may be tensors in tuples, lists and dicts, and may begin as numbers
or as nothing. A round that no operator takes (shapes that change, a decision by data) is torch's error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import begun_numbers, loop_pieces, loop_reasons, loop_scans
from batch_export.exporter.capture.begun_numbers import NUMBERS, begins_as_tensors
from batch_export.exporter.capture.free_sequences import Backwards, FreeNumbers, Run
from batch_export.exporter.capture.loop_operator import Along, FreeLoop, Written
from batch_export.exporter.capture.loop_reach import Reach, goes_by_one, goes_evenly, rows_of
from batch_export.exporter.capture.module_states import ModuleStates

_COUNTED = (torch.float32, torch.float64, torch.int64)
"""Of which a tensor without axes stays what it is beside another whole number."""
_UNFOLLOWED = object()
"""What no loop can begin with."""


def steps_of(over: Sequence[Any], is_backwards: bool, has_elements: bool) -> tuple[Any, Sequence[Any]]:
    """What a loop goes over: its steps, and the tensors of which it takes a slice at each of them.

    Args:
        over: whole numbers, a tensor, or its slices; several where it takes of each of them.
        is_backwards: whether the loop begins at their end.
        has_elements: whether the loop has names for slices.
    """
    over = [one.of[::-1] if isinstance(one, Backwards) and one.elements is None else one for one in over]
    first = over[0]
    is_of_numbers = isinstance(first, FreeNumbers) and not first.is_plain
    if is_of_numbers is has_elements:
        return None, [None] * len(over)
    if is_of_numbers:
        return first[::-1] if is_backwards else first, ()
    rows = [rows_of(one) for one in over]
    lengths: list[Any] = [one.shape[0] if isinstance(one, Tensor) and one.dim() else None for one in rows]
    if not all(isinstance(one, torch.SymInt) for one in lengths):
        return None, [None] * len(rows)
    length, *others = lengths
    for other in others:
        length = length if statically_known_true(length == other) else torch.sym_min(length, other)
    return FreeNumbers([Run(0, 1, length)], range), [one.flip(0) if is_backwards else one for one in rows]


def before(one: Any, axis: int | None, beside: int, steps: Any, is_by_place: bool) -> Any:
    """What a tensor that is written to holds in front of a loop's first step, or a list as its last element.

    Args:
        one: the tensor, or the list.
        axis: along which the loop goes; None of a list.
        beside: how many places behind the step's the tensor is written to.
        steps: the loop's.
        is_by_place: whether the list is asked by the step, so that it has to begin with as many elements.
    """
    is_free = isinstance(steps, FreeNumbers) and not steps.is_plain and goes_by_one(steps)
    if axis is not None:
        return Reach.of(steps).before(one, axis, beside) if is_free and isinstance(one, Tensor) else _UNFOLLOWED
    if type(one) is not list or not is_free or (is_by_place and steps.runs[0].first is not len(one)):
        return _UNFOLLOWED
    return one[-1] if one else None


def free_loop(
    body: Callable[..., Any],
    over: Any,
    carried: Sequence[Any],
    slices: Sequence[Along],
    lists: Sequence[Any],
    written: Sequence[Written],
    *,
    others: Sequence[Any],
    numbers: Sequence[Any],
    compared: Sequence[Any],
    counted: Sequence[int],
    counts: Sequence[int],
    turned: Sequence[int],
    summed: Sequence[int],
    changed: Sequence[int],
    is_counted: bool,
    has_first: bool,
    has_trial: bool,
    is_traced: bool = False,
    has_choice: bool = False,
    states: ModuleStates | None = None,
) -> FreeLoop | None:
    """A loop as one operator, if it goes over a free size, from tensors to tensors; None otherwise.

    What it fills must be seen nowhere else meanwhile.

    Args:
        body: a round, as `FreeLoop` has it.
        over: what the loop goes over.
        carried: what goes on.
        slices: what is read at the step's place, or beside it.
        lists: lists that get elements each round, and behind them one that only the loop's function knows.
        written: what is written to at the step's place.
        others: whatever else a round reads.
        numbers: what has to be a number.
        compared: what has to be a tensor.
        counted: places of names that `+=` or its like changes and that are read besides: numbers, which stay such.
        counts: how many elements each list gets.
        turned: places of lists that get them at their beginning.
        summed: places of names that `+=` or its like changes: tensors are written to, numbers are not.
        changed: places of lists and dicts that get other elements.
        is_counted: whether a round computes with the step as a number.
        has_first: whether the first round does something else.
        has_trial: whether a round has an `if`, which data may decide, or a loop.
        is_traced: whether dynamo takes no such round, as one with a loop in it.
        has_choice: whether both sides of a choice by the step are computed.
        states: attributes of modules that go on, the last ones in `carried`, if they are known.
    """
    given = carried = list(carried)
    *references, least = [sys.getrefcount(one) for one in lists]
    all_lists, lists = lists, lists[:-1]
    if not isinstance(over, FreeNumbers) or over.is_plain or not (lists or carried or written):
        return None
    slices = [(rows_of(one), *where) for one, *where in slices]
    if all(type(carried[place]) in NUMBERS for place in counted):
        carried = [begun_numbers.as_tensors(one) if at in counted else one for at, one in enumerate(carried)]
    leaves, form = pytree.tree_flatten(list(carried))
    begun = [one for one in leaves if isinstance(one, Tensor)]
    is_begun = has_first or len(begun) < len(leaves)
    sums = [place for place in summed if isinstance(carried[place], Tensor)]
    known = states or ModuleStates((), others, ())
    loop = FreeLoop(
        body, over, carried, slices, lists, counts, written, changed, turned, sums, is_begun, (), known, is_traced
    )
    besides = pytree.tree_leaves([_content(one) for one in others])
    is_traced = is_traced or any(isinstance(one, torch.SymFloat) for one in besides)  # dynamo hands none of these on
    why = ""
    if states is None and any(count > least for count in references):
        why = "a list that it fills is known elsewhere too"
    elif not all(type(one) in (*NUMBERS, torch.SymInt, torch.SymFloat) for one in numbers):
        why = "what it multiplies by the step is no number"
    elif not all(isinstance(carried[place], Tensor) and not carried[place].dim() for place in counted):
        why = "a tensor that `+=` or its like writes to is read in another way as well"
    elif not all(isinstance(one, Tensor) for one in compared):
        why = "what it compares with the step is no tensor"
    elif not all(type(carried[place]) in NUMBERS for place in summed if place not in sums):
        why = "`+=` or its like changes something else than a number or a tensor"
    why = why or _unfit(loop, leaves, others, besides)
    if not why and is_counted and not all(one.dtype in _COUNTED for one in (*begun, *(one for one, *_ in slices))):
        why = "it computes with the step in a dtype that is no float32, float64 or int64"
    if not why and states is None:
        try:
            found = ModuleStates.of(body, carried, [Reach.of(over).row(*one[:3]) for one in slices], others)
        except loop_pieces.SizeByDataError as error:
            found, why = known, str(error)
        if found.where and has_choice:
            why = "a module changes in it, and both sides of a choice by the step are computed"
        elif found.where or (is_traced and not why):
            options = {"others": others, "numbers": numbers, "compared": compared, "counted": counted}
            options |= {"counts": counts, "turned": turned, "summed": summed, "changed": changed}
            kinds = {
                "is_counted": is_counted,
                "has_first": has_first,
                "has_trial": True,
                "is_traced": True,
                "states": found,
            }
            going = (*given, *found.begun)
            return free_loop(found.on(body), over, going, slices, all_lists, written, **options, **kinds)  # type: ignore[arg-type]
    if not why and not loop.is_begun and any(map(_may_grow, begun)):
        rows = [Reach.of(over).row(*one[:3]) for one in slices]
        loop = replace(loop, is_begun=begun_numbers.grows_at_first(body, carried, rows))
    is_tree = form != pytree.tree_structure([None] * len(carried))
    is_tried = loop.is_begun or is_tree or has_trial or bool(sums) or bool(counted)
    rows = [Reach.of(over).row(*one[:3]) for one in slices] if is_tried and not why else []
    if (
        not why
        and is_tried
        and not begins_as_tensors(loop.with_numbers(), carried, rows, besides, counted, given if counted else None)
    ):
        why = "what goes on does not keep its kind, shape and dtype, or data decide what a round does"
        numbers = begun_numbers.as_tensors(carried)
        has_numbers = any(type(one) in NUMBERS for one in leaves)
        if has_numbers and begins_as_tensors(loop.with_numbers(), numbers, rows, besides, counted, given):
            why, loop = "", replace(loop, carried=numbers)
    if not why and (counted or loop.carried is not carried):
        loop = replace(loop, numbers=begun_numbers.left_as_numbers(body, given, rows))
    if why:
        loop_reasons.note_of(body, why)
    return None if why else loop


def _unfit(loop: FreeLoop, leaves: Sequence[Any], others: Sequence[Any], besides: Sequence[Any]) -> str:
    """Why it cannot be run as one operator, by what it reads and fills; empty where nothing of that is known.

    Args:
        loop: the loop.
        leaves: what the first round begins with, one after the other.
        others: whatever else a round reads.
        besides: what these consist of.
    """
    if not goes_evenly(loop.over):
        return "its steps are not one behind the other, or may be counted from the end of an axis"
    if not all(isinstance(one, Tensor) or one is None or type(one) in NUMBERS for one in leaves):
        return "something else than tensors, numbers and None goes on from round to round"
    sums = [loop.carried[at] for at in loop.sums]
    rest = pytree.tree_leaves([one for at, one in enumerate(loop.carried) if at not in loop.sums])
    filled = [*(one for one, *_ in loop.written), *sums]
    read = [
        *(one for one in rest if isinstance(one, Tensor)),
        *(one for one, *_, is_own in loop.slices if not is_own),
    ]
    if not all(isinstance(one, Tensor) for one in (*filled, *read)):
        return "the step is an index of something that is no tensor"
    if not all(map(_is_fillable, loop.lists)):
        return "a list that it fills holds other things than tensors of one shape"
    memory = [StorageWeakRef(one.untyped_storage()) for one in filled]
    listed = [one for own in loop.lists for one in own] if sums else []
    seen = [StorageWeakRef(one.untyped_storage()) for one in (*read, *besides, *listed) if isinstance(one, Tensor)]
    if any(one in seen for one in memory) or len(set(memory)) < len(memory):
        return "a tensor that it writes to is read in another way as well"
    indexed, reach = [one[:3] for one in (*loop.slices, *loop.written)], Reach.of(loop.over)
    if not all(-one.dim() <= axis < one.dim() for one, axis, _ in indexed):
        return "the step is an index of an axis that is not there"
    if not all(reach.is_within(*one) for one in indexed):
        return "a place that it comes to may lie outside of its axis, or how far it goes is not known"
    if not all(is_added or reach.are_apart(*where) for *where, is_added in loop.written):
        return "two rounds write to one place"
    own = [loop.carried[place] for place in loop.changed]
    if not all(type(one) in (list, dict) for one in own):
        return "a part of something that goes on is written to"
    is_known = any(one is other for one in own for other in others) or len({id(one) for one in own}) < len(own)
    parts = [part for one in own for part in (one.values() if type(one) is dict else one)]
    if is_known or any(isinstance(part, (list, dict)) for part in parts):
        return "a list or dict whose elements change is known under another name too"
    return ""


def _is_fillable(one: Any) -> bool:
    """Whether something is a list, empty or of tensors that can be stacked."""
    return type(one) is list and all(isinstance(each, Tensor) and loop_scans.is_like(each, one[0]) for each in one)


def _may_grow(one: Tensor) -> bool:
    """Whether a round may make a larger tensor of one by another beside it: it has no size that is free."""
    return not any(isinstance(size, torch.SymInt) for size in one.shape)


def _content(one: Any) -> Any:
    """Something that a round reads; of a module its tensors."""
    return [*one.parameters(), *one.buffers(), *vars(one).values()] if isinstance(one, torch.nn.Module) else one
