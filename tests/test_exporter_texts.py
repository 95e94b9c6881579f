"""Text that a model's code makes of sizes and of data: what only shows it stays, what computes with it is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

from batch_export import enable_fake_mode
from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture.named_in_texts import numbers_in_texts
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled

Forward = Callable[[torch.Tensor], torch.Tensor]


class Calling(torch.nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.own = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(x)


def others() -> list[tuple[torch.Tensor]]:
    return [(torch.rand(size, 4),) for size in (2, 5, 12)]


OF_SIZES: dict[str, Forward] = {
    "str": lambda x: x * float(str(x.shape[0])),
    "length of str": lambda x: x * len(str(x.shape[0] * 10)),
    "f-string": lambda x: x * float(f"{x.shape[0]}"),
    "f-string with a format": lambda x: x * float(f"{x.shape[0]:d}"),
    "repr of a shape": lambda x: x * len(repr(x.shape)),
    "a key": lambda x: x * {"3": 2.0}.get(str(x.shape[0]), 5.0),
    "str.format": lambda x: x * float("{:.2f}".format(x.shape[0] / 2)),  # noqa: UP032
    "a last digit": lambda x: x * (2.0 if f"{x.shape[0]}".endswith("9") else 1.0),
    "a truth value": lambda x: x * len(str(x.shape[0] > 4)),
}


ALWAYS = ("f-string", "a key", "a last digit")


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.ops) for name in OF_SIZES]
)
def test_text_of_a_size_that_decides_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(DynamicShapeError, match=r"makes text of a size.*test_exporter_texts\.py:\d+"):
        export(Calling(OF_SIZES[name]).eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "n"},))


class Named(torch.nn.Module):
    """Has something of a name that is made of sizes, at sizes that no example has."""

    def __init__(self, own: Callable[[Named, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table = torch.nn.ParameterDict({"k12": torch.nn.Parameter(torch.tensor(3.0))})
        self.w37 = 2.0
        self.own = own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(self, x)


BY_NAME: dict[str, Callable[[Named, torch.Tensor], torch.Tensor]] = {
    "a key": lambda model, x: x * (model.table[key] if (key := f"k{x.shape[0]}") in model.table else 1.0),
    "an attribute": lambda model, x: x * getattr(model, f"w{x.shape[0]}", 1.0),
    "of two sizes": lambda model, x: x * (2.0 if f"{x.shape[0]}x{x.shape[1]}" == "13x12" else 1.0),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_text_of_a_size_that_is_a_name_of_the_models_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(DynamicShapeError, match=r"makes text of a size.*test_exporter_texts\.py:\d+"):
        export(Named(BY_NAME[name]).eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "n", 1: "m"},))


def test_what_a_model_holds_itself_comes_before_what_its_file_has() -> None:
    """A file may have more texts with numbers in them than are tried, and pytest adds some to each assertion."""
    for name, numbers in (("a key", (12,)), ("of two sizes", (13, 12))):
        found = numbers_in_texts(Named(BY_NAME[name]).eval())
        assert found.index(numbers) < 5
        assert len(found) > 10


def test_an_axis_left_to_the_exporter_is_fixed_by_text_of_its_size() -> None:
    model = Calling(OF_SIZES["length of str"])
    program = export_and_compare(model, (torch.rand(3, 4),), dynamic_shapes=({0: Dim.AUTO},))
    assert list(program.model.graph.inputs[0].shape or ()) == [3, 4]


def test_text_of_a_size_that_is_only_shown_keeps_the_axis_free(caplog: pytest.LogCaptureFixture) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        logging.getLogger("shown").warning(f"{x.shape[0]} rows of {x.shape}")
        return x * 2

    program = export_and_compare(Calling(forward), (torch.rand(3, 4),), *others(), dynamic_shapes=({0: "n"},))
    assert not isinstance(program.model.graph.inputs[0].shape[0], int)  # type: ignore[index]
    assert "3 rows of torch.Size([3, 4])" in caplog.text
    assert "s77" not in caplog.text


def test_text_of_a_size_that_nobody_can_try_is_warned_of() -> None:
    with enable_fake_mode():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), Calling(OF_SIZES["length of str"]))
        x = torch.rand(3, 4)
    with pytest.warns(ExportWarning, match="`.* == 30`"):
        export(model, (x,), dynamic_shapes=({0: "n"},))


OF_DATA: dict[str, Forward] = {
    "str of a tensor": lambda x: x * len(str(x[0, 0])),
    "repr of a tensor": lambda x: x * len(repr(x)),
    "str of an item": lambda x: x * len(str(x[0, 0].item())),
    "f-string": lambda x: x * len(f"{x[0, 0]}"),
}


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
@pytest.mark.parametrize("name", OF_DATA)
def test_text_of_data_that_decides_is_refused_with_its_line(name: str, shapes: tuple[dict[int, str]] | None) -> None:
    with pytest.raises(CaptureError, match=r"text that the model's code makes of data.*test_exporter_texts\.py:\d+"):
        export(Calling(OF_DATA[name]).eval(), (torch.rand(3, 4),), dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "decided", [lambda text: text.startswith("-"), lambda text: text == "1", lambda text: text.isdigit()]
)
def test_text_is_tried_at_numbers_that_look_otherwise(decided: Callable[[str], bool]) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 0 if decided(f"{x[0].item()}") else x

    with pytest.raises(CaptureError, match="text that the model's code makes of data"):
        export(Calling(forward).eval(), (torch.tensor([5, 7]),))


def test_text_of_data_that_is_only_shown_stays(capsys: pytest.CaptureFixture[str]) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        print(x.sum(), f"{x.mean()}", x[0, 0].item())
        return x * 2

    export_and_compare(Calling(forward), (torch.rand(3, 4),), *others(), dynamic_shapes=({0: "n"},))
    assert capsys.readouterr().out


def test_what_a_trace_takes_of_a_size_is_tried_at_others() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * (x.shape[0] ^ 5) * float(len(str(x.shape[0] ^ 5)))  # `^` of a size: torch.jit.trace alone has it

    with pytest.raises((CaptureError, DynamicShapeError)):
        export(Calling(forward).eval(), (torch.rand(3, 4),), dynamic_shapes=({0: Dim("n", min=2)},))
    assert repr(torch.tensor(1)) == "tensor(1)"
    assert "__format__" not in vars(torch.SymInt)
