"""Classes that a package registers as containers without the keys of their children, as diffusers does its outputs."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch.utils import _pytree as pytree

from batch_export.calling.tree_paths import leaves_with_paths
from batch_export.config.model import model_spec
from batch_export.errors import CaptureError
from batch_export.exporter import export
from batch_export.stages.model import example_inputs
from batch_export.stages.probe import trial
from batch_export.stages.reference import Eager
from batch_export.stages.workbench import Workbench


class Output(OrderedDict[str, Any]):
    """A mapping of a package's own."""


class Pair:
    """Two values without names."""

    def __init__(self, *both: Any) -> None:
        self.both = both


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    pytree.register_pytree_node(
        Output,
        lambda one: (list(one.values()), list(one)),
        lambda values, names: Output(zip(names, values, strict=True)),
        serialized_type_name="test_tree_paths.Output",
    )
    pytree.register_pytree_node(
        Pair,
        lambda one: (list(one.both), None),
        lambda values, _: Pair(*values),
        serialized_type_name="test_tree_paths.Pair",
    )
    yield
    for kind in (Output, Pair):
        pytree._deregister_pytree_node(kind)


class Giving(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Output(sample=x + 1, both=Pair(x * 2, [x * 3]))


class Taking(torch.nn.Module):
    def forward(self, pair: Pair) -> torch.Tensor:
        return cast(torch.Tensor, pair.both[0] + pair.both[1])


def test_children_without_keys_have_those_of_a_mapping_or_their_places() -> None:
    found = leaves_with_paths({"a": [Output(x=1, y=Pair(2, (3,)))], "b": None})
    assert [(pytree.keystr(path), leaf) for path, leaf in found] == [
        ("['a'][0]['x']", 1),
        ("['a'][0]['y'][0]", 2),
        ("['a'][0]['y'][1][0]", 3),
        ("['b']", None),
    ]
    assert leaves_with_paths(7) == [((), 7)]


def test_a_sweep_compares_what_such_a_class_holds() -> None:
    config = {"_target_": "x.y", "inputs": {"x": {"dtype": "float32", "shape": [2, 3]}}}
    spec = model_spec("giving", config)
    inputs = example_inputs(spec, {})
    bench = types.SimpleNamespace(model=spec, module=Giving(), inputs=lambda sizes: inputs)
    names = [name for name, _ in Eager(cast(Workbench, bench)).run({}).outputs]
    assert names == ["sample", "both.0", "both.1.0"]
    assert [one.name for one in trial.run(Giving(), spec.inputs).outputs] == ["sample", "both_0", "both_1_0"]


def test_inputs_in_such_a_class_are_refused_in_words() -> None:
    pair = Pair(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(CaptureError, match="Pair"):
        export(
            Taking(), (pair,), dynamic_shapes={"pair": [{0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC}]}
        )
