"""Models that go by where their inputs lie in memory, of which a file knows nothing: told with the line."""

import itertools
import warnings
from collections.abc import Callable

import pytest
import sympy
import torch
from exporting import Called, export_and_compare

from batch_export import ExportWarning, export
from batch_export.errors import DynamicShapeError
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.guards import environment_of


def _by_strides(x: torch.Tensor) -> torch.Tensor:
    return x * x.stride(0)


def _by_contiguity(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.is_contiguous() else x - 1


def _by_offset(x: torch.Tensor) -> torch.Tensor:
    return x[1:] + x[1:].storage_offset()


def _strided(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).as_strided((2, 3), (1, 2))


def _scattered(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided_scatter(x, torch.zeros(2, 3), (2, 3), (1, 2))


def _resized(x: torch.Tensor) -> torch.Tensor:
    return x.clone().resize_(2, 2)


def _written_in_order(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.contiguous().add_(1)
    return y * 1


def _written_flat(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.reshape(-1).add_(1)
    return y * 1


def _input_written_flat(x: torch.Tensor) -> torch.Tensor:
    return x.flatten().mul_(2)


def _in_order(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().as_strided((2, 3), (1, 2)) if x.stride(0) else x


def _shown(x: torch.Tensor) -> torch.Tensor:
    assert x.stride(0) >= 0
    return x.contiguous().reshape(-1) * 2


def _own_memory(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(3, 4)
    y.reshape(-1).add_(1)
    return x + y


@pytest.mark.parametrize(
    "model",
    [
        _by_strides,
        _by_contiguity,
        _by_offset,
        _strided,
        _scattered,
        _resized,
        _written_in_order,
        _written_flat,
        _input_written_flat,
    ],
)
def test_what_goes_by_the_layout_is_told_with_its_line(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    code = model.__code__
    with pytest.warns(ExportWarning, match=r"lie in memory in another way") as told:
        export(model, (torch.randn(3, 4),))
    said = " ".join(str(one.message) for one in told)
    lines = {line for _, _, line in code.co_lines() if line is not None}
    assert any(f"{code.co_filename}:{line}" in said for line in lines)


@pytest.mark.parametrize("model", [_in_order, _shown, _own_memory])
def test_what_is_alike_in_every_layout_is_not(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    example = torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(model, (example,))
    for given in (example, torch.randn(4, 3).t(), torch.randn(3, 4, 2)[..., 1]):
        torch.testing.assert_close(program(given)[0], model(given))


def test_the_example_keeps_its_content() -> None:
    example = torch.arange(12.0).reshape(3, 4)
    with pytest.warns(ExportWarning, match="lie in memory"):
        export(_input_written_flat, (example,))
    assert example.flatten().tolist() == [float(one) for one in itertools.islice(itertools.count(), 12)]


def test_what_the_exporter_asks_for_its_own_ends_is_no_question_of_the_models() -> None:
    """Alike blocks are told by their tensors' memory, while the line of the model that calls them is running."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).relu() + x

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(Block() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    captured = capture(Blocks(), (torch.rand(2, 4),))
    assert captured.blocks
    assert captured.asked_for_layout == {}


def test_asking_for_the_layout_leaves_sizes_free() -> None:
    """Whether a copy is its source is asked of sizes, which torch answers with the example's: the axis became 2."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        first, _ = x.unfold(0, 2, 1).mT.chunk(3, -2)
        other = first.clone()
        other[0] = 1
        return first.type_as(x)

    inputs = [(torch.randn(size),) for size in (2, 3, 5)]
    program = export_and_compare(Called(copied), *inputs, dynamic_shapes=({0: "n"},))
    assert [str(size) for size in program.model.graph.inputs[0].shape or ()] == ["n"]


def test_a_size_that_is_fixed_behind_the_capture_is_no_file() -> None:
    captured = capture(Called(torch.relu), (torch.randn(3),), dynamic_shapes=({0: "n"},))
    environment = environment_of(captured.traced)
    assert environment is not None
    (symbol,) = environment.var_to_range
    environment.replacements[symbol] = sympy.Integer(3)
    with pytest.raises(DynamicShapeError, match=r"axis n is free in .* torch has since made it 3"):
        to_onnx(captured, 20)
