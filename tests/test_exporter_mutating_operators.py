"""Custom operators that write to their arguments: by the caller's own translation, or refused by their own name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from onnxscript import opset20 as op

from batch_export.errors import MissingOperatorError, TranslationError
from batch_export.exporter import export


@torch.library.custom_op("batch_export_tests::add_into", mutates_args=("into",))
def add_into(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    into.add_(x)
    return x * 2


@add_into.register_fake
def _(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("batch_export_tests::negate", mutates_args=("values",))
def negate(values: torch.Tensor) -> None:
    values.neg_()


@negate.register_fake
def _(values: torch.Tensor) -> None:
    return None


class Accumulating(torch.nn.Module):
    """Writes into a view of a tensor of its own, and reads the whole tensor afterwards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = torch.zeros(x.shape[0], 4)
        doubled = torch.ops.batch_export_tests.add_into(x, held[:, 1:])
        torch.ops.batch_export_tests.negate(held)
        return held.sum(1, keepdim=True) + doubled


TABLE: dict[Any, Any] = {
    torch.ops.batch_export_tests.add_into.default: lambda x, into: (op.Add(x, x), op.Add(into, x)),
    torch.ops.batch_export_tests.negate.default: lambda values: op.Neg(values),
}


def test_a_translation_gives_results_and_new_contents() -> None:
    model = Accumulating()
    program = export(model, (torch.randn(1, 3),), dynamic_shapes=({0: "batch"},), custom_translation_table=TABLE)
    for size in (1, 2, 5):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x)[0], model(x))


def test_without_one_the_operator_is_named_with_what_it_writes_to() -> None:
    class Negating(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            held = x.clone()
            torch.ops.batch_export_tests.negate(held)
            return held

    with pytest.raises(
        MissingOperatorError, match=r"negate writes to values, .*torch\.ops\.batch_export_tests\.negate"
    ):
        export(Negating(), (torch.randn(2, 3),))


def test_a_translation_that_forgets_a_content_is_refused() -> None:
    table = TABLE | {torch.ops.batch_export_tests.add_into.default: lambda x, into: op.Add(x, x)}
    with pytest.raises(TranslationError, match=r"add_into gives 1 values in place of 2"):
        export(Accumulating(), (torch.randn(2, 3),), custom_translation_table=table)
