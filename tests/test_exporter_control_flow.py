"""cond, while_loop, scan and map: the file against eager, with captured weights, dynamic axes, and nested."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan

from batch_export import export
from batch_export.errors import CaptureError, TranslationError
from tests.exporting import Called, export_and_compare

pytestmark = pytest.mark.sampled

BATCH = ({0: "batch"},)


def node_types(program: Any) -> list[str]:
    return [node.op_type for node in program.model.graph]


def agree(program: Any, model: Any, *cases: tuple[torch.Tensor, ...]) -> None:
    for case in cases:
        expected = model(*case)
        expected = expected if isinstance(expected, tuple) else (expected,)
        actual = program(*case)
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


class Cond(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.first(x) * 2, lambda x: -self.second(x), (x,)) + 1


def test_cond_takes_the_branch_that_the_data_says_with_captured_weights() -> None:
    torch.manual_seed(0)
    model = Cond().eval()
    program = export(model, (torch.ones(2, 3),), dynamic_shapes=BATCH)

    assert "If" in node_types(program)
    agree(program, model, (torch.ones(2, 3),), (-torch.ones(5, 3),), (torch.ones(1, 3),))


class NestedCond(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.max() > 2, lambda x: x * self.scale, lambda x: x - self.scale, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x * 0, (x,))


def test_cond_inside_cond() -> None:
    model = NestedCond()
    program = export(model, (torch.ones(2, 3),), dynamic_shapes=BATCH)
    agree(program, model, (torch.ones(4, 3),), (3 * torch.ones(2, 3),), (-torch.ones(2, 3),))


class Widened(torch.nn.Module):
    """A branch casts to a wider dtype and back, and its own branches read that."""

    def __init__(self, wide: torch.dtype) -> None:
        super().__init__()
        self.wide = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            y = x.to(self.wide).to(x.dtype)
            return torch.cond(x.max() > 2, lambda y: y + 1, lambda y: y * 2, (y,))

        return torch.cond(x.sum() > 0, inner, lambda x: x * 3, (x + 1,))


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.float32, torch.float64), (torch.int32, torch.int64), (torch.float64, torch.float32)],
)
def test_a_cast_and_back_that_branches_within_a_branch_read(dtype: torch.dtype, wide: torch.dtype) -> None:
    model = Widened(wide)
    program = export(model, (torch.ones(2, 3).to(dtype),), dynamic_shapes=BATCH)
    cases = (torch.ones(4, 3), 3.3 * torch.ones(2, 3), -torch.ones(2, 3), torch.rand(3, 3) / 3)
    agree(program, model, *((one.to(dtype),) for one in cases))


class CondOnSize(torch.nn.Module):
    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def many(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + x.shape[0], x.sum(0)

        def few(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.clone(), x.mean(0)

        return torch.cond(flag, many, few, (x,))


def test_cond_with_two_outputs_and_a_size_in_a_branch() -> None:
    model = CondOnSize()
    program = export(model, (torch.ones(2, 3), torch.tensor(True)), dynamic_shapes=({0: "batch"}, None))
    agree(program, model, (torch.ones(7, 3), torch.tensor(True)), (torch.ones(4, 3), torch.tensor(False)))


class While(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = torch.nn.Linear(3, 3)

    def forward(self, count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def going(count: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return count > 0

        def body(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count - 1, torch.tanh(self.step(x))

        return torch.while_loop(going, body, (count, x))


def test_while_loop_runs_as_often_as_the_data_says_and_not_at_all() -> None:
    torch.manual_seed(0)
    model = While().eval()
    program = export(model, (torch.tensor(3), torch.ones(2, 3)), dynamic_shapes=(None, {0: "batch"}))

    assert "Loop" in node_types(program)
    x = torch.randn(5, 3)
    agree(program, model, (torch.tensor(3), x), (torch.tensor(0), x), (torch.tensor(6), x))


class CondInWhile(torch.nn.Module):
    def forward(self, count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def body(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            grown = torch.cond(x.sum() > 10, lambda x: x / 2, lambda x: x * 3, (x,))
            return count - 1, grown

        return torch.while_loop(lambda count, x: count > 0, body, (count, x))


def test_cond_inside_while_loop() -> None:
    model = CondInWhile()
    program = export(model, (torch.tensor(3), torch.ones(2, 3)), dynamic_shapes=(None, {0: "batch"}))
    agree(program, model, (torch.tensor(4), torch.ones(2, 3)), (torch.tensor(1), torch.ones(6, 3)))


class Scan(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Parameter(torch.tensor([0.5, 0.25, 0.1]))

    def forward(self, start: torch.Tensor, xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def combine(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            state = carry * self.mix + x
            return state, state.sum(-1)

        return torch_scan(combine, start, xs)


def test_scan_over_a_dynamic_length_with_a_captured_weight() -> None:
    model = Scan()
    axes = ({0: "batch"}, {0: "length", 1: "batch"})
    program = export(model, (torch.zeros(2, 3), torch.randn(4, 2, 3)), dynamic_shapes=axes)

    assert "Scan" in node_types(program)
    agree(program, model, (torch.zeros(2, 3), torch.randn(4, 2, 3)), (torch.ones(5, 3), torch.randn(7, 5, 3)))


class CondInScan(torch.nn.Module):
    def forward(self, start: torch.Tensor, xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def combine(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            state = torch.cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: c - x, (carry, x))
            return state, state * 2

        return torch_scan(combine, start, xs)


def test_cond_inside_scan() -> None:
    torch.manual_seed(0)
    model = CondInScan()
    program = export(model, (torch.zeros(3), torch.randn(4, 3)), dynamic_shapes=(None, {0: "length"}))
    agree(program, model, (torch.zeros(3), torch.randn(9, 3)))


class Map(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, xs: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch_map(lambda x, offset: self.layer(x) + offset, xs, offset)
        return result


def test_map_over_a_dynamic_axis_with_a_captured_weight_and_an_unmapped_input() -> None:
    torch.manual_seed(0)
    model = Map().eval()
    program = export(model, (torch.randn(4, 5, 3), torch.ones(2)), dynamic_shapes=({0: "items", 1: "rows"}, None))

    assert "Scan" in node_types(program)
    agree(program, model, (torch.randn(4, 5, 3), torch.ones(2)), (torch.randn(6, 2, 3), torch.zeros(2)))


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("opset", [18, 23])
def test_control_flow_at_other_opsets_and_without_the_optimiser(opset: int, optimize: bool) -> None:
    model = NestedCond()
    program = export(model, (torch.ones(2, 3),), dynamic_shapes=BATCH, opset_version=opset, optimize=optimize)
    agree(program, model, (torch.ones(4, 3),), (3 * torch.ones(2, 3),))


def test_a_branch_may_give_what_the_optimiser_finds_outside_of_it() -> None:
    class Choosing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x.exp()
            pair = (x, y)
            result: Any = torch.cond(x[0, 0] > 0, lambda a, b: (a + b, a * 2), lambda a, b: (a - b, b * 1), pair)
            return result

    export_and_compare(Choosing(), (torch.ones(2, 3),), (-torch.ones(2, 3),))


def test_a_branch_that_returns_its_operand_is_refused() -> None:
    def choosing(x: torch.Tensor) -> Any:
        both = torch.cond(x.sum() > 0, lambda a, b: (a + b, a), lambda a, b: (a - b, b * 1), (x, x.exp()))
        return *both, x * 2

    with pytest.raises(CaptureError, match=r"a branch of torch\.cond returns its operand x as it is.*`\.clone\(\)`"):
        export(choosing, (torch.ones(2, 3),))


class Filling(torch.nn.Module):
    """Over no elements it never ends, in eager as in a file."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, steps = torch.while_loop(lambda x, n: x.sum() < 9, lambda x, n: (x + 1, n + 1), (x, torch.zeros(1, 4)))
        return steps.squeeze(0) + x.squeeze(-1).shape[0]


def test_an_export_ends_where_a_loop_of_the_model_would_not() -> None:
    program = export(Filling(), (torch.zeros(3, 5),), dynamic_shapes=({0: "rows", 1: "columns"},), guards="allow")
    for sizes in ((2, 3), (1, 9)):
        torch.testing.assert_close(program(torch.zeros(*sizes))[0], Filling()(torch.zeros(*sizes)))


class CondOverTwoAxes(torch.nn.Module):
    """Both branches give tensors whose strides are the size of a free axis."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.cond(x.sum() > 0, self.doubled, self.lowered, (x,))
        return (first, *torch.cond(x.sum() > 0, self.spread, self.spread_otherwise, (first,)))

    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def lowered(self, x: torch.Tensor) -> torch.Tensor:
        return x - 1

    def spread(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.unsqueeze(-1) * torch.ones(5), x.sum(1)

    def spread_otherwise(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.unsqueeze(-1) + torch.ones(5), x.mean(1)


@pytest.mark.parametrize("example", [(4, 3), (1, 1)])
def test_cond_over_two_free_axes(example: tuple[int, int]) -> None:
    model = CondOverTwoAxes()
    program = export(model, (torch.randn(example),), dynamic_shapes=({0: "rows", 1: "columns"},))
    for sizes in ((4, 3), (1, 1), (1, 3), (3, 1), (0, 2), (2, 0), (0, 0)):
        for x in (torch.rand(sizes) + 0.1, -torch.rand(sizes)):
            is_first = bool(x.sum() > 0)
            first = model.doubled(x) if is_first else model.lowered(x)
            expected = first, *(model.spread(first) if is_first else model.spread_otherwise(first))
            for one, other in zip(program(x), expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5, equal_nan=True)


class HalfPrecision(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def step(count: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, torch.cond(state.sum() > 0, lambda s: s * 0.5 - 1, lambda s: s + x, (state,))

        count, state = torch.while_loop(lambda count, state: count < 4, step, (torch.tensor(0), x))
        mapped = torch_map(lambda row: (row * 2, row.sum() > 0), x)
        carry, rows = torch_scan(lambda carry, row: (carry + row, carry * row), torch.zeros_like(x[0]), x)
        return count, state.float(), mapped[0].float(), mapped[1], carry.float(), rows.float()


@pytest.mark.parametrize("opset", [13, 15, 16])
def test_bodies_of_bfloat16_at_opsets_whose_nodes_carry_none(opset: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4).to(torch.bfloat16)
    export_and_compare(HalfPrecision(), (x,), (-x,), opset_version=opset)


@pytest.mark.parametrize("more", [0, 1], ids=["returned", "read"])
def test_a_branch_by_the_operator_itself_gives_a_tensor(more: int) -> None:
    """`torch.cond` hands its operator functions that give tuples; whoever calls that operator need not."""

    def branching(x: torch.Tensor) -> torch.Tensor:
        made = torch.ops.higher_order.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return made + 1 if more else made

    export_and_compare(Called(branching), (torch.ones(3, 2),), (-torch.ones(4, 2),), dynamic_shapes=({0: "n"},))


def test_results_of_a_branch_that_are_no_tensors_are_refused_in_a_sentence() -> None:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.higher_order.cond(x.sum() > 0, lambda x: {"y": x.sin()}, lambda x: {"y": x.cos()}, (x,))["y"]

    with pytest.raises(TranslationError, match=r"no tensors in a tuple.*return a tensor"):
        export(Called(branching), (torch.ones(3, 2),))
