"""Numbers made of free sizes where torch's operators take a Python number, and pieces counted from an axis's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import sympy
import torch
from exporting import Called
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.nn import functional as nn_functional
from torch.utils._sympy import functions as torch_sympy

from batch_export.errors import TranslationError
from batch_export.exporter import export
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.graph.recorder import Recorder
from batch_export.exporter.graph.sizes import Sizes
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Computing(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


FLOATS: dict[str, Callable[[torch.Tensor], Any]] = {
    "powers": lambda x: (x * 2 ** -x.shape[0], x * 0.5 ** x.shape[0], x * x.shape[0] ** -0.5, x * x.shape[0] ** 2),
    "rounded to digits": lambda x: x.double() * round(x.shape[0] * 0.285, 2) + round(x.shape[0] / 8, 2),
    "addmm": lambda x: torch.addmm(x, x, x.mT @ x, alpha=x.shape[0], beta=x.shape[0] - 1),
    "addmm, beta of 0": lambda x: torch.addmm(x / 0, x, x.mT @ x, beta=x.shape[0] - 3),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], (x.mT @ x)[None], alpha=x.shape[0]),
    "remainder": lambda x: (torch.remainder(x, x.shape[0]), x.shape[0] % (x + 0.5)),
    "activations": lambda x: (
        nn_functional.leaky_relu(x, x.shape[0]),
        nn_functional.elu(x, x.shape[0]),
        nn_functional.threshold(x, x.shape[0], 0),
    ),
    "narrow from the end": lambda x: (x.narrow(0, -2, 2), x.narrow(1, -1, 1), x.narrow(0, -2, 1)),
    "narrow of a free length": lambda x: (x.narrow(0, -x.shape[0], x.shape[0]), x.narrow(0, 1, x.shape[0] - 1)),
    "write to the end": lambda x: (y := x.clone(), y.narrow(0, -1, 1).mul_(3))[0],
}
INTEGERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "xor": lambda x: (x ^ x.shape[0], x.bitwise_xor(x.shape[0])),
    "and, or": lambda x: (x & x.shape[0]) | (x.shape[0] + 1),
    "shift": lambda x: x << x.shape[0],
}
QUOTIENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "filled": lambda x: torch.full((2,), (x.shape[0] - 5) // 2),
    "start and step of a range": lambda x: torch.arange((x.shape[0] - 5) // 2, 12, x.shape[0] // 4 + 1),
    "factor": lambda x: x * ((x.shape[0] - 5) // 2),
    "divmod": lambda x: [x * number for number in (*divmod(x.shape[0] - 5, 3), *divmod(20, x.shape[0] + 1))],
    "divmod of both": lambda x: [x * number for number in divmod(2 * x.shape[0], x.shape[1])],
    "divmod of fractions": lambda x: [x * number for number in divmod(x.shape[0] / 2, 1.5)],
    "by minus three": lambda x: x.sum() + (x.shape[0] // -3) + (x.shape[0] % -3),
    "by a size": lambda x: x.sum() + ((x.shape[0] - 5) // x.shape[1]) + ((x.shape[0] - 5) % x.shape[1]),
    "one less": lambda x: torch.full((2,), (x.shape[0] - 1) // 2) + (x.shape[0] - 2) // 4,
    "remainder": lambda x: x * ((x.shape[0] - 5) % 3) + (x.shape[0] - 5.5) % 2 + (x.shape[0] - 4.5) % -1.5,
    "remainder of zero": lambda x: torch.full((1,), 1.0) / ((x.shape[0] - 5.0) % 1.0),
    "slice": lambda x: x[(x.shape[0] - 9) // 4 :],
    "limits": lambda x: torch.full((2,), max(x.shape[0], 1)) + min(x.shape[0], 1) + max(x.shape[0] - 1, 0),
    "mean of what may be nothing": lambda x: x.sum() / max(1, x.shape[0]) + x.sum() / max(1, x.numel()),
    "distance": lambda x: torch.full((2,), abs(x.shape[0] - 1)),
    "sizes of slices": lambda x: (torch.ones(x[:1].shape[0]), x[1:].shape[0] * x.sum(), torch.ones(x[-1:].shape[0])),
    "shape": lambda x: torch.zeros(max(x.shape[0], 1), min(1, x.shape[0])),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_numbers_of_sizes_that_may_be_zero_or_negative(name: str) -> None:
    examples = [(torch.randn(size, 3),) for size in (7, 0, 1, 2, 3, 4, 5, 6, 11)]
    export_and_compare(Computing(QUOTIENTS[name]), *examples, dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize(("base", "divisor"), [(-5, 2), (-1, 3), (0, 4), (-5, -2), (3, -7)])
@pytest.mark.parametrize("kind", [torch_sympy.FloorDiv, torch_sympy.PythonMod, torch_sympy.PowByNatural, sympy.Abs])
def test_an_expression_of_sizes_is_pythons_number(base: int, divisor: int, kind: Any) -> None:
    environment = ShapeEnv()
    symbol = environment.create_unspecified_symbol(9, ConstantSource("n"), DimDynamic.DYNAMIC)
    arguments = {sympy.Abs: (symbol + base,), torch_sympy.PowByNatural: (symbol + base, 2)}
    expression = kind(*arguments.get(kind, (symbol + base, divisor)))
    recorder = Recorder(fold=False)
    sizes = Sizes(recorder, {})
    given = RecordedValue(name="n", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    number = environment.create_symintnode(symbol, hint=9)
    sizes.learn_scalar(number, given)
    with recorder.recording():
        result = sizes.scalar(environment.create_symintnode(expression, hint=None))
    model = ir.Model(
        ir.Graph(
            [given],
            [result],
            nodes=recorder.nodes,
            initializers=list(recorder.initializers.values()),
            opset_imports={"": 18},
        ),
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    for size in (0, 1, 2, 3, 4, 5, 6, 9):
        expected = expression.xreplace({symbol: sympy.Integer(size)})
        assert session.run(None, {"n": np.array(size)})[0] == int(expected), size


def test_a_quotient_of_what_is_never_negative_is_one_node() -> None:
    program = export(
        Computing(lambda x: x.reshape(-1)[: x.shape[0] // 2] * (x.shape[0] // 4)),
        (torch.randn(8, 3),),
        dynamic_shapes=({0: "n"},),
    )
    kinds = [node.op_type for node in program.model.graph]
    assert kinds.count("Div") == 2
    assert "Xor" not in kinds


@pytest.mark.parametrize("name", FLOATS)
def test_sizes_as_scalars_of_floats(name: str) -> None:
    examples = [(torch.randn(size, 3),) for size in (4, 3, 2, 7)]
    export_and_compare(Computing(FLOATS[name]), *examples, dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("name", INTEGERS)
def test_sizes_as_scalars_of_integers(name: str) -> None:
    examples = [(torch.randint(-9, 9, (size, 3)),) for size in (4, 2, 7)]
    export_and_compare(Computing(INTEGERS[name]), *examples, dynamic_shapes=({0: "n"},))


def test_group_normalisation_of_rows_of_nothing() -> None:
    module = Computing(lambda x: nn_functional.group_norm(x, 2, torch.ones(4), torch.zeros(4)))
    examples = [(torch.randn(3, 4, size),) for size in (5, 0, 1, 9)]
    program = export_and_compare(module, *examples, dynamic_shapes=({2: "n"},))
    assert "Size" in [node.op_type for node in program.model.graph]  # no samples, rather than samples of nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_bessel_functions_near_zero_and_equal_elements(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1e-30, -1e-19, 1e-8, 1e-3, -0.5, 1.0, 1.01, 3.0], dtype=dtype)
    special = torch.special
    module = Computing(lambda x: (special.i1(x), special.i1e(x), special.bessel_j1(x)))
    for one, other in zip(export(module, (x,))(x), module(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=1e-5, atol=0.0)
    equal = torch.full((3, 7), -0.7, dtype=dtype)
    spread = Computing(lambda x: (x.var(1), x.std(1), torch.var_mean(x, 1)[0]))
    assert all(not torch.as_tensor(one).any() for one in export(spread, (equal,))(equal))


def test_rounding_to_digits_goes_by_the_exact_number() -> None:
    digits = Computing(
        lambda x: tuple(round(x.shape[0] * step, 2) * x.double() for step in (0.285, 1.115, 0.125, 2.675))
    )
    program = export(digits, (torch.ones(5),), dynamic_shapes=({0: "n"},))
    for size in (*range(1, 12), 15, 25, 35, 45, 101):
        for ours, theirs in zip(program(torch.ones(size)), digits(torch.ones(size)), strict=True):
            assert torch.equal(ours, theirs)
    with pytest.raises(TranslationError, match=r"round\(\.\.\., -1\)"):
        export(Computing(lambda x: x * round(x.shape[0] / 3, -1)), (torch.ones(5),), dynamic_shapes=({0: "n"},))


FREE_FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "new_tensor": lambda x: (
        x * x.new_tensor([x.shape[0], 1, 2, 1]),
        x.new_tensor(x.shape[0] / 2),
        x.new_tensor([[x.shape[0]]], dtype=torch.int64),
    ),
    "one_hot": lambda x: nn_functional.one_hot(torch.arange(x.shape[0]), x.shape[0]),
    "kron": lambda x: (torch.kron(x, torch.full((2, 3), 3.0)), torch.kron(torch.eye(3), x), x.kron(torch.arange(3.0))),
    "gradient": lambda x: (*torch.gradient(x, spacing=2.0), *torch.gradient(x, dim=0)),
    "affine_grid": lambda x: tuple(
        nn_functional.affine_grid(x[None, :2, :3], [1, 2, x.shape[0], x.shape[1]], align_corners=aligned)
        for aligned in (False, True)
    ),
    "affine_grid of volumes": lambda x: nn_functional.affine_grid(
        torch.arange(12.0).reshape(1, 3, 4), [1, 2, x.shape[0], 3, x.shape[0] + 1]
    ),
    "the size it has": lambda x: (
        (x * 2).resize_as_(x),
        (x * 3).resize_(x.shape),
        (x * 4).resize_as_(torch.zeros_like(x)).add_(1),
        (x[:, 0] * 5).resize_(x.shape[0]),
    ),
    "windows": lambda x: tuple(
        getattr(torch, f"{name}_window")(x.shape[0] - 1, periodic=periodic)
        for name in ("hann", "hamming", "blackman", "bartlett")
        for periodic in (True, False)
    ),
    "maxima along one axis": lambda x: (
        nn_functional.max_pool1d(x.mT, 2),
        nn_functional.max_pool1d(x.mT[None], kernel_size=3, stride=2, padding=1, dilation=2, ceil_mode=True),
        torch.max_pool1d(x.mT, 3, 1, 1),
        torch.ops.aten.max_pool1d(x.mT, [2]),
        nn_functional.max_pool1d(x.mT, 2, return_indices=True),
    ),
    "pools of whole axes": lambda x: (
        nn_functional.avg_pool1d(x.mT, x.shape[0]),
        nn_functional.avg_pool2d(x[None], (x.shape[0], 2), stride=1),
        nn_functional.avg_pool2d(x[None].clamp(min=1e-6).pow(3), (x.size(-2), x.size(-1))).pow(1 / 3),
        nn_functional.avg_pool3d(x[None, None], (1, x.shape[0], 3), (1, 2, 1), ceil_mode=True),
        nn_functional.max_pool1d(x.mT, x.shape[0]),
        nn_functional.max_pool2d(x[None], [x.shape[0], 2]),
        nn_functional.lp_pool2d(x[None], 4, (x.shape[0], x[:, :].shape[1])),
    ),
    "pools of whole free pictures": lambda x: nn_functional.avg_pool2d((x @ x.mT)[None], x.shape[0]),
}


@pytest.mark.parametrize("name", FREE_FORMS)
def test_functions_of_free_sizes_that_torch_fixes(name: str) -> None:
    examples = [(torch.linspace(-1, 1, size * 4).reshape(size, 4),) for size in (5, 2, 7)]
    export_and_compare(Computing(FREE_FORMS[name]), *examples, dynamic_shapes=({0: "n"},))


def test_a_floor_division_by_a_number_is_short() -> None:
    """A remainder, a difference and a quotient: what is divided may be below 0 at some sizes."""
    module = Called(lambda x: x.new_full((2,), (x.shape[0] - 4) // 3))
    examples = [(torch.ones(size),) for size in (5, 1, 2, 3, 4, 6, 7)]
    program = export_and_compare(module, *examples, dynamic_shapes=({0: "n"},))
    operators = [node.op_type for node in program.model.graph]
    assert not {"Xor", "Less", "And"} & set(operators)
    assert operators.count("Mod") == operators.count("Div") == 1


@pytest.mark.parametrize(("least", "names"), [(1, {"Div"}), (0, {"Mod", "Div"})], ids=["declared", "free"])
def test_what_is_declared_is_never_below_0(least: int, names: set[str]) -> None:
    module = Called(lambda x: x.new_full((2,), (x.shape[0] - 1) // 2))
    axes = ({0: torch.export.Dim("n", min=least)},)
    program = export_and_compare(module, *((torch.ones(size),) for size in (5, 1, 2, 8)), dynamic_shapes=axes)
    assert {node.op_type for node in program.model.graph} & {"Div", "Mod", "Xor"} == names


class Ring(torch.nn.Module):
    """Remembers the last three rows that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 4))
        self.register_buffer("count", torch.tensor(1))

    def forward(self, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.rows[self.count % 3] = row
        self.count += 1
        return self.rows.sum(0), self.rows[self.count % 3 - 1], self.rows[..., self.count % 3, 1:]


def test_a_position_in_a_tensor_is_an_index() -> None:
    program = export(Ring(), (torch.ones(4),))
    ours, theirs = program(torch.arange(4.0)), Ring()(torch.arange(4.0))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)
    assert ours.mutated["rows"].tolist() == [[0.0] * 4, [0.0, 1.0, 2.0, 3.0], [0.0] * 4]


def test_positions_among_slices_are_read_and_written() -> None:
    class Placed(torch.nn.Module):
        def forward(self, cache: torch.Tensor, at: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
            cache = cache.clone()
            cache[:, at] = value
            cache[0, 1:, at.to(torch.int16)] = 2.0
            cache[at - 4, :, -1] += 1
            return cache, cache[:, at], cache[None, ..., at], cache[at, 1:3, at], cache[at]

    module = Placed()
    program = export(
        module, (torch.zeros(4, 5, 6), torch.tensor(2), torch.ones(4, 6)), dynamic_shapes=({1: "n"}, None, None)
    )
    for length, at in ((5, 3), (7, 0), (4, 1)):
        inputs = torch.randn(4, length, 6), torch.tensor(at), torch.randn(4, 6)
        for one, other in zip(program(*inputs), module(*inputs), strict=True):
            assert torch.equal(one, other)


def test_positions_beside_other_tensors_are_read_and_written() -> None:
    class Placed(torch.nn.Module):
        def forward(self, cache: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
            cache = cache.clone()
            cache[:, at, rows] = 2.0
            cache[rows, :, at] += cache[:3, :, 0] * 2.0
            cache[at, rows, at] = torch.arange(3.0)
            kept = cache[:3, :3, 0] > 0.0
            cache[kept[0].repeat(2)[:4], at] = 5.0
            return cache, cache[:, at, rows], cache[rows, :, at], cache[at, :, rows], cache[:, at, None, rows]

    module = Placed()
    program = export(
        module, (torch.zeros(4, 5, 6), torch.tensor(2), torch.tensor([0, 3, 1])), dynamic_shapes=({1: "n"}, None, None)
    )
    for length, at, rows in ((5, 3, [1, 2, 0]), (7, 0, [3, 2, 1]), (4, 1, [-1, 0, 2])):
        inputs = torch.randn(4, length, 6), torch.tensor(at), torch.tensor(rows)
        for one, other in zip(program(*inputs), module(*inputs), strict=True):
            assert torch.equal(one, other)


class Changing(torch.nn.Module):
    """Changes a copy of its input by a function of it and a position."""

    def __init__(self, change: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, object]:
        x = x.clone()
        return x, self.change(x, at)


def _increased(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x[at] += 1
    x[at, 1] *= 3
    x[:, at // 2] -= 2
    found = x[at] * 2
    x[0] = 9.0
    return found


def _through_what_was_read(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x[at][1] = 7.0
    return x.sum()


def _past_what_was_read(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    found = x[at]
    x.mul_(2)
    return found


def _written_back_late(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    found = x[at]
    found += 1
    total = x.sum()
    x[at] = found
    return total


@pytest.mark.parametrize(
    "change",
    [_increased, _through_what_was_read, _past_what_was_read, _written_back_late],
    ids=lambda one: one.__name__,
)
def test_what_is_at_a_position_is_changed_in_place(change: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    module = Changing(change)
    program = export(module, (torch.zeros(5, 3), torch.tensor(2)))
    for at in (2, 0, 1):
        inputs = torch.randn(5, 3), torch.tensor(at)
        for one, other in zip(program(*inputs), module(*inputs), strict=True):
            torch.testing.assert_close(one, other)


class Spread(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = x.shape[0] // 2
        return x.var(correction=half), x.std(0, correction=half), *torch.var_mean(x, 0, correction=half)


def test_a_correction_made_of_a_free_size() -> None:
    program = export(Spread(), (torch.randn(10, 3),), dynamic_shapes=({0: "n"},))
    for count in (10, 3, 5):
        x = torch.randn(count, 3)
        for found, expected in zip(program(x), Spread()(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), expected)


@pytest.mark.parametrize("aligned", [False, True])
def test_grids_of_known_sizes(aligned: bool) -> None:
    """Of which torch spaces numbers within what it decomposes."""

    def sampled(x: torch.Tensor) -> Any:
        grid = nn_functional.affine_grid(x[:, :2, :3], (2, 3, 4, 5), align_corners=aligned)
        return grid, nn_functional.grid_sample(x[:, None], grid, align_corners=aligned)

    export_and_compare(Called(sampled), (torch.randn(2, 5, 6),))
