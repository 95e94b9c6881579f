"""A Python `if` on data: the file has both ways, and each is what eager does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from rarer import first

from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture
from tests.exporting import Called, export_and_compare

pytestmark = pytest.mark.sampled

X = torch.linspace(-1, 1.2, 12).reshape(3, 4)
SAME_SIZES = [(one,) for one in (X + 0.5, X - 0.5, 4 * X, -4 * X, 0 * X, X + 4, X - 4)]
OTHER_SIZES = [(torch.cat([one, 2 * one])[:rows],) for (one,) in SAME_SIZES for rows in (2, 5)]


def written(x: torch.Tensor) -> torch.Tensor:
    x, mask = x.clone(), x > 0.9
    if mask.any():
        x[mask] = 0
        x = x + 1
    return x * 2


def early(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x - 1


def nested(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = x * 2
        if y.max() > 3:
            y = y.sin()
    elif x.min() < -2:
        y = x.cos()
    else:
        y = x.exp()
    return y + 1


def _chosen(x: torch.Tensor) -> torch.Tensor:
    return x.relu() if (x.mean() > 0).item() else x.abs()


def in_a_function(x: torch.Tensor) -> torch.Tensor:
    return _chosen(x) + _chosen(x - 1)


def corner(x: torch.Tensor) -> torch.Tensor:
    """Each of two results of one operator is read on one side only, or on both."""
    rows, columns = torch.where(x > 0)
    if rows.numel() == 0:
        return torch.tensor([-1, -1, 0])
    return torch.stack([rows.min(), columns.min(), rows.max() + columns.max()])


def combined(x: torch.Tensor) -> torch.Tensor:
    return x * 3 if (x.sum() > 0 and x.max() > 1) or not (x.min() < -1) else x / 2


def of_numbers(x: torch.Tensor) -> torch.Tensor:
    if x.max().item() > 1:
        x = x.exp()
    return x.sum(1) if int((x > 0).sum()) > 3 else x[:, :2].sum(1)


def of_other_sizes(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return torch.cat([x, x])
    return x


def of_sizes_by_data(x: torch.Tensor) -> torch.Tensor:
    count = int((x[:, 0] > 0).sum())
    return x[:count].sum(0) if count > 0 else x.new_zeros(4)


def known_otherwise(x: torch.Tensor) -> torch.Tensor:
    """What one way knows of the number is false on the other one."""
    count = int(x.sum())
    y = torch.zeros(count) if count >= 0 else torch.ones(-count)
    return y.sum() + count


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        if x.sum() > 0:
            raise ValueError("too much")
        return x * 2
    except ValueError:
        return x - 1


def asked_again(x: torch.Tensor) -> torch.Tensor:
    is_positive = (x.sum() > 0).item()
    for scale in range(1, 6):
        x = x * scale if is_positive else x - scale
    return x


def asserted(x: torch.Tensor) -> torch.Tensor:
    assert len(x[x > 9]) < 7, "too many"
    return x * 2 if x.sum() > 0 else x


def at_other_places(x: torch.Tensor) -> torch.Tensor:
    kept = x.exp()
    first, second = (kept, x * 3) if x.sum() > 0 else (x * 2, kept)
    if x.max() > 2:
        return kept.clone()
    return first - second if x.min() > -2 else kept


def in_sequence(x: torch.Tensor) -> torch.Tensor:
    """Behind each decision both ways do the same, with other operands; the last one reads what is behind the others."""
    for limit in (0.0, 1.0, -3.0):
        x = x * 2 - 1 if x.sum() > limit else x.cos()
    if x.min() < 0:
        x = x + x.sigmoid()
    return x.tanh()


def done_alike_at_several_places(x: torch.Tensor) -> torch.Tensor:
    """A value that only some branches read, choices that read choices, and an operator that both ways have within."""
    y, shared = x.abs(), x.exp()
    if x.sum() > 0:
        y = (y + shared).sin()
        if y.max() > 0.5:
            y = (y * shared).erf()
    else:
        y = (y - 1).sin()
    z = y.erf()
    if x.max() > 2:
        z, y = z + shared, z
    return torch.cat([z.tanh(), y.tanh()])


class Part(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.other = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))
        self.seen: torch.Tensor
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            self.seen += x.sum(0)
            return self.other(self.linear(x))
        return self.linear(x) * 2


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.part, self.last = Part(), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.part(x)) + self.part.seen.sum()


FUNCTIONS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    *(written, early, nested, in_a_function, combined, corner),
    *(of_numbers, of_other_sizes, of_sizes_by_data, known_otherwise),
    *(caught, asked_again, asserted, at_other_places, in_sequence, done_alike_at_several_places),
]


@pytest.mark.parametrize("function", first(8, FUNCTIONS), ids=lambda one: one.__name__)
@pytest.mark.parametrize("is_free", [False, True], ids=["static", "free"])
def test_both_ways_are_in_the_file(function: Callable[[torch.Tensor], torch.Tensor], is_free: bool) -> None:
    options: dict[str, Any] = {"dynamic_shapes": ({0: "rows"},)} if is_free else {}
    program = export_and_compare(Called(function), *SAME_SIZES, *(OTHER_SIZES if is_free else []), **options)
    assert program.captured is not None
    assert program.captured.both_ways
    assert all(Path(__file__).name in line for line in program.captured.both_ways)


def less_or_more(x: torch.Tensor) -> torch.Tensor:
    value = x[0].item()
    if value > 0:
        return x + 1
    return x + 2 if value <= 0 else x + 3


def two_numbers(x: torch.Tensor) -> torch.Tensor:
    one, other = x[0].item(), x[1].item()
    if one >= other:
        return x + 1
    return x + 2 if one < other else x + 3


def is_itself(x: torch.Tensor) -> torch.Tensor:
    value = x[0].item()
    return torch.zeros(3) if value != value else x


def square(x: torch.Tensor) -> torch.Tensor:
    value = x[0].item()
    return x + 1 if value * value >= 0 else torch.zeros(3)


def plain_truth(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x[0].item() else x * 2


@pytest.mark.parametrize(
    "function", [less_or_more, two_numbers, is_itself, square, plain_truth], ids=lambda one: one.__name__
)
def test_nan_is_neither_more_nor_less_nor_itself(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    firsts = (0.5, -1.0, 0.0, float("nan"), float("inf"))
    first, *more = [(torch.tensor([one, 1.0, -2.0]),) for one in firsts]
    export_and_compare(Called(function), first, *more)


@pytest.mark.parametrize(
    "function", [lambda value: value - value, lambda value: value * 0, lambda value: (value + 1e-9) - value]
)
def test_what_is_a_constant_in_algebra_only_is_refused(function: Callable[[float], float]) -> None:
    with pytest.raises(CaptureError, match=r"for all data.*test_exporter_both_ways"):
        export(Called(lambda x: x + function(x[0].item())), (torch.ones(3),))


def test_what_cancels_in_algebra_only_is_refused() -> None:
    def sums(x: torch.Tensor) -> torch.Tensor:
        one, other = x[0].item(), x[1].item()
        return x + (one + other - one)

    with pytest.raises(CaptureError, match=r"for all data.*test_exporter_both_ways"):
        export(Called(sums), (torch.ones(3),))


def test_weights_are_there_once_and_buffers_are_written_on_one_way_only(tmp_path: Path) -> None:
    module = Whole().eval()
    program = export_and_compare(module, *SAME_SIZES, dynamic_shapes=({0: "rows"},))
    model = program.model_proto
    held = {one.name: list(one.dims) for one in model.graph.initializer}
    assert held.keys() >= {"part.linear.weight", "part.other.weight", "last.weight", "last.bias"}
    assert sum(dims == [4, 4] for dims in held.values()) == 2
    assert [node.op_type for node in model.graph.node].count("If") == 1
    assert module.part.calls == 0
    assert not module.part.seen.any()


def _operators(graph: onnx.GraphProto) -> list[str]:
    inner = (one.g for node in graph.node for one in node.attribute if one.type == onnx.AttributeProto.GRAPH)
    return [*(node.op_type for node in graph.node), *(name for one in inner for name in _operators(one))]


def test_what_follows_decisions_is_in_the_file_once() -> None:
    program = export(Called(in_sequence), (X,))
    outer = [node.op_type for node in program.model_proto.graph.node]
    every = _operators(program.model_proto.graph)
    assert outer.count("If") == every.count("If") == 4
    assert every.count("Cos") == 3
    assert every.count("Sigmoid") == every.count("Tanh") == outer.count("Tanh") == 1


def by_own_code(x: torch.Tensor) -> torch.Tensor:
    """The same with a function of the model's own on one side, which is no choice of values."""
    for limit in (0.0, 1.0, -3.0):
        x = _doubled(x) if x.sum() > limit else x.cos()
    if x.min() < 0:
        x = x + x.sigmoid()
    return x.tanh()


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 - 1


def test_many_decisions_of_a_large_model_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_export.exporter.capture.both_ways._MOST_CALLS", 100)
    with pytest.raises(CaptureError, match=r"takes 4 such decisions, and 16 captures of \d+ operators are too many"):
        export(Called(by_own_code), (X,))
    assert export(Called(in_sequence), (X,)).captured is not None


def test_a_verified_export_says_which_lines_have_both_ways(tmp_path: Path) -> None:
    program = export(Called(early), (X + 0.5,), verify=True, report=True, artifacts_dir=tmp_path)
    assert program.captured is not None
    (report,) = tmp_path.glob("*.md")
    assert "- `if x.sum() > 0:` (at " in report.read_text()
    onnx.checker.check_model(program.model_proto, full_check=True)


def guarded(x: torch.Tensor) -> torch.Tensor:
    if torch.isnan(x).any():
        raise ValueError("no number")
    return x * 2


def test_an_error_of_the_models_own_is_left_out_and_told() -> None:
    with pytest.warns(ExportWarning, match=r"raises an error by `if torch\.isnan\(x\)\.any\(\):` \(at .*, and a file"):
        export_and_compare(Called(guarded), *SAME_SIZES)


class Sized(torch.nn.Module):
    """Decides by a size behind a decision by data: what it holds to is said all the same."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2 if x.shape[0] > 4 else x.double()
        return x if x.shape[0] > 4 else x.double()


def test_what_one_way_holds_to_of_sizes_is_held_to_by_the_program() -> None:
    captured = capture(Sized(), (X,), dynamic_shapes=({0: "rows"},), guards="allow", allow_assumptions=False)
    (guard,) = captured.restrictions
    assert guard.condition == "rows <= 4"
    assert Path(__file__).name in guard.source


def unlike_dtypes(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else x.long()


def unlike_structure(x: torch.Tensor) -> Any:
    return x if x.sum() > 0 else (x, x)


def unlike_numbers(x: torch.Tensor) -> Any:
    return (x, 1) if x.sum() > 0 else (x, 2)


def none_left(x: torch.Tensor) -> torch.Tensor:
    found = []
    for row in x:
        if row.sum() > 2:
            break
        found.append(row)
    return torch.stack(found)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (unlike_dtypes, r"`.*` \(at .*\) chooses between a tensor of float32 with 2 axes and a tensor of int64 with 2"),
        (unlike_structure, "chooses between results of another structure"),
        (unlike_numbers, "chooses between 1 and 2"),
        (none_left, r"where `if row\.sum\(\) > 2:` .* is True, forward fails: .*non-empty TensorList"),
    ],
)
def test_ways_that_do_not_fit_together_are_refused_with_the_line(function: Any, told: str) -> None:
    with pytest.raises(CaptureError, match=rf"cannot be captured both ways: .*{told}"):
        export(Called(function), (X,))


@pytest.mark.parametrize("clipped", [np.clip, np.minimum, np.nan_to_num], ids=lambda one: one.__name__)
def test_what_numpy_makes_of_a_number_of_the_data_is_refused_with_the_line(clipped: Any) -> None:
    def limited(x: torch.Tensor) -> torch.Tensor:
        number = x.sum().item()  # which NumPy compares in its own way
        return x * float(clipped(number, 0.5, 1.0) if clipped is np.clip else clipped(number, 0.5))

    with pytest.raises(CaptureError, match=r"what `return x \* float\(clipped.*test_exporter_both_ways\.py:\d+"):
        export(Called(limited), (X,))


def settling(x: torch.Tensor) -> torch.Tensor:
    found = [x[0]]
    for _ in range(3):
        found.append(torch.tanh(found[-1]) * 2)
        if (found[-1] - found[-2]).abs().max() < 0.2:
            break
    return torch.stack(found, 1)


def test_a_list_that_grows_until_a_loop_ends_is_stacked_along_another_axis() -> None:
    given = [torch.full((2, 3), number) for number in (0.3, 0.01, 0.8, 3.0, -1.9)]
    assert {tuple(settling(one).shape) for one in given} == {(3, 2), (3, 3), (3, 4)}
    export_and_compare(Called(settling), *((one,) for one in given))


def test_a_squeeze_of_which_only_the_shape_is_read_restricts_its_axis_beside_a_decision() -> None:
    class Counted(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y.zero_() if (x > 0).any() else y.add_(1)
            return torch.arange(x.squeeze(-2).shape[0]), y

    shapes = ({0: "rows", 1: "columns"}, {0: "rows"})
    with pytest.raises(DynamicShapeError, match=r"rows may be 1, .*test_exporter_both_ways"):
        export(Counted(), (X, X.clone()), dynamic_shapes=shapes)
