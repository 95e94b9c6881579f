"""Buffers that forward assigns anew, on the outermost module and on those within it: their new values are outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from batch_export.errors import ExportWarning
from batch_export.exporter import export


class Keeping(nn.Module):
    """Counts its calls, keeps twice the first row, and reads what it kept before it keeps anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("kept", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.kept
        self.count = self.count + 1
        self.kept = x[0]
        self.kept = self.kept * 2
        return x + before


class Cached(nn.Module):
    """Makes a table of another shape at the first call, as it would again for another length."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table.shape[1] != x.shape[1]:
            self.table = torch.arange(float(x.shape[1])).reshape(1, -1)
        return x * self.table


class Within(nn.Module):
    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one in self.inner:
            x = one(x)
        return x


@pytest.mark.parametrize(
    ("module", "changed"),
    [
        (Keeping(), ["count", "kept"]),
        (Within(Keeping()), ["inner.0.count", "inner.0.kept"]),
        (Within(Keeping(), Keeping()), [f"inner.{place}.{name}" for place in (0, 1) for name in ("count", "kept")]),
        (Within(Within(Cached())), ["inner.0.inner.0.table"]),
    ],
    ids=["outermost", "within", "two", "of another shape"],
)
@pytest.mark.parametrize("shapes", [None, {"x": {0: torch.export.Dim("rows")}}], ids=["static", "free"])
def test_an_assigned_buffer_is_an_output_with_its_new_value(module: nn.Module, changed: list[str], shapes: Any) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    program = export(module.eval(), (x,), dynamic_shapes=shapes)
    onnx.checker.check_model(program.model_proto, full_check=True)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [one.name for one in session.get_outputs()]
    assert names[1:] == [f"{name}_mutated" for name in changed]
    eager = copy.deepcopy(module)
    for given in (x,) if shapes is None else (x, x[:2] + 1):
        own = copy.deepcopy(eager)
        with torch.no_grad():
            expected = [own(given), *(own.get_buffer(name) for name in changed)]
        found = session.run(None, {session.get_inputs()[0].name: given.numpy()})
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)


def test_the_modules_own_buffers_stay_as_they_were() -> None:
    module = Within(Keeping(), Cached()).eval()
    before = {name: (id(one), one.clone()) for name, one in module.named_buffers()}
    export(module, (torch.randn(4, 3),))
    for name, one in module.named_buffers():
        assert (id(one), True) == (before[name][0], torch.equal(one, before[name][1])), name


@pytest.mark.parametrize(
    ("assign", "said"),
    [
        (
            lambda module, x: setattr(module, "first", module.second),
            r"buffer inner\.first is assigned a tensor that is a",
        ),
        (
            lambda module, x: setattr(module, "count", module.count + x.mean()),
            r"inner\.count is of torch\.int64 and is",
        ),
    ],
)
def test_an_assignment_that_is_not_followed_is_said(assign: Callable[..., None], said: str) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("first", torch.zeros(3))
            self.register_buffer("second", torch.ones(3))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assign(self, x)
            return x + self.second

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.inner(x)
            return made

    with pytest.warns(ExportWarning, match=said):
        export(Outer(), (torch.ones(3),))
