"""Rounds that go on while data say so, as one operator: what the code calls that `data_loops.py` writes.

Arrives: a round as a function of what goes on, and what decides. Leaves: what the last round hands on, by torch's
`while_loop`. A first round that is run in any case stands before it: what begins as a number or as nothing is a tensor
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.forced_decisions import OneWayOnlyError

NUMBER = "_is_a_number_by_data"
"""An attribute of tensors that stand for numbers: nothing is written to them, as Python writes to no number."""
Round = Callable[..., tuple[Any, tuple[Any, ...]]]
"""Takes the step and what goes on; gives whether that was the last round, and what goes on."""


def rounds_by_data(
    one_round: Round,
    goes_on: Callable[..., Any] | None,
    steps: range | None,
    breaks: bool,
    begun: tuple[Any, ...],
    kinds: tuple[tuple[str, ...], ...],
) -> tuple[Any, ...]:
    """The last step, and what the last round hands on.

    Args:
        one_round: a round.
        goes_on: what decides before each round, of what goes on; None where nothing does.
        steps: the steps, as many as there are rounds at the most.
        breaks: whether a round may be the last one whatever `goes_on` says.
        begun: what the first round begins with.
        kinds: for each of these the kinds of numbers in whose place a tensor may stand.

    Raises:
        OneWayOnlyError: something that goes on is no tensor.
    """
    for one in (one_round, goes_on):
        _refuse_sizes(one)
    ended: Any = False
    values = begun
    if goes_on is None:
        if steps is not None and not steps:
            return None, *begun
        ended, values = one_round(None if steps is None else steps[0], *begun)
        _check_numbers(values, kinds)
    else:
        values = _like_later_ones(values, one_round, kinds)
    carried = [_tensor(one) for one in values]
    first = _tensor(0 if steps is None else steps.start + (steps.step if goes_on is None else 0))

    def condition(step: Tensor, over: Tensor, *given: Tensor) -> Tensor:
        asked = [~over] if breaks else []
        if goes_on is not None:
            asked.append(_tensor(goes_on(*(_askable(over, given) if breaks else given))))
        if steps is not None:
            asked.append(step < steps.stop if steps.step > 0 else step > steps.stop)
        return torch.stack([one.reshape(()).to(torch.bool) for one in asked]).all()

    def _askable(over: Tensor, given: tuple[Tensor, ...]) -> list[Tensor]:
        # Python asks nothing behind a break, where places that are read may lie outside; what it began with, it asked
        return [torch.where(over, start, one) for start, one in zip(carried, given, strict=True)]

    def body(step: Tensor, over: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        last, now = one_round(None if steps is None else step, *(one.clone() for one in given))
        after = [_plain(_tensor(one)) for one in now]
        stride = 1 if steps is None else steps.step
        return step + stride, _tensor(last).reshape(()).to(torch.bool).clone(), *after

    over = _tensor(ended).reshape(()).to(torch.bool)
    after, _, *last = while_loop(condition, body, (first, over.clone(), *map(_plain, carried)))
    for value, made in zip(begun, last, strict=True):
        if isinstance(value, (bool, int, float)):
            setattr(made, NUMBER, True)
    return after - (1 if steps is None else steps.step), *last


def _refuse_sizes(function: Callable[..., Any] | None) -> None:
    """A round that reads free sizes: torch takes each of them for 2 or more within such an operator."""
    cells = getattr(function, "__closure__", None) or ()
    held = [cell.cell_contents for cell in cells if _is_filled(cell)]
    if any(isinstance(one, _SIZES) for one in pytree.tree_leaves(held)):
        raise OneWayOnlyError("a loop that ends by data reads free sizes")


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)


def number(value: Any, kind: str) -> Any:
    """What `float`, `int` or `.item()` makes of a tensor, as a tensor; of anything else what Python makes of it."""
    if not isinstance(value, Tensor):
        return int(value) if kind == "int" else float(value) if kind == "float" else value.item()
    value = value.reshape(())
    if kind == "int":
        return value.trunc().to(torch.int64) if value.is_floating_point() else value.to(torch.int64)
    if value.is_floating_point() or kind == "float":
        return value.to(torch.float64)
    return value if value.dtype is torch.bool else value.to(torch.int64)


COMPARISONS: Mapping[str, Callable[..., Any]] = {"equal": torch.equal, "allclose": torch.allclose}
"""Functions, and methods of tensors, that give a truth value of Python's."""


def alike(name: str, *given: Any, **options: Any) -> Any:
    """What such a function says of tensors of one shape, as a tensor; of anything else what Python says."""
    both = [*given[:2], *(options[one] for one in ("other",) if one in options)]
    if len(both) != 2 or not all(isinstance(one, Tensor) for one in both) or both[0].shape != both[1].shape:
        return COMPARISONS[name](*given, **options)
    return torch.eq(*both).all() if name == "equal" else torch.isclose(*given, **options).all()


def _check_numbers(values: tuple[Any, ...], kinds: tuple[tuple[str, ...], ...]) -> None:
    """Raises where a number goes on with which something is done that gives something else of a tensor."""
    for value, own in zip(values, kinds, strict=True):
        if isinstance(value, (bool, int, float)) and type(value).__name__ not in own:
            raise OneWayOnlyError(
                "a number goes on from round to round, and more is done with it than tensors do alike"
            )


def _like_later_ones(values: tuple[Any, ...], one_round: Round, kinds: tuple[tuple[str, ...], ...]) -> tuple[Any, ...]:
    """What goes on, numbers as tensors like those that a round makes of them."""
    if all(isinstance(one, Tensor) for one in values):
        return values
    _, after = one_round(None, *(one.clone() if isinstance(one, Tensor) else one for one in values))
    _check_numbers(after, kinds)
    return tuple(
        torch.full(later.shape, one, dtype=later.dtype, device=later.device)
        if isinstance(one, (int, float)) and isinstance(later, Tensor)
        else one
        for one, later in zip(values, after, strict=True)
    )


def kept(value: Any) -> Any:
    """A value as it is now, whatever is written to it."""
    return value.clone() if isinstance(value, Tensor) else value


TURNS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "T": lambda one: one.t(),
    "mT": lambda one: one.transpose(-2, -1),
}
"""Attributes of a tensor that are another view of it."""


def turned(value: Any, name: str) -> Any:
    """Such a view of a tensor; that attribute of anything else."""
    return TURNS[name](value) if isinstance(value, Tensor) else getattr(value, name)


def at_step(value: Any, *index: Any) -> Any:
    """What is read at the step's place, which is a tensor; anything else as Python reads it."""
    places = [at for at, one in enumerate(index) if isinstance(one, Tensor)]
    is_known = (
        isinstance(value, Tensor) and len(places) == 1 and all(isinstance(one, slice) for one in index[: places[0]])
    )
    if not is_known:
        return value[index if len(index) > 1 else index[0]]
    (axis,) = places
    place = index[axis]
    place = torch.where(place < 0, place + value.shape[axis], place).reshape(1)
    rest = (*index[:axis], *index[axis + 1 :])
    found = value.index_select(axis, place).squeeze(axis)
    return found[rest] if rest else found


def chosen(asked: Any, one: Any, other: Any) -> Any:
    """The first value where something holds that data say, else the second one."""
    if not isinstance(asked, Tensor):
        return one if asked else other
    first, second = _tensor(one), _tensor(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        raise OneWayOnlyError("what goes on from round to round has another shape or dtype in the last one")
    return torch.where(asked.reshape(()), first, second)


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool):
        return torch.full((), value, dtype=torch.bool)
    number: Any = value
    if isinstance(value, (int, torch.SymInt)):
        return torch.full((), number, dtype=torch.int64)
    if isinstance(value, (float, torch.SymFloat)):
        return torch.full((), number, dtype=torch.float64)
    raise OneWayOnlyError(f"a {type(value).__name__} goes on from round to round of a loop that ends by data")


def _plain(tensor: Tensor) -> Tensor:
    """A copy in order in memory: what goes on looks alike in every round."""
    return tensor.clone(memory_format=torch.contiguous_format)
