"""Writes that show at several places, copies between dtypes, and sizes looked at while a program is translated."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from exporting import assert_same, eager, export_and_compare
from torch import Tensor, nn
from torch.nn import functional

from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture import free_lengths, size_oblivious

pytestmark = pytest.mark.sampled


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def rows_of_one(x: Tensor) -> Any:
    rows = x.expand(2, *x.shape)
    rows[1].add_(2)
    rows[0].mul_(3)
    tail = rows[0, 1:]
    tail.neg_()
    return rows, x * 1, tail


def windows(x: Tensor) -> Any:
    pieces = x.clone().unfold(0, 3, 1)
    pieces[0].mul_(2)
    pieces[1, 1:].add_(5)
    return pieces


def rows_of_windows(x: Tensor) -> Any:
    pieces = x.clone().expand(3, *x.shape).unfold(-1, 2, 1)
    pieces[0, 1].mul_(2)
    return pieces


def one_of_two_names(x: Tensor) -> Any:
    y = x.clone()
    first, second = y[1:].unsqueeze(0).expand(2, -1).unbind(0)
    first.mul_(2)
    return first, second, y


def strides_of_ones_own(x: Tensor) -> Any:
    y = x.clone()
    view = y.as_strided((2, 3), (1, 1))
    view[0].mul_(2)
    return view, y


@pytest.mark.parametrize(
    "function",
    [rows_of_one, windows, rows_of_windows, one_of_two_names, strides_of_ones_own],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("dynamic", [None, ({0: "n"},)], ids=["fixed", "free"])
def test_a_write_shows_wherever_its_elements_are(function: Callable[..., Any], dynamic: Any) -> None:
    more = [(torch.randn(7),)] if dynamic else []
    export_and_compare(Calls(function), (torch.arange(1.0, 5.0),), *more, dynamic_shapes=dynamic)


def test_a_write_into_nothing_leaves_it() -> None:
    def diagonal(x: Tensor) -> Tensor:
        y = x.clone()
        y.diagonal().fill_(-2)
        return y

    module = Calls(diagonal)
    export_and_compare(module, (torch.randn(0, 3, 3, 4),), (torch.randn(0, 3, 3, 1),), dynamic_shapes=({3: "n"},))


COMPLEX = torch.tensor([[0j, 1j, 1.5 + 0j], [2 - 1j, -0.5j, 3 + 4j]])


@pytest.mark.parametrize("source", [COMPLEX, COMPLEX.to(torch.complex128), COMPLEX.real, COMPLEX.real > 0])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.float64, torch.complex64])
def test_a_copy_is_in_the_dtype_and_shape_of_what_it_is_written_over(source: Tensor, dtype: torch.dtype) -> None:
    def copied(x: Tensor) -> Any:
        whole, row = torch.ones(2, 3, dtype=dtype), torch.ones(2, 3, dtype=dtype)
        whole.copy_(x)
        row[:1].copy_(x[0])
        return whole, row

    module = Calls(copied)
    program = export(module, (source,), dynamic_shapes=None)
    expected = [torch.view_as_real(one) if one.is_complex() else one for one in eager(module, (source,))]
    actual = [torch.as_tensor(one) for one in program(source)]
    assert_same([torch.view_as_real(one) if one.is_complex() else one for one in actual], expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 3, 20])
def test_vander(dtype: torch.dtype, columns: int) -> None:
    def powers(x: Tensor) -> Any:
        return torch.vander(x.flatten(), columns), torch.vander(x.flatten(), columns, increasing=True)

    x, more = (torch.tensor([[-1.0, 0.5, 1.0, 0.0]]).repeat(times, 1).to(dtype) for times in (2, 3))
    export_and_compare(Calls(powers), (x,), (more,), dynamic_shapes=({0: "n", 1: "m"},))


@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_one_value_behind_a_mask_of_all_elements(shape: tuple[int, ...]) -> None:
    def written(x: Tensor) -> Any:
        mask = x > 0
        return x.masked_scatter(mask, x - 1), x.index_put((mask,), torch.tensor(0.5)) if shape else x

    for x in (torch.full(shape, 1.5), torch.full(shape, -1.5)):
        export_and_compare(Calls(written), (x,))


def test_a_mask_of_columns_is_repeated_over_a_free_axis() -> None:
    mask = torch.tensor([[True], [False], [True]])
    module = Calls(lambda x: x.masked_scatter(mask, x))
    more = [(torch.randn(3, size),) for size in (0, 1, 4)]
    export_and_compare(module, (torch.randn(3, 2),), *more, dynamic_shapes=({1: "n"},))


@pytest.mark.parametrize("columns", [0, 1, 4, None])
def test_vander_of_a_free_number_of_elements(columns: int | None) -> None:
    module = Calls(lambda x: (torch.vander(x, columns), torch.vander(x.to(torch.int32), columns, increasing=True)))
    more = [(torch.arange(size) - 1.5,) for size in (0, 1, 2, 5)]
    export_and_compare(module, (torch.randn(4),), *more, dynamic_shapes=({0: "n"},))


def test_vander_of_a_free_number_of_columns() -> None:
    module = Calls(lambda x: torch.vander(x[:, 0], x.shape[1]))
    more = [(torch.randn(size),) for size in ((1, 1), (2, 5), (0, 3))]
    export_and_compare(module, (torch.randn(4, 3),), *more, dynamic_shapes=({0: "n", 1: "m"},))


@pytest.mark.parametrize("options", [{"batch_first": True}, {"padding_value": -1.0}, {"padding_side": "left"}])
def test_sequences_of_free_lengths_side_by_side(options: dict[str, Any]) -> None:
    def padded(one: Tensor, other: Tensor) -> Any:
        return torch.nn.utils.rnn.pad_sequence([one, other], **options)

    program = export(padded, (torch.randn(2, 3), torch.randn(4, 3)), dynamic_shapes=({0: "n"}, {0: "m"}))
    for first, second in ((2, 4), (5, 3), (1, 1), (0, 2)):
        case = torch.randn(first, 3), torch.randn(second, 3)
        assert torch.equal(torch.as_tensor(program(*case)[0]), padded(*case))


def test_means_of_complex_numbers_along_free_axes() -> None:
    module = Calls(lambda x: (x.mean(0), x.mean(), torch.mean(x, (0, 1), True), x.mean(None, True), x.mean(dim=-1)))
    program = export(module, (torch.randn(2, 3, dtype=torch.complex64),), dynamic_shapes=({0: "n"},))
    x = torch.randn(5, 3, dtype=torch.complex64)
    for found, expected in zip(program(x), module(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), torch.view_as_real(expected))


def test_a_chain_of_products_of_free_sizes() -> None:
    def chain(one: Tensor, two: Tensor, three: Tensor) -> Any:
        return torch.linalg.multi_dot([one, two, three])

    given = torch.randn(2, 3), torch.randn(3, 4), torch.randn(4, 5)
    program = export(chain, given, dynamic_shapes=({0: "n"}, {1: "m"}, {0: "m", 1: "k"}))
    case = torch.randn(1, 3), torch.randn(3, 6), torch.randn(6, 2)
    torch.testing.assert_close(torch.as_tensor(program(*case)[0]), chain(*case))


class ChainOfRows(torch.nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.chain_matmul(x.reshape(-1, 3), weight)


def test_a_chain_of_a_quotient_of_free_sizes() -> None:
    program = export(ChainOfRows(), (torch.randn(4, 4, 3), torch.randn(3, 2)), dynamic_shapes=({2: "n"}, None))
    for length in (0, 3, 6):
        case = torch.randn(4, 4, length), torch.randn(3, 2)
        torch.testing.assert_close(torch.as_tensor(program(*case)[0]), ChainOfRows()(*case))


def test_a_decomposition_of_the_program_for_one_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_lengths, "_CHAINS", ())
    said = r"holds for one size only \(.*n.* = .*at .*test_exporter_shared_elements\.py:\d+"
    with pytest.raises(DynamicShapeError, match=said):
        export(ChainOfRows(), (torch.randn(4, 4, 3), torch.randn(3, 2)), dynamic_shapes=({2: "n"}, None))


def test_differences_along_free_axes() -> None:
    def differences(x: Tensor) -> Any:
        mask = x > 0
        rows = torch.full((x.diff(dim=0).shape[0], 2), 1)
        return torch.diff(x), x.diff(n=2, dim=0), torch.diff(x, prepend=x[:, :1]), mask.diff(), rows

    more = [(torch.randn(size),) for size in ((1, 1), (0, 3), (2, 0), (3, 2))]
    export_and_compare(Calls(differences), (torch.randn(4, 5),), *more, dynamic_shapes=({0: "n", 1: "m"},))


def halves(x: Tensor) -> Any:
    y = x.clone()
    first, second = y.tensor_split(2, -2)
    first.narrow(-1, 1, 1).copy_(x[:1, :1] * 2)
    return first, second, y, *y.tensor_split(3)


def test_pieces_of_a_free_axis_are_those_of_its_own_size() -> None:
    more = [(torch.randn(size, 3),) for size in (1, 2, 3, 7)]
    export_and_compare(Calls(halves), (torch.randn(4, 3),), *more, dynamic_shapes=({0: "n"},))


def test_shapes_that_are_shown_wrongly_beyond_a_guard_are_told() -> None:
    module = Calls(lambda x: torch.ops.aten.tensor_split.sections(x, 2))
    with pytest.warns(ExportWarning, match=r"n % 2"):
        export(module, (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))


def test_a_size_of_one_that_only_an_empty_axis_makes_is_a_limit() -> None:
    module = Calls(lambda x: torch.cat([torch.zeros(1), x]).squeeze((0,)))
    with pytest.warns(ExportWarning, match=r"n \+ 1 != 1"):
        program = export(module, (torch.randn(3),), dynamic_shapes=({0: "n"},))
    assert_same([torch.as_tensor(program(torch.ones(1))[0])], [torch.tensor([0.0, 1.0])])


def test_a_scalar_is_true_or_not_in_the_dtype_of_the_tensor_beside_it() -> None:
    wide = {torch.int32: torch.tensor(-(2**33)), torch.float32: torch.tensor(1e-50, dtype=torch.float64)}
    for dtype, scalar in wide.items():
        module = Calls(lambda x, scalar=scalar: (torch.logical_or(scalar, x), torch.logical_xor(x, scalar)))
        export_and_compare(module, (torch.tensor([0, 1], dtype=dtype),))


def test_angles_of_complex_numbers() -> None:
    parts = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan")]
    z = torch.tensor([complex(one, other) for one in parts for other in parts])
    program = export(Calls(torch.angle), (z,))
    torch.testing.assert_close(torch.as_tensor(program(z)[0]), z.angle(), equal_nan=True)


def first_differences(x: Tensor) -> Any:
    steps = torch.diff(x, dim=0) * 1.5
    return steps.flatten(), functional.softmax(torch.addmv(steps[:, 0], steps, torch.ones(5)), 0, dtype=torch.float64)


def test_what_is_looked_up_about_sizes_during_translation_fixes_none() -> None:
    export_and_compare(Calls(first_differences), (torch.randn(2, 5),), (torch.randn(6, 5),), dynamic_shapes=({0: "n"},))


def joined_with_a_diagonal(x: Tensor) -> Any:
    diagonal = x.diagonal(0, 1, 2)
    return x + diagonal[0], torch.zeros(diagonal.shape)


def test_a_size_that_a_capture_takes_for_more_than_one_is_tried_at_one_and_none() -> None:
    with pytest.warns(ExportWarning, match="n != 0"):
        program = export(Calls(joined_with_a_diagonal), (torch.randn(5, 1, 2),), dynamic_shapes=({2: "n"},))
    for count in (1, 4):
        x = torch.randn(5, 1, count)
        assert_same([torch.as_tensor(one) for one in program(x)], eager(Calls(joined_with_a_diagonal), (x,)))


def test_a_torch_that_makes_symbols_otherwise_is_tried_at_none_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_oblivious, "_MAKER", "no_such_name")
    with size_oblivious.size_oblivious() as is_oblivious:
        assert not is_oblivious
    with pytest.warns(ExportWarning, match="n != 0"):
        export(Calls(lambda x: torch.zeros(max(x.shape[0], 1))), (torch.randn(3),), dynamic_shapes=({0: "n"},))


def scores_with_a_mask_of_one_row(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many rows of the mask as there are scores: `min(1, n)`, which torch does not spread over n."""
    length = x.shape[1]
    scores = (x @ x.mT)[:, None] + mask[:, None, None, :][:, :, :length, :length]
    return scores.softmax(-1)


def test_a_size_that_torch_knows_only_where_it_is_not_zero_is_captured_so_and_tried_at_zero() -> None:
    axes = {0: "batch", 1: "n"}
    given = torch.randn(2, 5, 4), torch.zeros(2, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(scores_with_a_mask_of_one_row, given, dynamic_shapes=(axes, axes))
    for batch, length in ((2, 5), (1, 1), (3, 7), (1, 2), (0, 3), (2, 0), (0, 0)):
        inputs = torch.randn(batch, length, 4), torch.randn(batch, length)
        expected = scores_with_a_mask_of_one_row(*inputs)
        torch.testing.assert_close(torch.as_tensor(program(*inputs)[0]), expected)


def each_from_the_one_before(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1:] = y[:, :-1]
    return y


def rows_from_the_first(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1:] = y[:1, :-1]
    return y


def running_sums(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1:] += y[:, :-1]
    return y


def by_the_first_column(x: Tensor) -> Tensor:
    y = x * 1
    return y.div_(y[:, :1])


def refused_by_eager(x: Tensor) -> Tensor:
    y = x * 1
    y[1:].lerp_(y[:-1], 0.5)
    return y


def into_what_is_read(x: Tensor) -> Tensor:
    y = x * 1
    torch.add(y[1:], y[:-1], out=y[1:])
    return y


def at_places(x: Tensor) -> Tensor:
    y = x * 1
    return y.index_put_((torch.tensor([0, 1]),), y[0])


def into_a_factor(x: Tensor) -> Tensor:
    y = x * 1
    return y.addmm_(y, torch.eye(3), beta=0.5)


def into_both_factors(x: Tensor) -> Tensor:
    y = x[:3] * 1
    return torch.mm(y, y, out=y)


def into_the_source(x: Tensor) -> Tensor:
    y = x * 1
    return y.scatter_add_(1, torch.tensor([[2, 0]]), y)


def into_what_is_joined(x: Tensor) -> Tensor:
    y = x[:2] * 1
    return torch.cat([y[1:], y[:1]], out=y)


@pytest.mark.parametrize("axes", [None, ({0: "rows"},)])
@pytest.mark.parametrize(
    "function",
    [
        into_a_factor,
        into_both_factors,
        into_the_source,
        into_what_is_joined,
        each_from_the_one_before,
        rows_from_the_first,
        running_sums,
        by_the_first_column,
        refused_by_eager,
        into_what_is_read,
        at_places,
    ],
)
def test_a_write_to_what_is_read_for_other_elements_is_refused_with_its_line(
    function: Callable[..., Any], axes: Any
) -> None:
    line = function.__code__.co_firstlineno + 2
    with pytest.raises(CaptureError, match=rf"for other elements.*{Path(__file__).name}:{line}\).*clone"):
        export(function, (torch.rand(4, 3),), dynamic_shapes=axes)


def each_from_the_one_after(x: Tensor) -> Tensor:
    y = x * 1
    y[:, :-1] = y[:, 1:]
    return y


def from_elsewhere(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1] = y[:, 0]
    y[2:] += y[:1]
    y[::2].mul_(y[1::2][:1])
    return y


def from_the_same(x: Tensor) -> Tensor:
    y = x * 1
    y.mul_(y).add_(y).addcmul_(y, y, value=0.5)
    torch.addmm(y, y + 1, torch.eye(3), beta=0.5, out=y)
    torch.cumsum(y, 1, out=y)
    y[:] = y[0]
    y[:, :] = y[:, :1]
    return y.fill_(y[0, 0]).masked_fill_(y > 0, y[1, 1])


def from_a_copy(x: Tensor) -> Tensor:
    y = x * 1
    y[1:] = y[:-1].clone()
    y[:, [0, 1]] = y[:, [1, 0]]
    y.copy_(y.flip(0))
    return torch.cumsum(y, 0, out=y)


def at_a_number_that_is_a_tensor(x: Tensor) -> Tensor:
    y, last = x * 1, torch.tensor(2)
    y[:, last] *= 2
    y[:, last] = y[:, 0]
    return y


@pytest.mark.parametrize(
    "function",
    [each_from_the_one_after, from_elsewhere, from_the_same, from_a_copy, at_a_number_that_is_a_tensor],
)
def test_writes_that_come_out_alike_in_any_order_are_exported(function: Callable[..., Any]) -> None:
    export_and_compare(Calls(function), (torch.rand(4, 3),), (torch.rand(6, 3),), dynamic_shapes=({0: "rows"},))


def _differences_in_place(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    y[:, 1:] = y[:, 1:] - y[:, :-1]
    y[:, :1] *= 3
    y[:, -1:] += y[:, :1]
    return y, y.view(-1)[1:].sum()


def test_writes_into_parts_take_no_side_on_sizes() -> None:
    """What asks torch whether elements of a part share memory asks for no size."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        program = export(Calls(_differences_in_place), (torch.randn(2, 6, 4),), dynamic_shapes=({0: "b", 1: "n"},))
    assert not [one for one in heard if "holds only while" in str(one.message)]
    for size in (0, 1, 2, 3, 9):
        x = torch.randn(2, size, 4)
        assert_same(program(x), [*_differences_in_place(x)])
