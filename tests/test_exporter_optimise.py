"""Each pass of the optimiser acts where it should, says so, and never changes results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from batch_export import export

pytestmark = pytest.mark.sampled


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(40, 40)
        self.second = torch.nn.Linear(40, 40)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.relu(self.first(x)))
        return result


def repeated(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x + 1) * torch.sin(x + 1)


def clamped(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.clamp(x, min=0.5))


def unused(x: torch.Tensor) -> torch.Tensor:
    torch.cos(x)
    return x + 1


def constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.full((2, 3), 2.0).exp().sum()


def shaped(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0] * x.shape[1], -1)


def aliased(x: torch.Tensor) -> torch.Tensor:
    return x.clone().contiguous() + 1


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [(repeated, 5, 3), (clamped, 2, 1), (unused, 2, 1), (constant, 4, 1), (aliased, 2, 1)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_fewer_nodes_and_the_same_results(function: Any, before: int, after: int) -> None:
    x = torch.randn(2, 3)
    plain, optimised = export(function, (x,), optimize=False), export(function, (x,))
    counts = [sum(1 for _ in program.model.graph.all_nodes()) for program in (plain, optimised)]
    assert counts[0] >= before
    assert counts[1] == after
    for program in (plain, optimised):
        torch.testing.assert_close(program(x)[0], function(x), atol=1e-6, rtol=1e-5)
    assert plain.passes == []
    assert {one.name for one in optimised.passes} >= {
        "rewrite",
        "identity",
        "weights",
        "constants",
        "subexpressions",
        "dead code",
    }


def test_frequencies_are_eagers_to_the_last_bit() -> None:
    def angles(timestep: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = torch.arange(128, dtype=torch.float32) / 128
        frequencies = [torch.exp(-9.2 * steps), 1 / 10000**steps, steps**0.5, (steps * 7).sin(), (steps * 7).cos()]
        return tuple(timestep[:, None] * one for one in frequencies)

    given = torch.tensor([1.0, 2.0, 1024.0])
    for one, expected in zip(export(angles, (given,))(given), angles(given), strict=True):
        assert torch.equal(one, expected)


def test_shape_arithmetic_of_a_static_model_is_a_constant() -> None:
    program = export(shaped, (torch.randn(2, 3, 4),))
    assert [node.op_type for node in program.model.graph] == ["Reshape"]


def test_tied_weights_are_stored_once_and_stay_the_modules_own() -> None:
    model = Tied().eval()
    program = export(model, (torch.randn(2, 40),))
    weights = {
        name: value.const_value.raw
        for name, value in program.model.graph.initializers.items()
        if name.endswith(".weight")
    }
    assert len(weights) == 1
    assert next(iter(weights.values())) is model.first.weight
    x = torch.randn(2, 40)
    torch.testing.assert_close(program(x)[0], model(x), atol=1e-5, rtol=1e-5)


def test_weights_that_happen_to_be_equal_stay_apart() -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)).eval()
    program = export(model, (torch.randn(2, 8),))
    assert {"0.weight", "1.weight", "0.bias", "1.bias"} <= set(program.model.graph.initializers)


def test_the_report_has_node_counts_before_and_after(tmp_path: Any) -> None:
    export(repeated, (torch.randn(2, 3),), report=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*.md")
    assert "| pass | nodes before | nodes after | changes |" in report.read_text()
    assert "| subexpressions | 5 | 3 |" in report.read_text()


NUMBERS = torch.tensor([0.0, 1.0, -2.0])
REWRITES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a_guard_against_zero": lambda x: torch.log(x.abs() + 1e-9),
    "a_difference": lambda x: torch.sign(x - 1e-9),
    "a_factor": lambda x: (x * (1 + 5e-6) - x) * 1e6,
    "a_divisor": lambda x: (x / (1 + 5e-6) - x) * 1e6,
    "relu_of_a_negative_bound": lambda x: torch.relu(x.clamp(max=-1.0)),
    "bounds_that_do_not_overlap": lambda x: x.clamp(0, 1).clamp(2, 3),
    "bounds_one_by_one": lambda x: x.clamp(min=5.0).clamp(max=3.0),
    "bounds_of_one_element": lambda x: torch.minimum(torch.maximum(x.sum(), torch.tensor([0.0])), torch.tensor([1.0])),
    "bounds_that_make_a_clip": lambda x: torch.maximum(torch.minimum(x, torch.tensor(1.0)), torch.tensor(0.0)),
}


@pytest.mark.parametrize("name", REWRITES)
def test_rewriting_never_changes_a_result(name: str) -> None:
    function = REWRITES[name]
    actual = export(function, (NUMBERS,))(NUMBERS)[0]
    torch.testing.assert_close(actual, function(NUMBERS), rtol=1e-6, atol=0)


def test_exactly_neutral_elements_are_removed() -> None:
    program = export(lambda x: torch.sin(1 * (-0.0 + x - 0) / 1) * 1, (NUMBERS,))
    assert [node.op_type for node in program.model.graph] == ["Sin"]
    whole = export(lambda x: torch.bitwise_not(0 + x - 0 + 0), (torch.tensor([1, 2]),))
    assert [node.op_type for node in whole.model.graph] == ["BitwiseNot"]


def test_adding_zero_turns_minus_zero_into_zero() -> None:
    numbers = torch.tensor([-0.0, 0.0])
    assert torch.signbit(export(lambda x: 0 + x + 0, (numbers,))(numbers)[0]).tolist() == [False, False]
