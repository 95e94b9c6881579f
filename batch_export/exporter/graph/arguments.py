"""What a function or an operator is called with, as ONNX values: numbers and lists become constants.

Arrives: values, Python numbers and lists. Leaves: values and constants of the dtype that the formal parameter, or a
value beside them, determines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph import schema_rules
from batch_export.exporter.graph.draft import Draft, dtype_beside, natural_dtype
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue


def for_function(
    draft: Draft, parameter: ir.schemas.Parameter, value: object, binding: Mapping[str, ir.DataType]
) -> object:
    """An argument as the body of a translation takes it."""
    if value is None or isinstance(value, ir.Value) or schema_rules.takes_sequence(parameter):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(item, ir.Value) or item is None for item in value):
        return list(value)
    bound = binding.get(parameter.type_constraint.name) or schema_rules.only_dtype(parameter)
    dtype = dtype_beside(value, bound) or natural_dtype(value)
    return draft.constant(list(value) if isinstance(value, tuple) else value, dtype)


def for_operator(
    draft: Draft, formal: Sequence[ir.schemas.Parameter], arguments: Sequence[object]
) -> tuple[list[ir.Value | None], dict[str, ir.DataType]]:
    """Turns numbers and lists into values; returns them with the dtypes bound to the schema's type variables."""
    if formal and formal[-1].variadic:
        fixed = len(formal) - 1
        parameters = [*formal[:-1], *[formal[-1]] * (len(arguments) - fixed)]
    else:
        parameters = list(formal)
        if len(arguments) > len(parameters):
            raise TranslationError(f"an operator got {len(arguments)} inputs and takes {len(parameters)}")
    binding: dict[str, ir.DataType] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(argument, ir.Value) and argument.dtype is not None:
            binding.setdefault(parameter.type_constraint.name, argument.dtype)
    inputs: list[ir.Value | None] = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument is None or isinstance(argument, ir.Value):
            inputs.append(argument)
            continue
        constraint = parameter.type_constraint.name
        if isinstance(argument, (list, tuple)) and schema_rules.takes_sequence(parameter):
            inputs.append(op.SequenceConstruct(*argument))
            continue
        dtype = (
            schema_rules.only_dtype(parameter)
            or dtype_beside(argument, binding.get(constraint))
            or natural_dtype(argument)
        )
        inputs.append(_one_value(draft, argument, dtype))
        binding.setdefault(constraint, dtype)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs, binding


def _one_value(draft: Draft, argument: object, dtype: ir.DataType) -> ir.Value:
    if isinstance(argument, (list, tuple)) and any(isinstance(item, ir.Value) for item in argument):
        items = [item for item in argument if item is not None]
        parts = [
            op.Reshape(item, draft.constant([-1], ir.DataType.INT64))
            if isinstance(item, ir.Value)
            else draft.constant([item], dtype)
            for item in items
        ]
        merged = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)
        assert isinstance(merged, ir.Value)
        if merged.shape is None and all(item.shape == () for item in items if isinstance(item, ir.Value)):
            merged.shape = ir.Shape([len(items)])
        return merged
    if isinstance(argument, onnx.TensorProto):
        return draft.constant(ir.serde.deserialize_tensor(argument))
    return draft.constant(list(argument) if isinstance(argument, tuple) else argument, dtype)


def of_constant(draft: Draft, attributes: Mapping[str, object]) -> RecordedValue:
    """The value of ONNX's operator Constant."""
    given = {name: schema_rules.plain_attribute(value) for name, value in attributes.items() if value is not None}
    if len(given) != 1:
        raise TranslationError(f"Constant takes exactly one attribute, not {sorted(given)}")
    ((name, content),) = given.items()
    if name == "value":
        if isinstance(content, onnx.TensorProto):
            content = ir.serde.deserialize_tensor(content)
        return draft.constant(content)
    dtype = {
        "value_int": ir.DataType.INT64,
        "value_ints": ir.DataType.INT64,
        "value_float": ir.DataType.FLOAT,
        "value_floats": ir.DataType.FLOAT,
        "value_string": ir.DataType.STRING,
        "value_strings": ir.DataType.STRING,
    }[name]
    return draft.constant(list(content) if isinstance(content, tuple) else content, dtype)
