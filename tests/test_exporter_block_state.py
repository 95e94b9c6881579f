"""Layers that find another state than an earlier one found are captured for themselves, and numbers are eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from batch_export.exporter import export

GLOBALS = {"gain": 1.0}
CURRENT: ContextVar[float] = ContextVar("CURRENT", default=1.0)


class Layer(nn.Module):
    """One of several; `read` says what else than its input and weights it takes."""

    def __init__(self, read: Callable[[Layer], float], settings: SimpleNamespace) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.gain = 1.0
        self.steps = 0
        self.seen: list[Tensor] = []
        self.settings = settings
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        GLOBALS, CURRENT  # noqa: B018  (what `read` reads is named here, as a layer's own code would name it)
        return torch.tanh(self.linear(x)) * self.read(self)


def _counted(layer: Layer) -> float:
    layer.steps += 1
    return float(layer.steps)


def _collected(layer: Layer) -> float:
    layer.seen.append(layer.linear.weight)
    return float(len(layer.seen))


def _by_attribute(layers: list[Layer], gain: float) -> None:
    for layer in layers:
        layer.gain = gain


def _by_settings(layers: list[Layer], gain: float) -> None:
    layers[0].settings.gain = gain


def _by_global(layers: list[Layer], gain: float) -> None:
    GLOBALS["gain"] = gain


def _by_context(layers: list[Layer], gain: float) -> None:
    CURRENT.set(gain)


def _nothing(layers: list[Layer], gain: float) -> None:
    pass


CASES: dict[str, tuple[Callable[[Layer], float], Callable[[list[Layer], float], None]]] = {
    "an attribute": (lambda layer: layer.gain, _by_attribute),
    "an object that all have": (lambda layer: layer.settings.gain, _by_settings),
    "a global": (lambda layer: GLOBALS["gain"], _by_global),
    "a context variable": (lambda layer: CURRENT.get(), _by_context),
    "a counter of its own": (_counted, _nothing),
    "a list of its own": (_collected, _nothing),
}


class Twice(nn.Module):
    """Runs its layers, changes something, and runs them again; it is as before afterwards."""

    def __init__(self, case: str) -> None:
        super().__init__()
        settings = SimpleNamespace(gain=1.0)
        self.layers = nn.ModuleList([Layer(CASES[case][0], settings) for _ in range(4)])
        self.change = CASES[case][1]

    def forward(self, x: Tensor) -> Tensor:
        layers: list[Layer] = list(self.layers)  # type: ignore[arg-type]
        for gain in (1.0, 3.0):
            self.change(layers, gain)
            for layer in layers:
                x = layer(x)
        self.change(layers, 1.0)
        return x


@pytest.mark.filterwarnings("ignore:.*changes")
@pytest.mark.parametrize("case", CASES)
def test_what_changes_between_two_calls_is_in_the_file(case: str) -> None:
    torch.manual_seed(0)
    model, x = Twice(case).eval(), torch.randn(2, 4)
    expected = copy.deepcopy(model)(x)
    (actual,) = export(model, (x,))(x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


class Assigning(nn.Module):
    """A layer that gives its buffer a new tensor in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        return torch.tanh(self.linear(x)) * self.count


def test_buffers_that_every_layer_assigns_are_all_outputs() -> None:
    model, x = nn.Sequential(*(Assigning() for _ in range(5))).eval(), torch.randn(2, 4)
    made = export(model, (x,))(x)
    assert sorted(made.mutated) == [f"{index}.count" for index in range(5)]
    assert all(float(one) == 1.0 for one in made.mutated.values())


class Asking(nn.Module):
    """A layer that asks its weight for more than its numbers, and itself for what only one of them has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.linear.weight
        factor = 2.0 if weight.requires_grad else 3.0
        factor += 0.5 if hasattr(self, "extra") else 0.0
        return self.linear(x) * factor


def _freeze(layer: Asking) -> None:
    layer.linear.weight.requires_grad_(False)


def _extend(layer: Asking) -> None:
    layer.extra = 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("differ", [_freeze, _extend])
@pytest.mark.parametrize("which", [0, 2, 4])
def test_layers_whose_weights_are_not_alike_but_for_their_numbers(differ: Callable[[Asking], None], which: int) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Asking() for _ in range(5))).eval(), torch.randn(2, 4)
    differ(model[which])  # type: ignore[arg-type]
    torch.testing.assert_close(export(model, (x,))(x)[0], model(x))


def test_an_input_of_the_name_input_keeps_it() -> None:
    layers = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(5))
    program = export(nn.Sequential(*layers).eval(), (torch.randn(2, 4),)).captured
    assert program is not None
    assert [node.name for node in program.program.graph.nodes if node.op == "placeholder"][-1] == "input"
