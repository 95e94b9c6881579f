"""Models that ask whether they are being captured: where that changes what they give, it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.compiler import is_compiling as imported_by_itself

from batch_export.errors import CaptureError, ExportWarning, VerificationError
from batch_export.exporter import export
from tests.exporting import export_and_compare

X = torch.linspace(-1, 1.2, 12).reshape(3, 4)


def is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


class Masked(torch.nn.Module):
    """In eager it leaves out what it takes for needless."""

    def __init__(self, asks: Callable[[], bool], scale: float) -> None:
        super().__init__()
        self.asks, self.scale = asks, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.asks():
            return x * 2
        return x * self.scale + x


ASKED: list[Callable[[], bool]] = [
    is_traced,
    lambda: torch.compiler.is_exporting(),
    lambda: imported_by_itself(),
    lambda: torch._dynamo.is_compiling(),
]


@pytest.mark.parametrize("asks", ASKED)
def test_what_a_capture_alone_gives_is_refused_with_the_line(asks: Callable[[], bool]) -> None:
    codes = [one.__code__ for one in (torch.compiler.is_compiling, torch.compiler.is_exporting)]
    with pytest.raises(CaptureError, match=r"something else where it is captured.*asks `torch\.compiler\.is_") as told:
        export(Masked(asks, 2.0), (X,))
    assert told.value.source is not None
    assert told.value.source.startswith(__file__)
    assert codes == [one.__code__ for one in (torch.compiler.is_compiling, torch.compiler.is_exporting)]


@pytest.mark.parametrize("asks", ASKED[:2])
def test_other_sizes_than_the_example_are_asked_too(asks: Callable[[], bool]) -> None:
    class Longer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if asks() or x.shape[0] < 30 else x * 2

    with pytest.raises(CaptureError, match=r"captured than in eager: at other sizes \(n=35\) output 0 differs"):
        export(Longer(), (X,), dynamic_shapes=({0: "n"},))


def test_the_line_is_that_of_who_asks_the_question() -> None:
    with pytest.raises(CaptureError) as told:
        export(Masked(is_traced, 2.0), (X,))
    line = int(str(told.value.source).rpartition(":")[2])
    with open(__file__) as file:
        assert file.readlines()[line - 1].strip() == "if not self.asks():"


def test_allowed_it_is_a_warning_and_verified_a_difference() -> None:
    with pytest.warns(ExportWarning, match="something else where it is captured than in eager"):
        export(Masked(is_traced, 2.0), (X,), guards="allow")
    with pytest.raises(VerificationError):
        export(Masked(is_traced, 2.0), (X,), verify=True)


@pytest.mark.parametrize("asks", ASKED)
def test_another_way_to_the_same_is_no_difference(asks: Callable[[], bool]) -> None:
    module = Masked(asks, 1.0)
    program = export_and_compare(module, (X,), (X + 1,))
    assert program.captured is not None
    assert program.captured.asked_if_captured


class SeveralQuestions(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if torch.compiler.is_compiling() else x + x
        if torch.compiler.is_exporting():  # this one
            y = y + 1
        return torch.exp(y) if torch.compiler.is_compiling() else y.exp()


def test_of_several_questions_the_one_that_matters_is_told() -> None:
    with pytest.raises(CaptureError) as told:
        export(SeveralQuestions(), (X,))
    line = int(str(told.value.source).rpartition(":")[2])
    with open(__file__) as file:
        assert file.readlines()[line - 1].rstrip().endswith("# this one")


def test_a_model_that_does_not_ask_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the model was run")

    monkeypatch.setattr("batch_export.exporter.capture.traced_questions.outputs", fail)
    export(Masked(lambda: False, 1.0), (X,))
