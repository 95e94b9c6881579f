"""Programs called with nested inputs: what was given at the export under a name, a key or a field goes by it."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from batch_export import export
from batch_export.exporter.program.program import ONNXProgram


@dataclasses.dataclass
class Batch:
    ids: Tensor
    features: Tensor
    lengths: Tensor | None = None


class Nested(nn.Module):
    def forward(
        self, given: dict[str, Any], factor: float = 2.0, mask: dict[str, Tensor] | None = None, more: Any = None
    ) -> Tensor:
        """Takes no two of its inputs alike."""
        y = given["z"] - 2 * given["in"]["a"] * factor + 3 * given["batch"].ids - given["batch"].features
        y = y + 4 * given["list"][0] - 5 * given["list"][1] + (0 if more is None else more)
        return y if mask is None else y * mask["m"] - mask["n"]


def at(value: float) -> Tensor:
    return torch.full((2,), float(value))


GIVEN = {"z": at(1), "in": {"other": at(9), "a": at(2)}, "batch": Batch(at(3), at(4)), "list": [at(5), at(6)]}
OTHERS: dict[str, Any] = {
    "list": (at(-5), at(7)),
    "batch": Batch(features=at(8), ids=at(-3)),
    "in": OrderedDict(a=at(0.5), other=at(0)),
    "z": at(11),
}
MASK = {"m": at(12), "n": at(13)}


@pytest.fixture(scope="module")
def program() -> ONNXProgram:
    return export(Nested(), (GIVEN,), kwargs={"mask": {"n": at(8), "m": at(7)}})


def test_dicts_go_by_key_and_dataclasses_by_field(program: ONNXProgram) -> None:
    expected = Nested()(OTHERS, mask=MASK)
    for args, kwargs in (((OTHERS,), {"mask": MASK}), ((), {"mask": MASK, "given": OTHERS})):
        torch.testing.assert_close(program(*args, **kwargs)[0], expected)
        torch.testing.assert_close(program.call_reference(*args, **kwargs)[0], expected)
    torch.testing.assert_close(program(OTHERS, mask=MASK, more=None)[0], expected)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"mask": {"m": at(1), "k": at(1)}}, "mask has the keys n, m .* n is missing and k is not among them"),
    "more keys": ({"mask": {**MASK, "k": at(1)}}, "mask has the keys n, m .* k is not among them"),
    "key within": ({"given": {**OTHERS, "in": {"a": at(1)}}}, r"given\['in'\] has the keys .* other is missing"),
    "field": (
        {"given": {**OTHERS, "batch": Batch(at(1), at(2), at(3))}},
        "has the fields .* lengths is not among them",
    ),
    "entries": (
        {"given": {**OTHERS, "list": [at(1)]}},
        r"given\['list'\] has 2 entries in the model, and 1 were given",
    ),
    "type": ({"given": {**OTHERS, "batch": at(1)}}, r"given\['batch'\] is of type Batch .* a Tensor was given"),
    "tensor": ({"mask": at(1)}, "mask is a dict in the model, and a Tensor was given"),
    "dict": ({"given": {**OTHERS, "z": {"k": at(1)}}}, r"given\['z'\] is one value in the model, and a dict was given"),
    "none": ({"given": {**OTHERS, "z": None}}, "given_z is an input of the model, and None was given"),
    "name": ({"more": at(1)}, "the model has no input more: its inputs are given, mask"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_as_in_the_export_is_refused(program: ONNXProgram, case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        program(**{"given": OTHERS, "mask": MASK, **given})


def test_inputs_that_are_missing_or_given_twice_are_refused(program: ONNXProgram) -> None:
    with pytest.raises(ValueError, match="mask is missing: the inputs of the model are given, mask"):
        program(OTHERS)
    with pytest.raises(ValueError, match="given given by position and by name"):
        program(OTHERS, given=OTHERS, mask=MASK)
    with pytest.raises(ValueError, match="3 inputs were given by position, and the model has given, mask"):
        program(OTHERS, MASK, at(1))


def test_what_the_export_fixed_may_be_left_out() -> None:
    program = export(Nested(), (GIVEN, 3.0, None))
    torch.testing.assert_close(program(OTHERS)[0], Nested()(OTHERS, 3.0))
    torch.testing.assert_close(program(OTHERS, 3.0)[0], Nested()(OTHERS, 3.0))
    with pytest.raises(ValueError, match=r"fixed in the model as 3\.0"):
        program(OTHERS, 2.0)


class Difference(nn.Module):
    def forward(self, given: dict[str, Tensor], weight: Tensor, bias: Tensor) -> Tensor:
        return (given["z"] - 2 * given["a"]) * weight - bias


def test_the_torchscript_exporter_goes_by_name_and_key_too() -> None:
    example = ({"z": at(1), "a": at(2)}, at(3))
    program = export(Difference(), example, kwargs={"bias": at(4)}, dynamo=False)
    other = {"bias": at(5), "weight": at(6), "given": {"a": at(7), "z": at(8)}}
    torch.testing.assert_close(program(**other)[0], Difference()(**other))
    with pytest.raises(ValueError, match=r"given has the keys z, a .* a is missing and k is not among them"):
        program(**{**other, "given": {"k": at(1), "z": at(1)}})


def test_a_tuple_of_all_inputs_is_taken_apart() -> None:
    """As torch's interpreters give them."""

    class Two(nn.Module):
        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            return one - 2 * other

    program = export(Two(), (at(1), at(2)))
    torch.testing.assert_close(program((at(3), at(4)))[0], at(3) - 2 * at(4))
    with pytest.raises(ValueError, match="one is one value in the model, and a tuple was given"):
        program((at(3),))
