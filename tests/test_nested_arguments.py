"""Arguments with a `_target_` of their own are what these calls give, as with Hydra's instantiate."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import hydra
import pytest
import torch

from batch_export.errors import ModelError
from batch_export.spec import ModelSpec
from batch_export.stages import model as building
from batch_export.stages.nested_arguments import made


def find(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


LINEAR = {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 2}
CALLS: dict[str, dict[str, Any]] = {
    "a call": {"date": {"_target_": "datetime.date", "year": 2026, "month": 2, "day": 3}},
    "in a list": {"dates": [{"_target_": "datetime.date", "year": 2026, "month": 2, "day": 3}, 7]},
    "in a call": {"a": {"_target_": "fractions.Fraction", "numerator": {"_target_": "builtins.int", "_args_": ["3"]}}},
    "by position": {"a": {"_target_": "operator.add", "_args_": [1, 2]}},
    "a part of one": {"a": {"b": {"_target_": "builtins.dict", "x": 1}, "c": "text"}},
    "none": {"a": {"b": 1}, "c": [1, 2], "d": None},
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_give_what_hydra_makes_of_them(name: str) -> None:
    expected = hydra.utils.instantiate({"_target_": "builtins.dict", **CALLS[name]}, _convert_="all")
    assert made("m", CALLS[name], find) == expected


def test_a_call_may_be_left_open() -> None:
    found = made("m", {"act": {"_target_": "operator.mul", "_partial_": True, "_args_": [3]}}, find)
    assert isinstance(found["act"], functools.partial)
    assert found["act"](4) == 12


def test_a_builder_may_ask_for_the_data() -> None:
    assert made("m", {"_recursive_": False, "layer": LINEAR}, find) == {"layer": LINEAR}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"layers": [{**LINEAR, "width": 1}]}, r"torch\.nn\.Linear, which makes 'layers\[0\]', raised TypeError"),
        ({"layer": {**LINEAR, "_convert_": "all"}}, "'layer' has the word '_convert_'"),
        ({"layer": {"_target_": "operator.no_such_function"}}, "no_such_function"),
    ],
)
def test_what_cannot_be_called_is_said(arguments: dict[str, Any], told: str) -> None:
    def missing(dotted: str) -> Callable[..., Any]:
        try:
            return find(dotted)  # type: ignore[no-any-return]
        except AttributeError as error:
            raise ModelError(str(error)) from error

    with pytest.raises(ModelError, match=told):
        made("m", arguments, missing)


def test_a_model_is_built_of_layers_that_the_config_names_with_seeded_weights() -> None:
    layers = [LINEAR, {"_target_": "torch.nn.ReLU"}]
    spec = ModelSpec(name="m", target="torch.nn.Sequential", arguments={}, inputs=())
    wrapped = ModelSpec(name="m", target="torch.nn.ModuleList", arguments={"modules": layers}, inputs=())
    assert len(building.made_by(spec, torch.nn.Sequential)) == 0
    first, second = (building.made_by(wrapped, torch.nn.ModuleList) for _ in range(2))
    assert [type(one).__name__ for one in first] == ["Linear", "ReLU"]
    assert torch.equal(first[0].weight, second[0].weight)
    assert wrapped.arguments == {"modules": layers}
