"""What a model returns and a file cannot give is one sentence; what it can give is all there."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from batch_export.errors import CaptureError
from batch_export.exporter import export


class Giving(torch.nn.Module):
    def __init__(self, give: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.give = give

    def forward(self, x: torch.Tensor) -> Any:
        return self.give(x)


class Kind(enum.Enum):
    ONE = 1


class Listed(list[torch.Tensor]):
    pass


UNFIT: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "text": (lambda x: (x * 2, "done"), r"the type str \('done'\) at \[1\]"),
    "text alone": (lambda _: "done", r"the type str \('done'\), and"),
    "nested text": (lambda x: {"x": x, "more": [{"name": "n"}]}, r"at \['more'\]\[0\]\['name'\]"),
    "dtype": (lambda x: (x, x.dtype), r"the type dtype \(torch\.float32\)"),
    "device": (lambda x: (x, x.device), r"the type device \(device\(type='cpu'\)\)"),
    "complex number": (lambda x: (x, 3j), r"the type complex \(3j\)"),
    "set": (lambda x: {x}, "the type set"),
    "generator": (lambda x: (one for one in (x, x)), "the type generator"),
    "dict view": (lambda x: {"x": x}.values(), "the type dict_values"),
    "object": (lambda x: types.SimpleNamespace(x=x), "the type SimpleNamespace"),
    "list of an own class": (lambda x: Listed([x]), "the type Listed"),
    "enumeration": (lambda x: (x, Kind.ONE), "the type Kind"),
    "None": (lambda _: None, "no tensor and no number"),
    "empty": (lambda _: (), "no tensor and no number"),
    "empty and nested": (lambda _: [{}, [None]], "no tensor and no number"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_a_file_cannot_give_is_refused_with_forwards_line(name: str) -> None:
    give, said = UNFIT[name]
    with pytest.raises(CaptureError, match=said) as caught:
        export(Giving(give), (torch.rand(3, 4),))
    assert "test_exporter_unfit_outputs.py:" in str(caught.value)
    assert "return tensors, numbers and None" in str(caught.value)


Pair = collections.namedtuple("Pair", "first second")

FIT: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "None beside": (lambda x: (None, x * 2, None), 1),
    "empty beside": (lambda x: (x * 2, [], {}, ()), 1),
    "numbers": (lambda x: (x * 2, 3, 2.5, True), 4),
    "sizes": (lambda x: (x * 2, x.shape[0], x.shape), 4),
    "one twice": (lambda x: (x, [x, {"x": x * 2}]), 3),
    "named tuple": (lambda x: Pair(x * 2, x + 1), 2),
    "default dict": (lambda x: collections.defaultdict(list, a=[x], b=[x * 2]), 2),
    "packed": (lambda x: torch.nn.utils.rnn.pack_padded_sequence(x[None], [3], batch_first=True), 2),
}


@pytest.mark.parametrize("name", FIT)
def test_what_a_file_can_give_is_all_there(name: str) -> None:
    give, count = FIT[name]
    assert len(export(Giving(give), (torch.rand(3, 4),)).model.graph.outputs) == count


def test_a_model_that_only_writes_gives_what_it_wrote() -> None:
    class Writing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> None:
            x.add_(1)

    assert [one.name for one in export(Writing(), (torch.rand(3, 4),)).model.graph.outputs] == ["x_mutated"]
