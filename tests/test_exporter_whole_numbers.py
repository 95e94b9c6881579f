"""`int()` and `float()` in a model's code keep what they convert: sizes are free, and data are data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture import course
from batch_export.exporter.capture.capture import capture
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


def _half(size: int) -> int:
    return int(size / 2 + 1)


class Sizes(torch.nn.Module):
    """`int` and `float` are called, asked about, and names of methods."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        root = int(x.shape[1] ** 0.5)
        thirds = [int((size - 1) / 3 + 1) for size in x.shape]
        as_float = float(x.shape[1]) / 2 if isinstance(root, int) else 0.0
        whole = x.int() + int("2") + int(2.9)
        return x[:, : _half(x.shape[1])], x[:, :root] * as_float, x[:, : thirds[1]], whole.to(float)


def test_sizes_stay_free_and_one_capture_is_enough() -> None:
    given = (torch.randn(2, 9),)
    others = [(torch.randn(rows, size),) for rows, size in ((1, 7), (3, 8), (5, 12), (2, 16), (4, 33))]
    export_and_compare(Sizes(), given, *others, dynamic_shapes=({0: "rows", 1: "size"},))
    captured = capture(Sizes(), given, dynamic_shapes=({0: "rows", 1: "size"},))
    assert [one.strategy for one in captured.attempts] == ["torch.export(strict=False)"]


class Data(torch.nn.Module):
    """Elements up to the largest length, times a number of another tensor."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return x[:, : int(lengths.max())] * float(lengths[0] / 2)


def test_numbers_of_the_data_are_computed() -> None:
    def given(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(2, 9), torch.tensor(lengths)

    export_and_compare(Data(), given(3, 5), given(9, 1), given(1, 1), given(2, 6))


class Deciding(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if int(x.sum()) > 3 else x


def test_a_decision_by_such_a_number_goes_both_ways() -> None:
    export_and_compare(Deciding(), (torch.zeros(3),), (torch.ones(3),), (torch.full((3,), 2.0),))


class Counted(torch.nn.Module):
    """A number that Python itself needs is the example's, as before."""

    names: dict[int, float] = {4: 2.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.shape[0] / 2)):
            x = x + 1
        return x * self.names[int(x.shape[0])]


def test_numbers_that_python_needs_are_plain() -> None:
    program = export_and_compare(Counted(), (torch.randn(4, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    shape: Any = program.model.graph.inputs[0].shape
    assert list(shape) == [4, 3]


def test_functions_are_as_before() -> None:
    before = _half.__code__
    export(Sizes(), (torch.randn(2, 9),), dynamic_shapes=({1: "size"},))
    assert _half.__code__ is before
    assert not any(name.startswith("__int") for name in globals())


class Chunked(torch.nn.Module):
    """As linear attention is computed: one chunk of a sequence after the other, up to some."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (0, 0, 0, (8 - x.shape[0] % 8) % 8))
        state = torch.zeros(3)
        for chunk in range(padded.shape[0] // 8):
            if chunk == 40:
                break
            state = self.after(state, padded, chunk)
        return state

    def after(self, state: torch.Tensor, padded: torch.Tensor, chunk: int) -> torch.Tensor:
        """The state behind one chunk, whose place is a number of another function's."""
        return torch.tanh(state + padded[8 * chunk : 8 * chunk + 8].sum(0))


class ChunkedElsewhere(Chunked):
    """The same to the end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (0, 0, 0, (8 - x.shape[0] % 8) % 8))
        state = torch.zeros(3)
        for chunk in range(padded.shape[0] // 8):
            state = self.after(state, padded, chunk)
        return state


class ChunkedHere(torch.nn.Module):
    """The same in one function, which is one operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (0, 0, 0, (8 - x.shape[0] % 8) % 8))
        state = torch.zeros(3)
        for chunk in range(padded.shape[0] // 8):
            state = torch.tanh(state + padded[8 * chunk : 8 * chunk + 8].sum(0))
        return state


@pytest.mark.parametrize("kind", [ChunkedHere, ChunkedElsewhere])
def test_chunks_of_a_padded_size_are_one_operator(kind: type[torch.nn.Module]) -> None:
    others = [(torch.rand(size, 3),) for size in (1, 8, 9, 16, 40)]
    export_and_compare(kind(), (torch.rand(5, 3),), *others, dynamic_shapes=({0: "n"},))


def test_a_loop_over_a_size_is_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    own = course.by_strategies

    def noted(request: Any, inputs: Any, strategies: Any) -> Any:
        sizes.append(inputs[0][0].shape[0])
        return own(request, inputs, strategies)

    monkeypatch.setattr(course, "by_strategies", noted)
    captured = capture(Chunked(), (torch.rand(5, 3),), dynamic_shapes=({0: "n"},), guards="allow")
    assert sizes == [5]
    assert any(guard.counts for guard in captured.harmful)
    with pytest.raises(DynamicShapeError, match=r"holds only while .*== 1`.*whole_numbers\.py:\d+"):
        capture(Chunked(), (torch.rand(5, 3),), dynamic_shapes=({0: "n"},))


def _of_each_row(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row * 2 for row in x.unbind() if row is not x])


def _of_few_rows(x: torch.Tensor) -> torch.Tensor:
    return _of_each_row(x) if x.shape[0] == 5 else x * 2


def test_a_tensor_taken_apart_along_a_free_axis_is_captured_at_no_other_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    own = course.by_strategies

    def noted(request: Any, inputs: Any, strategies: Any) -> Any:
        sizes.append(next(one for one in inputs[0] if isinstance(one, torch.Tensor)).shape[0])
        return own(request, inputs, strategies)

    monkeypatch.setattr(course, "by_strategies", noted)
    with pytest.raises(DynamicShapeError, match=r"axis 0 \(n\) .* makes it 5"):
        capture(_of_each_row, (torch.rand(5, 3),), dynamic_shapes=({0: "n"},))
    assert sizes == [5, 5]  # as it is, and with both ways of what it asks of each row
    with pytest.raises(DynamicShapeError, match="holds only while `n != 5`"):  # which leaves the example out
        capture(_of_few_rows, (torch.rand(5, 3),), dynamic_shapes=({0: "n"},))
    assert capture(_of_few_rows, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},)).free_axes() == 1


def _rows_of(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[:2].numel(), -1)


class Products(torch.nn.Module):
    """Sizes multiplied by the shape itself, beside numbers of elements of a tensor."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = (x == 0).sum(dim=(1, 2)) != x.shape[1:].numel()
        counts = [part.size().numel() for part in (x, x[:, :2])]
        return x[whole], _rows_of(x), x * sum(counts) / x.numel(), x + torch.Size([2, 3]).numel()


def test_the_product_of_a_shape_stays_free() -> None:
    given = (torch.randn(2, 9, 4),)
    others = [(torch.randn(*sizes),) for sizes in ((1, 7, 4), (3, 8, 2), (5, 3, 6))]
    others.append((torch.cat([torch.zeros(1, 4, 5), torch.ones(1, 4, 5)]),))
    axes = ({0: "rows", 1: "size", 2: "width"},)
    export_and_compare(Products(), given, *others, dynamic_shapes=axes)
    captured = capture(Products(), given, dynamic_shapes=axes)
    assert [one.strategy for one in captured.attempts] == ["torch.export(strict=False)"]


class Roots(torch.nn.Module):
    """A square grid whose side is a root of a size, as NumPy and Python work it out."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        side = int(np.sqrt(x.shape[0]))
        return x[: side * side].reshape(side, -1), x[: math.isqrt(x.shape[0])], x / np.sqrt(x.shape[0])


def test_roots_of_sizes_by_numpy_stay_free() -> None:
    others = [(torch.randn(size),) for size in (1, 4, 15, 16, 17, 99, 100)]
    export_and_compare(Roots(), (torch.randn(9),), *others, dynamic_shapes=({0: "size"},))
    assert not hasattr(torch.SymInt, "isqrt")


class Tensors(torch.nn.Module):
    """Tensors of sizes beside other numbers, by functions that copy the example's."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.shape[0]
        total = x.sum()
        mixed = torch.as_tensor([rows, 2.5]) * total, torch.asarray([[rows / 3, 2], [True, x.shape[1]]]) * total
        whole = torch.as_tensor(data=x.shape, dtype=torch.int32), torch.asarray(rows, copy=True)
        return *mixed, *whole, torch.as_tensor((rows, 1.5), dtype=torch.float16), torch.as_tensor(rows / 7) * x


def test_tensors_made_of_sizes_keep_them_free() -> None:
    others = [(torch.randn(size, 3),) for size in (1, 2, 7, 30)]
    export_and_compare(Tensors(), (torch.randn(4, 3),), *others, dynamic_shapes=({0: "size"},))


class Parts(torch.nn.Module):
    """Rows in parts whose number is the batch, behind a product of sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = (x == 0).sum(dim=(1, 2)) != x.shape[1:].numel()
        parts = x.split(kept.long().tolist())
        return torch.cat([part.flatten(1) - part.mean() for part in parts])


def test_a_refusal_names_the_axis_that_the_model_fixes() -> None:
    given, line = (torch.randn(3, 4, 5),), Parts.forward.__code__.co_firstlineno + 3
    with pytest.raises(DynamicShapeError, match=rf"axis 0 \(batch\) .* makes it 3 .*whole_numbers\.py:{line}\)"):
        export(Parts(), given, dynamic_shapes=({0: "batch", 1: "height", 2: "width"},))


def test_sequences_as_long_as_the_data_say_are_padded_without_free_axes() -> None:
    class Regulator(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            rows = [torch.repeat_interleave(row, length, 0) for row, length in zip(x, lengths, strict=True)]
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    x = torch.randn(2, 3, 4)
    program = export(Regulator(), (x, torch.tensor([[1, 2, 1], [2, 2, 3]])))
    for lengths in (torch.tensor([[3, 2, 2], [1, 0, 1]]), torch.tensor([[1, 1, 0], [1, 0, 1]])):
        torch.testing.assert_close(torch.as_tensor(program(x, lengths)[0]), Regulator()(x, lengths))


class Turned(torch.nn.Module):
    """As many rows as the data say, whose other axes are put in order by a -1."""

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        rows: int = numbers.max().item() * 2 + 4  # type: ignore[assignment]
        turned = (torch.arange(rows)[None, :, None] * x.unsqueeze(1)).view(x.shape[0], rows, 2, 3).transpose(1, 2)
        return turned.reshape(x.shape[0], -1, rows, 3)


def test_a_number_of_rows_by_the_data_beside_a_rest_is_no_decision() -> None:
    def given(batch: int, *numbers: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch, 6), torch.tensor(numbers)

    shapes = ({0: "batch"}, {0: "n"})
    program = export_and_compare(Turned(), given(2, 1, 3), given(3, 0, 0, 0), given(1, -1), dynamic_shapes=shapes)
    assert not program.captured.both_ways


class CountedTo(torch.nn.Module):
    """Ranges that end at a fraction of the data: torch asks whether their lengths, whole numbers, are below zero."""

    def forward(self, end: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.arange(end), torch.arange(0, end), torch.arange(end, dtype=torch.int64)


def test_ranges_end_at_fractions_of_the_data() -> None:
    export_and_compare(CountedTo(), (torch.tensor(8.5),), (torch.tensor(4.0),), (torch.tensor(0.0),))
