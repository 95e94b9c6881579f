"""Tensors that rounds of a loop over a free size write to and read besides: leaky sums, membranes of neurons."""

from __future__ import annotations

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
SHAPES = ({0: "b", 1: "t"},)
OTHERS = [(torch.randn(3, size, 3),) for size in (1, 2, 5, 13)]


def leaky(x: Tensor) -> Tensor:
    h = torch.zeros(x.shape[0], x.shape[2])
    found = []
    for t in range(x.shape[1]):
        h *= 0.9
        h += x[:, t]
        found.append(h.clone())
    return torch.stack(found, 1)


def spiking(x: Tensor) -> tuple[Tensor, Tensor]:
    membrane = x.new_zeros(x.shape[0], 3)
    spikes = []
    for t in range(x.shape[1]):
        membrane *= 0.9
        membrane += x[:, t]
        spike = (membrane > 0.3).float()
        membrane -= spike * 0.3
        spikes.append(spike)
    return torch.stack(spikes, 1), membrane


@pytest.mark.parametrize("function", first(1, [spiking, leaky]))
def test_what_is_known_by_one_name_only(function: object) -> None:
    export_and_compare(Called(function), (torch.randn(2, 6, 3),), *OTHERS, dynamic_shapes=SHAPES)


def listed_itself(x: Tensor) -> Tensor:
    """All elements are one tensor."""
    h = torch.zeros(x.shape[0], x.shape[2])
    found = []
    for t in range(x.shape[1]):
        h *= 0.9
        h += x[:, t]
        found.append(h)
    return torch.stack(found, 1)


def listed_around(x: Tensor) -> Tensor:
    """So are they here, by a loop around."""
    h = torch.zeros(x.shape[0], x.shape[2])
    found = []
    for _ in range(2):
        for t in range(x.shape[1]):
            h *= 0.9
            h += x[:, t] * (h > 0.1)
        found.append(h)
    return torch.stack(found, 1)


def a_part_of_the_input(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x[:, 0]
    found = []
    for t in range(x.shape[1]):
        h *= 0.9
        h += x[:, t]
        found.append(h.clone())
    return torch.stack(found, 1), x


def under_two_names(x: Tensor) -> Tensor:
    h = v = x.new_zeros(x.shape[0], x.shape[2])
    found = []
    for t in range(x.shape[1]):
        h *= 0.9
        h += x[:, t]
        found.append(v * 2)
    return torch.stack(found, 1)


@pytest.mark.parametrize("function", first(2, [listed_around, under_two_names, listed_itself, a_part_of_the_input]))
def test_what_is_known_otherwise_too_is_refused(function: object) -> None:
    with pytest.raises(DynamicShapeError):
        export(Called(function), (torch.randn(2, 6, 3),), dynamic_shapes=SHAPES)
