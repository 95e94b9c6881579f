"""Sizes that the model itself refuses are no sizes that a decomposition has to hold for."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from batch_export import export
from batch_export.exporter.capture.guard_points import least


class Modes(torch.nn.Module):
    """The first modes of a spectrum, each with weights of its own, as neural operators have them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 2, 3, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        kept = torch.zeros(x.shape[0], 2, x.shape[-1] // 2 + 1, dtype=torch.cfloat)
        kept[:, :, :3] = torch.einsum("bix,iox->box", spectrum[:, :, :3], self.weight)
        return torch.fft.irfft(kept, n=x.shape[-1])


class Normalised(torch.nn.Module):
    """A product with the first three columns, which a norm takes, too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x[:, :3]
        return torch.einsum("bi,io->bo", first, self.weight) + functional.layer_norm(first, (3,))[:, :1]


@pytest.mark.parametrize(
    ("module", "example", "others", "refused"),
    [
        (Modes(), (2, 2, 12), [(1, 2, 4), (3, 2, 7), (2, 2, 64)], (2, 2, 3)),
        (Normalised(), (2, 7), [(1, 3), (3, 4), (2, 33)], (2, 2)),
    ],
    ids=["modes", "norm"],
)
def test_a_size_that_the_model_refuses_is_not_one_that_is_missing(
    module: torch.nn.Module, example: tuple[int, ...], others: list[tuple[int, ...]], refused: tuple[int, ...]
) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        module(torch.randn(refused))
    program = export(module, (torch.randn(example),), dynamic_shapes=({0: "b", len(example) - 1: "n"},))
    for size in others:
        x = torch.randn(size)
        torch.testing.assert_close(program(x)[0], module(x), rtol=1e-4, atol=1e-5)


def test_the_least_size_is_known_where_all_smaller_ones_are_false() -> None:
    from sympy import Eq, Min, Mod, Ne, Symbol

    n, m = Symbol("n", integer=True), Symbol("m", integer=True)
    assert least(Eq(Min(3, n), 3)) == (n, 3)
    assert least(n > 5) == (n, 6)
    for expression in (Ne(n, 1), Eq(Mod(n, 4), 0), n < 10, Eq(Min(n, m), 3), n >= 0):
        assert least(expression) is None
