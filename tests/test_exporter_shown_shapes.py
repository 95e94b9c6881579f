"""Shapes that a program shows and does not have: in what sizes decide, and in branches of a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import ExportWarning
from batch_export.exporter.capture.shown_shapes import OtherShapes, other_shapes

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor


def crop(x: Tensor, length: int) -> Tensor:
    if x.shape[1] > length:
        return x[:, :length]
    return x


def last_cleared(x: Tensor) -> Tensor:
    x = crop(x, 6).clone()
    x[:, -1] = 0
    return x.mean(1)


def weighted(x: Tensor) -> Tensor:
    x = crop(x, 6)
    weights = torch.zeros(x.shape[:2])
    weights[:, 0] = 1
    return (x * weights[..., None]).sum(1)


def first_of_shares(x: Tensor) -> Tensor:
    if x.shape[1] > 6:
        x = x[:, :6].softmax(1)
    x = x.clone()
    x[:, 0].fill_(0)
    return x


@pytest.mark.parametrize("function", first(2, [last_cleared, first_of_shares, weighted]))
def test_a_write_behind_what_one_way_crops_is_right_beyond_the_crop(function: Callable[[Tensor], Tensor]) -> None:
    """The example is shorter than what is cropped to."""
    others = [(torch.randn(2, size, 3),) for size in (1, 5, 6, 7, 12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_and_compare(Called(function), (torch.randn(2, 3, 3),), *others, dynamic_shapes=({0: "b", 1: "t"},))


def found_at(size: int, *, as_shown: bool) -> OtherShapes:
    """What is found in a branch that crops, and shows what it crops or the whole."""

    def branches(x: Tensor) -> Tensor:
        made: Tensor = torch.cond(x.sum() > 0, lambda one: one[:, :6].sum(1), lambda one: one.sum(1), (x,))
        return made

    x = torch.rand(2, 8)
    program = torch.export.export(Called(branches), (x,), dynamic_shapes=({1: torch.export.Dim("t", min=7)},))
    branch = program.graph_module.true_graph_0
    nodes = {node.target: node for node in branch.graph.nodes}
    (shown,) = (node.meta["val"] for node in branch.graph.nodes if node.op == "placeholder")
    cropped = next(node for target, node in nodes.items() if "slice" in str(target))
    if not as_shown:
        cropped.meta["val"] = shown
    return other_shapes(program.module(check_guards=False), (torch.rand(2, size),), {}, lambda symbol: size)


@pytest.mark.parametrize("size", [7, 9])
def test_what_a_branch_has_is_held_against_what_it_shows(size: int) -> None:
    assert not found_at(size, as_shown=True).first
    found = found_at(size, as_shown=False)
    assert found.beside
    assert "[2, 6] in place of [2, s" in found.first
