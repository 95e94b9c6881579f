"""One call of a torch operator, as its translation is given it.

What a translation needs to know of the node that it stands for travels in this value, beside the arguments and never
among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
import torch

from batch_export.exporter.graph import complex_parts, torch_tensors
from batch_export.exporter.translate.registry import qualified_name


@dataclass(frozen=True, slots=True)
class Call:
    """An operator with its arguments, and what torch computed for them.

    Attributes:
        target: the operator: an overload, a Python function, or the name of one of our own (`namespace::name`).
        args: positional arguments: ONNX values and plain Python objects.
        kwargs: keyword arguments, likewise.
        result: torch's fake result: a fake tensor, a symbolic number, or a list of them.
        name: what the result is called.
        given: torch's fake tensors among the arguments, in order.
    """

    target: object
    args: Sequence[object]
    kwargs: Mapping[str, object]
    result: object
    name: str
    given: Sequence[object] = ()

    @property
    def qualified(self) -> str:
        """The operator's name in the registry, such as `aten::add.Tensor`."""
        return qualified_name(self.target)

    @property
    def is_complex(self) -> bool:
        """Whether a complex tensor is among the arguments."""
        return any(isinstance(fake, torch.Tensor) and fake.is_complex() for fake in self.given)

    def in_pairs(self) -> Call:
        """The same with pairs in place of real tensors, for operators that have a complex number of Python beside."""
        dtype = torch.complex64
        if isinstance(self.result, torch.Tensor) and self.result.is_complex():
            dtype = self.result.dtype
        elif any(isinstance(one, ir.Value) and one.dtype == ir.DataType.DOUBLE for one in self.args):
            dtype = torch.complex128
        pairs = [complex_parts.as_pairs(one, dtype) for one in self.args]
        return replace(self, args=pairs, given=[torch.empty(0, dtype=dtype)])

    @property
    def result_dtype(self) -> ir.DataType | None:
        """The ONNX dtype of a result that is one tensor."""
        return torch_tensors.data_type(self.result.dtype) if isinstance(self.result, torch.Tensor) else None


def given_fakes(node: torch.fx.Node) -> list[object]:
    """What torch computed for the nodes that a node reads, in order."""
    return [argument.meta.get("val") for argument in node.all_input_nodes]
