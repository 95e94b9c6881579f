"""stages/lent_module.py and the workbench: what an exporter changed is named, and nothing else runs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import torch
from torch import nn

from batch_export.record import Cell
from batch_export.spec import ExporterSpec, InputSpec, ModelSpec
from batch_export.stages import oracle, plugin, reference
from batch_export.stages.lent_module import Changes, LentModule
from batch_export.stages.workbench import Workbench


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + tensor


class Net(nn.Module):
    """One of everything that an exporter may change."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.a = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.cache: Any = None
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(_double(self.norm(self.a(x)))) * self.scale


def build() -> nn.Module:
    return Net()


def _set(holder: Any, name: str, value: Any) -> Callable[[Net], object]:
    return lambda net: setattr(holder(net), name, value)


def _write_through_numpy(net: Net) -> None:
    net.a.weight.detach().numpy()[1, 2] = 7.0


def _run_as_forward_may(net: Net) -> None:
    net.cache = torch.ones(3)


@pytest.mark.parametrize(
    ("deed", "named", "is_same"),
    [
        (lambda net: net(torch.ones(2, 4)), {}, True),
        (lambda net: net.a.weight.detach().mul_(1.5), {"weights": ["a.weight"]}, False),
        (lambda net: net.a.weight.data.mul_(1.5), {"weights": ["a.weight"]}, False),
        (_write_through_numpy, {"weights": ["a.weight"]}, False),
        (lambda net: setattr(net.a.bias, "data", torch.zeros(4)), {"weights": ["a.bias"]}, False),
        (lambda net: setattr(net.a, "weight", nn.Parameter(net.a.weight.detach().clone())), {}, True),
        (lambda net: net.half(), {"buffers": 2, "weights": 4}, False),
        (lambda net: setattr(net.a, "bias", None), {"weights": ["a.bias"]}, False),
        (lambda net: net.norm.running_mean.add_(1), {"buffers": ["norm.running_mean"]}, False),
        (lambda net: net.train(), {"modes": ["a", "norm", "the model"]}, False),
        (lambda net: setattr(net, "norm", nn.Identity()), {"submodules": ["norm"]}, False),
        (lambda net: net.a.register_forward_hook(print), {"hooks": ["a"]}, False),
        (lambda net: setattr(net, "forward", lambda x: x), {"methods": ["forward"]}, False),
        (_run_as_forward_may, {}, False),
        (lambda net: setattr(net, "scale", 3.0), {}, False),
    ],
)
def test_what_an_exporter_changes_is_named(
    deed: Callable[[Net], object], named: dict[str, list[str] | int], is_same: bool
) -> None:
    net = Net().eval()
    lent = LentModule(net)
    with torch.no_grad():
        deed(net)
    changes = lent.changes()
    counted = {
        kind: len(names) if isinstance(named.get(kind), int) else names for kind, names in changes.named().items()
    }
    assert counted == named
    assert changes.is_same == is_same


def test_large_weights_are_told_by_a_sample_and_by_the_writes_to_them() -> None:
    net = Net(1024).eval()
    for deed, named, is_same in (
        (lambda weight: weight.data.mul_(1.01), True, False),
        (lambda weight: weight.data.copy_(weight.data.flip(0)), True, False),
        (lambda weight: weight.detach().copy_(weight.detach().clone()), False, False),
        (lambda weight: weight.sum(), False, True),
    ):
        lent = LentModule(net)
        with torch.no_grad():
            deed(net.a.weight)
        assert (bool(lent.changes().named()), lent.changes().is_same) == (named, is_same)


@pytest.mark.parametrize(
    ("holder", "name", "said"),
    [
        (torch, "tanh", "torch.tanh"),
        (nn.functional, "linear", "torch.nn.functional.linear"),
        (nn.Linear, "forward", "torch.nn.modules.linear.Linear.forward"),
        (torch.Tensor, "__mul__", "torch.Tensor.__mul__"),
        (Net, "__call__", f"{__name__}.Net.__call__"),
    ],
)
def test_functions_that_an_exporter_replaces_are_named(
    monkeypatch: pytest.MonkeyPatch, holder: Any, name: str, said: str
) -> None:
    lent = LentModule(Net())
    monkeypatch.setattr(holder, name, lambda *_: None, raising=False)
    changes = lent.changes()
    monkeypatch.undo()
    assert said in changes.of_process
    assert len(changes.of_process) <= 2  # torch's classes stand under more than one name


def test_code_put_into_a_function_of_torch_is_seen() -> None:
    before = nn.Linear.forward.__code__
    lent = LentModule(Net())
    nn.Linear.forward.__code__ = (lambda self, input: input).__code__
    try:
        assert lent.changes().of_process == ["torch.nn.modules.linear.Linear.forward"]
    finally:
        nn.Linear.forward.__code__ = before


_SHARED = Net()


def build_shared() -> nn.Module:
    return _SHARED


def build_unlike() -> nn.Module:
    torch.seed()
    return Net()


def _bench(folder: Path, builder: str = "build", exporter: str = "nothing") -> Workbench:
    inputs = (InputSpec(("x",), "float32", (2, 4)),)
    model = ModelSpec("net", f"{__name__}.{builder}", {}, inputs)
    peer = ExporterSpec("peer", f"{__name__}.{exporter}")
    return Workbench(Cell("net", "static", 20, "cpu", "peer"), model, peer, folder)


def changes_weights(module: Any, *args: Any, path: Path, **wanted: Any) -> None:
    """Leaves other weights behind."""
    module.a.weight.data.mul_(1.5)
    onnx.save(onnx.parser.parse_model(_FILE), path)


def changes_unseen(module: Any, *args: Any, path: Path, **wanted: Any) -> None:
    """Changes what no look at the module shows."""
    _UNSEEN["factor"] = 3.0
    onnx.save(onnx.parser.parse_model(_FILE), path)


_FILE = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) {y = Relu(x)}'
_UNSEEN = {"factor": 1.0}


class Odd(Net):
    """Computes with a number that it does not hold; `has_no_float64` keeps it from running in float64."""

    has_no_float64 = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.has_no_float64 and x.dtype is torch.float64:
            raise ValueError("not in float64")
        return super().forward(x) * _UNSEEN["factor"]


def build_odd() -> nn.Module:
    return Odd()


def build_odd_without_float64() -> nn.Module:
    made = Odd()
    made.has_no_float64 = True
    return made


@pytest.mark.parametrize("builder", ["build", "build_odd_without_float64"])
def test_float64_is_of_the_model_that_the_builder_makes_whatever_an_exporter_left(tmp_path: Path, builder: str) -> None:
    bench = _bench(tmp_path, builder, "changes_weights")
    values = reference.execute(bench).files["reference"]
    assert plugin.execute(bench, 20).facts["changed"] == {"weights": ["a.weight"]}
    assert bench.is_sound()
    found = oracle.execute(bench, values, 0)
    assert not found.is_doubtful
    assert not found.facts.get("other_values")
    assert ("oracle" in found.files) == (builder == "build")


@pytest.mark.parametrize("builder", ["build_odd", "build_odd_without_float64"])
def test_float64_after_an_exporter_that_changed_something_unseen_is_doubtful(
    tmp_path: Path, builder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_UNSEEN, "factor", 1.0)
    bench = _bench(tmp_path, builder, "changes_unseen")
    values = reference.execute(bench).files["reference"]
    assert "changed" not in plugin.execute(bench, 20).facts
    assert bench.is_sound()
    assert oracle.execute(bench, values, 0).is_doubtful
    bench.was_lent = False  # in another process it is the builder's
    assert not oracle.execute(bench, values, 0).is_doubtful


def test_a_module_that_is_proven_to_be_the_same_is_kept(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    module, _ = bench.module, bench.built
    bench.returned(LentModule(module).changes())
    assert bench.was_lent
    assert bench.is_sound()
    assert bench.module is module


def test_a_module_that_was_changed_is_built_again(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    module, made = bench.module, bench.built
    bench.oracle = object()
    lent = LentModule(module)
    module.get_parameter("a.weight").data.mul_(1.5)
    bench.returned(lent.changes())
    assert bench.is_sound()
    assert bench.module is not module
    assert bench.oracle is None
    assert LentModule(bench.module).changes().is_same
    assert bench.built == made


@pytest.mark.parametrize("builder", ["build_shared", "build_unlike"])
def test_a_process_in_which_the_model_cannot_be_built_again_is_spoiled(tmp_path: Path, builder: str) -> None:
    bench = _bench(tmp_path, builder)
    kept, _ = bench.module, bench.built
    bench.returned(Changes({"hooks": ["a"]}, [], is_same=False))
    assert not bench.is_sound()
    assert bench.is_spoiled
    assert isinstance(kept, Net)


def test_a_process_whose_torch_was_changed_is_spoiled(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    assert bench.built
    bench.returned(Changes({}, ["torch.tanh"]))
    assert not bench.is_sound()
