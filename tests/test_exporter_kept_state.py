"""What an export leaves of the user's model and of the process: everything as it was."""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import random
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from torch import nn

from batch_export.errors import BatchExportError, CaptureError, ExportWarning, VerificationError
from batch_export.exporter import capture as capturing
from batch_export.exporter import export
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture import kept_state
from batch_export.exporter.capture.block_state import settings
from batch_export.exporter.capture.kept_contents import Contents
from batch_export.exporter.capture.kept_state import RunsUndone
from batch_export.exporter.capture.traced_questions import refuse_other_answers
from batch_export.exporter.capture.trial import outputs
from batch_export.exporter.diagnostics.verify import verify_onnx_program

pytestmark = pytest.mark.sampled

X = torch.arange(6.0).reshape(2, 3)


class Book:
    """An object of the model's own, in which forward writes."""

    def __init__(self) -> None:
        self.pages = [0]
        self.last: torch.Tensor | None = None


class Busy(nn.Module):
    """Changes everything that a forward can change, and computes the same for all that."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.steps, self.h, self.seen = 0, None, [torch.zeros(2)]
        self.table: dict[str, Any] = {"a": {1}}
        self.recent: collections.deque[int] = collections.deque([1, 2], maxlen=2)
        self.book = Book()
        self.plain = torch.ones(3)
        self.draw = random.Random(3)
        self.weight = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("empty", None)
        self.inner = nn.Dropout(0.5)
        self.handle = self.inner.register_forward_hook(_nothing)

    @functools.cached_property
    def places(self) -> torch.Tensor:
        return torch.arange(3.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.h = x * 2
        self.seen.append(x)
        self.seen[0] = x
        self.table["b"] = x
        self.table["a"].add(self.steps)
        self.recent.append(self.steps)
        self.book.pages.append(1)
        self.book.last = x
        self.draw.random()
        self.count.add_(1)
        self.count = self.count + 1
        self.empty = x + 1
        self.inner.training = False
        self.inner.register_forward_hook(_nothing)
        self.extra = nn.Identity()
        self.register_buffer("late", x * 3)
        random.random()
        np.random.rand()
        torch.set_float32_matmul_precision("high")
        if self.fails:
            raise ValueError("in the middle")
        return self.inner(x * self.weight + self.count + self.places + self.empty)


def _nothing(*_: object) -> None:
    """A hook."""


def _content(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return id(value), value.data_ptr(), value.detach().clone().tolist(), value.requires_grad, value.grad
    if isinstance(value, nn.Module):
        return id(value), {name: _content(one) for name, one in vars(value).items()}
    if isinstance(value, dict):
        return id(value), [(key, _content(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return id(value), [_content(one) for one in value]
    if isinstance(value, set):
        return id(value), sorted(map(str, value))
    if isinstance(value, random.Random):
        return value.getstate()
    return _content(vars(value)) if isinstance(value, Book) else value


def _everything(module: nn.Module) -> list[object]:
    """The module and the process' settings, to be compared by `==`."""
    return [
        _content(module),
        torch.get_rng_state().tolist(),
        random.getstate(),
        [str(one) for one in np.random.get_state()],
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
    ]


def _further_opsets(module: nn.Module) -> None:
    captured = capturing.capture.capture(module, (X,))
    for opset in (17, 20):
        to_onnx(captured, opset)


@pytest.mark.parametrize(
    "run",
    [
        lambda module: export(module, (X,)),
        lambda module: export(module, (X,), verify=True),
        lambda module: export(module, (X,), dynamic_shapes=({0: "rows"},), verify=True),
        lambda module: verify_onnx_program(export(module, (X,)), compare_intermediates=True),
        _further_opsets,
    ],
    ids=["export", "verify", "verify at other sizes", "verify_onnx_program", "further opsets"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_model_and_settings_stay_as_they_were(run: Callable[[nn.Module], object]) -> None:
    module = Busy().train()
    module.weight.grad = torch.ones(3)
    before = _everything(module)
    run(module)
    assert _everything(module) == before


class Writing(nn.Module):
    """Writes to a parameter and to a plain tensor, as torch follows it or not."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.weight = nn.Parameter(torch.ones(3))
        self.plain = torch.ones(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "parameter":
            with torch.no_grad():
                self.weight[0].add_(1)
        elif self.way == "plain":
            self.plain.add_(1)
        return x * self.weight + self.plain


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", ["parameter", "plain"])
def test_what_forward_writes_to_weights_is_undone_and_the_file_is_the_first_call(way: str) -> None:
    module = Writing(way)
    before = _everything(module)
    program = export(module, (X,), verify=True)
    assert _everything(module) == before
    with torch.no_grad():
        torch.testing.assert_close(program(X)[0], module(X))


@torch.library.custom_op("kept_state::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator that no translation knows."""
    return x.clone()


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Unknown(Busy):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = unknown(super().forward(x))
        return made


class Leaving(Busy):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = super().forward(x)
        made.numpy()[0] = 1
        return made


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "make", [lambda: Busy(fails=True), Unknown, Leaving], ids=["error in forward", "refused operator", "not captured"]
)
def test_an_export_that_fails_leaves_them_too(make: Callable[[], nn.Module]) -> None:
    module = make()
    before = _everything(module)
    with pytest.raises(BatchExportError):
        export(module, (X,), verify=True)
    assert _everything(module) == before


def test_a_model_behind_a_function_stays_too() -> None:
    module = Busy(fails=True).eval()
    before = _everything(module)
    with pytest.raises(BatchExportError):
        export(lambda x: module(x) + 1, (X,))
    assert _everything(module) == before


def test_classes_of_users_are_not_kept_alive() -> None:
    kind = type("Own", (nn.Module,), {"forward": lambda self, x: x})
    settings(kind())
    gone = weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is None


class Stateful(nn.Module):
    """Keeps something where a file has no memory, and reads it at the next call."""

    calls = 0

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.own = Book()
        self.held = [torch.zeros(3)]
        self.layer: nn.Module = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))
        if where == "hook counted":
            heard: list[int] = []

            def counted(_: nn.Module, __: object, made: torch.Tensor) -> torch.Tensor:
                heard.append(1)
                return made * len(heard)

            self.layer.register_forward_hook(counted)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.where == "own":
            self.own.pages.append(1)
            return x * len(self.own.pages)
        if self.where == "held":
            self.held[0] += x.sum(0)
        if self.where == "calls":
            type(self).calls += 1
            return x * type(self).calls
        if self.where == "scale":
            self.scale = nn.Parameter(self.scale * 2)
        y: torch.Tensor = self.layer(x) * self.scale + self.held[0]
        if self.where == "layer":
            self.layer = nn.Identity()
        if self.where == "hooks of forward":
            self.layer.register_forward_hook(lambda _, __, made: made * 2)
        return y


@pytest.mark.parametrize("where", ["own", "held", "calls", "scale", "layer", "hook counted", "hooks of forward"])
def test_state_that_a_file_does_not_follow_is_said_and_put_back(where: str) -> None:
    module = Stateful(where).eval()
    before = _everything(module)
    with pytest.warns(ExportWarning, match=rf"forward changes the attribute (layer\.)?{where}, which a file cannot"):
        program = export(module, (X,), verify=True)
    assert _everything(module) == before
    assert Stateful.calls == 0
    with torch.no_grad():
        torch.testing.assert_close(program(X)[0], module(X))
    Stateful.calls = 0


class Untouched(nn.Module):
    """Holds what can be changed, and may leave it alone."""

    def __init__(self, *, changes: bool) -> None:
        super().__init__()
        self.changes = changes
        self.last: collections.deque[int] = collections.deque([1], maxlen=2)
        self.drawn, self.numbers = random.Random(1), np.random.default_rng(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.changes:
            self.last.append(2)
            return x * len(self.last) * self.drawn.random()
        return x * len(self.last)


@pytest.mark.parametrize("changes", [False, True])
def test_what_forward_leaves_alone_is_not_said_to_change(changes: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ExportWarning)
        export(Untouched(changes=changes), (X,))
    said = [str(one.message) for one in told if "changes the attribute" in str(one.message)]
    assert sorted(one.split("attribute ")[1].split(",")[0] for one in said) == (["drawn", "last"] if changes else [])


class Late(nn.Module):
    """A layer that fills a buffer without a tensor, as each of its like does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mean is None:
            self.mean = x.mean(0)
        return self.linear(x).relu() + self.mean


def test_a_second_attempt_finds_nothing_of_the_first() -> None:
    model = nn.Sequential(*(Late() for _ in range(4))).eval()
    with pytest.warns(ExportWarning, match=r"changes the attribute 3\.mean"):
        program = export(model, (X,), verify=True)
    with torch.no_grad():
        torch.testing.assert_close(program(X)[0], model(X))


class Averaged(nn.Module):
    """Moves a weight as exponential averages do, by way of `.data`."""

    def __init__(self, assigns: bool) -> None:
        super().__init__()
        self.assigns = assigns
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.assigns:
            self.weight.data = self.weight.data * 2
        else:
            self.weight.data.copy_(self.weight * 2)
        return x * self.weight


def test_a_write_by_way_of_data_is_undone_and_an_assignment_is_refused_in_one_sentence_with_the_line() -> None:
    module = Averaged(assigns=False)
    before = _everything(module)
    result, *_ = export(module, (X,))(X)
    assert torch.equal(torch.as_tensor(result), X * 2)
    assert _everything(module) == before
    module = Averaged(assigns=True)
    before = _everything(module)
    said = r"`\.data` of a tensor of shape \[3\].* \(.*at .*kept_state\.py:\d+\)\. Next step: write"
    with pytest.raises(BatchExportError, match=said):
        export(module, (X,))
    assert _everything(module) == before


def _pruned(module: nn.Module) -> nn.Module:
    made: nn.Module = torch.nn.utils.prune.random_unstructured(module, "weight", 0.5)
    return made


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm, _pruned])
def test_weights_that_a_hook_computes_in_each_call_are_no_state(norm: Callable[[nn.Module], nn.Module]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        warnings.simplefilter("ignore", FutureWarning)
        export(norm(nn.Linear(3, 3)).eval(), (X,), verify=True)


class Refusing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if type(x) is torch.Tensor and not torch.compiler.is_compiling():
            raise ValueError("no such input")
        return x * 2


def test_an_example_that_eager_refuses_is_said_with_the_line() -> None:
    said = r"eager PyTorch refuses the example inputs.*ValueError: no such input \(at .*kept_state\.py:\d+\)"
    with pytest.raises(VerificationError, match=said):
        export(Refusing(), (X,), verify=True)


@pytest.mark.parametrize(
    "function",
    [lambda x: x - True, lambda x: 1 - x, lambda x: x - x, lambda x: x.clone().sub_(x)],
    ids=["number", "from a number", "tensors", "in place"],
)
def test_truth_values_are_not_subtracted(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(CaptureError, match=r"ubtraction.*\(at .*kept_state\.py:\d+\)"):
        export(function, (torch.tensor([True, False]),))
    export(lambda x: (x + x, x * 2, x / 2, x + 1.5), (torch.tensor([True, False]),), verify=True)


def rates() -> Iterator[float]:
    for exponent in range(5):
        yield 2.0**exponent


ITERATORS: dict[str, Callable[[], Iterator[float]]] = {
    "a list's": lambda: iter([1.0, 2.0, 4.0, 8.0]),
    "a generator": rates,
    "a counter": lambda: itertools.count(1.0, 1.0),
    "a cycle": lambda: itertools.cycle([1.0, 2.0, 3.0]),
}


class Advancing(nn.Module):
    def __init__(self, rates: Iterator[float], where: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.own = rates if where == "own" else iter([0.5, 0.25])
        self.held = [rates] if where == "held" else []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * next(*self.held or [self.own])


@pytest.mark.parametrize("where", ["own", "held"])
@pytest.mark.parametrize("kind", ITERATORS)
def test_an_iterator_that_forward_advances_is_said_and_put_back(kind: str, where: str) -> None:
    model, other = (Advancing(ITERATORS[kind](), where) for _ in range(2))
    other.load_state_dict(model.state_dict())
    untouched, x = model.own, torch.randn(2, 4)
    told = rf"attribute own \(at .*{Path(__file__).name}:\d+\)," if where == "own" else "attribute held,"
    with pytest.warns(ExportWarning, match=told):
        program = export(model, (x,), dynamic_shapes=({0: "batch"},), verify=True)
    assert (model.own is untouched) is (where == "held")
    torch.testing.assert_close(program(x)[0], other(x))
    torch.testing.assert_close(model(x), program(x)[0])
    torch.testing.assert_close(model(x), other(x))


class Beside(nn.Module):
    """Has an iterator that forward does not touch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = rates()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_an_iterator_that_forward_leaves_alone_is_the_same_one_afterwards() -> None:
    model = Beside()
    before = model.rates
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(model, (torch.ones(2),))
    assert model.rates is before
    assert list(model.rates) == list(rates())


class Doubling(nn.Module):
    """Writes to a weight in each call, by way of `data` or not."""

    def __init__(self, size: int, by_data: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.by_data = by_data
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        (self.weight.data if self.by_data else self.weight).mul_(2)
        return x + self.weight[0] + len(self.seen)


@pytest.mark.parametrize("by_data", [False, True])
@pytest.mark.parametrize("size", [4, 1 << 14])
def test_each_of_several_runs_finds_the_same_state_and_leaves_it(size: int, by_data: bool) -> None:
    """Small weights are copied before the runs; larger ones when they are written."""
    model = Doubling(size, by_data)
    memory = model.weight.data_ptr()
    undone = RunsUndone(model)
    values = [outputs(model, (torch.zeros(1),), {}, undone)[0].item() for _ in range(3)]
    assert values == [3.0, 3.0, 3.0]  # 1 doubled, and each call is the first
    assert model.weight.data_ptr() == memory
    assert model.weight.eq(1).all()
    assert model.seen == []


def test_memory_that_is_mapped_for_reading_only_is_not_written(tmp_path: Path) -> None:
    """Weights, buffers and inputs of `np.memmap`: a write to them, though it be of the same byte, ends the process."""
    path = tmp_path / "weights.bin"
    np.array([2.0, np.nan, 3.0], np.float32).tofile(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that such a tensor must not be written
        mapped = [torch.from_numpy(np.memmap(path, np.float32, "r")) for _ in range(4)]
    model = nn.Module()
    model.weight = nn.Parameter(mapped[0], requires_grad=False)
    model.register_buffer("shift", mapped[1])
    model.plain = mapped[2]
    model.forward = lambda x: x * model.weight + model.shift[0] + model.plain[2]
    export(model, (mapped[3],), opset_version=18)
    undone = RunsUndone(model)
    assert [outputs(model, (mapped[3],), {}, undone)[0][0].item() for _ in range(2)] == [9.0, 9.0]


def test_several_runs_set_an_iterator_back_each_time() -> None:
    model = Advancing(rates(), "own")
    undone, x = RunsUndone(model), torch.randn(2, 4)
    first, second = (outputs(model, (x,), {}, undone)[0] for _ in range(2))
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(model(x), first)


def test_a_model_is_looked_at_once_for_both_runs_that_ask_whether_its_code_hangs_on_the_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Sequence[object]] = []

    def counted(holders: Sequence[object]) -> Contents:
        made.append(holders)
        return Contents(holders)

    monkeypatch.setattr(kept_state, "Contents", counted)
    module = nn.Linear(2, 2)
    refuse_other_answers({"model.py:1": "is_compiling"}, module, (torch.ones(1, 2),), {}, only_warns=False)
    assert made == [(module,)]


class Masked(torch.nn.Conv2d):
    """Weights of places behind the middle are zeroed before each call by `.data`, which goes back to its tensor."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__(2, 2, 3, padding=1)
        mask = torch.ones_like(self.weight)
        mask[:, :, 1, 1:] = mask[:, :, 2:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data *= self.mask
        return super().forward(x)


@pytest.mark.parametrize("axes", [None, {0: "b", 2: "h"}], ids=["static", "free"])
def test_weights_that_are_masked_in_place_by_their_data(axes: dict[int, str] | None) -> None:
    module = torch.nn.Sequential(Masked(), torch.nn.ReLU(), Masked())
    before = module[0].weight.clone()
    program = export(module, (torch.randn(2, 2, 5, 5),), dynamic_shapes=None if axes is None else (axes,))
    assert torch.equal(module[0].weight, before)

    x = torch.randn(2 if axes is None else 3, 2, 5 if axes is None else 7, 5)
    found = program(x)[0]
    torch.testing.assert_close(found, module(x).detach(), rtol=1e-4, atol=1e-5)
