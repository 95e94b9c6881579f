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

from batch_export.errors import CaptureError, ExportWarning, TranslationError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled


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


class Empty(nn.Module):
    """Has a buffer without a tensor in front of one with."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", None)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = x * 2
        self.count = self.count + 1
        return self.cache + self.count


@pytest.mark.parametrize("within", [False, True], ids=["outermost", "within"])
def test_a_buffer_without_a_tensor_stays_without_and_is_said(within: bool) -> None:
    module = Within(Empty()) if within else Empty()
    x = torch.ones(2, 3)
    with pytest.warns(ExportWarning, match=r"changes the attribute (inner\.0\.)?cache"):
        program = export(module, (x,), verify=True)
    assert dict(module.named_buffers()).keys() == {f"{'inner.0.' if within else ''}count"}
    found = program(x)
    torch.testing.assert_close(found[0], torch.full((2, 3), 3.0))
    assert {name: one.tolist() for name, one in found.mutated.items()} == {
        f"{'inner.0.' if within else ''}count": [1.0, 1.0, 1.0]
    }


class Adding(nn.Module):
    def __init__(self, state: torch.Tensor, assigns: bool = True) -> None:
        super().__init__()
        self.assigns = assigns
        self.register_buffer("state", state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.assigns:
            self.state = self.state + x
        return self.state * 2


def test_two_buffers_that_are_one_tensor_and_both_assigned_are_refused_with_names_and_line() -> None:
    shared = torch.zeros(3)
    said = r"the buffers inner\.0\.state and inner\.1\.state are one tensor.* \(at .*assigned_buffers\.py:\d+\)"
    with pytest.raises(CaptureError, match=said):
        export(Within(Adding(shared), Adding(shared)), (torch.ones(3),))


def test_one_of_two_buffers_that_are_one_tensor_is_not_the_others_output() -> None:
    shared = torch.zeros(3)
    with pytest.warns(ExportWarning, match=r"buffer inner\.0\.state is one tensor with inner\.1\.state"):
        program = export(Within(Adding(shared), Adding(shared, assigns=False)), (torch.ones(3),))
    assert len(program.model.graph.outputs) == 1
    torch.testing.assert_close(program(torch.ones(3))[0], torch.zeros(3))


def test_buffers_that_change_places_are_not_one_tensor() -> None:
    class Swapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(3))
            self.register_buffer("b", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a, self.b = self.b, self.a
            return x + self.a

    with pytest.warns(ExportWarning) as heard:
        program = export(Swapping(), (torch.ones(3),), verify=True)
    assert all("is assigned a tensor that is a buffer" in str(one.message) for one in heard)
    torch.testing.assert_close(program(torch.ones(3))[0], torch.full((3,), 2.0))


@pytest.mark.parametrize(
    "write",
    [lambda module, x: module.count.set_(x * 2), lambda module, x: setattr(module.count, "data", x * 2)],
    ids=["set_", "data"],
)
def test_a_buffer_that_gets_anothers_memory_is_refused_in_one_sentence(write: Callable[..., object]) -> None:
    class Moving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            write(self, x)
            return x + self.count

    said = r"gives `b_count` the memory of another tensor .*assigned_buffers\.py:\d+\)\. Next step: write the numbers"
    with pytest.raises(TranslationError, match=said):
        export(Moving(), (torch.ones(3),))


class Growing(nn.Module):
    """A table that is made anew where it is too short, as those of rotary positions are."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self._make(8)

    def _make(self, length: int) -> None:
        self.longest = length
        self.register_buffer("table", torch.arange(length).float().cos()[None, :, None], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.longest:
            self._make(x.shape[1])
        return x * self.table[:, : x.shape[1]]


@pytest.mark.parametrize("length", [5, 12])
def test_a_table_that_grows_is_made_anew_by_the_file(length: int) -> None:
    module = nn.Sequential(Growing(), nn.ReLU())
    with pytest.warns(ExportWarning, match=r"the buffer 0\.table gets another shape on one of several ways"):
        program = export(module, (torch.randn(2, length, 3),), dynamic_shapes=({0: "b", 1: "n"},))
    assert [one.name for one in program.model.graph.outputs] == ["relu"]
    for other in (1, 5, 8, 9, 12, 20):
        x = torch.randn(1, other, 3)
        torch.testing.assert_close(program(x)[0], module(x))


class Kept(nn.Module):
    """Rows that are kept, with more in each call."""

    rows: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.randn(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows = torch.cat([self.rows, x])
        return self.rows.sum(0)


def test_a_buffer_that_grows_by_what_it_holds_is_an_output() -> None:
    module, x = Kept(), torch.randn(3, 4)
    rows = torch.cat([module.rows, x])
    program = export(module, (x,))
    assert [one.name for one in program.model.graph.outputs] == ["sum_1", "rows_mutated"]
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    found = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found[0], rows.sum(0).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(found[1], rows.numpy())
