"""What is copied over a tensor: in its dtype, pairs of real numbers where it is complex, repeated to its shape."""

from __future__ import annotations

from typing import cast

import onnx_ir as ir

from batch_export.exporter.graph import promote
from batch_export.exporter.graph.complex_parts import is_pair, paired
from batch_export.exporter.graph.operators import op
from batch_export.exporter.ops import complex_numbers
from batch_export.exporter.ops.marking import lowering


def converted(source: ir.Value, target: ir.Value) -> ir.Value:
    """A source in the dtype of a target, complex or not as that is; its shape is still its own."""
    if is_pair(target):
        pairs = paired(source, target)
        return pairs if pairs.dtype == target.dtype else op.CastLike(pairs, target)
    assert target.dtype is not None
    if is_pair(source):
        return complex_numbers.to_dtype(source, int(target.dtype))
    return cast("ir.Value", promote.cast_to(source, target.dtype))


def over(self: ir.Value, src: ir.Value, *, is_known: bool) -> ir.Value:
    """A source repeated to the shape of what it is copied over.

    Args:
        self: what is copied over.
        src: the source.
        is_known: whether no axis is free; free ones of one name may differ, where one of two inputs has one element.
    """
    content = converted(src, self)
    is_whole = is_known and self.shape is not None and content.shape is not None and self.shape == content.shape
    return content if is_whole else op.Expand(content, op.Shape(self))


def _copied(self: ir.Value, src: ir.Value) -> ir.Value:
    return over(self, src, is_known=self.shape is not None and all(isinstance(one, int) for one in self.shape))


@lowering("aten::copy")
def copy(self: ir.Value, src: ir.Value, non_blocking: bool = False) -> ir.Value:
    """The source in place of everything in a tensor."""
    return _copied(self, src)


@lowering("aten::copy", is_complex=True)
def copy_complex(self: ir.Value, src: ir.Value, non_blocking: bool = False) -> ir.Value:
    """The same where one of the two is complex; a real tensor takes the real parts, and bool what is not 0."""
    return _copied(self, src)
