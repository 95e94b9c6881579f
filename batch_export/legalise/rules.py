"""What a rule is, and what it may ask of the node that it changes.

A rule takes a node that is written for one opset and writes what means the same at the neighbouring one. It returns the
values that take the place of the node's results, or None where the node itself stays, changed in place or not. Where
there is nothing to write it raises `NoForm`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from batch_export.legalise.ranks import axes_of
from batch_export.legalise.writing import Writer

Locate = Callable[[ir.Node], str | None]


def nowhere(node: ir.Node) -> str | None:
    """The source line of a node of a model that knows none."""
    del node
    return None


Result = ir.Value | Sequence[ir.Value] | None
Write = Callable[[ir.Node, Writer], Result]


class NoForm(Exception):  # noqa: N818  # an answer of a rule, which its caller turns into an error
    """The node means something that the opset has no nodes for; the text says what, as in "an antialiased Resize"."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator crosses from an opset to its neighbour.

    Attributes:
        write: what does it.
        example: a model of the operator at the opset that is left, in ONNX's text form, which the rule applies to.
        unless: what it has no form for, in a few words; empty where it always has one.
    """

    write: Write
    example: str
    unless: str = ""
    again: bool = False
    """Whether what it writes is for the opset that is left, so that the step's rules apply to it too."""


Rules = Mapping[str, Rule]
"""The rules of a step by operator."""


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """An attribute's value, or what is given for one that is not there."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def first(node: ir.Node) -> ir.Value:
    """The first input."""
    value = node.inputs[0]
    if value is None:
        raise NoForm(f"{node.op_type} without its first input")
    return value


def given(node: ir.Node, index: int) -> ir.Value | None:
    """An input, or None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def needed(node: ir.Node, index: int) -> ir.Value:
    """An input that the operator always has.

    Raises:
        NoForm: the file leaves it out.
    """
    value = given(node, index)
    if value is None:
        raise NoForm(f"{node.op_type} without its input {index}")
    return value


FIXED = "batch_export.fixed"
"""In the `meta` of an input whose default is its only content, as before IR version 4."""


def known(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The content of a value that is a constant, else None; an input with a default may be given another content."""
    if value is None or (value.is_graph_input() and FIXED not in value.meta):
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def rank(value: ir.Value, what: str) -> int:
    """The number of axes.

    Raises:
        NoForm: it is not known.
    """
    count = axes_of(value)
    if count is None:
        raise NoForm(f"{what} of an input whose number of axes is not known")
    return count


def sizes(value: ir.Value) -> list[int | None]:
    """The sizes of a value whose number of axes is known; None for one that is free."""
    assert value.shape is not None
    return [size if isinstance(size, int) else None for size in value.shape]


def is_read(node: ir.Node, index: int) -> bool:
    """Whether anything reads an output."""
    if index >= len(node.outputs):
        return False
    output = node.outputs[index]
    return bool(output.name) and (bool(output.uses()) or output.is_graph_output())


def no_longer(node: ir.Node, *names: str) -> None:
    """Leaves out attributes."""
    for name in names:
        node.attributes.pop(name, None)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a node may say at an opset.

    Attributes:
        attributes: name -> the default, None where there is none.
        max_input: how many inputs it takes at most.
        max_output: how many outputs it gives at most.
    """

    attributes: Mapping[str, onnx.AttributeProto | None]
    max_input: int
    max_output: int


@functools.cache
def schema_of(operator: str, opset: int) -> Schema | None:
    """The schema of one of ONNX's own operators at an opset; None where it has none there."""
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    defaults = {name: one.default_value for name, one in schema.attributes.items()}
    return Schema(
        {name: one if one is not None and one.name else None for name, one in defaults.items()},
        schema.max_input,
        schema.max_output,
    )
