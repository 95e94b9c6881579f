"""Steps that change nothing at the sizes that values have: slices of a whole axis, repeats before a broadcast.

Arrives: nodes, with what is known of shapes and of the sizes that values hold. Leaves: whether a node may go. Nothing
is changed here.
"""

from __future__ import annotations

import onnx_ir as ir

Size = int | str
Shape = tuple[Size | None, ...]
Content = tuple[bool, tuple[Size, ...]]
"""Whether a value is a scalar, and the sizes in it."""

_END = 2**31 - 1
"""An end that says "to the last one": larger than any axis."""
BROADCASTING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Where", "And", "Or", "Xor"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    )
)
"""Operators that repeat each of their inputs as far as the others reach, and have no other use for a shape."""


def negated(size: Size) -> Size:
    """A size counted from the end; of a name in words that are no name of an axis."""
    return -size if isinstance(size, int) else f"minus {size}"


def takes_all(shape: Shape | None, contents: list[Content | None]) -> bool:
    """Whether a Slice takes every element in order.

    Args:
        shape: of the data.
        contents: starts, ends, axes and steps, as far as they are there.
    """
    if shape is None or len(contents) < 3 or any(content is None for content in contents):
        return False
    starts, ends, axes, *steps = (content[1] for content in contents if content is not None)
    if any(step != 1 for listed in steps for step in listed):
        return False
    return all(
        isinstance(axis, int) and -len(shape) <= axis < len(shape) and _takes_axis(shape[axis], start, end)
        for start, end, axis in zip(starts, ends, axes, strict=True)
    )


def _takes_axis(size: Size | None, start: Size, end: Size) -> bool:
    if size is None:
        return False
    from_first = start in (0, negated(size)) or (isinstance(start, int) and isinstance(size, int) and start <= -size)
    to_last = end == size or (isinstance(end, int) and end >= (size if isinstance(size, int) else _END))
    return from_first and to_last


def repeats_for_nothing(expand: ir.Node, shapes: dict[ir.Value, Shape | None]) -> bool:
    """Whether all that read an Expand repeat its input themselves: another input has the shape that it asks for.

    Args:
        expand: the node; its data can always be repeated to its result, so reading the data gives the same shape.
        shapes: of the result and of other values, as far as they are known.
    """
    (result,) = expand.outputs
    wanted = shapes.get(result)
    if result.is_graph_output() or not result.uses():
        return False
    told = expand.inputs[1].producer() if expand.inputs[1] is not None else None

    def reaches(value: ir.Value | None) -> bool:
        if value is None or value is result:
            return False
        if told is not None and told.op_type == "Shape" and told.inputs[0] is value and not told.attributes:
            return True
        return wanted is not None and None not in wanted and shapes.get(value) == wanted

    return all(
        user.op_type in BROADCASTING
        and not user.domain
        and user.graph is expand.graph
        and any(reaches(value) for value in user.inputs)
        for user, _ in result.uses()
    )
