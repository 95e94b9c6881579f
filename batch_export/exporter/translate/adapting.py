"""What torch allows in a call and ONNX does not, and calls that are better taken apart.

Arrives: an operator with its arguments and torch's fake result. Leaves: arguments as a translation takes them, and
answers about the call. Nothing is translated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import onnx_ir as ir
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from batch_export.errors import TranslationError
from batch_export.exporter.graph import promote
from batch_export.exporter.graph.complex_parts import is_pair
from batch_export.exporter.graph.operators import op
from batch_export.exporter.ops import contractions, double_forms
from batch_export.exporter.translate.registry import ONNXFunction

_SUMS_OF_PRODUCTS = ("einsum", "inner", "tensordot")


def floats_as_floats(
    target: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Whole numbers that torch's schema takes as floats (not as scalars, which may be either) become floats."""
    converted, keywords = list(args), dict(kwargs)
    if isinstance(target, torch._ops.OpOverload):
        for position, formal in enumerate(target._schema.arguments):
            if "float" not in str(formal.type):
                continue
            if position < len(converted):
                converted[position] = _as_float(converted[position])
            elif formal.name in keywords:
                keywords[formal.name] = _as_float(keywords[formal.name])
    return converted, keywords


def _as_float(argument: object) -> object:
    return float(argument) if type(argument) is int else argument


def is_scalar_along_an_axis(target: object, arguments: Sequence[object], fake: object) -> bool:
    """Whether an operator takes a scalar along its axis 0, which torch allows and ONNX does not."""
    if not isinstance(target, torch._ops.OpOverload) or not arguments:
        return False
    first, results = arguments[0], pytree.tree_leaves(fake)
    along = any(formal.name in ("dim", "dims", "dim0") for formal in target._schema.arguments)
    is_scalar = isinstance(first, ir.Value) and first.shape is not None and len(first.shape) == int(is_pair(first))
    return along and is_scalar and all(isinstance(one, torch.Tensor) and one.dim() == 0 for one in results)


def as_vector(argument: object) -> object:
    if not isinstance(argument, ir.Value) or argument.shape is None or len(argument.shape):
        return argument
    vector = op.Reshape(argument, [1])
    vector.shape = ir.Shape([1])
    return vector


def as_scalar(result: object) -> object:
    return op.Reshape(result, op.Constant(value_ints=[])) if isinstance(result, ir.Value) else result


def has_several_results(target: object) -> bool:
    """Whether an operator gives several tensors, each a result of its own; a list of tensors is one result."""
    return isinstance(target, torch._ops.OpOverload) and len(target._schema.returns) > 1


def is_taken_apart(function: ONNXFunction, qualified: str, arguments: Any) -> bool:
    """Whether torch's decomposition is taken in place of a translation.

    That is so where onnxruntime has no kernel for float64, or one that divides by a size of 0 or
    does not repeat what `...` stands for (Einsum).
    """
    name = promote.base_name(qualified)
    if function.origin == "custom" or (name not in double_forms.TAKEN_APART and name not in _SUMS_OF_PRODUCTS):
        return False
    if qualified in double_forms.WRITTEN_OUT:
        return False
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, (torch.Tensor, ir.Value))]
    if name == "einsum":
        may_be_empty = any(not isinstance(size, int) or size == 0 for one in tensors for size in one.shape or ())
        if contractions.is_unlike(arguments[0][0], [tuple(one.shape or ()) for one in tensors]):
            return True
        return may_be_empty and not contractions.is_product(*arguments[0][:2]) and not contractions.may_stay(tensors)
    if name in ("inner", "tensordot"):  # of fixed sizes torch makes one product
        dims = arguments[0][2:4] or ([-1], [-1])
        return contractions.may_stay(tensors) or not contractions.is_product(
            contractions.of_axes(*arguments[0][:2], *dims), arguments[0][:2]
        )
    return any(one.dtype in (torch.float64, ir.DataType.DOUBLE) for one in tensors)


def is_complex(leaf: object) -> TypeGuard[torch.Tensor]:
    return isinstance(leaf, torch.Tensor) and leaf.is_complex()


def is_empty(fake: object) -> TypeGuard[torch.Tensor]:
    """Whether the result is one real tensor whose fixed sizes leave it without elements."""
    if not isinstance(fake, torch.Tensor) or fake.is_complex():
        return False
    sizes: list[object] = list(fake.shape)
    by_data = any(free_unbacked_symbols(size) for size in sizes)
    return 0 in [size for size in sizes if isinstance(size, int)] and not by_data


def counted(
    arguments: Sequence[object], kwargs: Mapping[str, object], given: Sequence[object], slices: Sequence[object]
) -> list[object]:
    """The arguments of `unbind` with the number of slices, which a free axis does not tell.

    Raises:
        TranslationError: where torch computed the rest of the program with slices that keep their axis.
    """
    whole, first = given[0] if given else None, slices[0] if slices else None
    if isinstance(whole, torch.Tensor) and isinstance(first, torch.Tensor) and first.dim() == whole.dim():
        raise TranslationError(
            "torch takes the slices of unbind along an axis of free size for pieces that keep the axis",
            next_step="write x[0], x[1] for its slices, or keep the axis fixed",
        )
    return [arguments[0], kwargs.get("dim", arguments[1] if len(arguments) > 1 else 0), len(slices)]
