"""Operators give beside others what they give alone: what torch takes apart for one changes nothing of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import export_and_compare
from torch import nn
from torch.nn import functional

from batch_export.errors import DecompositionError
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.translate.decompose import decompositions
from batch_export.exporter.translate.program import decomposed, translate_program
from batch_export.exporter.translate.registry import OnnxRegistry, qualified_name

pytestmark = pytest.mark.sampled

Function = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]
FREE = ({0: "batch"},) * 3


class Both(nn.Module):
    """Functions of the same inputs: numbers, classes and shares."""

    def __init__(self, *functions: Function) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: torch.Tensor, classes: torch.Tensor, shares: torch.Tensor) -> tuple[Any, ...]:
        return tuple(function(x, classes, shares) for function in self.functions)


def inputs(rows: int) -> tuple[torch.Tensor, ...]:
    numbers = torch.linspace(-2, 2, rows * 8).reshape(rows, 8)
    return numbers, torch.arange(rows) * 3 % 8, (numbers * 5).sigmoid()


def with_logits(x: torch.Tensor, _: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(x, shares)


def copied(x: torch.Tensor, _: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    return x.index_copy(0, torch.arange(2), shares[:2])


def leaking(x: torch.Tensor, _: torch.Tensor, __: torch.Tensor) -> torch.Tensor:
    return functional.rrelu(x)


def classified(x: torch.Tensor, classes: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(x, classes, reduction="none").mean()


def transformed(x: torch.Tensor, _: torch.Tensor, __: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x).abs()


TAKEN_APART = [with_logits, copied, leaking]
UNREDUCED: dict[str, Function] = {
    "cross_entropy": lambda x, y, t: functional.cross_entropy(x, y, reduction="none"),
    "nll": lambda x, y, t: functional.nll_loss(x, y, reduction="none"),
    "hinge": lambda x, y, t: functional.hinge_embedding_loss(x, (t > 0.5) * 2.0 - 1, reduction="none"),
    "margin": lambda x, y, t: functional.margin_ranking_loss(x, t, (t > 0.5) * 2.0 - 1, reduction="none"),
    "triplet": lambda x, y, t: functional.triplet_margin_loss(x, t, x + 1, reduction="none"),
    "huber": lambda x, y, t: functional.huber_loss(x, t, reduction="none"),
}


@pytest.mark.parametrize("other", [classified, transformed])
@pytest.mark.parametrize("one", TAKEN_APART)
@pytest.mark.parametrize("free", [False, True])
def test_losses_and_transforms_beside_what_torch_takes_apart(one: Function, other: Function, free: bool) -> None:
    sizes = (3, 7) if free else ()
    dynamic: Any = FREE if free else None
    export_and_compare(Both(one, other).eval(), inputs(4), *map(inputs, sizes), dynamic_shapes=dynamic)


@pytest.mark.parametrize("function", TAKEN_APART)
def test_these_are_taken_apart_alone(function: Function) -> None:
    """Else torch takes the whole program apart, in which the operator is no more."""
    captured = capture(Both(function).eval(), inputs(4), dynamic_shapes=FREE)
    *_, node, _ = captured.program.graph.nodes
    operators = translate_program(captured.program, OnnxRegistry(), {}).operators
    assert operators[qualified_name(node.target)] == (1, "decomposition")


@pytest.mark.parametrize("name", UNREDUCED)
@pytest.mark.parametrize("reduced", ["mean", "amax"])
def test_losses_that_are_not_reduced_keep_their_shape_where_torch_decomposes_the_program(
    name: str, reduced: str
) -> None:
    def loss(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole = UNREDUCED[name](*given)
        return whole, getattr(whole, reduced)()

    program = capture(Both(loss).eval(), inputs(4), dynamic_shapes=FREE).program
    table = torch._decomp.decomposition_table
    before = dict(table)
    made = decomposed(program, {})
    assert [_shape(made, place) for place in (0, 1)] == [_shape(program, place) for place in (0, 1)]
    assert dict(table) == before


def _shape(program: torch.export.ExportedProgram, place: int) -> list[bool | int]:
    """A result's sizes, and `True` for one that is free."""
    name = program.graph_signature.user_outputs[place]
    (node,) = (node for node in program.graph.nodes if node.name == name)
    return [size if isinstance(size, int) else True for size in node.meta["val"].shape]


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "irfft", "hfft", "fft2", "irfft2", "fftn", "rfftn"])
def test_transforms_where_torch_decomposes_the_program(name: str) -> None:
    class Transform(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = getattr(torch.fft, name)(x)
            return result.abs()

    program = capture(Transform().eval(), (torch.ones(3, 8),), dynamic_shapes=({0: "batch"},)).program
    made = decomposed(program, decompositions())
    assert any("_fft_" in str(node.target) for node in made.graph.nodes)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(lambda x: x.sum(), r"float32\[\] for cos"), (lambda x: x.double(), r"float64\[.*, 8\] for cos")],
)
def test_a_program_whose_results_changed_on_the_way_is_refused(wrong: Callable[..., object], words: str) -> None:
    program = capture(Both(lambda x, *_: x.cos()).eval(), inputs(4), dynamic_shapes=FREE).program
    with pytest.raises(DecompositionError, match=words):
        decomposed(program, {torch.ops.aten.cos.default: wrong})
