"""torch.func's transforms and associative scans: plain operators in the file, free axes at other sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

from batch_export.errors import CaptureError
from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.transforms import has_transforms, holds_example

pytestmark = pytest.mark.sampled


def causal(x: torch.Tensor) -> torch.Tensor:
    """A mask as model libraries write it."""
    positions = torch.arange(x.shape[1])
    mask = torch.vmap(torch.vmap(lambda q, k: q >= k, (None, 0)), (0, None))(positions, positions)
    return torch.where(mask, x @ x.transpose(1, 2), -1e9).softmax(-1)


TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "vmap in a mask": causal,
    "vmap over another axis": lambda x: torch.vmap(lambda one: one * 2 - one.sum(), in_dims=2, out_dims=1)(x),
    "grad": torch.func.grad(lambda x: (x**2).sum() * x.exp().sum()),
    "vmap of grad": torch.vmap(torch.func.grad(lambda x: (x.sin() * x).sum())),
    "jvp": lambda x: torch.func.jvp(torch.tanh, (x,), (torch.ones_like(x),))[1],
}


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("example", [(2, 5), (1, 1)])
def test_transforms_leave_plain_operators_and_free_axes(name: str, example: tuple[int, int]) -> None:
    module = Applied(TRANSFORMS[name])
    program = export(module, (torch.randn(*example, 3),), dynamic_shapes=({0: "batch", 1: "seq"},))
    assert program.model.graph.inputs[0].shape == ("batch", "seq", 3)
    for sizes in ((2, 5), (1, 5), (1, 1), (2, 2), (3, 7)):
        x = torch.randn(*sizes, 3)
        torch.testing.assert_close(program(x)[0], module(x), rtol=1e-4, atol=1e-4)


def checking(x: torch.Tensor) -> torch.Tensor:
    inverse = torch.linalg.inv(x)
    if x.sum() > 0:
        inverse[0] = 2
    return inverse


CHECKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inv": lambda x: torch.vmap(torch.linalg.inv)(x),
    "cholesky": lambda x: torch.vmap(torch.linalg.cholesky)(x @ x.mT + torch.eye(3)),
    "both ways": checking,
}


def test_second_derivatives_that_are_zero_take_no_memory_in_torch_and_are_zeros_here() -> None:
    module = Applied(torch.vmap(torch.func.hessian(lambda row: row.sin().prod())))
    program = export(module, (torch.randn(3, 4),))
    x = torch.randn(3, 4)
    torch.testing.assert_close(program(x)[0], module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CHECKS)
def test_checks_that_torch_keeps_in_order_are_left_out(name: str) -> None:
    x = torch.randn(4, 3, 3)
    shapes = None if name == "both ways" else ({0: "batch"},)
    program = export(Applied(CHECKS[name]), (x,), dynamic_shapes=shapes)
    for given in (x, -x, torch.randn(7, 3, 3))[: 2 if shapes is None else 3]:
        torch.testing.assert_close(program(given)[0], CHECKS[name](given), rtol=1e-3, atol=1e-3)


def test_data_that_eager_refuses_within_a_transform_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"accessing `data` under vmap"):
        export(Applied(torch.vmap(lambda one: one.data * 2)), (torch.randn(4, 3),))


class Descending(torch.nn.Module):
    """A step against the gradient of an energy that its own weights define, read as they are and as views."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - 0.1 * torch.func.grad(lambda y: (self.inner(y @ self.weight) ** 2).sum())(x)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_gradient_within_layers_that_have_weights(layers: int) -> None:
    module = torch.nn.Sequential(*(Descending() for _ in range(layers))).eval()
    program = export(module, (torch.randn(2, 4),), dynamic_shapes=({0: "batch"},))
    for batch in (1, 2, 5):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(program(x)[0], module(x), rtol=1e-4, atol=1e-4)


def test_what_is_below_a_transform_stays_as_it_is() -> None:
    class Attending(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(x.shape[2])
            mask = torch.vmap(torch.vmap(lambda q, k: q >= k, (None, 0)), (0, None))(positions, positions)
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)

    program = capture(Attending(), (torch.randn(2, 2, 5, 4),), dynamic_shapes=({0: "batch"},)).program
    assert not has_transforms(program)
    assert not holds_example(program)
    assert "scaled_dot_product_attention" in str(program.graph)


def combine(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return a[0] * b[0], a[1] * b[0] + b[1]


def test_an_associative_scan_with_a_free_batch() -> None:
    module = Applied(lambda x: associative_scan(combine, (x, x.sin()), 1, combine_mode="generic")[1])
    program = export(module, (torch.randn(1, 3, 2),), dynamic_shapes=({0: "batch"},))
    for size in (1, 2, 4):
        x = torch.randn(size, 3, 2)
        torch.testing.assert_close(program(x)[0], module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_associative_scan_over_a_free_axis(reverse: bool) -> None:
    def scanned(x: torch.Tensor) -> torch.Tensor:
        return associative_scan(combine, (x, x.sin()), 1, reverse=reverse, combine_mode="generic")[1]

    module = Applied(scanned)
    program = export(module, (torch.randn(2, 6),), dynamic_shapes=({0: "batch", 1: "steps"},))
    for shape in ((1, 1), (3, 2), (2, 7), (4, 13)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x)[0], module(x), rtol=1e-4, atol=1e-4)


def test_a_capture_that_fails_leaves_no_level_open() -> None:
    def unsortable(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("in the middle of a transform")

    before = torch._C._functorch.get_dynamic_layer_stack_depth()
    with pytest.raises(Exception, match="in the middle of a transform"):
        export(Applied(torch.vmap(unsortable)), (torch.randn(2, 3),))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == before
