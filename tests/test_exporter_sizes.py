"""Free sizes as people write them: examples of size 1, axes that the model makes one, guards that are tried.

Every file that is accepted runs at sizes that its example did not have, small ones among them, beside eager.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from rarer import first
from torch import nn
from torch.export import Dim
from torch.nn import functional

from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning
from batch_export.exporter import ONNXProgram, export
from batch_export.exporter.capture import trial_costs
from batch_export.exporter.capture.capture import STRATEGIES, capture
from batch_export.exporter.capture.guard_trials import Trials
from batch_export.exporter.capture.trial import Outcome
from batch_export.exporter.program import naming
from tests.exporting import assert_same, eager, export_and_compare

pytestmark = pytest.mark.sampled

Sizes = tuple[int, ...]
NO_WARNING = "error"


class Function(nn.Module):
    """A function of one or two inputs as a module, with what it needs in `parts`."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleDict(parts)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        arguments = [x] if y is None else [x, y]
        return self.function(self.parts, *arguments) if self.parts else self.function(*arguments)


def right_at(program: ONNXProgram, module: nn.Module, make: Callable[..., Any], sizes: Any) -> int:
    """Compares file and eager at many sizes; returns at how many eager runs."""
    count = 0
    for number, chosen in enumerate(sizes):
        torch.manual_seed(number)
        args = make(*chosen)
        try:
            expected = eager(module, args)
        except (RuntimeError, ValueError, IndexError):
            continue  # the model's own limit
        assert_same(program(*args), expected)
        count += 1
    program.release()
    return count


def images(batch: int, height: int, width: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, height, width),)


def rows(count: int) -> tuple[torch.Tensor]:
    return (torch.randn(count, 6),)


def sequences(batch: int, length: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, length, 8),)


def twice(first: int, second: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(first, 6), torch.randn(second, 6)


# Examples of size 1 ---------------------------------------------------------------------------------------------------


def test_an_image_model_from_a_batch_of_one() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module = nn.Sequential(layers, nn.Linear(4, 2)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter(NO_WARNING, ExportWarning)
        program = export(module, images(1, 8, 8), dynamic_shapes=({0: "batch"},), verify=True)
    assert program.model.graph.inputs[0].shape == ("batch", 3, 8, 8)
    assert right_at(program, module, images, ((size, 8, 8) for size in (0, 1, 2, 3, 5))) == 5


def test_attention_from_a_batch_and_a_sequence_of_one() -> None:
    module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).eval()
    program = export(module, sequences(1, 1), dynamic_shapes=({0: "batch", 1: "seq"},))
    sizes = list(itertools.product((1, 2, 3, 5), repeat=2))
    assert right_at(program, module, sequences, sizes) == len(sizes)


@pytest.mark.parametrize("form", [Dim.AUTO, Dim.DYNAMIC, Dim("n", min=1, max=9)], ids=str)
def test_every_form_takes_an_example_of_one(form: Any) -> None:
    module = Function(lambda x: x.view(x.shape[0], 2, 3).sum(2))
    program = export(module, rows(1), dynamic_shapes=({0: form},))
    assert not isinstance(program.model.graph.inputs[0].shape[0], int)  # type: ignore[index]
    assert right_at(program, module, rows, ((size,) for size in (1, 2, 3, 7))) == 4


def test_auto_fixes_an_axis_of_which_the_model_takes_more_than_multiples() -> None:
    multiples = Function(lambda x: x.view(-1, 3, 6).sum(1))
    free = export(multiples, rows(6), dynamic_shapes=({0: Dim.AUTO},))
    assert not isinstance(free.model.graph.inputs[0].shape[0], int)  # type: ignore[index]
    branching = Function(lambda x: x[:2] if x.shape[0] % 3 else x * 2)
    with pytest.warns(ExportWarning, match=r"x.shape\[0\] is fixed in the file: .*`\(x.shape\[0\] % 3\) == 0`"):
        program = export(branching, rows(6), dynamic_shapes=({0: Dim.AUTO},))
    assert program.model.graph.inputs[0].shape == (6, 6)


def test_rows_taken_by_a_falling_range() -> None:
    module = Function(lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)])
    program = export(module, rows(4), dynamic_shapes=({0: "n"},))
    assert right_at(program, module, rows, ((size,) for size in (1, 2, 5))) == 3


def test_rows_taken_by_a_range_that_begins_below_zero() -> None:
    module = Function(lambda x: x[torch.arange(x.shape[0] - 2, x.shape[0])])
    program = export(module, rows(4), dynamic_shapes=({0: "n"},))
    assert right_at(program, module, rows, ((size,) for size in (1, 2, 5))) == 3
    positions = Function(lambda x, past: x + torch.arange(past.shape[0], past.shape[0] + x.shape[0])[:, None])
    given = (torch.zeros(3, 6), torch.zeros(2))
    program = export(positions, given, dynamic_shapes=({0: "n"}, {0: "past"}))
    assert "Neg" not in [node.op_type for node in program.model.graph]  # sizes are never below zero


def test_an_axis_of_one_that_the_model_broadcasts_stays_one() -> None:
    module = Function(lambda x, y: x + y)
    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    program = export(module, (torch.randn(3, 6), torch.randn(1, 1)), dynamic_shapes=(auto, auto))
    assert program.model.graph.inputs[1].shape == (1, 1)
    for size in (1, 2, 5):
        args = (torch.randn(size, 6), torch.randn(1, 1))
        assert_same(program(*args), eager(module, args))


def test_another_axis_follows_one_that_had_one_element() -> None:
    class Cached(nn.Module):
        def forward(self, past: torch.Tensor, new: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.cat([past, new], 1) * mask[..., None]

    def make(past: int, new: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(2, past, 3), torch.randn(2, new, 3), torch.randn(2, past + new)

    program = export(Cached(), make(5, 1), dynamic_shapes=({1: "past"}, {1: "new"}, {1: "total"}))
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[2,past,3]", "[2,new,3]", "[2,total]"]
    assert right_at(program, Cached(), make, [(0, 1), (1, 1), (4, 1), (2, 3)]) == 4


def test_an_example_that_the_model_refuses_says_so() -> None:
    with pytest.raises(CaptureError, match=r"the model fails at the example inputs"):
        export(Function(lambda x: x.view(2, -1) + 1), rows(1)[0][:, :3], dynamic_shapes=({0: "n"},))


def test_the_exported_programs_examples_are_those_given() -> None:
    captured = capture(nn.ReLU(), rows(1), dynamic_shapes=({0: "n"},))
    (args, _) = captured.program.example_inputs or ((), {})
    assert args[0].shape == (1, 6)


SMALL_BRANCHES: dict[str, tuple[str, str]] = {
    "equal to 1": ("lambda x: x * 2 if x.shape[0] == 1 else x + 1", "n != 1"),
    "above 1": ("lambda x: x * 2 if x.shape[0] > 1 else x + 1", "n > 1"),
}
"""By name what is asked, by a function without a source that could be written anew, and what holds then."""


@pytest.mark.parametrize("name", SMALL_BRANCHES)
@pytest.mark.parametrize("example", first(1, [3, 1]))
def test_a_branch_at_one_is_refused_with_its_line(name: str, example: int) -> None:
    text, condition = SMALL_BRANCHES[name]
    function = eval(text)
    with pytest.raises(DynamicShapeError, match=rf"only while `{condition}`.*test_exporter_sizes\.py:\d+"):
        export(Function(function), rows(example), dynamic_shapes=({0: "n"},))
    export(Function(function), rows(3), dynamic_shapes=({0: Dim("n", min=2)},))


DECIDED_BY_A_SIZE: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], str]] = {
    "the axis of a product": (lambda x, y: torch.cross(x, x.roll(1, 1)), (4, 3), "n != 3"),
    "vectors or a matrix": (lambda x, y: torch.linalg.solve(x, y), (4, 3, 3), "n != 3"),
    "with information": (lambda x, y: torch.linalg.solve_ex(x, y)[0], (4, 3, 3), "n != 3"),
}


@pytest.mark.filterwarnings("ignore:Using torch.cross without")
@pytest.mark.parametrize("name", DECIDED_BY_A_SIZE)
def test_a_meaning_that_goes_by_a_size_is_refused_with_its_line(name: str) -> None:
    function, shape, condition = DECIDED_BY_A_SIZE[name]
    args = (torch.rand(shape) + torch.eye(4, 3) if len(shape) == 2 else torch.rand(shape) + torch.eye(3), torch.eye(3))
    with pytest.raises(DynamicShapeError, match=rf"only while `{condition}`.*test_exporter_sizes\.py:\d+"):
        export(Function(function), args, dynamic_shapes=({0: "n"}, None))
    program = export(Function(function), args, dynamic_shapes=({0: Dim("n", min=4)}, None))
    torch.testing.assert_close(program(*args)[0], function(*args))


@pytest.mark.filterwarnings("ignore:Using torch.cross without")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one[0])
@pytest.mark.parametrize("name", DECIDED_BY_A_SIZE)
def test_such_a_meaning_is_decided_in_each_way_of_capture(name: str, strategy: tuple[str, Callable[..., Any]]) -> None:
    function, shape, condition = DECIDED_BY_A_SIZE[name]
    args = (torch.rand(shape) + torch.eye(4, 3) if len(shape) == 2 else torch.rand(shape) + torch.eye(3), torch.eye(3))
    with pytest.raises(DynamicShapeError, match=rf"only while .*`{condition}`"):
        capture(
            Function(function), args, dynamic_shapes=({0: "n"}, None), allow_assumptions=True, strategies=[strategy]
        )


@pytest.mark.parametrize("solve", [torch.linalg.solve, lambda x, y: torch.linalg.solve_ex(x, y)[0]])
def test_a_vector_for_each_matrix_is_solved_at_every_size(solve: Callable[..., torch.Tensor]) -> None:
    args = (torch.rand(4, 3, 3) + torch.eye(3), torch.rand(4, 3))
    program = export(Function(solve), args, dynamic_shapes=({0: "n"}, {0: "n"}))
    for count in (1, 3, 5):
        given = (torch.rand(count, 3, 3) + torch.eye(3), torch.rand(count, 3))
        torch.testing.assert_close(program(*given)[0], solve(*given))


# Axes that the model makes one ----------------------------------------------------------------------------------------


class Network(nn.Module):
    """Both inputs meet in the middle: what lies between is of the size of either."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.last(torch.exp((x.relu() + y.relu()).tanh()) * 2)  # this line makes them one


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as stream:
        return next(number for number, line in enumerate(stream, start=1) if f"# {text}" in line)


@pytest.mark.parametrize("example", [1, 3])
def test_axes_that_the_model_adds_are_one_axis_that_broadcasts(example: int) -> None:
    place = f"{__file__}:{line_of('this line makes them one')}"
    with pytest.warns(ExportWarning, match="the model makes the axes n and k equal") as told:
        program = export(Network().eval(), twice(example, example), dynamic_shapes=({0: "n"}, {0: "k"}))
    assert [place in str(one.message) for one in told] == [True]
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[n,6]", "[n,6]"]
    module = Network().eval()
    program = export(module, twice(example, example), dynamic_shapes=({0: "n"}, {0: "k"}))
    assert right_at(program, module, twice, itertools.product((0, 1, 2, 5), repeat=2)) == 10


class Meeting(nn.Module):
    """Both inputs are read on the way, each at its own size."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = torch.relu(x) * 2, torch.relu(y) * 3
        return torch.exp((one + other).tanh()) * 2, (one + other) * one


class Meant(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.expand_as(y) * 2


class Repeated(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = torch.broadcast_tensors(x, y)
        return one.contiguous(), other.sum(0)


class Written(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.zeros_like(x)
        z[:] = y
        return z


@pytest.mark.parametrize(("module", "count"), [(Meeting(), 10), (Meant(), 7), (Repeated(), 10), (Written(), 7)])
def test_values_of_axes_that_broadcast_keep_sizes_of_their_own(module: nn.Module, count: int) -> None:
    program = export(module, twice(3, 3), dynamic_shapes=({0: "n"}, {0: "k"}))
    assert [guard.holds_beyond for guard in program.captured.united] == [True]
    assert right_at(program, module, twice, itertools.product((0, 1, 2, 5), repeat=2)) == count


def test_values_without_a_shape_keep_sizes_of_their_own_too() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 20]> g (float[n] x, float[n] y, float[m] z) => (float[n] out, float[m] o)'
    )
    model = ir.from_proto(
        onnx.parser.parse_model(text + "{ sum = Add(x, y)  out = Neg(sum)  half = Neg(z)  o = Abs(half) }")
    )
    naming.keep_apart(model, ["n"])
    shapes = {value.name: value.shape for value in naming.all_values(model)}
    assert shapes == {
        "x": ("n",),
        "y": ("n",),
        "z": ("m",),
        "sum": ("inner_1",),
        "out": ("n",),
        "half": None,
        "o": ("m",),
    }


def test_axes_that_have_to_be_equal_are_one_axis() -> None:
    module = Function(lambda x, y: torch.cat([x, y], 1))
    with pytest.warns(ExportWarning, match=r"the axes n and k equal .*they are one axis in the file, n"):
        program = export(module, twice(3, 3), dynamic_shapes=({0: "n"}, {0: "k"}))
    assert "batch_export.guards" not in program.model.metadata_props
    assert right_at(program, module, twice, ((size, size) for size in (0, 1, 2, 5))) == 4


class Joined(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y, z, w], 1)


def test_each_name_gives_way_to_the_one_that_the_file_has() -> None:
    module = Joined()
    given = tuple(torch.ones(5, 2) for _ in range(4))
    for last in ("m", torch.export.Dim.AUTO):
        with pytest.warns(ExportWarning, match="one axis in the file") as told:
            program = export(module, given, dynamic_shapes=({0: "n"}, {0: "k"}, {0: "l"}, {0: last}))
        (kept,) = {str(value.shape[0]) for value in program.model.graph.inputs if value.shape is not None}
        texts = sorted(str(one.message) for one in told)
        lost = sorted({"n", "k", "l", "m" if last == "m" else "n"} - {kept})
        assert len(texts) == len(lost)
        for name, text in zip(lost, texts, strict=True):
            assert f"the axes {kept} and {name} equal" in text
            words = f"# The axis name: {name} will not be used, since it shares the same shape constraints with another"
            assert words in text


UNEQUAL: dict[str, Callable[..., torch.Tensor]] = {
    "broadcast, and the size of one": lambda x, y: (x + y).sum(0) / x.shape[0],
    "a branch": lambda x, y: x + y if x.shape[0] == y.shape[0] else x.sum() + y.sum(),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_an_equality_that_would_make_wrong_numbers_is_refused(name: str) -> None:
    with pytest.raises(DynamicShapeError, match=r"only while `n == k`.*give both axes one name"):
        export(Function(UNEQUAL[name]), twice(3, 3), dynamic_shapes=({0: "n"}, {0: "k"}))


def test_united_axes_move_together_when_other_guards_are_tried() -> None:
    function = Function(eval("lambda x, y: x + y if x.shape[0] <= 6 else x - y"))  # which has no source
    with pytest.raises(DynamicShapeError, match=r"only while `n <= 6`"):
        export(function, twice(3, 3), dynamic_shapes=({0: "n"}, {0: "k"}))


# Guards ---------------------------------------------------------------------------------------------------------------


def windows(x: torch.Tensor) -> torch.Tensor:
    """Windows of 4 by 4, as window attention has them: padded, cut, put together, cropped."""
    batch, height, width, channels = x.shape
    below, right = (4 - height % 4) % 4, (4 - width % 4) % 4
    x = functional.pad(x, (0, 0, 0, right, 0, below))
    tall, wide = height + below, width + right
    y = x.view(batch, tall // 4, 4, wide // 4, 4, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, channels)
    y = (y - y.mean(1, keepdim=True)).view(batch, tall // 4, wide // 4, 4, 4, channels)
    return y.permute(0, 1, 3, 2, 4, 5).reshape(batch, tall, wide, channels)[:, :height, :width].contiguous()


def crop(parts: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    """The left side of a U is cut to the size of the right one."""
    left = parts["down"](x)
    right = parts["up"](functional.max_pool2d(left, 2))
    above, before = (left.shape[2] - right.shape[2]) // 2, (left.shape[3] - right.shape[3]) // 2
    return torch.cat([left[:, :, above : above + right.shape[2], before : before + right.shape[3]], right], 1)


def allocated(x: torch.Tensor) -> torch.Tensor:
    made = x.new_zeros(x.shape[0], 8)
    made[:, :6] = x
    made[1:, 6] = x[:-1, 0]
    return made


def padded(x: torch.Tensor) -> torch.Tensor:
    length = int(x.shape[-1])
    return functional.pad(x, (0, -length % 4)).unflatten(-1, (-1, 4)).mean(-1)


U_NET = {"down": nn.Conv2d(3, 4, 3), "up": nn.ConvTranspose2d(4, 4, 2, 2)}
HELD: dict[str, tuple[nn.Module, Callable[..., Any], Any, Sizes, int]] = {
    "slice": (Function(lambda x: x[:, :3]), sequences, {0: "b", 1: "n"}, (2, 5), 25),
    "last ones": (Function(lambda x: x[:, -3:]), sequences, {0: "b", 1: "n"}, (2, 5), 25),
    "a scale of 1 or more": (Function(lambda x: x * max(1, x.shape[1] / 4)), sequences, {0: "b", 1: "n"}, (2, 5), 25),
    "at most 4": (Function(lambda x: x.new_zeros(min(4, x.shape[0]), 6) + x[:4]), rows, {0: "n"}, (6,), 5),
    "allocated": (Function(allocated), rows, {0: "n"}, (4,), 5),
    "int in a padding": (Function(padded), lambda n: (torch.randn(2, 3, n),), {2: "n"}, (10,), 5),
    "folded": (
        Function(lambda x: functional.fold(functional.unfold(x, 2, stride=2), (x.shape[2], 8), 2, stride=2)),
        lambda height: (torch.randn(1, 2, height, 8),),
        {2: "height"},
        (8,),
        4,
    ),
    "windows": (Function(windows), lambda *sizes: (torch.randn(1, *sizes, 2),), {1: "h", 2: "w"}, (10, 12), 25),
    "cropped": (
        Function(crop, **U_NET),
        lambda *sizes: (torch.randn(1, 3, *sizes),),
        {2: "h", 3: "w"},
        (12, 12),
        9,
    ),
    "table": (
        Function(lambda x: x + torch.arange(16.0)[: x.shape[1], None]),
        sequences,
        {0: "b", 1: "n"},
        (2, 5),
        25,
    ),
}
SMALL = {1: (1, 2, 3, 7, 9), 2: (1, 2, 5, 9, 12)}


@pytest.mark.parametrize("name", HELD)
def test_guards_that_are_true_by_construction_or_the_models_own_are_none(name: str) -> None:
    module, make, free, example, count = HELD[name]
    with warnings.catch_warnings():
        warnings.simplefilter(NO_WARNING, ExportWarning)
        program = export(module.eval(), make(*example), dynamic_shapes=(free,), guards="error")
    names = {str(size) for size in program.model.graph.inputs[0].shape or () if not isinstance(size, int)}
    assert names == set(free.values())
    assert right_at(program, module, make, itertools.product(SMALL[len(example)], repeat=len(example))) >= count


def test_a_limit_beyond_what_can_be_made_is_tried_without_numbers() -> None:
    """torch's quantile takes 2**24 numbers at most, of which no example is made."""
    module = Function(lambda x: (torch.quantile(x, 0.3), torch.nanquantile(x, 0.5)))
    with warnings.catch_warnings():
        warnings.simplefilter(NO_WARNING, ExportWarning)
        program = export(module, twice(3, 3)[:1], dynamic_shapes=({0: "n", 1: "k"},), guards="error")
    assert right_at(program, module, lambda n, k: (torch.randn(n, k),), itertools.product((1, 2, 7), repeat=2)) == 9


class Resized(nn.Module):
    """Positions that are used as they are at their native size, and resized at any other."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.rand(1, 16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == self.positions.shape[1]:
            return x + self.positions
        table = functional.interpolate(
            self.positions.transpose(1, 2), size=x.shape[1], mode="linear", align_corners=False
        )
        return x + table.transpose(1, 2)


def test_a_table_at_its_native_size_is_captured_by_its_general_branch() -> None:
    module = Resized().eval()
    program = export(module, sequences(2, 16), dynamic_shapes=({0: "b", 1: "n"},))
    assert right_at(program, module, sequences, [(2, 16), (1, 16), (1, 1), (2, 2), (3, 7), (2, 40)]) == 6


@pytest.mark.filterwarnings("error::batch_export.ExportWarning")
def test_a_table_at_its_native_size_is_no_limit_where_the_example_has_another() -> None:
    module = Resized().eval()
    program = export(module, sequences(2, 9), dynamic_shapes=({0: "b", 1: "n"},))
    assert right_at(program, module, sequences, [(2, 16), (1, 16), (1, 1), (3, 7), (2, 40)]) == 5


LEFT_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a bound": lambda x: x.clamp(max=500.0) if x.shape[0] == 5 else x * 1.0,
    "another bound": lambda x: x.clamp(max=500.0) if x.shape[0] == 5 else x.clamp(max=600.0),
    "none there": lambda x: x * 1.0 if x.shape[0] == 5 else x.clamp(max=500.0),
    "an infinity": lambda x: torch.where(torch.isposinf(x), 0.0, x) if x.shape[0] == 5 else x * 1.0,
    "another form": lambda x: x.exp().sum(1).log() if x.shape[0] == 5 else x.logsumexp(1),
    "a bound at one": lambda x: x[0][None].clamp(min=-600.0) if x.shape[0] == 1 else x * 1.0,
    "a remainder": lambda x: x.clamp(max=500.0) if x.shape[0] % 5 == 0 else x * 1.0,
}


@pytest.mark.filterwarnings("ignore::batch_export.ExportWarning")
@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("rows", [1, 4, 5])
def test_what_one_size_does_with_the_data_alone_is_in_the_file_or_a_limit(name: str, rows: int) -> None:
    module = Function(LEFT_OUT[name])
    try:
        program = export(module, (torch.randn(rows, 3),), dynamic_shapes=({0: "n"},))
    except DynamicShapeError:
        return
    limits = [one.expression for one in program.captured.restrictions]
    held = [n for n in (1, 4, 5, 7, 10) if all(one.subs(dict.fromkeys(one.free_symbols, n)) for one in limits)]
    assert rows in held
    for length in held:
        x = torch.randn(length, 3) * 1000
        x[0, :2] = torch.tensor([math.inf, -1e3])
        torch.testing.assert_close(program(x)[0], module(x), equal_nan=True)


class Halved(nn.Module):
    """Patches halved and doubled again, and resized where their number is odd."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = functional.avg_pool2d(image, 14)
        half = functional.max_pool2d(patches, 2, ceil_mode=True)
        again = torch.repeat_interleave(torch.repeat_interleave(half, 2, 2), 2, 3)
        if again.shape != patches.shape:
            again = functional.interpolate(again, size=patches.shape[2:], mode="bilinear", align_corners=False)
        return patches + again


def test_a_branch_that_multiples_of_the_example_take_too_is_captured_by_its_general_branch() -> None:
    program = export(Halved(), images(2, 56, 56), dynamic_shapes=({0: "b", 2: "h", 3: "w"},))
    assert right_at(program, Halved(), images, [(2, 56, 56), (1, 70, 56), (3, 56, 42), (2, 70, 98)]) == 4


def lone(x: torch.Tensor) -> torch.Tensor:
    first, *others = x[:2].unbind(0)  # this line takes one row where there is one
    return first + sum(others)


def test_a_limit_of_the_program_is_a_warning_with_its_line_and_in_the_metadata() -> None:
    place = f"{__file__}:{line_of('this line takes one row where there is one')}"
    with pytest.warns(
        ExportWarning, match=r"the file holds only while `n >= 2` .*though the model runs at other sizes, too"
    ) as told:
        program = export(Function(lone), rows(6), dynamic_shapes=({0: "n"},))
    assert place in str(told[0].message)
    assert "n" in program.model.metadata_props["batch_export.guards"]
    assert right_at(program, Function(lone), rows, ((size,) for size in (2, 3, 4, 5, 9))) == 5
    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(Function(lone), rows(6), dynamic_shapes=({0: "n"},), guards="error")


def test_what_the_model_refuses_for_another_reason_proves_nothing() -> None:
    def in_fours(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 4:
            raise ValueError("in fours only")
        return x * 2 if x.shape[0] <= 8 else x.double()

    with pytest.raises(DynamicShapeError, match="only while `n <= 8`"):
        export(Function(in_fours), rows(4), dynamic_shapes=({0: "n"},))


def test_sizes_that_the_model_refuses_leave_room_for_those_that_it_takes() -> None:
    class Long(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] < 60:
                raise ValueError("sixty rows at least")
            return x + 1

    captured = capture(Long(), rows(70), dynamic_shapes=({0: "n"},))
    assert captured.symbols is not None
    trials = Trials(captured.program, captured.symbols, Long(), rows(70), {})
    refused = [trials.at({"n": size}) for size in range(1, 60)]
    assert {trial.outcome for trial in refused if trial is not None} == {Outcome.REFUSED}
    taken = [trials.at({"n": size}) for size in range(60, 160)]
    ran = [trial for trial in taken if trial is not None]
    assert {trial.outcome for trial in ran} == {Outcome.AGREES}
    assert 0 < len(ran) < len(taken)


def test_a_trial_that_waits_is_not_one_of_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.1)
            return x + 1

    captured = capture(Waiting(), rows(4), dynamic_shapes=({0: "n"},))
    assert captured.symbols is not None
    trials = Trials(captured.program, captured.symbols, Waiting(), rows(4), {})
    monkeypatch.setattr(trial_costs, "_SECONDS", 0.09)
    found = [trials.at({"n": size}) for size in (2, 3, 5, 6)]
    assert [trial.outcome for trial in found if trial is not None] == [Outcome.AGREES] * 4


def test_where_an_axis_is_empty_nothing_is_proven_and_little_is_lost() -> None:
    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.adaptive_avg_pool1d(x.transpose(1, 2), 1).squeeze(-1)

    with pytest.warns(ExportWarning, match="the file holds only while `n != 0`"):  # the model gives NaN
        program = export(Pooled(), sequences(2, 5), dynamic_shapes=({0: "b", 1: "n"},))
    assert right_at(program, Pooled(), sequences, [(1, 1), (2, 1), (0, 3), (3, 7)]) == 4


@pytest.mark.parametrize("fast_path", [True, False])
def test_what_another_guard_says_of_an_empty_axis_takes_no_other_size_away(fast_path: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    class Itself(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return self.attention(x, x, x)  # type: ignore[no-any-return]  # no weights of an empty input

    torch.backends.mha.set_fastpath_enabled(fast_path)
    module = Itself().eval()
    program = export(module, sequences(2, 5), dynamic_shapes=({0: "b", 1: "n"},))
    assert not program.captured.restrictions  # the fast path would give no weights there, and is not taken
    assert right_at(program, module, sequences, [(1, 1), (2, 1), (1, 4), (3, 7)]) == 4


def test_trials_leave_buffers_as_they_were() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(1))
            self.register_buffer("kept", torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x.mean()
            self.kept = self.kept * 2
            return x * 2 + self.total if x.shape[0] != 1 else x * 2 + self.total  # noqa: RUF034

    model = Counting()
    kept, total = model.kept, model.total
    program = export(model, (torch.ones(2, 3),), dynamic_shapes=({0: "batch"},))
    assert any(guard.holds_beyond for guard in program.captured.guards)  # it was run at a batch of one
    assert model.total is total
    assert model.kept is kept
    assert (total.item(), kept.item()) == (0, 1)
    assert program.model.graph.initializers["total"].const_value.numpy() == [0]  # type: ignore[union-attr]
    assert_same(program(torch.ones(1, 3)), [torch.full((1, 3), 3.0)])


def test_values_that_the_model_refuses_prove_nothing_of_sizes() -> None:
    def exact(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] > 0)
        return x * 2 if x.shape[0] <= 8 else x.double()

    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_exporting() and bool((x != 3).any()):
                raise ValueError("threes only")
            return exact(x)

    with pytest.raises(DynamicShapeError, match="only while `n <= 8`"):
        export(Picky(), (torch.full((4, 6), 3.0),), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"guards": "maybe"}, "guards is 'maybe'; it is one of 'warn', 'error', 'allow'"),
        ({"guards": "error", "allow_guards": True}, "allow_guards=True means guards='allow', and guards is 'error'"),
    ],
)
def test_unknown_and_contradicting_modes(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        export(nn.ReLU(), rows(2), **options)


def test_both_spellings_take_what_would_be_refused() -> None:
    function, condition = SMALL_BRANCHES["equal to 1"]
    for options in ({"guards": "allow"}, {"allow_guards": True}):
        program = export(Function(function), rows(3), dynamic_shapes=({0: "n"},), **options)
        assert program.model.metadata_props["batch_export.guards"] == condition


def test_what_the_model_compiles_is_tried_as_it_was_written() -> None:
    compiled: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        compiled.append(graph)
        return graph.forward

    doubled = torch.compile(lambda x: x * 2, backend=backend)

    class Compiling(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[1] < 3:
                raise ValueError("too short")
            return doubled(x)[:, : min(4, x.shape[1])]

    program = export(Compiling(), (torch.randn(2, 6),), dynamic_shapes=({0: "batch", 1: "seq"},))
    assert not compiled
    for shape in ((2, 6), (1, 3), (3, 9)):
        x = torch.randn(shape)
        assert torch.equal(torch.as_tensor(program(x)[0]), (x * 2)[:, :4])


class CutTable(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Buffer(torch.arange(8.0)[None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table[: x.shape[0]].shape[0]


@pytest.mark.parametrize("least", [0, 1])
def test_the_smaller_of_one_and_a_size_is_one_where_the_axis_is_declared_from_one_on(least: int) -> None:
    rows = Dim("rows", min=least) if least else Dim("rows")
    program = export(CutTable(), (torch.randn(4, 8),), dynamic_shapes=({0: rows},))
    assert ("Min" in {node.op_type for node in program.model.graph}) is (least == 0)
    for count in (1, 5) if least else (0, 1, 5):
        x = torch.randn(count, 8)
        assert torch.equal(program(x)[0], CutTable()(x))


ROUNDED: dict[str, Callable[[int], bool]] = {
    "products": lambda n: n * 0.1 * 10 == n,
    "sums": lambda n: n * 0.7 + n * 0.3 == n,
    "differences": lambda n: (n + 0.1) - n == 0.1,
    "orders": lambda n: n * 0.1 + n * 0.2 <= n * 0.3,
    "a root": lambda n: math.sqrt(n) * math.sqrt(n) == n,
}
EXACT: dict[str, Callable[[int], bool]] = {
    "a difference": lambda n: n / 3 - n / 3 == 0,
    "products by a half": lambda n: n * 0.5 * 2 == n,
    "an order": lambda n: n * 0.5 + 1.5 > 1,
}


class Deciding(torch.nn.Module):
    def __init__(self, decide: Callable[[int], bool]) -> None:
        super().__init__()
        self.decide = decide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.decide(x.shape[0]) else x - 1


@pytest.mark.parametrize("name", first(3, ROUNDED))
@pytest.mark.parametrize("example", first(1, [4, 6]))
def test_what_rounded_numbers_decide_at_some_sizes_only_is_refused_with_its_line(name: str, example: int) -> None:
    with pytest.raises(DynamicShapeError, match=r"test_exporter_sizes\.py:\d+"):
        export(Deciding(ROUNDED[name]), (torch.randn(example, 2),), dynamic_shapes=({0: "n"},))


def test_a_decision_by_rounded_numbers_says_what_torch_made_of_it_and_where_it_fails() -> None:
    with pytest.raises(DynamicShapeError, match=r"makes `True` of a comparison .* otherwise at the size 3 .*integers"):
        export(Deciding(ROUNDED["products"]), (torch.randn(4, 2),), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("name", EXACT)
def test_what_is_decided_alike_at_every_size_is_exported(name: str) -> None:
    inputs = [(torch.randn(rows, 2),) for rows in (4, 1, 3, 7, 1001)]
    export_and_compare(Deciding(EXACT[name]), *inputs, dynamic_shapes=({0: "n"},))


def test_one_size_is_decided_as_in_the_example() -> None:
    export_and_compare(Deciding(ROUNDED["products"]), (torch.randn(3, 2),))


def test_a_mean_of_nothing_is_a_limit_in_words() -> None:
    def shifted(scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        kept = scores[:, :-1].reshape(-1, scores.shape[-1])
        return torch.nn.functional.cross_entropy(kept, words[:, 1:].reshape(-1))

    def inputs(rows: int, length: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(rows, length, 4), torch.randint(0, 4, (rows, length))

    axes = {0: "b", 1: "t"}
    with pytest.warns(ExportWarning) as told:
        program = export(shifted, inputs(2, 6), dynamic_shapes=(axes, axes))
    conditions = [str(one.message).split("`")[1] for one in told if "holds only while" in str(one.message)]
    assert conditions == ["t != 0"]
    for given in (inputs(1, 2), inputs(3, 9), inputs(2, 1), inputs(0, 3)):
        torch.testing.assert_close(program(*given)[0], shifted(*given), equal_nan=True)


def test_what_is_not_finite_for_another_reason_proves_nothing() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        log = x.log()  # of negative numbers
        return log * 2 if x[:, 1:].numel() > 0 else log.double()

    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(other, (-torch.rand(2, 6) - 1,), dynamic_shapes=({0: "b", 1: "t"},))


Number = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Spread(nn.Module):
    """A quantile of all that a number scales, which torch takes of 2**24 elements at most."""

    def __init__(self, number: Number) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        place = torch.searchsorted(table, torch.tensor(1.5))
        return torch.quantile((x * self.number(table, place)).flatten(1), 0.9, dim=1)


@pytest.mark.parametrize("number", [lambda table, place: table[place], lambda table, _: table[table > 1].sum()])
def test_a_limit_of_torchs_own_is_none_behind_an_index_by_data(
    number: Number,
) -> None:
    given = torch.randn(2, 5, 5), torch.linspace(0.1, 4, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(Spread(number), given, dynamic_shapes=({1: "h", 2: "h"}, None))
    other = torch.randn(2, 7, 7), given[1]
    torch.testing.assert_close(torch.as_tensor(program(*other)[0]), Spread(number)(*other))


TIED: dict[str, tuple[Callable[..., Any], Sizes, Sizes]] = {
    "a quotient": (lambda x, y: x.view(y.shape[0], -1) + y, (30,), (6, 5)),
    "what a convolution leaves": (lambda x, y: functional.conv1d(x[None], torch.ones(1, 1, 3))[0] - y, (1, 7), (1, 5)),
}


@pytest.mark.parametrize("name", TIED)
def test_an_axis_that_is_computed_from_others_may_be_undefined_or_negative_where_those_are_small(name: str) -> None:
    function, one, other = TIED[name]
    free = tuple({axis: Dim.DYNAMIC for axis, size in enumerate(sizes) if size > 1} for sizes in (one, other))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(Function(function), (torch.randn(one), torch.randn(other)), dynamic_shapes=free)
    smaller = torch.randn(12 if len(one) == 1 else (1, 6)), torch.randn((3, 4) if len(one) == 1 else (1, 4))
    torch.testing.assert_close(torch.as_tensor(program(*smaller)[0]), function(*smaller))


def test_a_branch_at_sizes_at_which_a_tied_axis_would_be_negative_is_refused() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[2:] + y if x.shape[0] > 2 else y.double()

    free = {0: Dim.DYNAMIC}
    with pytest.raises(DynamicShapeError, match=r"holds only while `x.shape\[0\] > 2`"):
        export(Function(function), (torch.randn(7), torch.randn(5)), dynamic_shapes=(free, free))


# Operators of Python's ------------------------------------------------------------------------------------------------


def test_the_largest_of_three_sizes_and_bits_of_sizes_stay_free() -> None:
    def cropped(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        side = min(rows, columns, 4)
        return x[:side, :side], x * max(rows, 3, columns - 1), x * (rows ^ 1) + (5 ^ columns)

    program = export(Function(cropped), (torch.rand(6, 5),), dynamic_shapes=({0: "rows", 1: "columns"},))
    for shape in ((1, 1), (2, 7), (3, 3), (4, 9), (8, 2)):
        given = torch.rand(shape)
        torch.testing.assert_close(program(given), cropped(given))


@pytest.mark.ops
def test_a_decision_that_shows_at_parts_of_a_large_example_only_is_refused() -> None:
    """As sounds have: windows of many samples, of which a model wants two or more."""

    class Framed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frames = torch.nn.functional.avg_pool1d(x[:, None], 700, 570)
            level = torch.nn.functional.max_pool1d(frames, 2, 1).amax(-1)
            return level.neg() if frames.shape[-1] % 2 else level.exp().double()

    with pytest.raises(DynamicShapeError, match=r"holds only while .* % 2"):
        export(Framed(), (torch.randn(2, 1600),), dynamic_shapes={"x": {1: "samples"}})


@pytest.mark.ops
def test_a_decision_between_small_numbers_is_refused() -> None:
    """Which lie nearer to one another than a file's may to the model's."""

    class Small(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.mean(1) * 1e-5
            return y.neg() if x.shape[1] % 3 else y.abs().double()

    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(Small(), (torch.randn(2, 7),), dynamic_shapes={"x": {1: "n"}})


class _TwoQuestions(torch.nn.Module):
    """The second question is asked only where the first one is answered otherwise than in the example."""

    def __init__(self, asked: Callable[[int, int, int], bool]) -> None:
        super().__init__()
        self.asked = asked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.asked(*x.shape) else x + 1


TWO_QUESTIONS = (
    "h % 2 == 1 and w % 2 == 1",
    "h > 10 and w > 10",
    "h < 4 and w < 4",
    "b > 2 and w > 10",
    "b > 2 and h < 4",
    "not (h % 2 == 0 or w % 2 == 0)",
)


@pytest.mark.parametrize("asked", first(2, TWO_QUESTIONS))
def test_a_question_that_the_example_does_not_come_to_is_refused(asked: str) -> None:
    """A function without a source cannot be written anew."""
    shapes = ({0: "b", 1: "h", 2: "w"},)
    with pytest.raises(DynamicShapeError, match=r"holds only while .*test_exporter_sizes\.py"):
        export(_TwoQuestions(eval(f"lambda b, h, w: {asked}")), (torch.randn(2, 6, 8),), dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "asked",
    first(
        2,
        [
            lambda b, h, w: h % 2 == 1 and w % 2 == 1,
            lambda b, h, w: h > 10 and w > 10,
            lambda b, h, w: h < 4 and w < 4,
            lambda b, h, w: b > 2 and w > 10,
            lambda b, h, w: b > 2 and h < 4,
        ],
    ),
)
def test_a_question_of_a_lambda_is_asked_at_every_size(asked: Callable[[int, int, int], bool]) -> None:
    shapes = ({0: "b", 1: "h", 2: "w"},)
    sizes = ((3, 3, 3), (1, 11, 13), (3, 2, 11), (2, 5, 8), (3, 12, 3), (2, 3, 5), (1, 13, 11))
    more = [(torch.randn(*size),) for size in sizes]
    export_and_compare(_TwoQuestions(asked), (torch.randn(2, 6, 8),), *more, dynamic_shapes=shapes)


@pytest.mark.parametrize("example", first(1, [3, 1]))
def test_a_branch_of_a_lambda_at_one_is_taken_at_one(example: int) -> None:
    for function in (lambda x: x * 2 if x.shape[0] == 1 else x + 1, lambda x: x * 2 if x.shape[0] > 1 else x + 1):
        export_and_compare(Function(function), rows(example), rows(1), rows(2), rows(5), dynamic_shapes=({0: "n"},))


def test_questions_that_change_nothing_stay_harmless_where_further_axes_differ() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x[:, : x.shape[1] + 1] * 2 if x.shape[0] % 2 and x.shape[1] % 2 else x * 2

    given = (torch.randn(2, 6),)
    export_and_compare(Function(forward), given, (torch.randn(3, 5),), dynamic_shapes=({0: "b", 1: "n"},))


class _Shifted(nn.Module):
    """Relative positions, whose table is as long as the model takes a sequence: torch notes that as a range."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(40, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, n, _ = x.shape
        scores = x @ self.table[20 - n + 1 : 20 + n].t()
        shifted = torch.cat([torch.zeros(count, n, 1), scores], -1).view(count, 2 * n, n)
        return shifted[:, 1:].view(count, n, 2 * n - 1)[:, :, :n].softmax(-1) @ x


@pytest.mark.parametrize("axes", [{0: "b", 1: "n"}, {0: Dim.AUTO, 1: Dim.AUTO}])
def test_a_range_that_torch_narrowed_is_tried_like_any_guard(axes: dict[int, Any]) -> None:
    module = _Shifted()
    program = export(module, (torch.randn(2, 8, 8),), dynamic_shapes=(axes,))
    sizes = [(1, 1), (1, 2), (3, 13), (2, 20), (2, 21), (1, 30)]
    assert right_at(program, module, lambda b, n: (torch.randn(b, n, 8),), sizes) == 4


class SqueezedInPlace(torch.nn.Module):
    """Drops an axis by writing, at one size of the input's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x[: x.shape[0] // 2] + 1
        half.squeeze_(0)
        return half * 2


@pytest.mark.parametrize("count", [2, 8])
def test_an_axis_that_is_dropped_in_place_at_one_size_is_refused(count: int) -> None:
    with pytest.raises(DynamicShapeError, match="drops an axis"):
        export(SqueezedInPlace(), (torch.randn(count),), dynamic_shapes=({0: "m"},))
