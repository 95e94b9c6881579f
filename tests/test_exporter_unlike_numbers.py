"""What sizes decide is not dropped where the example's numbers, indices or weights hide what it does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rarer import first
from torch import nn
from torch.nn import functional

from batch_export import ExportWarning, export

Tensor = torch.Tensor


class Deciding(nn.Module):
    """A function of two inputs, the first one of a free length, with weights that are zero and a count."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.zeros(4, 4))
        self.count: Tensor
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor, other: Tensor) -> Any:
        return self.function(self, x, other)


def _masked(_: Deciding, x: Tensor, mask: Tensor) -> Tensor:
    return x * mask[..., None] if x.shape[1] <= 8 else x * 1


def _held(_: Deciding, x: Tensor, mask: Tensor) -> Tensor:
    return x.clamp(-10, 10) + mask[..., None] if x.shape[1] > 4 else x + mask[..., None]


def _weighed(module: Deciding, x: Tensor, mask: Tensor) -> Tensor:
    x = x * mask[..., None]
    if x.shape[1] > 4:
        x = x + x @ module.weight
    return x


def _counted(module: Deciding, x: Tensor, mask: Tensor) -> Tensor:
    if x.shape[1] > 4:
        module.count += 1
    return x * mask[..., None] * 2


def _along_edges(_: Deciding, x: Tensor, edges: Tensor) -> Tensor:
    made = torch.zeros_like(x[0]).index_add(0, edges[1], x[0, edges[0]])
    return made / x.shape[1] if x.shape[1] > 4 else made


def _last(_: Deciding, x: Tensor, places: Tensor) -> Tensor:
    found = functional.one_hot(places[0], x.shape[1]).float() @ x[0]
    return found * 2 if x.shape[1] >= 4 else found


MASKS = (_masked, _held, _weighed, _counted)


@pytest.mark.parametrize("function", first(2, [_along_edges, _last, *MASKS]))
def test_what_a_size_decides_is_in_the_file(function: Callable[..., Any]) -> None:
    module = Deciding(function)
    other = torch.ones(1, 6, dtype=torch.bool) if function in MASKS else torch.tensor([[0, 5, 3], [4, 1, 5]])
    axes = ({1: "t"}, {1: "t"} if function in MASKS else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(module, (torch.randn(1, 6, 4), other), dynamic_shapes=axes)
    assert not module.weight.any()
    trained = {"weight": torch.randn(4, 4), "count": torch.tensor(0)}
    program.apply_weights(trained)
    module.load_state_dict(trained)
    for length in (2, 4, 5, 6, 9):
        x = torch.randn(1, length, 4) * 20
        given = torch.rand(1, length) > 0.5 if function in MASKS else torch.randint(0, length, (2, 3))
        before = module.count.clone()
        expected = module(x, given)
        found = program(x, given)
        torch.testing.assert_close(found[0], expected)
        assert function is not _counted or int(module.count - before) == (length > 4)
    program.release()
