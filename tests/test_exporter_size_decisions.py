"""Decisions by sizes whose ways one file has both: an early return, another form, a resized table, parts of a test."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, assert_same
from rarer import first
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

AXES = ({0: "b", 1: "n"},)
SIZES = ((1, 1), (2, 2), (3, 3), (2, 4), (1, 5), (4, 6), (2, 7), (3, 8), (1, 9), (2, 12))


def is_right_at_all_sizes(function: Callable[[Tensor], Tensor], length: int) -> None:
    """The file exported from an example of a length gives what the function does."""
    program = export(Called(function), (torch.randn(2, length, 4),), dynamic_shapes=AXES)
    for size in SIZES:
        given = torch.randn(*size, 4)
        assert_same(program(given), [function(given)])
    program.release()


def early(x: Tensor) -> Tensor:
    if x.size(1) < 4:
        return x
    return x * 2


def scaled(x: Tensor) -> Tensor:
    return x * (2.0 if x.shape[1] > 5 else 1.0)


def centred(x: Tensor) -> Tensor:
    if x.shape[1] > 2:
        x = x - x.mean(1, keepdim=True)
    return x


def alone(x: Tensor) -> Tensor:
    return x if x.shape[0] == 1 else x * 0.5


def odd(x: Tensor) -> Tensor:
    if x.shape[1] % 2:
        x = x * 2
    return x


def in_turn(x: Tensor) -> Tensor:
    n = x.shape[1]
    if n < 3:
        y = x + 1
    elif n < 6:
        y = x * 2
    else:
        y = x - x.mean(1, keepdim=True)
    return y


def of_two(x: Tensor) -> Tensor:
    if x.shape[0] > 2 and not x.shape[1] <= 4:
        return x.softmax(1)
    return x.softmax(2)


def of_either(x: Tensor) -> Tensor:
    return x.exp() if x.shape[0] == 1 or x.shape[1] > 7 else x.sin()


def reduced(x: Tensor) -> Tensor:
    if x.shape[1] > 4:
        return x.mean(1)
    return x.amax(1)


def turned(x: Tensor) -> Tensor:
    return x.transpose(1, 2) if x.shape[1] > 6 else x


def by_a_logarithm(x: Tensor) -> Tensor:
    return x * 2 if math.log(x.shape[1]) > 1 else x + x.shape[0]


@pytest.mark.parametrize("length", [3, pytest.param(8, marks=pytest.mark.ops)])
@pytest.mark.parametrize(
    "function",
    first(4, [early, scaled, odd, of_two, by_a_logarithm, centred, alone, in_turn, of_either, reduced, turned]),
    ids=lambda one: one.__name__,
)
def test_both_ways_of_what_sizes_decide(function: Callable[[Tensor], Tensor], length: int) -> None:
    is_right_at_all_sizes(function, length)


def of_other_dtypes(x: Tensor) -> Tensor:
    return x if x.shape[1] > 4 else x.double()


def of_other_ranks(x: Tensor) -> Tensor:
    return x if x.shape[1] > 4 else x.sum(1)


def counted(x: Tensor) -> Tensor:
    return x * 2 if x.shape[1] > 4 else torch.stack([x[:, place] for place in range(x.shape[1])], 1)[:, ::2].double()


@pytest.mark.parametrize("function", first(2, [of_other_dtypes, of_other_ranks, counted]))
def test_ways_that_no_file_has_both_are_refused_with_the_line(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(DynamicShapeError, match=r"test_exporter_size_decisions\.py:\d+"):
        export(Called(function), (torch.randn(2, 6, 4),), dynamic_shapes=AXES)


def longer_than_many(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > x.shape[1] else x / 2


def by_a_quotient(x: Tensor) -> Tensor:
    return x * 2 if x.shape[1] / x.shape[0] <= 2.5 else x.exp()


def as_numbers(x: Tensor) -> Tensor:
    n = x.shape[1]
    return x * int(n > 4) + ((n > 2) + (n > 6)) * (not n % 3)


def matched(x: Tensor) -> Tensor:
    match x.shape[1]:
        case 1:
            y = x * 2
        case 2 | 3:
            y = x * 3
        case _:
            y = x
    return y


def matched_and_tested(x: Tensor) -> Tensor:
    """Cases with tests, and with names for what is matched."""
    y = x
    match x.shape[1]:
        case 1 | 2 if x.shape[0] == 2:
            y = x * 7
        case n if n % 2 == 0:
            y = x * n
        case n if n > 4:
            y = x + n
    return y


TABLE = torch.randn(1, 8, 4)


def up_to_a_table(x: Tensor) -> Tensor:
    n = x.shape[1]
    longer = torch.nn.functional.interpolate
    return x + (TABLE[:, :n] if n <= 8 else longer(TABLE.mT, size=n, mode="linear").mT)


def before_a_loop(x: Tensor) -> Tensor:
    h = torch.zeros_like(x[:, 0])
    if x.shape[1] > 4:
        x = x[:, -4:]
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
    return h


@pytest.mark.parametrize(
    ("function", "length"),
    [
        (longer_than_many, 5),
        (up_to_a_table, 12),
        (matched, 5),
        (matched_and_tested, 6),
        *(
            pytest.param(*one, marks=pytest.mark.ops)
            for one in ((by_a_quotient, 5), (as_numbers, 5), (up_to_a_table, 5), (before_a_loop, 5))
        ),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_further_forms_of_decisions(function: Callable[[Tensor], Tensor], length: int) -> None:
    is_right_at_all_sizes(function, length)


def asked_elsewhere(x: Tensor) -> bool:
    return x.size(0) > 2 and x.size(1) > 3


def by_a_function(x: Tensor) -> Tensor:
    return x * 2 if asked_elsewhere(x) else x + 1


def by_names(x: Tensor) -> Tensor:
    b, n = x.shape[:2]
    long, wide = n > 4, b > 2
    small = not long and b == 1
    if long and wide:
        x = x * 2
    elif long:
        x = x * 3
    elif wide:
        x = x * 4
    return x - 1 if small else x


def between(x: Tensor) -> Tensor:
    return x * 2 if 2 <= x.size(1) <= 6 else x + 1


def by_length(x: Tensor) -> Tensor:
    if len(x) > 2:
        return x * 2
    return x


def among(x: Tensor) -> Tensor:
    if x.size(1) in (5, 8):
        return x * 2
    return x if x.size(1) not in [1, 2] else x + 1


def of_any(x: Tensor) -> Tensor:
    if any(size > 6 for size in x.shape[:2]):
        return x * 2
    return x if not all(size > 2 for size in x.shape[:2]) else x + 1


def of_a_shape(x: Tensor) -> Tensor:
    return x * 2 if x.shape == (3, 8, 4) else x


def by_a_part(x: Tensor) -> Tensor:
    """What `or` and `and` give is a number itself."""
    n = x.size(1)
    step = n % 4 or 4
    odd = n % 2 and n
    missing = -n % 3 or 3
    return F.pad(x * odd, (0, 0, 0, missing))[:, :step]


def by_what_is_only_asked(x: Tensor) -> Tensor:
    long = x.size(1) > 4 or None
    return x * 2 if long else x


def within_a_set(x: Tensor) -> Tensor:
    return x * 2 if x.size(1) in {5, 8} else x


FORMS = [
    by_a_part,
    by_what_is_only_asked,
    within_a_set,
    by_a_function,
    by_names,
    among,
    of_any,
    between,
    by_length,
    of_a_shape,
]


@pytest.mark.parametrize("function", first(4, FORMS), ids=lambda one: one.__name__)
def test_questions_asked_in_other_words(function: Callable[[Tensor], Tensor]) -> None:
    is_right_at_all_sizes(function, 5)


def _of_a_helper(x: Tensor) -> Any:
    def step() -> int:
        return x.size(1) % 3 or 8

    return x * step()


def _of_a_text(x: Tensor) -> Any:
    step: Any = x.size(1) % 3 or "none"
    return x if step == "none" else x * 2


def _of_a_tensor(x: Tensor) -> Any:
    part = x.size(1) > 4 and x[:, :4]
    return x if part is False else part


@pytest.mark.parametrize("function", [_of_a_helper, _of_a_text, _of_a_tensor], ids=lambda one: one.__name__)
def test_a_part_that_is_no_truth_value_is_not_taken_for_one(function: Callable[[Tensor], Any]) -> None:
    """It is a limit, which is refused or said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        with pytest.raises((DynamicShapeError, ExportWarning), match="only while"):
            export(Called(function), (torch.randn(2, 5, 4),), dynamic_shapes=({0: "b", 1: "n"},))


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > 4:
            return self.linear(x).relu()
        return self.linear(x)


def test_the_same_question_in_many_layers_is_one_decision() -> None:
    layers = torch.nn.Sequential(*(Layer() for _ in range(7)))
    program = export(layers, (torch.randn(2, 6, 4),), dynamic_shapes=AXES)
    for size in SIZES:
        given = torch.randn(*size, 4)
        assert_same(program(given), [layers(given).detach()])


def test_what_python_has_answered_half_is_no_question_any_more() -> None:
    """`and` gives its first part where that is false: the second one was not asked there."""
    both = eval("lambda x: x.size(0) > 2 and x.size(1) > 3")  # which has no source

    def half(x: Tensor) -> Tensor:
        return x * 2 if both(x) else x + 1

    with pytest.raises(DynamicShapeError, match=r"test_exporter_size_decisions\.py:\d+"):
        export(Called(half), (torch.randn(2, 6, 4),), dynamic_shapes=AXES)


def written_between(x: Tensor) -> Tensor:
    flag = (x.sum() > 0).clone()
    if flag or x.shape[1] > 4:
        x = x * 2
    flag.logical_not_()
    if flag or x.shape[1] > 4:
        x = x + 100
    return x


def test_data_that_is_written_to_between_two_questions_is_asked_anew() -> None:
    is_right_at_all_sizes(written_between, 6)


def _many_pieces(x: Tensor) -> Tensor:
    n = x.shape[1] - 3
    return x * 2 if n and 100 // n > 20 else x + 1


def _of_a_rest(x: Tensor) -> Tensor:
    n = x.shape[1]
    if n > 3 and 10 % (n - 3) == 1:
        return x.cumsum(1)
    return x - 3


def _or_a_quotient(x: Tensor) -> Tensor:
    n = x.shape[1]
    return x[:, :1] if n == 4 or divmod(30, n - 4)[0] == 6 else x


def _kept_answer(x: Tensor) -> Tensor:
    n = x.shape[1] - 5
    fits = n > 0 and 12 % n == 0
    return x * 2 if fits else x


@pytest.mark.parametrize("function", [_many_pieces, _of_a_rest, _or_a_quotient, _kept_answer])
@pytest.mark.parametrize("length", [1, 8])
def test_what_python_does_not_divide_by_zero_fails_in_no_file(
    function: Callable[[Tensor], Tensor], length: int
) -> None:
    is_right_at_all_sizes(function, length)
