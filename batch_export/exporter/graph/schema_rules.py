"""What an operator's schema says of its inputs, attributes and outputs.

Arrives: signatures, and the arguments of one call. Leaves: dtypes, typed attributes and answers about parameters.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnx_ir as ir

if TYPE_CHECKING:  # a private name, which another onnx-ir may not have
    from onnx_ir._convenience import SupportedAttrTypes as AttributeValue

_DTYPE_FROM_ATTRIBUTE = {
    "BitCast": "to",
    "Cast": "to",
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniformLike": "dtype",
    "EyeLike": "dtype",
    "Bernoulli": "dtype",
    "Multinomial": "dtype",
    "QuantizeLinear": "output_dtype",
}


def plain_attribute(value: object) -> Any:
    return value.value if isinstance(value, ir.Attr) else value


def typed_attributes(signature: ir.schemas.OpSignature, attributes: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Whole numbers as floats where the operator's schema asks for floats; torch's scalars are either.

    Of a list without elements the schema says what it is one of.
    """
    typed = cast("dict[str, AttributeValue]", dict(attributes))
    for name, value in attributes.items():
        kind = getattr(signature.get(name), "type", None)
        if kind == ir.AttributeType.FLOAT and isinstance(value, int):
            typed[name] = float(value)
        elif isinstance(kind, ir.AttributeType) and isinstance(value, (list, tuple)) and not value:
            typed[name] = ir.Attr(name, kind, ())
        elif kind == ir.AttributeType.FLOATS and isinstance(value, (list, tuple)):
            typed[name] = [float(item) for item in value]
    return typed


def other_than_defaults(signature: ir.schemas.OpSignature, attributes: Mapping[str, object]) -> dict[str, object]:
    """Returns the attributes that say something: a node without one has the schema's default. A float is compared as
    ONNX keeps it, in single precision.
    """

    def says_something(name: str, value: Any) -> bool:
        default = getattr(signature.get(name), "default", None)
        if not isinstance(default, ir.Attr):
            return True
        if default.type == ir.AttributeType.FLOAT:
            return bool(np.float32(value) != np.float32(default.value))
        return bool(value != default.value)

    return {name: value for name, value in attributes.items() if says_something(name, value)}


def only_dtype(parameter: ir.schemas.Parameter) -> ir.DataType | None:
    allowed = parameter.type_constraint.allowed_types
    if len(allowed) != 1:
        return None
    (only,) = allowed
    return only.dtype if isinstance(only, ir.TensorType) else None


@functools.cache
def plain_parameters(body: Callable[..., object]) -> frozenset[str]:
    """Parameters annotated `Optional[int]` and the like: tensors to onnxscript, Python numbers to the function."""
    try:
        hints = typing.get_type_hints(body)
    except (NameError, TypeError):
        return frozenset()
    found = set()
    for name, hint in hints.items():
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        if typing.get_origin(hint) in (typing.Union, types.UnionType) and all(
            kind in (int, float, bool, str) for kind in kinds
        ):
            found.add(name)
    return frozenset(found)


def takes_sequence(parameter: ir.schemas.Parameter) -> bool:
    return all(isinstance(kind, ir.SequenceType) for kind in parameter.type_constraint.allowed_types)


def output_dtype(
    signature: ir.schemas.OpSignature,
    formal: ir.schemas.Parameter,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    binding: Mapping[str, ir.DataType],
) -> ir.DataType | None:
    """The dtype of an operator's output, wherever its schema, attributes and inputs determine it."""
    name = signature.name
    attribute = _DTYPE_FROM_ATTRIBUTE.get(name)
    if attribute is not None and attributes.get(attribute):
        return ir.DataType(attributes[attribute])
    if name in ("CastLike", "RandomNormalLike", "RandomUniformLike", "EyeLike", "Bernoulli"):
        source = inputs[1 if name == "CastLike" else 0]
        return None if source is None else source.dtype
    if name == "ConstantOfShape":
        fill = attributes.get("value")
        if fill is None:
            return ir.DataType.FLOAT
        return ir.DataType(fill.data_type) if isinstance(fill, onnx.TensorProto) else fill.dtype
    if name in ("RandomNormal", "RandomUniform"):
        return ir.DataType.FLOAT
    if name == "Identity" and inputs[0] is not None and isinstance(inputs[0].type, ir.TensorType):
        return inputs[0].dtype
    if any(type(kind) is ir.SequenceType for kind in formal.type_constraint.allowed_types):
        return None
    return binding.get(formal.type_constraint.name) or only_dtype(formal)
