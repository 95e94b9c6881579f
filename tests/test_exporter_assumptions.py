"""What a file cannot follow: decisions by data, changed attributes, shared memory, squeezed free axes."""

from __future__ import annotations

import logging
import os
import random
import secrets
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnxscript import opset18 as op
from torch.export import Dim
from torch.fx.experimental import _config, symbolic_shapes

from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning, TranslationError, VerificationError
from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture
from tests import catching
from tests.exporting import assert_same, export_and_compare

pytestmark = pytest.mark.sampled

X = torch.linspace(-1, 1, 12).reshape(3, 4)
ONES = torch.ones(3, 4)


class Branch(torch.nn.Module):
    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > self.limit:
            return x * 2
        return x - 1


class Trying(torch.nn.Module):
    """Decides by data, and goes on where it cannot."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            if x.mean() > 0:
                return x * 2
        except Exception:
            pass
        return x


@pytest.mark.parametrize("example", [ONES, -ONES])
def test_a_decision_whose_failure_forward_catches_is_one(example: torch.Tensor) -> None:
    export_and_compare(Trying(), (example,), (-example,))


@pytest.mark.parametrize("name", [name for name in vars(catching) if name.startswith("caught_")])
def test_a_failure_by_data_that_forward_catches_is_refused_with_its_line(name: str) -> None:
    function = getattr(catching, name)
    lines = "|".join(str(function.__code__.co_firstlineno + after) for after in (1, 2))
    with pytest.raises(CaptureError, match=rf"fails here depends on the data.*catching\.py:({lines})\)"):
        export(function, (torch.eye(2) + 1,))


@pytest.mark.parametrize("function", [catching.swallowed_numbers, catching.swallowed_copy])
@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
def test_what_fails_in_a_capture_only_is_no_part_of_the_model(function: Any, shapes: Any) -> None:
    line = function.__code__.co_firstlineno + 2
    with pytest.raises(CaptureError, match=rf"what this line finds in a capture.*catching\.py:{line}\)"):
        export(function, (torch.eye(2) + 1,), dynamic_shapes=shapes)


class Force(torch.nn.Module):
    """Minus the gradient of an energy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            place = x.detach().requires_grad_(True)
            energy = (self.layer(place).tanh() ** 2).sum()
            return -torch.autograd.grad(energy, place)[0] * x


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
def test_gradients_within_forward_are_followed(shapes: Any) -> None:
    export_and_compare(Force(), (torch.randn(3, 2),), (torch.randn(5 if shapes else 3, 2),), dynamic_shapes=shapes)


class Both(Force):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            place = x.clone().requires_grad_(True)
            energy = self.layer(place).tanh().sum()
            return energy, -torch.autograd.grad(energy, place)[0]


class Recorded(Force):
    """Leaves the recording to its caller."""

    def forward(self, x: torch.Tensor) -> Any:
        x.requires_grad_()
        energy = self.layer(x).tanh().sum((0, 1))
        return {"energy": energy, "force": -torch.autograd.grad([energy], [x])[0]}


@pytest.mark.parametrize("module", [Both(), Recorded()])
def test_energies_beside_their_gradients_are_followed(module: torch.nn.Module) -> None:
    before = dict(vars(module))
    program = export(module, (torch.randn(3, 2),), dynamic_shapes=({0: "n"},), verify=True)
    assert vars(module) == before
    assert not program.captured.changed_attributes
    for count in (1, 5):
        x = torch.randn(count, 2)
        found = module(x.clone())
        assert_same(program(x), [one.detach() for one in (found.values() if isinstance(found, dict) else found)])


def test_a_function_that_leaves_the_recording_to_its_caller_is_compared() -> None:
    def force(x: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        return torch.autograd.grad((x**3).sum(), x)[0]

    program = export(force, (torch.randn(3, 2),), verify=True)
    x = torch.randn(3, 2)
    assert_same(program(x), [3 * x**2])


def _in_a_thread(x: torch.Tensor) -> torch.Tensor:
    with ThreadPoolExecutor(1) as pool:
        return sum(pool.map(x.mul, (1, 2, 3)))  # type: ignore[return-value]


def _in_threads(x: torch.Tensor) -> torch.Tensor:
    """Of which torch's own checks fail in turns."""
    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(lambda factor: (x * factor).sin().exp(), range(40)))  # type: ignore[return-value]


def _of_another(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.data = x * 3
    return y


def _swapped(x: torch.Tensor) -> torch.Tensor:
    y, z = x * 1, x * 3
    torch.utils.swap_tensors(y, z)
    return y


def _filled_memory(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.untyped_storage().fill_(0)
    return y


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_in_a_thread, "a thread.*out of forward"),
        (_in_threads, "a thread.*out of forward"),
        (_of_another, "the `.data` of a tensor"),
        (_swapped, r"swap_tensors`\), which.*\.py:\d+\)"),
        (_filled_memory, r"said NotImplementedError: .*Storage; what torch\.jit\.trace captured.*\.py:\d+\)"),
    ],
)
def test_what_no_capture_follows_is_refused_with_its_reason_whatever_a_trace_makes(
    function: Any, reason: str, shapes: Any
) -> None:
    with pytest.raises(CaptureError, match=rf"(?s){reason}"):
        export(function, (torch.randn(4, 3),), dynamic_shapes=shapes)


class OfArrays(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.function(x.numpy())  # type: ignore[no-any-return]  # this line has an array


@pytest.mark.parametrize("function", [lambda x: float(x.sum()), lambda x: torch.from_numpy(np.sin(x))])
@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
def test_arrays_of_tensors_are_followed(function: Callable[[Any], Any], shapes: Any) -> None:
    export_and_compare(OfArrays(function), (X,), (-X,), (X * float("nan"),), dynamic_shapes=shapes)


def test_arrays_that_have_another_dtype_in_torch_are_refused_with_the_line() -> None:
    line = OfArrays.forward.__code__.co_firstlineno + 1
    with pytest.raises(CaptureError, match=rf"should be float64.*{Path(__file__).name}:{line}\)"):
        export(OfArrays(lambda x: torch.from_numpy(np.where(x > 0, 1.0, 0.0))), (X,))


@pytest.mark.parametrize("name", [name for name in vars(catching) if name.startswith("followed_")])
def test_an_assertion_on_data_that_forward_catches_goes_both_ways(name: str) -> None:
    class Following(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return getattr(catching, name)(x)  # type: ignore[no-any-return]

    others = (-100 * torch.eye(2), -torch.eye(2), torch.eye(2) * 7)
    export_and_compare(Following(), (torch.eye(2),), *((one,) for one in others))


@pytest.mark.parametrize("name", [name for name in vars(catching) if name.startswith("not_caught_")])
def test_what_nobody_catches_or_sizes_decide_is_exported(name: str) -> None:
    function, x = getattr(catching, name), torch.eye(2) + 1
    torch.testing.assert_close(export(function, (x,))(x)[0], function(x))


@pytest.mark.parametrize(("draw", "told"), [(random.random, "random"), (np.random.rand, "numpy.random")])
def test_random_numbers_that_are_not_torchs_are_told(draw: Callable[[], float], told: str) -> None:
    class Drawing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * draw()

    with pytest.warns(ExportWarning, match=f"random numbers from {told}, which"):
        export(Drawing(), (X,))


@pytest.mark.parametrize("module", [random, np.random])
def test_random_numbers_of_a_module_are_told_with_their_line(module: Any) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * module.uniform(1, 2)

    place = rf"{Path(__file__).name}:{forward.__code__.co_firstlineno + 1}"
    with pytest.warns(ExportWarning, match=rf"random numbers from {module.__name__} \(at .*{place}\), which"):
        export(forward, (X,))


OUTSIDE: dict[str, Callable[[], float]] = {
    "time.time": lambda: time.time() % 2,
    "time.monotonic_ns": lambda: time.monotonic_ns() % 1000003,
    "time.localtime": lambda: time.localtime().tm_sec,
    "datetime.datetime.now": lambda: datetime.now(UTC).second,
    "datetime.date.today": lambda: date.today().toordinal(),
    "random bytes of the operating system": lambda: int.from_bytes(os.urandom(3), "big"),
    "uuid.uuid1": lambda: uuid.uuid1().int % 1000003,
}
BYTES: list[Callable[[], float]] = [
    lambda: uuid.uuid4().int % 1000003,
    lambda: secrets.randbelow(2**30),
    lambda: random.SystemRandom().random(),
    lambda: random.Random().random(),
    lambda: float(np.random.default_rng().random()),
]


class Reading(torch.nn.Module):
    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__()
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.read()


@pytest.mark.parametrize(
    ("told", "read"), [*OUTSIDE.items(), *(("random bytes of the operating system", one) for one in BYTES)]
)
def test_clocks_and_random_bytes_are_told_with_their_line(told: str, read: Callable[[], float]) -> None:
    before = (time.time, datetime, date, os.urandom, random.Random.seed)
    line = rf"{told} \(at .*{Path(__file__).name}:{read.__code__.co_firstlineno}\)"
    with pytest.warns(ExportWarning, match=rf"forward computes with {line}, which a file cannot read"):
        export(Reading(read), (X,))
    assert (time.time, datetime, date, os.urandom, random.Random.seed) == before


class Timed(torch.nn.Module):
    """Measures itself and writes a log, which is nobody's number."""

    def __init__(self) -> None:
        super().__init__()
        self.started = datetime.now(UTC)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begun = time.perf_counter()
        y = x * random.Random(3).random() * isinstance(self.started, datetime)
        logging.getLogger(__name__).info("took %s s at %s", time.perf_counter() - begun, time.ctime(0.0))
        return y


def test_a_clock_that_decides_nothing_is_not_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(Timed(), (X,))


class Spaced(torch.nn.Module):
    def forward(self, n: torch.Tensor) -> torch.Tensor:
        return torch.linspace(0, 1, int(n.item()))


def test_numbers_of_steps_by_data_stay_free() -> None:
    export_and_compare(Spaced(), (torch.tensor(4),), (torch.tensor(7),))


class Ranged(torch.nn.Module):
    def forward(self, n: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        for _ in range(int(n.item())):
            total = total + 1
        return total


class Equal(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if torch.equal(x, x + 1) else -x


class Halving(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rounds = 0
        while x.sum() > 1:
            x = x / 2
            self.rounds += 1
        return x


@pytest.mark.parametrize(
    ("module", "given", "line"),
    [
        (
            Halving(),
            ONES,
            r"what `while x\.sum\(\) > 1:` finds; it cannot be captured both ways: .* more than 5",
        ),
        (Ranged(), torch.tensor(4), r"what `for _ in range\(int\(n\.item\(\)\)\):` finds \(at "),
    ],
)
def test_a_decision_by_data_is_refused_with_its_line(module: torch.nn.Module, given: torch.Tensor, line: str) -> None:
    with pytest.raises(CaptureError, match=line) as caught:
        export(module, (given,))
    assert "guards='allow'" in str(caught.value)


def test_a_choice_by_equality_goes_both_ways() -> None:
    export_and_compare(Equal(), (ONES,), (torch.full((3, 4), 2.0**30),))


def test_an_allowed_assumption_is_in_the_metadata_after_a_comparison() -> None:
    with pytest.warns(ExportWarning, match=r"the data decide as in the example"):
        program = export(Branch(1e9), (X,), allow_guards=True)
    assert "x.sum() > self.limit" in program.model.metadata_props["batch_export.assumptions"]
    torch.testing.assert_close(program(X * 3)[0], X * 3 - 1)


def test_an_assumption_that_other_inputs_break_is_refused_even_when_allowed() -> None:
    with pytest.raises(CaptureError, match=r"is not the model: at random inputs like the example's \(number \d\)"):
        export(Branch(0.0), (X + 0.01,), allow_guards=True)


def test_a_program_that_is_wrong_at_the_example_is_refused() -> None:
    other = torch.export.export(torch.nn.Softplus(), (X,))
    with pytest.raises(CaptureError, match=r"is not the model: at the example inputs"):
        capture(torch.nn.Sigmoid(), (X,), strategies=[("draft_export", lambda *_: other)])


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.seen, self.sizes = 0, [], {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.seen.append(1)
        self.sizes["x"] = 3
        return x * self.steps


class Remembering(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Identity()
        self.inner.h = torch.zeros(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner.h = self.inner.h + x
        return self.inner.h


class Caching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "cache"):
            self.cache = x * 2
        return self.cache + x


@pytest.mark.parametrize(
    ("make", "names"),
    [(Counting, ["steps", "seen", "sizes"]), (Remembering, ["inner.h"]), (Caching, ["cache"])],
)
def test_attributes_that_forward_changes_are_named_and_put_back(
    make: Callable[[], torch.nn.Module], names: list[str]
) -> None:
    module = make()
    with pytest.warns(ExportWarning) as heard:
        export(module, (X,))
    said = [str(one.message) for one in heard if issubclass(one.category, ExportWarning)]
    assert [text.split()[4].rstrip(",") for text in said] == names
    assert getattr(module, "steps", 0) == 0
    assert not hasattr(module, "cache")


class Setting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shape = 3, [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale, self.shape = 3, [1, 2]
        return x * self.scale


def test_an_attribute_set_to_what_it_was_is_no_change() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(Setting(), (X,))


class Shared(torch.nn.Module):
    def __init__(self, written: str) -> None:
        super().__init__()
        self.written = written
        self.register_buffer("a", torch.arange(6.0))
        self.register_buffer("b", self.a.view(2, 3))  # type: ignore[operator]
        memory = torch.arange(12.0)
        self.register_buffer("left", memory[:6])
        self.register_buffer("right", memory[6:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.written:
            getattr(self, self.written).view(-1)[0] += x.sum()
        return self.b.sum() * x + self.a.sum() + self.left.sum() * self.right.sum()  # type: ignore[operator]


def test_a_write_to_shared_memory_is_refused_with_both_names() -> None:
    with pytest.raises(TranslationError, match=r"the buffer a and the buffer b share memory"):
        export(Shared("a"), (X,))
    for harmless in ("", "left"):
        export_and_compare(Shared(harmless), (X,), (2 * X,))


def test_inputs_that_share_memory() -> None:
    def writing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    with pytest.raises(TranslationError, match=r"the input x and the input y share memory"):
        export(writing, (X, X.view(4, 3)))
    one = X.clone()
    program = export(lambda x, y: x - 2 * y, (one, one))
    torch.testing.assert_close(program(X, ONES)[0], X - 2 * ONES)


class Weighted(torch.nn.Module):
    def __init__(self, shared: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("a", shared)

    def forward(self, x: torch.Tensor) -> Any:
        return x * 2 + self.a


def test_an_example_that_is_a_weight_of_the_model_stays_an_input() -> None:
    given = X.clone()
    program = export(Weighted(given), (given,))
    torch.testing.assert_close(program(ONES)[0], ONES * 2 + X)


@pytest.mark.parametrize("axes", [(), (0,), ((0, 1),)])
def test_a_squeeze_that_would_drop_a_free_axis_is_refused_or_asked_for(axes: tuple[Any, ...]) -> None:
    def squeezing(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(*axes) + 1

    example = (torch.ones(3, 1, 4),)
    with pytest.raises(DynamicShapeError, match=r"it holds only while `batch != 1`"):
        export(squeezing, example, dynamic_shapes=({0: "batch"},))
    with pytest.warns(ExportWarning, match=r"the file holds only while `batch != 1`"):
        program = export(squeezing, example, dynamic_shapes=({0: "batch"},), allow_guards=True)
    assert program.model.metadata_props["batch_export.guards"] == "batch != 1"
    other = torch.ones(5, 1, 4)
    torch.testing.assert_close(program(other)[0], squeezing(other))
    export(squeezing, example, dynamic_shapes=({0: Dim("batch", min=2)},))
    with pytest.warns(ExportWarning, match=r"x.shape\[0\] is fixed in the file"):
        program = export(squeezing, example, dynamic_shapes=({0: Dim.AUTO},))
    assert next(iter(program.model.graph.inputs[0].shape or ())) == 3


SQUEEZED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the first": lambda x: x[:, :1].squeeze(1),
    "the last": lambda x: x[:, -1:].squeeze(dim=-2),
    "one of the batch": lambda x: torch.squeeze(x[:1], 0),
    "the middle": lambda x: x.mT[:, :, x.shape[1] // 2 : x.shape[1] // 2 + 1].squeeze(2),
    "two, and one that is 4": lambda x: x[:1, :1].squeeze((0, 1, 2)) + 1,
    "by position": lambda x: x[:1, -1:].squeeze(0, 1),
    "whatever is 1": lambda x: x[:1, :1].squeeze(),
    "by the operator's name": lambda x: torch.ops.aten.squeeze.dim(x[:, :1], 1),
}


@pytest.mark.parametrize("name", SQUEEZED)
@pytest.mark.parametrize("length", [1, 6])
def test_a_squeeze_of_one_element_of_a_free_axis_drops_it_at_every_size(name: str, length: int) -> None:
    function = SQUEEZED[name]
    form = ({0: "b", 1: "t"},)
    with pytest.warns(ExportWarning, match=r"the file holds only while `[bt] != 0`"):
        program = export(function, (torch.randn(2, length, 4),), dynamic_shapes=form)
    for rows, size in ((1, 1), (3, 1), (1, 2), (2, 7)):
        other = torch.randn(rows, size, 4)
        torch.testing.assert_close(program(other)[0], function(other))


def test_a_squeeze_of_what_is_one_element_from_some_size_on_is_a_limit() -> None:
    def second(x: torch.Tensor) -> torch.Tensor:
        return x[:, 1:2].squeeze(1)

    with pytest.warns(ExportWarning, match=r"the file holds only while `t >= 2`"):
        program = export(second, (torch.randn(2, 6, 4),), dynamic_shapes=({1: "t"},))
    torch.testing.assert_close(program(other := torch.randn(2, 2, 4))[0], second(other))
    with pytest.raises(DynamicShapeError, match=r"T may be 1, and then the model drops an axis"):
        export(lambda x: x[:, :2].squeeze(1), (torch.randn(2, 6, 4),), dynamic_shapes=({1: "T"},))


LIMITED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "below": (lambda x: x + 1 if x.shape[0] <= 8 else x - 1, "x.shape[0] <= 8"),
    "above": (lambda x: x + 1 if x.shape[0] > 3 else x - 1, "x.shape[0] > 3"),
}


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("form", [({0: Dim.AUTO},), True])
def test_a_limit_of_an_axis_left_to_the_exporter_fixes_it_or_is_told(name: str, form: Any) -> None:
    model, condition = LIMITED[name]
    with pytest.warns(ExportWarning, match="is fixed in the file") as told:
        program = export(model, (torch.ones(4, 2),), dynamic_shapes=form)
    assert condition in str(told[0].message)
    assert __file__ in str(told[0].message)
    assert next(iter(program.model.graph.inputs[0].shape or ())) == 4
    with pytest.warns(ExportWarning, match="the file holds only while"):
        program = export(model, (torch.ones(4, 2),), dynamic_shapes=form, allow_guards=True)
    assert program.model.metadata_props["batch_export.guards"] == condition
    assert not isinstance(next(iter(program.model.graph.inputs[0].shape or ())), int)


def _counted(x: torch.Tensor) -> torch.Tensor:
    return x * (1 << (x.shape[0] - 1).bit_length())


def _left(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.shape[1:])
    for row in range(x.shape[0]):
        if row == 4:
            break
        total = total + x[row]
    return total


@pytest.mark.parametrize("model", [_counted, _left])
def test_an_axis_left_to_the_exporter_that_becomes_a_number_is_told(model: Callable[..., torch.Tensor]) -> None:
    with pytest.warns(ExportWarning, match=r"x.shape\[0\] is fixed in the file at 6 \(at .*assumptions.py:\d+\)"):
        program = export(model, (torch.randn(6, 4),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    assert next(iter(program.model.graph.inputs[0].shape or ())) == 6


def test_an_axis_that_the_model_has_at_one_size_only_is_fixed_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(torch.nn.Linear(4, 3), (torch.randn(6, 4),), dynamic_shapes=True)
    assert list(program.model.graph.inputs[0].shape or ())[1] == 4


def test_a_limit_that_the_model_has_itself_is_none_of_the_files() -> None:
    table = torch.arange(16.0).reshape(8, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(lambda x: x + table[: x.shape[0]], (torch.ones(4, 2),), dynamic_shapes=({0: Dim.AUTO},))
    torch.testing.assert_close(program(torch.ones(8, 2))[0], torch.ones(8, 2) + table)


def test_a_squeeze_of_an_axis_that_is_one_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(lambda x: x.squeeze(1), (torch.ones(3, 1, 4),), dynamic_shapes=({0: "batch"},))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_output_without_a_finite_value_proves_nothing(value: float) -> None:
    with pytest.raises(VerificationError, match=r"none of its 12 elements is finite"):
        export(lambda x: x * value, (ONES,), verify=True)


@pytest.mark.parametrize("example", [torch.tensor(4), torch.tensor(3.0), torch.full((2,), -2.0)])
def test_an_example_of_one_value_is_varied(example: torch.Tensor) -> None:
    def deciding(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() == example.sum() else x - 1

    with pytest.raises(CaptureError, match="is not the model: at random inputs"):
        export(deciding, (example,), allow_guards=True)


PRINTS_NOTHING = """
import subprocess
import sys
import warnings
import torch
from batch_export.errors import CaptureError, ExportWarning
from batch_export.exporter import export


class Branch(torch.nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        if x.sum() > self.limit:
            return x * 2
        return x - 1


x = torch.linspace(-1, 1, 12).reshape(3, 4)
try:
    export(Branch(0.0), (torch.ones(3, 4),))
    raise SystemExit("a branch on data was taken without a word")
except CaptureError:
    pass
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("default")
    export(Branch(1e9), (x,), allow_guards=True)
others = {one.category.__name__ for one in told} - {"ResourceWarning", "ExportWarning"}
assert any(one.category is ExportWarning for one in told) and not others, others
"""


def test_an_export_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS_NOTHING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_torchs_own_books_of_a_layer_are_no_changed_attributes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(torch.nn.LSTM(3, 4), (torch.ones(5, 2, 3),))


def repeated_to_what_the_data_say(v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.arange(v.flatten()[0].clamp(1, 4).item())
    return v + numbers, numbers


@pytest.mark.parametrize(("value", "where"), [(-2, "at the example inputs"), (2, "at random inputs")])
@pytest.mark.parametrize("allow", [True, False])
def test_a_size_of_the_data_that_torch_took_for_a_number_is_refused(value: int, where: str, allow: bool) -> None:
    with pytest.raises(CaptureError, match=rf"is not the model: {where}.*took for granted `Eq\(u0, 2\)`"):
        export(repeated_to_what_the_data_say, (torch.full((2, 2), value),), allow_guards=allow)


def test_a_size_of_the_data_that_the_model_checks_is_a_number() -> None:
    def checked(v: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        size = int(n.item())
        torch._check(size == 2)
        return v + torch.arange(size)

    program = export(checked, (torch.ones(2, 2), torch.tensor(2)))
    torch.testing.assert_close(program(torch.ones(2, 2), torch.tensor(2))[0], torch.tensor([[1.0, 2.0]] * 2))


def test_a_mask_of_one_truth_value_decides_nothing() -> None:
    def written(v: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scalar, rows = v.sum(), v * 1
        scalar[scalar > 0] = 7
        rows[n > 0] = rows[0] + 1
        rows[(rows > 9).any()] = 0.5
        return scalar, rows

    program = export(written, (ONES, torch.tensor(1)), dynamic_shapes=({0: "rows"}, None))
    for given in ((ONES, torch.tensor(0)), (-ONES[:2], torch.tensor(1)), (ONES * 10, torch.tensor(0))):
        for actual, expected in zip(program(*given), written(*given), strict=True):
            torch.testing.assert_close(actual, expected)


class Table(torch.nn.Module):
    def __init__(self, by_python: bool) -> None:
        super().__init__()
        self.places = torch.arange(3)
        self.by_python = by_python

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.places[0] = 2
        return x[:, self.places.tolist()] if self.by_python else x[:, self.places]


def test_what_python_reads_of_a_tensor_after_a_write_is_refused() -> None:
    with pytest.raises(CaptureError, match="`places`, to which forward writes"):
        export(Table(by_python=True), (X,))
    program = export(Table(by_python=False), (X,))
    assert torch.equal(torch.as_tensor(program(X)[0]), X[:, [2, 1, 2]])


class ThroughData(torch.nn.Module):
    """Reads and writes numbers by way of `.data`, of what the model is given, has and makes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("kept", torch.ones(4))
        self.plain = torch.ones(4)
        self.kept: torch.Tensor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        written, scale, made = torch.zeros(2), torch.tensor([2.0, 3.0, 4.0, 5.0]), x * 3
        written.data[0] = x.sum()
        scale.data.mul_(2)
        made[:, 1:].data.clamp_(max=1)
        self.kept.data.add_(x.data[0])
        self.weight.data.mul_(self.plain.data * 2)
        x.data.mul_(2)
        alias = made.data
        made.add_(1)
        return x * written[0], x * scale, made, alias, self.kept + self.weight.data


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
def test_what_is_read_and_written_by_way_of_data_is_the_tensor_itself(free: bool) -> None:
    shapes = ({0: "rows"},) if free else None
    export_and_compare(ThroughData(), (X.clone(),), *([(torch.randn(7, 4),)] if free else []), dynamic_shapes=shapes)


class Replaced(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        made.data = x + 1
        return made


def test_a_write_that_torch_does_not_follow_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"`\.data` of a tensor of shape"):
        export(Replaced(), (X,))


class Exchanged(torch.nn.Module):
    """Gives a tensor another one's memory."""

    def __init__(self, form: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> object:
        return self.form(x)


def before_a_write(x: torch.Tensor) -> object:
    content, made = x.clone(), torch.zeros_like(x)
    flat = made.view(-1)
    made.set_(content)
    made.mul_(2)
    return made, flat, content


def of_nothing(x: torch.Tensor) -> object:
    made = torch.empty(0)
    made.set_(x + 1)
    return made * 2


@pytest.mark.parametrize("form", [before_a_write, of_nothing])
def test_a_tensor_that_takes_anothers_memory(form: Callable[[torch.Tensor], object]) -> None:
    module = Exchanged(form).eval()
    program = export(module, (X,))
    expected = module(X + 3)
    for made, wanted in zip(program(X + 3), expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert torch.equal(torch.as_tensor(made), wanted)


def test_a_translation_ends_before_another_thread_captures() -> None:
    """Both exchange functions and settings of torch: the last to end would leave what the other one had set."""
    makes = symbolic_shapes.make_symbol
    translating, begun, ended = (threading.Event() for _ in range(3))

    def slowly(x: object) -> object:
        translating.set()
        begun.wait(timeout=1)
        return op.Relu(x)

    class Behind(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            begun.set()
            ended.wait(timeout=5)
            return x * 2

    def first() -> None:
        try:
            table = {torch.ops.aten.relu.default: slowly}
            export(torch.nn.ReLU(), (X,), dynamic_shapes=({0: "n"},), custom_translation_table=table)
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        one = pool.submit(first)
        assert translating.wait(timeout=60)
        export(Behind(), (X,), dynamic_shapes=({0: "n"},))
        one.result(timeout=60)
    assert symbolic_shapes.make_symbol is makes
    assert not _config.backed_size_oblivious


def test_threads_export_at_once() -> None:
    """Captures exchange functions of torch, so they take turns."""
    together, written = threading.Barrier(3), torch.Tensor.__setitem__

    class Masking(torch.nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y[x.sum() > 0] = self.number
            return y

    def one(number: int) -> torch.Tensor:
        together.wait(timeout=60)
        return torch.as_tensor(export(Masking(number), (X,), dynamic_shapes=({0: "n"},))(ONES)[0])

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(one, range(3)))
    for number, result in enumerate(results):
        assert torch.equal(result, ONES * number)
    assert torch.Tensor.__setitem__ is written


class Stepping(torch.nn.Module):
    def forward(self, x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        result = x * 2 if flags.sum() > 3 else x.clone()
        for step in range(x.shape[0]):
            result[step] = result[step].exp()
        return result


def test_an_axis_that_a_draft_fixes_is_refused_as_any_other() -> None:
    given = (torch.randn(5, 1), torch.tensor([1, 0]))
    with pytest.raises(DynamicShapeError, match=r"axis 0 .n. of the input x was asked for as dynamic"):
        export(Stepping(), given, dynamic_shapes=({0: "n"}, {}), allow_guards=True)


class CountedThenRepeated(torch.nn.Module):
    """A length that the data decide, broadcast with a fixed one: torch takes both for one number."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.unique(x, return_inverse=True)
        return torch.arange(0, values.shape[0], 0.5), places * values


class ChosenThenRepeated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = x[x > 0]
        loss = torch.nn.functional.huber_loss(torch.zeros_like(chosen), x.repeat(2, 2))
        return loss, torch.zeros_like(chosen)


@pytest.mark.parametrize(
    ("module", "x"),
    [(CountedThenRepeated(), torch.tensor([[-2, 1, 0, -3]])), (ChosenThenRepeated(), torch.tensor([[1.0], [4.0]]))],
)
def test_a_length_by_data_that_only_the_example_has_is_refused(module: torch.nn.Module, x: torch.Tensor) -> None:
    with pytest.raises(
        CaptureError, match=r"`Eq\(u\d+, \d\)` of a size that the data decide|a data-dependent decision"
    ):
        export(module, (x,))


def test_what_is_repeated_once_may_be_a_length_of_one() -> None:
    class Repeated(torch.nn.Module):
        def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
            return x[x > 0].expand_as(like)

    given = (torch.tensor([0, 1]), torch.zeros(4, 2))
    program = export(Repeated(), given, dynamic_shapes=({}, {1: "m"}), guards="allow")
    for x in (torch.tensor([0, 1]), torch.tensor([2, 1])):
        like = torch.zeros(4, 2)
        assert torch.equal(program(x, like)[0], Repeated()(x, like))
