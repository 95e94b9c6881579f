"""Sizes as indices beside tensors and in lists: what torch takes at a number it takes at every size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exporting import Called, export_and_compare
from torch import Tensor

Form = Callable[[Tensor], Tensor]
pytestmark = pytest.mark.sampled


def _rows(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0])


def _written(x: Tensor) -> Tensor:
    x = x.clone()
    x[_rows(x), x.shape[1] // 2] = 0
    x[..., x.shape[1] - 1, [0, 2]] += 1.5
    x[x.sum((1, 2)) > 0, x.shape[1] - 1] = 7.0
    x[:, [0, x.shape[1] - 1]] *= 2
    return x


def _written_alone(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, x.shape[1] // 2] = 7.0
    x[x.shape[0] - 1] += 1
    x[0, x.shape[1] - 1, 1:3] = x[0, 0, :2].clone()
    x[..., None, x.shape[1] // 2, 3] = x[:1, :1, 0].clone()
    return x


FORMS: dict[str, Form] = {
    "the last of each": lambda x: x[_rows(x), x.shape[1] - 1],
    "the middle of each": lambda x: x[_rows(x), x.shape[1] // 2],
    "beside a number": lambda x: x[_rows(x), x.shape[1] - 1, 2],
    "before a slice": lambda x: x[x.shape[0] - 1, :, torch.tensor([0, 2])],
    "behind an ellipsis": lambda x: x[..., x.shape[1] - 1, torch.tensor([1, 3])],
    "behind a new axis": lambda x: x[_rows(x), None, x.shape[1] - 1],
    "before two tensors": lambda x: x[x.shape[0] - 1, torch.arange(x.shape[1]), torch.arange(x.shape[1]) % 4],
    "beside a mask": lambda x: x[x[:, 0, 0] > 0, x.shape[1] - 1],
    "in a list": lambda x: x[:, [0, x.shape[1] // 2]],
    "in a list beside a tensor": lambda x: x[_rows(x), [x.shape[1] // 2]],
    "written": _written,
    "written without tensors": _written_alone,
}


@pytest.mark.parametrize("name", FORMS)
def test_a_size_beside_tensors_is_an_index(name: str) -> None:
    x = torch.linspace(-1, 1, 60).reshape(3, 5, 4)
    more = [(torch.linspace(-1, 1, b * n * 4).sin().reshape(b, n, 4),) for b, n in ((2, 1), (1, 7), (5, 2), (3, 4))]
    export_and_compare(Called(FORMS[name]), (x,), *more, dynamic_shapes=({0: "b", 1: "n"},))
