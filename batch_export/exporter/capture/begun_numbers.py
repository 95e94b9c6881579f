"""Numbers that a loop over a free size begins with (`total = 0`), of which its first round makes tensors.

Arrives: a round, what it goes on from, and what it reads along an axis. Leaves: whether rounds go on from tensors to
tensors from the second one on, and what is to be known where there is no round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, cast

import sympy
import torch
from torch import Tensor
from torch.fx.experimental import symbolic_shapes
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Max, Min

NUMBERS = (int, float)
IS_TRIED: ContextVar[bool] = ContextVar("is_tried", default=False)
"""Whether a round is only run to see what it gives."""


@contextlib.contextmanager
def trying() -> Iterator[None]:
    """Within, rounds are only tried."""
    token = IS_TRIED.set(True)
    try:
        yield
    finally:
        IS_TRIED.reset(token)


def writes_so_far(one: Tensor) -> int:
    """How often a tensor, or another one of the same memory, was written to; always 0 in inference mode."""
    return 0 if one.is_inference() else one._version


class WrittenByRoundError(RuntimeError):
    """A round writes to a tensor that it does not get from the one before it."""


def begins_as_tensors(
    body: Callable[..., Any],
    carried: Sequence[Any],
    rows: Sequence[Tensor],
    others: Sequence[Any],
    counted: Sequence[int] = (),
    numbers: Sequence[Any] | None = None,
) -> bool:
    """Whether what goes on are tensors after the first round, of shapes and dtypes that the second one leaves, and
    whether what it appends and writes are tensors.

    Args:
        body: a round, which is run on tensors of any numbers, at the step as Python's number and as a tensor; nothing
            reads what it gives. One that cannot be run so, as one that data decide, is no such round.
        carried: tensors, numbers and nothing, also in tuples, lists and dicts.
        rows: tensors like what it reads at the step's place.
        others: whatever else a round reads.
        counted: places in `carried` of numbers as tensors, which have to stay numbers.
        numbers: `carried` with the numbers that have become tensors in it; a round has to give the same of both.

    Raises:
        WrittenByRoundError: a round has written to one of the others; of inference mode that is not seen.
    """
    known = [(one, writes_so_far(one)) for one in others if isinstance(one, Tensor)]
    step = torch.zeros((), dtype=torch.int64)
    try:
        with trying():
            plainly, _ = body(copied(carried), tuple(rows), 0, True)
            begun, made = body(copied(carried), tuple(rows), step, True)
            again, _ = body(copied(begun), tuple(rows), step, False)
        is_alike = _are_alike(plainly, begun) and _are_alike(begun, again)
        is_alike = is_alike and all(isinstance(one, Tensor) for one in made)  # pairs of places are no rows
        is_alike = is_alike and all(_are_alike([carried[at]], [begun[at]]) for at in counted)
        if numbers is not None:
            with trying():
                number, given = body(copied(numbers), tuple(rows), 0, True)
            is_alike = is_alike and _are_as_numbers([*begun, *made], [*number, *given])
    except Exception:
        is_alike = False
    if any(writes_so_far(one) != count for one, count in known):
        raise WrittenByRoundError("a round of a loop over a free size writes to a tensor from outside of the loop")
    return is_alike


def grows_at_first(body: Callable[..., Any], carried: Sequence[Any], rows: Sequence[Tensor]) -> bool:
    """Whether the first round makes other shapes of tensors that go on, as of a learned state without a batch.

    Args:
        body: the round; what it raises is left to be raised when it is captured.
        carried: what it begins with, all of them tensors.
        rows: tensors like what it reads at the step's place.
    """
    try:
        with trying():
            after, _ = body(copied(carried), tuple(rows), torch.zeros((), dtype=torch.int64), True)
    except Exception:
        return False
    pairs = zip(pytree.tree_leaves(list(carried)), pytree.tree_leaves(list(after)), strict=False)
    return any(
        isinstance(one, Tensor) and isinstance(other, Tensor) and list(one.shape) != list(other.shape)
        for one, other in pairs
    )


def _are_as_numbers(these: Sequence[Any], those: Sequence[Any]) -> bool:
    """Whether tensors are alike, apart from those in whose place others have numbers."""
    (some, form), (others, other) = (pytree.tree_flatten(list(one)) for one in (these, those))
    pairs = [(one, two) for one, two in zip(some, others, strict=True) if type(two) not in NUMBERS]
    return form == other and _are_alike([one for one, _ in pairs], [two for _, two in pairs])


def left_as_numbers(body: Callable[..., Any], carried: Sequence[Any], rows: Sequence[Tensor]) -> frozenset[int]:
    """The places of what goes on that are numbers in front of a round and behind it."""
    with trying():
        after, _ = body(copied(carried), tuple(rows), 0, True)
    pairs = enumerate(zip(carried, after, strict=True))
    return frozenset(place for place, (one, other) in pairs if {type(one), type(other)} <= {*NUMBERS})


def as_tensors(carried: Any) -> Any:
    """The same with tensors in place of numbers, which rounds may change as numbers.

    They are of 64 bits, as in Python, and leave the dtype of what stands beside them.
    """
    kinds: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64}
    return pytree.tree_map(
        lambda one: torch.scalar_tensor(one, dtype=kinds[type(one)]) if type(one) in NUMBERS else one, carried
    )


def copied(carried: Sequence[Any]) -> tuple[Any, ...]:
    """The same in tuples, lists and dicts of its own."""
    return tuple(pytree.tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, list(carried)))


def _are_alike(these: Sequence[Any], those: Sequence[Any]) -> bool:
    (some, form), (others, other) = (pytree.tree_flatten(list(one)) for one in (these, those))
    if form != other or not all(isinstance(one, Tensor) for one in (*some, *others)):
        return False
    pairs = zip(some, others, strict=True)
    return all(one.dtype == other.dtype and list(one.shape) == list(other.shape) for one, other in pairs)


def place_here(length: Any) -> Any:
    """Where in the model's code something is done now, as a guard on a length has it; None of a known length."""
    return length.node.shape_env._get_sloc() if isinstance(length, torch.SymInt) else None


def says_of_none(length: Any, place: Any = None) -> None:
    """Says that the program holds for rounds only, and that it may not where there is none, for which sizes are tried.

    Args:
        length: how many rounds there are.
        place: where in the model's code that is so; by default here.
    """
    if not isinstance(length, torch.SymInt) or length.node.expr.is_number:
        return
    shapes = cast("Any", symbolic_shapes)
    for condition in _some(length.node.expr):
        guard = shapes.ShapeGuard(condition, place or place_here(length), size_oblivious=False)
        length.node.shape_env.guards.append(guard)


def _some(count: sympy.Expr) -> list[sympy.Basic]:
    """What has to hold where a number of rounds is not 0, in as few words as possible."""
    if isinstance(count, Min):
        return [one for each in count.args for one in _some(each)]
    if isinstance(count, sympy.Add):
        least = next((one for one in count.args if one.is_Mul and -1 in one.args and isinstance(-one, Min)), None)
        if least is not None:
            count = Max(*(count - least - one for one in (-least).args))
    if isinstance(count, Max):
        known = [one for one in count.args if not (one.is_number and one <= 0)]
        if len(known) == 1:
            return _some(known[0]) if isinstance(known[0], (Min, Max, sympy.Add)) else [sympy.Ge(known[0], 1)]
    return [sympy.Ge(count, 1)] if isinstance(count, sympy.Add) else [sympy.Ne(count, 0, evaluate=False)]
