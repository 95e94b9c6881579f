"""Free axes inside named tuples, dataclasses and registered containers; names of axes that are no identifiers."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from batch_export.calling import axis_words
from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclasses.dataclass
class Scaled:
    values: torch.Tensor
    shift: torch.Tensor
    scale: int = 3


torch.export.register_dataclass(Scaled, serialized_type_name="batch_export.tests.Scaled")


class Bag:
    def __init__(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self.left, self.right = left, right


pytree.register_pytree_node(
    Bag,
    lambda bag: ([bag.left, bag.right], None),
    lambda children, _: Bag(*children),
    flatten_with_keys_fn=lambda bag: (
        [(pytree.GetAttrKey("left"), bag.left), (pytree.GetAttrKey("right"), bag.right)],
        None,
    ),
    serialized_type_name="batch_export.tests.Bag",
)


class Difference(torch.nn.Module):
    def forward(self, given: Any) -> torch.Tensor:
        if isinstance(given, Scaled):
            return given.values * given.scale - given.shift
        return given.left * 3 - given.right


def tensors(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 3), torch.randn(size, 3)


FREE = {0: "batch"}
CONTAINERS: dict[str, tuple[type, Any]] = {
    "named tuple, by position": (Pair, (FREE, FREE)),
    "named tuple, as one": (Pair, Pair(FREE, FREE)),  # type: ignore[arg-type]
    "named tuple, by name": (Pair, {"left": FREE, "right": FREE}),
    "dataclass, by position": (Scaled, [FREE, FREE, None]),
    "dataclass, as one": (Scaled, Scaled(FREE, FREE, None)),  # type: ignore[arg-type]
    "dataclass, by name": (Scaled, {"values": FREE, "shift": FREE}),
    "registered, by position": (Bag, [FREE, FREE]),
    "registered, by name": (Bag, {"left": FREE, "right": FREE}),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("example", [1, 4])
def test_axes_inside_containers_are_free(name: str, example: int) -> None:
    kind, form = CONTAINERS[name]
    program = export(Difference(), (kind(*tensors(example)),), dynamic_shapes={"given": form})
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[batch,3]", "[batch,3]"]
    for size in (0, 1, 2, 5):
        left, right = tensors(size)
        torch.testing.assert_close(program(kind(left, right))[0], left * 3 - right)


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (
            {"middle": FREE},
            r"names \['middle'\], which the input given does not have. .*\['left', 'right'\]",
        ),
        ((FREE,), r"1 entries for the 2 of the input given"),
        ("batch", r"a str where the input given is a list"),
    ],
)
def test_a_form_that_does_not_fit_a_container_is_named(form: Any, sentence: str) -> None:
    with pytest.raises(DynamicShapeError, match=sentence):
        export(Difference(), (Pair(*tensors(4)),), dynamic_shapes={"given": form})


# Names of axes --------------------------------------------------------------------------------------------------------


class Longer(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * mask[1:, None]


def test_names_are_words_and_never_expressions() -> None:
    with pytest.warns(ExportWarning, match="'my batch' is called 'my_batch', 'seq - 1' is called 'seq_1'"):
        program = export(torch.nn.ReLU(), (torch.randn(4, 3),), dynamic_shapes=({0: "my batch", 1: "seq - 1"},))
    assert program.model.graph.inputs[0].shape == ("my_batch", "seq_1")
    assert program(torch.randn(1, 7))[0].shape == (1, 7)


def test_a_name_that_looks_like_a_sum_is_the_axis_own() -> None:
    inputs = (torch.randn(4, 3), torch.randn(5))
    with pytest.warns(ExportWarning, match=r"'n \+ 2' is called 'n_2'"):
        program = export(Longer(), inputs, dynamic_shapes=({0: "n"}, {0: "n + 2"}))
    x, mask = torch.randn(7, 3), torch.randn(8)
    torch.testing.assert_close(program(x, mask)[0], Longer()(x, mask))


def test_older_axes_have_words_too() -> None:
    with pytest.warns(ExportWarning, match=r"'a b' is called 'a_b'"):
        program = export(
            torch.nn.ReLU(), (torch.randn(4, 3),), input_names=["x"], output_names=["y"],
            dynamic_axes={"x": {0: "a b"}, "y": {0: "a b"}},
        )  # fmt: skip
    assert program.model.graph.inputs[0].shape == program.model.graph.outputs[0].shape == ("a_b", 3)


def test_names_that_differ_keep_differing() -> None:
    found = axis_words.mended(["a b", "a_b", "a-b", "2x", "b", "-", ""])
    assert found == {"a b": "a_b_2", "a_b": "a_b", "a-b": "a_b_3", "2x": "axis_2x", "b": "b", "-": "axis", "": "axis_2"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(torch.nn.ReLU(), (torch.randn(4, 3),), dynamic_shapes=({0: "batch_1"},))


@dataclasses.dataclass
class Optional:
    x: torch.Tensor
    extra: torch.Tensor | None = None
    mask: torch.Tensor | None = None


class Masked(torch.nn.Module):
    def forward(self, batch: Optional) -> torch.Tensor:
        assert batch.mask is not None
        return batch.x * batch.mask if batch.extra is None else batch.extra


@pytest.mark.parametrize(
    "form", [{"x": {0: "b"}, "mask": {0: "b"}, "extra": None}, [{0: "b"}, None, {0: "b"}]], ids=str
)
def test_a_field_that_is_none_may_be_named_with_none(form: Any) -> None:
    example = Optional(torch.randn(4, 3), None, torch.randn(4, 3))
    program = export(Masked(), (example,), dynamic_shapes={"batch": form})
    other = Optional(torch.randn(7, 3), None, torch.randn(7, 3))
    torch.testing.assert_close(program(other)[0], Masked()(other))


def test_a_field_that_is_none_or_unknown_has_no_axes() -> None:
    example = Optional(torch.randn(4, 3), None, torch.randn(4, 3))
    form = {"x": {0: "b"}, "mask": {0: "b"}, "extra": None}
    with pytest.raises(DynamicShapeError, match=r"gives axes for batch\.extra, which is None in the example"):
        export(Masked(), (example,), dynamic_shapes={"batch": {**form, "extra": {0: "b"}}})
    with pytest.raises(DynamicShapeError, match=r"names \['other'\], which the input batch does not have"):
        export(Masked(), (example,), dynamic_shapes={"batch": {**form, "other": None}})


@dataclasses.dataclass
class Unregistered:
    first: torch.Tensor
    inner: list[Any]


@dataclasses.dataclass
class Inner:
    second: torch.Tensor


def test_dataclasses_need_no_registration() -> None:
    class Sum(torch.nn.Module):
        def forward(self, given: Unregistered) -> torch.Tensor:
            total: torch.Tensor = given.first + given.inner[0].second
            return total

    def made(rows: int) -> Unregistered:
        return Unregistered(torch.randn(rows, 2), [Inner(torch.randn(rows, 2))])

    axes = ({"first": {0: "n"}, "inner": [{"second": {0: "n"}}]},)
    program = export(Sum(), (made(3),), dynamic_shapes=axes)
    other = made(5)
    torch.testing.assert_close(program(other)[0], Sum()(other))


@dataclasses.dataclass
class Returned:
    first: torch.Tensor
    inner: list[Any]


def test_dataclasses_that_are_returned_need_no_registration() -> None:
    class Gives(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"sum": Returned(x + 1, [Returned(x * 2, [])]), "x": -x}

    module = Gives()
    program = export(module, (torch.randn(3, 2),), dynamic_shapes=({0: "n"},))
    x = torch.randn(5, 2)
    torch.testing.assert_close(list(program(x)), [x + 1, x * 2, -x])
    torch.testing.assert_close(program.adapt_torch_outputs_to_onnx(module(x)), [x + 1, x * 2, -x])
    assert program.captured is not None
    assert program.captured.strategy == "torch.export(strict=False)"
    assert not module._forward_hooks
