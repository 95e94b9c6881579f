"""Decisions by whether sizes are equal: what a way computes only where they are has both ways in one file."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import assert_same
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

AXES = ({0: "b", 1: "q"}, {0: "b", 1: "k"})
EXAMPLES = ((3, 3), (2, 5), (4, 1))
LENGTHS = (1, 2, 3, 5)


def tensors(q: int, k: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * q + k)
    return torch.randn(batch, q, 4, generator=generator), torch.randn(batch, k, 4, generator=generator)


def causal(q: Tensor, k: Tensor) -> Tensor:
    scores = q @ k.transpose(1, 2)
    if q.shape[1] == k.shape[1]:
        scores = scores + torch.triu(torch.full((q.shape[1], k.shape[1]), -1e9), 1)
    return scores.softmax(-1) @ k


def added(q: Tensor, k: Tensor) -> Tensor:
    if q.shape == k.shape:
        return q + k
    return q + k.mean(1, keepdim=True)


def several(q: Tensor, k: Tensor) -> Tensor:
    if q.shape[1] == k.shape[1]:
        q = q + k
    elif k.shape[1] == 1:
        q = q - k
    else:
        q = q * k.mean(1, keepdim=True)
    return q.relu()


def written(q: Tensor, k: Tensor) -> Tensor:
    made = torch.zeros_like(q)
    if q.shape[1] == k.shape[1]:
        made[:, :, 0] = k[:, :, 0]
    return made + q


def resized(q: Tensor, k: Tensor) -> Tensor:
    if k.size(1) != q.size(1):
        k = F.interpolate(k.transpose(1, 2), size=q.size(1), mode="linear").transpose(1, 2)
    return torch.cat([q, k], -1)


def beside(q: Tensor, k: Tensor) -> Tensor:
    if q.size(1) == k.size(1) and q.size(1) > 2:
        return q - k
    return q.sum(1)[:, None] + k.mean(1)[:, None] + q * 0


def kept(q: Tensor, k: Tensor) -> Tensor:
    same = q.size(1) == k.size(1)
    if not same:
        k = k[:, :1].repeat(1, q.size(1), 1)
    return (q * k).cumsum(1)


def chosen(q: Tensor, k: Tensor) -> Tensor:
    if k.size(1) == 1:
        return q + k
    return q - k if k.size(1) == q.size(1) else q


def matched(q: Tensor, k: Tensor) -> Tensor:
    def match(one: Tensor, other: Tensor) -> Tensor:
        if one.shape[1] == other.shape[1]:
            return one
        return F.adaptive_avg_pool1d(one.transpose(1, 2), other.shape[1]).transpose(1, 2)

    return match(k, q) + q


def longer(q: Tensor, k: Tensor) -> Tensor:
    if q.size(1) == k.size(1):
        return q + k
    if q.size(1) > k.size(1):
        return q[:, : k.size(1)] - k
    return q * 2 + k[:, : q.size(1)]


def longer_or_shorter(q: Tensor, k: Tensor) -> Tensor:
    if q.size(1) > k.size(1):
        return (q[:, : k.size(1)] * k).sum(1)
    if q.size(1) < k.size(1):
        return (q - k[:, : q.size(1)]).sum(1)
    return (q + k).sum(1)


def single(q: Tensor, k: Tensor) -> Tensor:
    if q.size(1) == k.size(1):
        if q.size(1) == 1:
            return q.squeeze(1) + k.squeeze(1)
        return (q * k).sum(1)
    return q.mean(1) - k.mean(1)


def nested(q: Tensor, k: Tensor) -> Tensor:
    if q.size(1) > k.size(1):
        if q.size(1) > 3:
            return (q[:, : k.size(1)] + k).sum(1)
        return (q[:, : k.size(1)] * k).sum(1)
    if k.size(1) > 3:
        return (q - k[:, : q.size(1)]).sum(1)
    return (q * k).sum(1) if q.size(1) == k.size(1) else q.sum(1) - k.sum(1)


def of_multiples(q: Tensor, k: Tensor) -> Tensor:
    """On each way the new shape is one for what holds of the remainder there."""
    rest = q.shape[1] % 2
    if rest == 0:
        return q.reshape(q.shape[0], -1, 8).sum(1) + k.sum()
    q = q[:, :-1] if q.shape[1] > 1 else F.pad(q, (0, 0, 0, rest))
    return q.reshape(q.shape[0], -1, 8).sum(1) - k.sum()


def windowed(q: Tensor, k: Tensor) -> Tensor:
    """Asks of sizes on a line on which tensors are compared."""
    row, column = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None]
    allowed = column <= row
    allowed = allowed & (column > row - 2) if q.shape[1] > k.shape[1] else allowed
    return (q @ k.transpose(1, 2)).masked_fill(~allowed, -1e4).softmax(-1)


_WAYS = [causal, added, several, written, resized, beside, kept, chosen, matched, longer, longer_or_shorter, single]
_WAYS += [nested, of_multiples, windowed]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("function", _WAYS, ids=lambda one: one.__name__)
def test_equal_and_unequal_sizes_are_in_one_file(
    function: Callable[[Tensor, Tensor], Tensor], example: tuple[int, int]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(function, tensors(*example), dynamic_shapes=AXES)
    for sizes in itertools.product(LENGTHS, LENGTHS):
        for batch in (1, 3):
            given = tensors(*sizes, batch)
            assert_same(program(*given), [function(*given)])
    program.release()


def flagged(q: Tensor, k: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k, is_causal=q.shape[1] == k.shape[1])


def flagged_by_name(q: Tensor, k: Tensor) -> Tensor:
    same = q.shape[1] == k.shape[1]
    return F.scaled_dot_product_attention(q, k, k, is_causal=same)


def flagged_by_two(q: Tensor, k: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k, is_causal=q.shape[1] == k.shape[1] and q.shape[1] > 1)


@pytest.mark.parametrize("function", [flagged, flagged_by_name, flagged_by_two], ids=lambda one: one.__name__)
def test_what_a_function_is_told_of_sizes_is_decided(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    program = export(function, tensors(2, 5), dynamic_shapes=AXES)
    for sizes in itertools.product(LENGTHS, LENGTHS):
        given = tensors(*sizes)
        assert_same(program(*given), [function(*given)])
    program.release()


class Recurrent(torch.nn.Module):
    """A layer that draws nothing, on one side of a decision."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.LSTM(4, 3, batch_first=True)
        self.plain = torch.nn.Linear(4, 3)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        if q.shape[1] == k.shape[1]:
            found, _ = self.recurrent(q + k)
        else:
            found = self.plain(q)
        return found.sum(1)


def test_a_layer_that_draws_nothing_is_computed_on_its_side_only() -> None:
    model = Recurrent().eval().requires_grad_(False)
    program = export(model, tensors(2, 5), dynamic_shapes=AXES)
    for sizes in itertools.product(LENGTHS, LENGTHS):
        given = tensors(*sizes)
        assert_same(program(*given), [model(*given)])
    assert all(node.op_type != "LSTM" for node in program.model.graph)
    program.release()


class Begun(torch.nn.Module):
    """A layer whose state is chosen by sizes: torch's operator itself looks at none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.LSTM(4, 4, batch_first=True)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        if k.size(1) != q.size(0):
            k = k[:, :1].expand(-1, q.size(0), -1)
        found: Tensor = self.recurrent(q, (k, k))[0]
        return found


def test_a_state_that_sizes_choose() -> None:
    model = Begun().eval().requires_grad_(False)
    given = torch.randn(3, 2, 4), torch.randn(1, 3, 4)
    program = export(model, given, dynamic_shapes=({0: "b", 1: "n"}, {1: "k"}))
    for batch, k in itertools.product((1, 2, 4), (1, 2, 3)):
        some = torch.randn(batch, 3, 4), torch.randn(1, k, 4)
        assert_same(program(*some), [model(*some)])
    program.release()


def one_of_three(a: Tensor, b: Tensor) -> Tensor:
    if a.size(0) == b.size(0) and a.size(1) == b.size(1):
        return a * b
    if a.size(1) == b.size(1):
        return a.sum(0, keepdim=True) * b
    return a.mean() + b


@pytest.mark.parametrize("example", [(2, 4, 2, 4), (2, 4, 3, 6)])
def test_decisions_one_behind_the_other(example: tuple[int, int, int, int]) -> None:
    def given(first: int, n: int, second: int, m: int) -> tuple[Tensor, Tensor]:
        return torch.randn(first, n, 3), torch.randn(second, m, 3)

    axes = ({0: "a", 1: "n"}, {0: "b", 1: "m"})
    program = export(one_of_three, given(*example), dynamic_shapes=axes)
    for sizes in itertools.product((1, 2, 3), (2, 5), (1, 2, 3), (2, 5)):
        some = given(*sizes)
        assert_same(program(*some), [one_of_three(*some)])
    program.release()


def padded(x: Tensor, other: Tensor) -> Tensor:
    made = F.interpolate(x[:, :, ::2], scale_factor=2)
    if made.size(2) != other.size(2):
        more = other.size(2) - made.size(2)
        return F.pad(made, [more // 2, more - more // 2]) + 0 * other
    return made + other * 0


def shifted(x: Tensor, other: Tensor) -> Tensor:
    made = x[:, :, :-1]
    if made.size(2) == other.size(2):
        return made * other
    return other * ((other.size(2) - made.size(2)) // 2)


@pytest.mark.parametrize("example", [(8, 8), (8, 7), (8, 5)])
@pytest.mark.parametrize("function", [padded, shifted], ids=lambda one: one.__name__)
def test_a_difference_of_sizes_is_rounded_down_on_a_side_where_it_may_be_negative(
    function: Callable[[Tensor, Tensor], Tensor], example: tuple[int, int]
) -> None:
    def given(first: int, second: int) -> tuple[Tensor, Tensor]:
        return torch.randn(2, 1, first), torch.randn(2, 1, second)

    program = export(function, given(*example), dynamic_shapes=({2: "w"}, {2: "l"}))
    for sizes in itertools.product((2, 3, 5, 8, 9), (2, 3, 4, 5, 7)):
        some = given(*sizes)
        assert_same(program(*some), [function(*some)])
    program.release()


def by_identity(q: Tensor, k: Tensor) -> Tensor:
    same = q.shape[1] == k.shape[1]
    if same is False:
        return q.sum(1) * 2
    return (q + k).sum(1)


def large_by_identity(q: Tensor, k: Tensor) -> Tensor:
    """At sizes that no example has."""
    large = q.shape[1] > 64
    return q.sum(1) * 2 if large is True else q.sum(1) + k.sum(1)


def both_by_identity(q: Tensor, k: Tensor) -> Tensor:
    both = q.shape[1] == k.shape[1] and q.shape[1] > 2
    if both is not True:
        return q.sum(1) - 1
    return (q * k).sum(1)


def _masked(x: Tensor, causal: bool | None = None) -> Tensor:
    if causal is None:
        return x
    return x * 2 if causal is True else x * 3


def handed_on(q: Tensor, k: Tensor) -> Tensor:
    """The answer, and no answer, to one function that compares so."""
    return _masked(q, q.shape[1] % 4 == 0).sum(1) + _masked(k).sum(1)


_twice = lambda one, q: q * 2 if one is True else q  # noqa: E731


def by_a_lambda_of_the_file(q: Tensor, k: Tensor) -> Tensor:
    return _twice(q.shape[1] > 3, q).sum(1) + k.sum(1)


def by_lambda(q: Tensor, k: Tensor) -> Tensor:
    pick = lambda one: q.sum(1) if one is True else k.sum(1)  # noqa: E731
    return pick(q.shape[1] > k.shape[1])


class OfItsOwn(torch.nn.Module):
    """Has a name of its class's own."""

    __least = 3

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q.sum(1) * 2 if (q.shape[1] > self.__least) is True else q.sum(1) + k.sum(1)


def small_by_identity(q: Tensor, k: Tensor) -> Tensor:
    """Python keeps one object of each small number."""
    count = q.shape[1]
    return q.sum(1) if count is 3 else k.sum(1) * 2  # noqa: F632


def of_two_sizes(q: Tensor, k: Tensor) -> Tensor:
    return q.sum(1) * (2.0 if q.shape[1] is k.shape[1] else 1.0) + k.sum(1)


class Settings(torch.nn.Module):
    """Compares answers with one another and with a setting."""

    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        total = q.sum(1) + k.sum(1)
        if self.flag is not (q.shape[1] > 6):
            total = total * 2
        return total + 1 if (q.shape[1] > 2) is (k.shape[1] > 3) else total


def among_answers(q: Tensor, k: Tensor) -> Tensor:
    flag = True in [q.shape[1] == 65, q.shape[1] == 3]
    return q.sum(1) + k.sum(1) * 0 + flag


_BY_IDENTITY = [
    by_identity,
    large_by_identity,
    both_by_identity,
    handed_on,
    by_lambda,
    by_a_lambda_of_the_file,
    OfItsOwn(),
    small_by_identity,
]


@pytest.mark.parametrize("example", [(3, 5), pytest.param((4, 4), marks=pytest.mark.ops)])
@pytest.mark.parametrize("function", _BY_IDENTITY, ids=lambda one: getattr(one, "__name__", "private"))
def test_an_answer_that_is_compared_by_identity_is_the_answer(
    function: Callable[[Tensor, Tensor], Tensor], example: tuple[int, int]
) -> None:
    program = export(function, tensors(*example), dynamic_shapes=AXES)
    for sizes in itertools.product((1, 2, 3, 4, 8, 65), (1, 3, 4, 5)):
        given = tensors(*sizes)
        assert_same(program(*given), [function(*given)])
    program.release()


def by_match(q: Tensor, k: Tensor) -> Tensor:
    match (q.shape[1] > 3, k.shape[1] > 3):
        case (True, True):
            return q.sum(1)
        case (True, False):
            return k.sum(1)
    return q.mean(1)


_pick = eval("lambda one, q: q * 2 if one is True else q")


def by_what_has_no_source(q: Tensor, k: Tensor) -> Tensor:
    return _pick(q.shape[1] > 3, q).sum(1) + k.sum(1)


def in_a_chain(q: Tensor, k: Tensor) -> Tensor:
    """One answer beside another is true of small sizes that are unlike and of large ones that are alike."""
    large, alike = q.shape[1] > 2, q.shape[1] == k.shape[1]
    return q.sum(1) * (2.0 if large is alike is True else 1.0) + k.sum(1)


_TOLD = [in_a_chain, by_match, by_what_has_no_source, among_answers, of_two_sizes, Settings()]


@pytest.mark.parametrize("function", _TOLD, ids=lambda one: getattr(one, "__name__", "settings"))
def test_or_the_line_is_told(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises((CaptureError, DynamicShapeError), match=r"(test_exporter_equal_sizes.py|<string>):\d+"):
        export(function, tensors(4, 5), dynamic_shapes=AXES)


class Flagged(torch.nn.Module):
    """Compares a setting by identity, which is no answer about sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = True

    def forward(self, q: Tensor) -> Tensor:
        return q * 2 if self.twice is True else q


class Shared(torch.nn.Module):
    """A module of two names, of which torch has another object each time that it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.last = self.layers[2]
        self.first = [self.layers[0]]

    def forward(self, q: Tensor) -> Tensor:
        for layer in self.layers:
            q = layer(q) * 2 if layer in self.first else layer(q)
            if layer is not self.last:
                q = q.relu()
            if layer == self.last:
                q = q + 1
        return q


@pytest.mark.parametrize("axes", [None, AXES[:1]], ids=["fixed", "free"])
def test_a_module_of_two_names_is_one(axes: Any) -> None:
    model = Shared()
    program = export(model, tensors(3, 5)[:1], dynamic_shapes=axes)
    given = tensors(3, 5)[:1]
    assert_same(program(*given), [model(*given).detach()])
    assert not {"__eq__", "__hash__"} & {*vars(torch.nn.Module)}
    program.release()


def test_a_setting_may_be_compared_by_identity() -> None:
    model = Flagged()
    program = export(model, tensors(3, 5)[:1], dynamic_shapes=AXES[:1])
    given = tensors(2, 5)[:1]
    assert_same(program(*given), [model(*given)])
    program.release()


def expanded(q: Tensor, k: Tensor) -> Tensor:
    if k.shape[1] == 1:
        k = k.expand(-1, q.shape[1], -1)
    return torch.cat([q, k], -1)


@pytest.mark.parametrize("example", [(3, 3), (4, 1)])
def test_an_axis_of_one_element_is_expanded_as_far_as_another(example: tuple[int, int]) -> None:
    program = export(expanded, tensors(*example), dynamic_shapes=AXES)
    for sizes in ((1, 1), (2, 2), (5, 5), (2, 1), (5, 1)):
        given = tensors(*sizes)
        assert_same(program(*given), [expanded(*given)])
    program.release()


def joined(x: Tensor, y: Tensor) -> Tensor:
    if x.size(0) == 1:
        x = x.expand(y.size(0), -1, -1)
    return torch.cat([x, y], -1)


def unlike(x: Tensor, y: Tensor) -> Tensor:
    if x.size(0) != y.size(0):
        x = x.expand(y.size(0), -1, -1)
    return torch.cat([x, y], -1)


def multiplied(x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] == 1 and y.shape[0] > 1:
        x = x.repeat(y.size(0), 1, 1)
    return torch.bmm(x, y.transpose(1, 2))


@pytest.mark.parametrize("function", [joined, unlike, multiplied], ids=lambda one: one.__name__)
def test_a_batch_of_one_for_all(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def given(first: int, second: int) -> tuple[Tensor, Tensor]:
        return torch.randn(first, 3, 4), torch.randn(second, 3, 4)

    program = export(function, given(1, 3), dynamic_shapes=({0: "b"}, {0: "c"}))
    for sizes in ((1, 1), (1, 2), (1, 5), (2, 2), (5, 5)):
        some = given(*sizes)
        assert_same(program(*some), [function(*some)])
    program.release()


def test_what_is_equal_on_one_way_only_is_an_if_with_the_questions_line() -> None:
    program = export(causal, tensors(2, 5), dynamic_shapes=AXES)
    nodes: list[Any] = [node for node in program.model.graph if node.op_type == "If"]
    program.release()
    assert len(nodes) == 1
    assert any("q.shape[1] == k.shape[1]" in str(text) for text in nodes[0].metadata_props.values())
