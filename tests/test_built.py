"""Twin of `batch_export/stages/built.py`: two builds have one digest when, and only when, they made the same model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from batch_export.stages.built import built


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(9.0).reshape(3, 3))
            self.linear.bias.zero_()
        self.register_buffer("hidden", torch.tensor([1.5], dtype=torch.bfloat16), persistent=False)
        self.held = {"list": [torch.tensor(2 + 1j)]}
        self.number = 3
        self.words = {"one", "two"}
        self.table = np.ones(2)
        self.sparse = torch.eye(2).to_sparse()
        self.shape_only = torch.ones(2, device="meta")
        self.other = object()

    def set(self, name: str, value: Any) -> None:
        setattr(self, name, value)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda model: None, []),
        (lambda model: model.set("other", object()), []),
        (lambda model: model.set("words", {"two", "one"}), []),
        (lambda model: model.linear.weight.copy_(model.linear.weight.T.clone()), ["tensors"]),
        (lambda model: model.linear.bias.fill_(-0.0), ["tensors"]),
        (lambda model: model.hidden.fill_(2), ["tensors"]),
        (lambda model: model.held["list"][0].fill_(2), ["tensors"]),
        (lambda model: model.linear.half(), ["tensors"]),
        (lambda model: model.set("number", 4), ["constants"]),
        (lambda model: model.set("number", 3.0), ["constants"]),
        (lambda model: model.set("words", {"one"}), ["constants"]),
        (lambda model: model.set("table", np.zeros(2)), ["constants"]),
        (lambda model: setattr(model.linear, "deep", [1, {"a": (2,)}]), ["constants"]),
    ],
)
def test_what_differs_is_told(change: Callable[[Any], Any], kinds: list[str]) -> None:
    one, other = Model(), Model()
    with torch.no_grad():
        change(other)
    first, second = built(one), built(other)
    assert [kind for kind in first if first[kind] != second[kind]] == kinds


def test_lazy_and_scripted_modules_have_digests() -> None:
    assert built(nn.LazyLinear(3)) == built(nn.LazyLinear(3))
    scripted = torch.jit.script(Model().linear)
    assert built(scripted)["tensors"] == built(scripted)["tensors"]
