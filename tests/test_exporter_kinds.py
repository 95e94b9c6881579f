"""A model's code is told of kinds what it is told in eager: sizes are ints, tensors are tensors."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.exporting import export_and_compare

Forward = Callable[[torch.Tensor], torch.Tensor]


def _is_whole(size: object) -> bool:
    return isinstance(size, int)


class Own(type):
    pass


def _python_type(x: torch.Tensor) -> torch.Tensor:
    class Made(metaclass=Own):
        pass

    other = type("Other", (), {"factor": 3})
    assert isinstance(Made, type)
    assert type(Made) is Own
    assert type(Own) == type  # noqa: E721
    assert issubclass(Own, type)
    return x * other().factor  # type: ignore[attr-defined]


ANSWERED: dict[str, Forward] = {
    "isinstance": lambda x: x * 2 if isinstance(x.shape[0], int) else x * 3,
    "isinstance of several": lambda x: x * 2 if isinstance(x.shape[0] / 2, (int, float)) else x * 3,
    "isinstance of a truth value": lambda x: x * 2 if isinstance(x.shape[0] > 2, bool) else x * 3,
    "not a float": lambda x: x * 2 if isinstance(x.shape[0], float) else x * 3,
    "type": lambda x: x * 2 if type(x.shape[0]) is int else x * 3,
    "one of several types": lambda x: x * 2 if type(x.size(0)) in (int, float) else x * 3,
    "type of a tensor": lambda x: x * 2 if type(x) is torch.Tensor else x * 3,
    "in a function beside": lambda x: x * 2 if _is_whole(x.shape[0]) else x * 3,
    "Python's type as it is": _python_type,
}


class Answered(torch.nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.own = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 2 if type(self.weight) is torch.nn.Parameter else 3
        return self.own(x * self.weight) * factor


@pytest.mark.parametrize("name", ANSWERED)
def test_kinds_are_those_of_eager(name: str) -> None:
    others = [(torch.rand(size, 4),) for size in (2, 5)]
    export_and_compare(Answered(ANSWERED[name]), (torch.rand(3, 4),), *others, dynamic_shapes=({0: "n"},))
    assert not {"isinstance", "type"} & globals().keys()
    assert isinstance(3, builtins.int)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, ANSWERED["isinstance"], ANSWERED["type of a tensor"], (x,))  # type: ignore[no-any-return]


def test_branches_that_dynamo_reads_are_told_so_by_dynamo() -> None:
    x = torch.ones(3, 4)
    program = export_and_compare(Branches(), (x,), (-x,), (torch.ones(5, 4),), dynamic_shapes=({0: "n"},))
    assert program.captured.strategy == "torch.export(strict=False)"


HELPERS = """
class Scale:
    @staticmethod
    def by_kind(x):
        return x * 2 if isinstance(x.shape[0], int) else x * 3

def by_kind(x):
    return x * 2 if type(x.shape[0]) is int else x * 3
"""
HOLDER = """
import torch
import {helpers}
from {helpers} import Scale

class Holder(torch.nn.Module):
    def __init__(self, function=None):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x) if self.function else {helpers}.by_kind(x) + Scale.by_kind(x)
"""


@pytest.mark.parametrize("way", ["of modules and classes", "held"])
def test_kinds_in_other_files_of_the_model(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{kind}_{way.replace(' ', '_')}" for kind in ("kinds_helpers", "kinds_holder")]
    for name, text in zip(names, (HELPERS, HOLDER), strict=True):
        (tmp_path / f"{name}.py").write_text(text.replace("{helpers}", names[0]))
    monkeypatch.syspath_prepend(str(tmp_path))
    holder = importlib.import_module(names[1]).Holder
    module = holder(ANSWERED["isinstance"]) if way == "held" else holder()
    export_and_compare(module, (torch.rand(3, 4),), (torch.rand(5, 4),), dynamic_shapes=({0: "n"},))
