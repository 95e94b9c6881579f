"""Which strategy captures what, and what the unsound ones say."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from batch_export import export
from batch_export.errors import CaptureError, ExportWarning
from batch_export.exporter.capture.capture import STRATEGIES, capture
from batch_export.exporter.capture.draft import draft_export

pytestmark = pytest.mark.sampled

X = torch.ones(2, 3)


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_the_documented_order() -> None:
    assert [name for name, _ in STRATEGIES] == [
        "torch.export(strict=False)",
        "torch.export(strict=True)",
        "torch.export(strict=False), decisions both ways",
        "draft_export",
        "torch.jit.trace",
    ]


def test_an_exported_program_is_taken_as_it_is() -> None:
    program = torch.export.export(Plain(), (X,))
    captured = capture(program)
    assert captured.program is program
    assert captured.strategy == "ExportedProgram"


@pytest.mark.parametrize("name", [name for name, _ in STRATEGIES])
def test_every_strategy_captures_with_a_dynamic_axis(name: str) -> None:
    strategy = next(one for one in STRATEGIES if one[0] == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = capture(Plain(), (X,), dynamic_shapes=({0: "batch"},), strategies=[strategy])
    assert captured.strategy == name
    assert list(captured.axis_names.values()) == ["batch"]
    torch.testing.assert_close(captured.program.module()(torch.ones(5, 3)), 2 * torch.ones(5, 3))


class Gathering(torch.nn.Module):
    def forward(self, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return first + sum(others)


@pytest.mark.parametrize("name", [name for name, _ in STRATEGIES])
def test_every_strategy_takes_inputs_that_forward_gathers(name: str) -> None:
    strategy = next(one for one in STRATEGIES if one[0] == name)
    free = {"first": {0: "rows"}, "others": ({0: "rows"}, {0: "rows"})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = capture(Gathering(), (X, X, X), dynamic_shapes=free, strategies=[strategy])
    y = torch.ones(5, 3)
    torch.testing.assert_close(captured.program.module()(y, y, y), 3 * y)


def test_a_branch_on_data_is_captured_by_a_later_strategy_with_a_warning() -> None:
    decided = torch.arange(1.0, 7.0).reshape(2, 3)  # all within its range decide alike
    without = [one for one in STRATEGIES if "both ways" not in one[0]]
    with pytest.raises(CaptureError, match=r"a data-dependent decision would stay"):
        capture(Branch(), (decided,), strategies=without)
    with pytest.warns(ExportWarning, match=r"as long as the data decide as in the example"):
        program = export(Branch(), (decided,), allow_guards=True)
    assert program.captured is not None
    tried = [attempt.strategy for attempt in program.captured.attempts]
    assert tried[:2] == ["torch.export(strict=False)", "torch.export(strict=True)"]
    assert program.captured.attempts[0].error
    torch.testing.assert_close(program(X)[0], X * 2)


def test_a_sound_capture_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        export(Plain(), (X,))


def test_a_draft_leaves_no_open_file_and_no_log_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.listdir("/proc/self/fd")
    program = draft_export(Branch(), (X,), {}, None)
    assert not program._report.successful()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(os.listdir("/proc/self/fd")) == len(before)
    monkeypatch.setenv("TORCH_DTRACE", str(tmp_path / "asked"))
    draft_export(Branch(), (X,), {}, None)
    assert [path.parent.name for path in tmp_path.rglob("*") if path.is_file()] == ["asked"]


class WrittenGrid(torch.nn.Module):
    """Reads back sizes that it wrote down as a tensor; `changed` ones hold what an input says."""

    def __init__(self, changed: bool) -> None:
        super().__init__()
        self.changed = changed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = torch.tensor([[1, 4, 3], [2, 2, 5]])
        if self.changed:
            grid[1] = x[0].sum().to(torch.int64)
        for count, height, width in grid:
            places = torch.arange(int(height) * int(width)).reshape(int(height), int(width))
            x = x + places.sum() * int(count)
        return x + sum((grid[:, 1] * grid[:, 2]).tolist())


def test_what_a_model_writes_down_and_reads_back_is_no_data() -> None:
    program = export(WrittenGrid(False), (X,), dynamic_shapes=({0: "rows"},), verify=True)
    (result,) = program(torch.full((5, 3), 2.0))
    assert torch.equal(torch.as_tensor(result), WrittenGrid(False)(torch.full((5, 3), 2.0)))


class Windows(torch.nn.Module):
    """Splits by lengths that it computes of places, as window attention over a grid does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.nn.functional.pad(torch.arange(9).reshape(3, 3), (0, 1, 0, 1), value=-1)
        places = places.reshape(2, 2, 2, 2).permute(0, 2, 1, 3).reshape(4, -1)
        lengths = (places != -1).sum(1)
        order = places[places != -1]
        parts = [part - part.mean(1, keepdim=True) for part in torch.split(x[:, order], lengths.tolist(), dim=1)]
        return torch.cat(parts, 1)[:, torch.argsort(order)]


def test_what_is_computed_of_places_is_no_data() -> None:
    program = export(Windows(), (torch.randn(2, 9),), dynamic_shapes=({0: "rows"},), verify=True)
    other = torch.randn(5, 9)
    torch.testing.assert_close(torch.as_tensor(program(other)[0]), Windows()(other))


class Overwritten(torch.nn.Module):
    """Writes to a constant, through a view of it or beside one, and reads it back."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number, total = torch.tensor([3]), x.sum().to(torch.int64)
        view = number.view(1, 1)
        if self.way == "item":
            number[0] = total
        else:
            (view if self.way == "view" else number).add_(total)
        return x + torch.arange(int((view if self.way == "base" else number).flatten()[0])).sum()


@pytest.mark.parametrize("way", ["item", "view", "base"])
def test_what_is_written_over_a_constant_is_data_again(way: str) -> None:
    """torch 2.13 keeps the 3 in the program."""
    with contextlib.suppress(CaptureError):
        program = export(Overwritten(way), (X,))
        (result,) = program(2 * X)
        assert torch.equal(torch.as_tensor(result), Overwritten(way)(2 * X))


def test_a_grid_that_data_is_written_to_is_data_again() -> None:
    with contextlib.suppress(CaptureError):
        (result,) = export(WrittenGrid(True), (X,))(2 * X)
        assert torch.equal(torch.as_tensor(result), WrittenGrid(True)(2 * X))


class Converting(torch.nn.Module):
    """Converts a layer in forward, as routers that compute in a dtype of their own do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer = self.layer.to(torch.float32)
        return self.layer.float()(x)


def test_a_layer_that_is_converted_to_what_it_is_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Converting().eval()
    monkeypatch.setattr(torch.__future__, "get_swap_module_params_on_conversion", lambda: True)
    held = weakref.ref(module.layer.weight)
    with pytest.raises(RuntimeError, match="Couldn't swap"):
        module(X)
    program = export(module, (X,), dynamic_shapes=({0: "batch"},))
    assert held() is module.layer.weight
    monkeypatch.undo()
    torch.testing.assert_close(program(X[:1])[0], module(X[:1]))


class Converted(torch.nn.Module):
    """Computes in another dtype than its weights have, one of which has two names, and goes back if it is to."""

    def __init__(self, *, back: bool) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
        self.shared = torch.nn.Linear(3, 3)
        self.shared.weight = self.layer.weight
        self.norm.running_mean.normal_()  # type: ignore[union-attr, operator]
        self.back = back

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer.to(torch.float16)
        self.norm.half()
        found = self.norm(self.layer(x.half())), self.shared.weight.sum()
        if self.back:
            self.layer.float()
            self.norm.float()
        return found


def test_a_conversion_that_changes_something_is_made_and_undone() -> None:
    module = Converted(back=True).eval()
    weights = {name: one.clone() for name, one in module.state_dict().items()}
    program = export(module, (X,), dynamic_shapes=({0: "batch"},))
    for name, one in module.state_dict().items():
        assert torch.equal(one, weights[name])
        assert one.dtype == weights[name].dtype
    names = [value.name for value in program.model.graph.outputs]
    assert names[2:] == ["norm.running_mean_mutated", "norm.running_var_mutated"]
    torch.testing.assert_close(tuple(program(X[:1])), module(X[:1]), rtol=4e-3, atol=4e-3)


def test_buffers_that_stay_converted_are_told() -> None:
    with pytest.warns(
        ExportWarning, match=r"norm.running_\w* is of torch.float32 and is assigned torch.float16"
    ) as told:
        export(Converted(back=False).eval(), (X,))
    assert len(told) == 2


class Placed(torch.nn.Module):
    """Takes up to 70 places, and tells how many it was given."""

    def __init__(self, note: Callable[[int], None]) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(70, 4)
        self.note = note

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            self.note(x.shape[1])
        places = torch.arange(x.shape[1])
        if x.shape[1] <= 70:
            return x + self.table.weight[: x.shape[1]]
        return (x + self.table(places % 70)).double()  # no file has both dtypes


def test_sizes_beyond_one_at_which_a_program_fails_are_not_run() -> None:
    seen: set[int] = set()  # not the module's own, which stays as it is
    with pytest.warns(ExportWarning, match="<= 70"):
        export(Placed(lambda size: seen.add(size)), (torch.randn(2, 3, 4),), dynamic_shapes=({1: "places"},))
    assert 0 < sum(size > 70 for size in seen) <= 2
