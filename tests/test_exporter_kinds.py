"""A model's code is told of kinds what it is told in eager: sizes are ints, tensors are tensors."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import batch_export
from batch_export.errors import CaptureError
from batch_export.exporter.capture.class_reads import as_written, with_reads
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled

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


def _summed(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4)
    for step in range(x.shape[0]):
        total = total * 0.5 + x[step]
    return total * 2 if total.__class__ is torch.Tensor else total


ANSWERED: dict[str, Forward] = {
    "isinstance": lambda x: x * 2 if isinstance(x.shape[0], int) else x * 3,
    "isinstance of several": lambda x: x * 2 if isinstance(x.shape[0] / 2, (int, float)) else x * 3,
    "isinstance of a truth value": lambda x: x * 2 if isinstance(x.shape[0] > 2, bool) else x * 3,
    "not a float": lambda x: x * 2 if isinstance(x.shape[0], float) else x * 3,
    "type": lambda x: x * 2 if type(x.shape[0]) is int else x * 3,
    "one of several types": lambda x: x * 2 if type(x.size(0)) in (int, float) else x * 3,
    "type of a tensor": lambda x: x * 2 if type(x) is torch.Tensor else x * 3,
    "class of a tensor": lambda x: x * 2 if x.__class__ is torch.Tensor else x * 3,
    "class of a tensor by its name": lambda x: x * 2 if x.__class__.__name__ == "Tensor" else x * 3,
    "class of a size": lambda x: x * 2 if x.shape[0].__class__ is int else x * 3,
    "class by getattr": lambda x: x * 2 if getattr(x, "__class__") is torch.Tensor else x * 3,  # noqa: B009
    "class in a loop over a size": lambda x: _summed(x),
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
    assert not {"isinstance", "type", "getattr", "hasattr"} & globals().keys()
    assert not any("_Reader" in repr(one) for one in ANSWERED[name].__code__.co_consts)
    assert isinstance(3, builtins.int)


class Branches(torch.nn.Module):
    def __init__(self, otherwise: str) -> None:
        super().__init__()
        self.otherwise = ANSWERED[otherwise]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, ANSWERED["isinstance"], self.otherwise, (x,))  # type: ignore[no-any-return]


@pytest.mark.parametrize("otherwise", ["type of a tensor", "class of a tensor"])
def test_branches_that_dynamo_reads_are_told_so_by_dynamo(otherwise: str) -> None:
    x = torch.ones(3, 4)
    program = export_and_compare(Branches(otherwise), (x,), (-x,), (torch.ones(5, 4),), dynamic_shapes=({0: "n"},))
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


def _wide(names: int, constants: int) -> CodeType:
    """Code that reads a class behind more names and constants than one instruction counts."""
    lines = [f"    x.name_{at}" for at in range(names)] + [f"    {at}.5 + x" for at in range(constants)]
    made: dict[str, Any] = {}
    exec(
        "\n".join(
            [
                "def wide(x):",
                "    if 0 > 1:",
                "        x += 1",
                *(f"    {one}" for one in lines),
                "    return x.__class__",
            ]
        ),
        made,
    )
    code: CodeType = made["wide"].__code__
    return code


@pytest.mark.parametrize(("names", "constants"), [(0, 0), (300, 0), (0, 300), (300, 300)])
def test_classes_are_read_in_long_functions(names: int, constants: int) -> None:
    code = _wide(names, constants)
    read = with_reads(code)
    assert read is not code
    assert as_written(read) is code
    assert with_reads(code) is read
    size = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(3)).shape[0]
    for one, kind in ((torch.ones(1), torch.Tensor), (size, int), (3, int), (int, type)):
        assert FunctionType(read, {})(one) is kind


class Asking(torch.nn.Module):
    def __init__(self, asks: Callable[[object], bool], *, decides: bool) -> None:
        super().__init__()
        self.asks = asks
        self.decides = decides

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3 if self.asks(x) and self.decides else x * 2


CAPTURED: dict[str, Callable[[Any], bool]] = {
    "isinstance": lambda x: isinstance(x, FakeTensor),
    "hasattr": lambda x: hasattr(x, "fake_mode"),
    "getattr": lambda x: getattr(x, "fake_mode", None) is not None,
    "hasattr of a size": lambda x: hasattr(x.shape[0], "node"),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_who_asks_for_what_a_capture_has_in_place_of_tensors_is_compared_with_eager(name: str) -> None:
    x = torch.rand(3, 4)
    with pytest.raises(CaptureError, match=rf"is not the model.*it took for granted.*{Path(__file__).name}"):
        batch_export.export(Asking(CAPTURED[name], decides=True), (x,), dynamic_shapes=({0: "n"},))
    export_and_compare(Asking(CAPTURED[name], decides=False), (x,), dynamic_shapes=({0: "n"},))
