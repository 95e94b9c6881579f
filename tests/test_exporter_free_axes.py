"""Free axes stay free through writes to views and int(), or the export says what fixes them; verify sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch.export import Dim

from batch_export.errors import DynamicShapeError, OnnxExporterError, TranslationError, VerificationError
from batch_export.exporter import export
from batch_export.exporter.capture import dynamic_shapes, size_oblivious
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.diagnostics.verify import verify_other_size
from tests.exporting import Called, export_and_compare

pytestmark = pytest.mark.sampled


class Written(torch.nn.Module):
    def __init__(self, write: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        self.write(y)
        return y


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "unbind": lambda y: y.unbind(1)[0].add_(y[:, 1]),
    "unbind, last": lambda y: y.unbind(-1)[-1].mul_(2),
    "unbind of a transpose": lambda y: y.t().unbind(0)[2].mul_(2),
    "unbind of a permutation": lambda y: y.view(-1, 2, 3).permute(2, 0, 1).unbind(0)[1].zero_(),
    "unfold": lambda y: y.unfold(1, 2, 2)[:, 0].mul_(3),
    "unfold, select": lambda y: y.unfold(1, 3, 3).select(1, 1).copy_(y[:, :3] + 1),
    "split": lambda y: y.split(3, 1)[0].mul_(2),
    "split by sizes": lambda y: y.split([1, 2, 3], -1)[1].mul_(2),
    "chunk": lambda y: y.chunk(2, 1)[1].zero_(),
    "tensor_split": lambda y: torch.tensor_split(y, (1, 3), dim=1)[1].mul_(2),
    "diagonal": lambda y: y.view(-1, 2, 3).diagonal(dim1=1, dim2=2).fill_(7),
    "narrow with broadcast": lambda y: y.view(-1, 2, 3).narrow(2, 0, 1).copy_(torch.ones(1, 1)),
    "movedim": lambda y: y.movedim(0, 1)[2].fill_(5),
    "flat": lambda y: y.flatten()[::2].zero_(),
    "every piece": lambda y: [piece.add_(number) for number, piece in enumerate(y.unbind(1))],
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_through_views_keep_the_batch_free(name: str) -> None:
    x = torch.arange(18.0).reshape(3, 6)
    others = [(torch.arange(6.0 * size).reshape(size, 6),) for size in (5, 2, 8)]
    program = export_and_compare(Written(WRITES[name]), (x,), *others, dynamic_shapes=({0: "batch"},))
    assert not isinstance(program.model.graph.inputs[0].shape[0], int)  # type: ignore[index]


class Padded(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = int(x.shape[-2]), int(x.shape[-1])
        return torch.nn.functional.pad(x, (0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4)) * 2


@pytest.mark.parametrize("form", [{2: "h", 3: "w"}, {2: Dim.AUTO, 3: Dim.AUTO}])
def test_int_of_a_size_keeps_its_axis_free(form: dict[int, Any]) -> None:
    images = [(torch.rand(1, 2, height, width),) for height, width in ((8, 8), (6, 9), (12, 5))]
    export_and_compare(Padded(), *images, dynamic_shapes=(form,))


class Table(torch.nn.Module):
    """Positions that are used as they are at 64 places, and resized at any other number."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.rand(1, 64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[2:]
        positions: torch.Tensor = self.positions
        if height * width != 64:
            grid = positions.view(1, 8, 8, 4).permute(0, 3, 1, 2)
            positions = torch.nn.functional.interpolate(grid, (height, width)).flatten(2).transpose(1, 2)
        return x.flatten(2).transpose(1, 2) + positions


def test_a_branch_of_the_native_size_is_one_of_two_ways_or_fixed() -> None:
    x = torch.rand(1, 4, 8, 8)
    others = [(torch.rand(1, 4, *size),) for size in ((4, 16), (5, 5), (9, 3), (16, 4))]
    export_and_compare(Table(), (x,), *others, dynamic_shapes=({2: "h", 3: "w"},))
    program = export_and_compare(Table(), (x,), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},))
    assert list(program.model.graph.inputs[0].shape)[2:] == [8, 8]  # type: ignore[arg-type]


def test_an_axis_left_to_the_exporter_that_is_divided_stays_free() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, -1, x.shape[1]) + 1

    program = export(halves, (torch.rand(4, 3),), dynamic_shapes=({0: Dim.AUTO},))
    assert program(torch.rand(10, 3))[0].shape == (2, 5, 3)


def test_a_guard_on_python_floats_restricts() -> None:
    def decided(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if int(x.shape[0] * 0.29) == 0 else x - 1

    with pytest.raises(DynamicShapeError, match=r"holds only while `int\(.*== 0`"):
        export(decided, (torch.rand(3, 2),), dynamic_shapes=({0: "n"},))


def test_other_sizes_are_tried_where_an_axis_is_an_expression_of_a_name() -> None:
    class Divided(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.T.unflatten(0, (-1, 2, 1))

    others = [(torch.rand(size),) for size in ((1, 4), (1, 2), (2, 2), (5, 8), (0, 6))]
    shapes = ({0: "batch", 1: 2 * torch.export.Dim("half")},)
    program = export_and_compare(Divided(), (torch.rand(3, 4),), *others, dynamic_shapes=shapes)
    assert program.model.graph.inputs[0].shape == ("batch", "2*half")


def test_lengths_by_python_floats_are_right_at_every_size() -> None:
    class Shortened(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[: int(x.shape[0] * 0.29) + 1]

    sizes = [(torch.rand(size, 2),) for size in (3, 0, 1, 2, 4, 7, 33, 100)]
    program = export_and_compare(Shortened(), *sizes, dynamic_shapes=({0: "n"},))
    assert program.model.graph.inputs[0].shape == ("n", 2)


def test_a_file_that_fixes_a_free_axis_is_refused() -> None:
    program = capture(torch.nn.ReLU(), (torch.rand(3, 4),), dynamic_shapes=({0: "batch"},)).program
    dynamic_shapes.require_free(program, [["batch", 4]])
    with pytest.raises(DynamicShapeError, match=r"axis 0 of the input .* is free in the captured program and fixed"):
        dynamic_shapes.require_free(program, [[3, 4]])


def test_verification_sees_what_is_wrong_at_another_size_only() -> None:
    model, x = torch.nn.ReLU(), torch.rand(3, 4)
    program = export(model, (x,), dynamic_shapes=({0: "batch"},), verify=True)
    assert [facts.actual_shape for facts in verify_other_size(program, model, (x,), {})] == [(4, 4)]

    def other(given: torch.Tensor) -> torch.Tensor:
        return given.relu() if given.shape[0] == 3 else given.relu() + 1

    with pytest.raises(VerificationError, match=r"^at batch=4 output .* differs by 1"):
        verify_other_size(program, other, (x,), {})

    def limited(given: torch.Tensor) -> torch.Tensor:
        if given.shape[0] != 3:
            raise ValueError("three rows only")
        return given.relu()

    assert verify_other_size(program, limited, (x,), {}) == []


@pytest.mark.parametrize("operator", [torch.linalg.cholesky, torch.linalg.cholesky_ex])
@pytest.mark.parametrize("axes", [("b", None), (None, "n"), ("b", "n")])
def test_verification_at_other_sizes_takes_inputs_that_the_model_takes(
    operator: Callable[[torch.Tensor], Any], axes: tuple[str | None, str | None], tmp_path: Path
) -> None:
    x = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0))
    x = x @ x.mT + torch.eye(4)
    shapes = ({0: axes[0], 1: axes[1], 2: axes[1]},)
    export(lambda x: operator(x), (x,), dynamic_shapes=shapes, verify=True, report=True, artifacts_dir=tmp_path)
    text = next(tmp_path.glob("*.md")).read_text()
    assert "Compared at the example inputs." in text
    sizes = [f"{axis}={size}" for axis, size in zip(axes, (1, 3), strict=True) if axis]
    assert f"Compared at {', '.join(sizes)}, with elements of the example." in text


def test_verification_says_that_no_other_size_was_compared() -> None:
    def limited(given: torch.Tensor) -> torch.Tensor:
        if given.shape[0] != 3:
            raise ValueError("three rows only")
        return given.relu()

    model, x, told = torch.nn.ReLU(), torch.rand(3, 4), list[str]()
    program = export(model, (x,), dynamic_shapes=({0: "batch"},))
    assert verify_other_size(program, limited, (x,), {}, told) == []
    assert told[0].startswith("no other size: the model refused batch=4; batch=5")
    assert verify_other_size(program, model, (x,), {}, told)
    assert told[1] == "batch=4, with random numbers in its range"


def test_a_file_that_does_not_run_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = torch.nn.ReLU(), torch.rand(3, 4)
    program = export(model, (x,), dynamic_shapes=({0: "batch"},))
    program.model.graph.inputs[0].shape = program.model.graph.outputs[0].shape = None
    program.model.graph[0].op_type = "Inverse"
    with pytest.raises(VerificationError, match=r"the file does not run at batch=4: \w+"):
        verify_other_size(program, model, (x,), {})


def test_equal_outputs_keep_their_shapes() -> None:
    def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 3).trunc(), (x * 3).sign()

    for optimize in (True, False):
        program = export(rounded, (torch.rand(3, 4),), dynamic_shapes=({0: "n"},), optimize=optimize)
        onnx.checker.check_model(program.model_proto, full_check=True)


def test_slices_along_an_axis_whose_size_torch_does_not_know_are_refused() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return torch.stack(list(x[-2:4].unbind(0)))

    def first(x: torch.Tensor) -> torch.Tensor:
        return x[-2:4].unbind(0)[0]

    class Both(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return both(x).cumsum(0)

    x = torch.tensor([1, 2, 3], dtype=torch.int8)
    with size_oblivious.size_oblivious():
        captured = torch.export.export(Both(), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    with pytest.raises(TranslationError, match=r"takes the slices of unbind .* for pieces[\s\S]*x\[0\], x\[1\]"):
        export(captured, guards="allow")
    program = export(lambda x: sum(both(x)), (x,), dynamic_shapes=({0: "n"},), guards="allow")
    for size in (2, 3, 4):
        given = torch.arange(size, dtype=torch.int8)
        assert int(program(given)[0]) == int(sum(both(given)))
    program = export(first, (x,), dynamic_shapes=({0: "n"},), guards="allow")
    for size in (1, 2, 3, 5):
        given = torch.arange(size, dtype=torch.int8)
        assert int(program(given)[0]) == int(first(given))


MEMORY: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "as it is": (lambda x: x.as_strided((2, 3), (4, 1), 2), True),
    "transposed": (lambda x: x.t().as_strided((2, 3), (1, 2), 1), True),
    "of rows": (lambda x: x[1:].as_strided((1, 2), (4, 1), 5), True),
    "of columns": (lambda x: x[:, 1:].as_strided((2,), (1,)), False),
    "beyond its rows": (lambda x: x[:1].as_strided((2, 2), (4, 1)), False),
    "written to": (lambda x: x.clone().t().as_strided((2,), (1,)).mul_(2), False),
}


@pytest.mark.parametrize("name", MEMORY)
def test_as_strided_reads_what_lies_in_memory_or_is_refused(name: str) -> None:
    function, is_known = MEMORY[name]
    x = torch.arange(12.0).reshape(3, 4)
    if is_known:
        torch.testing.assert_close(export(function, (x,))(x)[0], function(x))
    else:
        with pytest.raises(OnnxExporterError):
            export(function, (x,))


def test_as_strided_of_an_input_that_is_laid_out_otherwise() -> None:
    turned = torch.arange(24.0).reshape(4, 3, 2).permute(2, 0, 1)
    read = export(lambda x: x.as_strided((2, 3), (4, 1), 2), (turned,))(turned)[0]
    torch.testing.assert_close(read, turned.as_strided((2, 3), (4, 1), 2))


def chunked(x: torch.Tensor) -> torch.Tensor:
    """Chunks of four rows, each half of the one before, of a sequence that is padded to whole ones."""
    rows = torch.nn.functional.pad(x, (0, 0, 0, (4 - x.shape[1] % 4) % 4)) * 2
    chunks = rows.view(rows.shape[0], rows.shape[1] // 4, 4, rows.shape[2])
    size, stride = list(chunks.size()), list(chunks.stride())
    size[1], stride[1] = size[1] * 2 - 1, stride[1] // 2
    return chunks.as_strided(size, stride)


def test_as_strided_over_free_sizes_stays_within_the_tensor() -> None:
    axes = ({0: "batch", 1: "length"},)
    program = export(chunked, (torch.randn(2, 8, 3),), dynamic_shapes=axes)
    for batch, length in ((2, 8), (1, 3), (3, 4), (2, 13)):
        x = torch.randn(batch, length, 3)
        torch.testing.assert_close(program(x)[0], chunked(x))
    program.release()
    with pytest.raises(OnnxExporterError, match="as_strided reads memory"):
        export(
            lambda x: (x * 2)[:, :4].as_strided((x.shape[0], 2), (5, 1)),
            (torch.randn(5, 6),),
            dynamic_shapes=({0: "n"},),
        )


LAST: dict[str, Callable[..., Any]] = {
    "times": lambda x, k: (x[:, -1:] * k).sum(-1),
    "beside": lambda x, k: torch.cat([x[:, -1:], k], 1) + x[:, -1:].mean(2, keepdim=True),
    "after a branch": lambda x, k: x * k if x.shape[1] == 1 else x[:, -1:] * k,
}


@pytest.mark.parametrize("name", LAST)
def test_the_last_of_a_free_axis_is_one(name: str) -> None:
    sizes = [(1, 1), (5, 5), (9, 9)]
    given, *more = [(torch.randn(2, a, 4), torch.randn(2, b, 4)) for a, b in ((3, 3), *sizes)]
    axes = {0: "batch", 1: "length"}
    export_and_compare(_Calls(LAST[name]), given, *more, dynamic_shapes=(axes, axes))


class _Calls(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> Any:
        return self.function(x, k)


@pytest.mark.parametrize("side", ["left", "right"])
def test_tensors_of_free_lengths_side_by_side(side: str) -> None:
    def padded(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.nn.utils.rnn.pad_sequence([x, k, x[:2]], True, -1.0, side)
        return found

    given, *more = [(torch.randn(a, 2), torch.randn(b, 2)) for a, b in ((3, 5), (1, 1), (7, 2), (2, 9))]
    export_and_compare(_Calls(padded), given, *more, dynamic_shapes=({0: "one"}, {0: "other"}))


def _cut(x: torch.Tensor, factor: float) -> tuple[torch.Tensor, int]:
    if x.shape[1] > 10:
        x = x[:, -10:] * factor
    return x.mean(1), x.shape[1]


@pytest.mark.parametrize("length", [7, 17])
def test_numbers_that_forward_returns_are_held_against_eagers(length: int) -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while `length (<=|>) 10`"):
        export(_cut, (torch.randn(2, length, 3), 2.0), dynamic_shapes=({0: "batch", 1: "length"}, None))


@pytest.mark.parametrize("length", [7, 17])
def test_numbers_that_forward_returns_follow_a_crop(length: int) -> None:
    def cropped(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        if x.shape[1] > 10:
            x = x[:, -10:]
        return x.mean(1), x.shape[1]

    program = export(cropped, (torch.randn(2, length, 3),), dynamic_shapes=({0: "batch", 1: "length"},))
    for size in (1, 9, 10, 11, 30):
        assert program(torch.randn(2, size, 3))[1] == min(size, 10)


def test_a_function_without_a_signature() -> None:
    x, weight = torch.randn(1, 3, 5), torch.randn(2, 3, 3)
    program = export(torch.nn.functional.conv1d, (x, weight))
    torch.testing.assert_close(program(x, weight)[0], torch.nn.functional.conv1d(x, weight), atol=1e-5, rtol=1e-5)


def test_a_transform_along_another_axis() -> None:
    def centred(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: row - row.mean(), in_dims=1, out_dims=1)(x)

    x = torch.randn(3, 4)
    torch.testing.assert_close(export(centred, (x,))(x)[0], x - x.mean(0))


FOLLOWED: dict[str, Callable[..., Any]] = {
    "chances of normal numbers": lambda x, k: torch.distributions.Normal(x, k.exp()).log_prob(k),
    "entropy of categories": lambda x, k: torch.distributions.Categorical(logits=x + k).entropy(),
    "elements along an axis": lambda x, k: torch.take_along_dim(x, (k > 0).long(), 1),
    "of one row": lambda x, k: x.take_along_dim((k[:, :1] > 0).long(), dim=-1),
    "a triangle": lambda x, k: (x @ k.T)[tuple(torch.tril_indices(x.shape[0], x.shape[0], -1))],
    "pairs": lambda x, k: torch.combinations(x[:, 0] + k[:, 1]),
    "three with repetition": lambda x, k: torch.combinations(x[:, 0], 3, with_replacement=True),
    "one of each": lambda x, k: torch.combinations(x[:, 0], r=1),
    "the other triangle": lambda x, k: (x @ k.T)[tuple(torch.triu_indices(x.shape[0], x.shape[0]))],
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_torch_does_by_itself_is_followed(name: str) -> None:
    given, *more = [(torch.randn(size, 3), torch.randn(size, 3)) for size in (5, 2, 1, 8)]
    export_and_compare(_Calls(FOLLOWED[name]), given, *more, dynamic_shapes=({0: "rows"}, {0: "rows"}))


def test_a_compiled_module_has_its_own_inputs() -> None:
    layer = torch.nn.Linear(3, 2)
    export_and_compare(torch.compile(layer), (torch.randn(4, 3),), (torch.randn(2, 3),), dynamic_shapes=({0: "rows"},))


def _largest(x: torch.Tensor) -> torch.Tensor:
    if len(x) == 0:
        return torch.full((3,), -1.0)
    return x.max(0)[0]


def test_a_branch_for_nothing_is_in_the_file() -> None:
    others = ((torch.randn(rows, 3),) for rows in (0, 1, 2, 9))
    export_and_compare(Called(_largest), (torch.randn(5, 3),), *others, dynamic_shapes=({0: "rows"},))
