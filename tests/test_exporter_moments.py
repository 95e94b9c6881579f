"""State of blocks and models: what stays the same is looked at once, and what changes is seen all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from batch_export.exporter import export
from batch_export.exporter.capture import block_state
from batch_export.exporter.capture.block_state import Moment
from batch_export.exporter.capture.held_values import is_without_state, object_values
from batch_export.exporter.capture.kept_contents import Contents
from batch_export.exporter.capture.kinds import reached
from batch_export.exporter.capture.own_attributes import OwnAttributes, modules_of


def frozen_twice(config: SimpleNamespace, change: object) -> bool:
    """Whether a later moment, which knows what was found earlier, finds a config as it was."""
    earlier = block_state.Earlier()
    before = Moment(earlier).frozen(config)
    change(config)  # type: ignore[operator]
    return Moment(earlier).frozen(config) == before and Moment().frozen(config) == before


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (lambda config: None, True),
        (lambda config: setattr(config, "gain", 2.0), False),
        (lambda config: setattr(config, "new", 1), False),
        (lambda config: delattr(config, "gain"), False),
        (lambda config: config.steps.append(1), False),
        (lambda config: config.inner.names.update(a=2), False),
        (lambda config: setattr(config, "steps", [0]), True),
    ],
)
def test_what_changes_of_an_object_is_seen_at_a_later_moment(change: object, is_same: bool) -> None:
    config = SimpleNamespace(gain=1.0, steps=[0], inner=SimpleNamespace(names={"a": 1}))
    assert frozen_twice(config, change) == is_same


class Layer(nn.Module):
    def __init__(self, config: object) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def test_a_config_of_many_layers_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    original = Moment._anew
    for layers in (4, 8):
        made: list[object] = []

        def anew(self: Moment, key: object, value: object, *rest: object, made: list[object] = made) -> object:
            made.append(value)
            return original(self, key, value, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(Moment, "_anew", anew)
        config = SimpleNamespace(sizes=[4, 4])
        model = nn.Sequential(*(Layer(config) for _ in range(layers)))
        program = export(model, (torch.ones(2, 4),))
        assert program.captured is not None
        assert [len(block.stamped) for block in program.captured.blocks] == [layers - 2]
        counts.append(sum(one is config for one in made))
    assert counts[0] == counts[1]


def test_empty_containers_of_modules_are_empty_again() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    contents = Contents([module])
    module[0].register_forward_hook(lambda *_: None)
    module[1].register_buffer("seen", torch.ones(1))
    contents.put_back()
    assert not module[0]._forward_hooks
    assert not module[1]._buffers


def test_objects_of_one_class_are_told_apart_by_what_they_hold() -> None:
    module = nn.ReLU()
    module.first, module.second = SimpleNamespace(a=1), SimpleNamespace(a=[1])
    contents = Contents([module])
    module.first.a, module.second.b = 2, 3
    module.second.a.append(2)
    contents.put_back()
    assert (module.first, module.second) == (SimpleNamespace(a=1), SimpleNamespace(a=[1]))


@pytest.mark.parametrize("value", [1, "a", nn.ReLU(), torch.ones(1), len, torch.Size([1]), torch.device("cpu"), None])
def test_what_has_no_state(value: object) -> None:
    assert is_without_state(value)
    assert object_values(value) is None


def test_an_object_has_state() -> None:
    assert object_values(SimpleNamespace(a=1)) == {"a": 1}


def _tied() -> nn.Module:
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return nn.ModuleDict({"a": inner, "b": nn.Sequential(nn.Tanh(), inner, None), "c": inner[0]})  # type: ignore[arg-type]


class Renamed(nn.Module):
    def named_modules(self, *args: object, **kwargs: object) -> Iterator[tuple[str, nn.Module]]:
        yield "own", self


@pytest.mark.parametrize("make", [_tied, nn.ReLU, lambda: nn.Sequential(nn.ReLU(), Renamed()), Renamed])
def test_modules_are_those_that_torch_names(make: Callable[[], nn.Module]) -> None:
    model = make()
    assert modules_of(model) == list(model.named_modules())


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (lambda own: None, True),
        (lambda own: own.update(left_out=3), True),
        (lambda own: own.update(a=own["a"]), True),
        (lambda own: own.update(a=[]), False),
        (lambda own: own.update(new=1), False),
        (lambda own: own.pop("a"), False),
        (lambda own: own.update(a=own.pop("a")), False),
    ],
)
def test_attributes_are_compared_by_identity(change: Callable[[dict[str, object]], object], is_same: bool) -> None:
    own: dict[str, object] = {"a": [], "left_out": 1, "b": 2.5}
    before = OwnAttributes(own, {"left_out"})
    change(own)
    assert before.are_same() == is_same


class Asked:
    """A config that counts how often it is asked for its class, as transformers' answers in Python."""

    asked = 0

    def __getattribute__(self, name: str) -> object:
        if name == "__class__":
            Asked.asked += 1
        return object.__getattribute__(self, name)


def test_no_config_is_asked_for_its_class_by_the_walk_through_a_models_code() -> None:
    model = nn.Sequential(*(Layer(Asked()) for _ in range(3)))
    Asked.asked = 0
    assert Layer.forward in list(reached(model))
    assert Asked.asked == 0
