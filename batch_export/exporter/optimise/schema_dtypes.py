"""Dtypes that an operator takes at the opset of the file, by ONNX's own schemas.

A node at its final opset arrives. Half precision that the operator takes at later opsets only is computed in float32,
between two casts; any other dtype is an error. Whatever made the node, no file leaves that the standard does not allow.
"""

from __future__ import annotations

import functools

import onnx
import onnx_ir as ir

from batch_export.errors import OpsetError

_WIDER = {ir.DataType.BFLOAT16: ir.DataType.FLOAT, ir.DataType.FLOAT16: ir.DataType.FLOAT}


@functools.cache
def _allowed(operator: str, opset_version: int) -> tuple[tuple[str, frozenset[str]], ...]:
    """For each input its type variable and the types that the operator takes there; the last may stand for many."""
    schema = onnx.defs.get_schema(operator, opset_version)
    return tuple((one.type_str, frozenset(one.types)) for one in schema.inputs)


@functools.cache
def _given(operator: str, opset_version: int) -> tuple[frozenset[str], ...]:
    """For each output the types that the operator gives there; the last may stand for many."""
    return tuple(frozenset(one.types) for one in onnx.defs.get_schema(operator, opset_version).outputs)


def fit(node: ir.Node, opset_version: int) -> None:
    """Casts around an operator that takes a half-precision dtype at later opsets only.

    Raises:
        OpsetError: for any other dtype that the operator does not take, or give.
    """
    formal = _allowed(node.op_type, opset_version)
    wrong: dict[str, ir.DataType] = {}
    for index, value in enumerate(node.inputs):
        if value is None or not isinstance(value.type, ir.TensorType) or not formal:
            continue
        variable, types = formal[min(index, len(formal) - 1)]
        dtype = value.type.dtype
        if f"tensor({dtype.name.lower()})".replace("tensor(undefined)", "") in ("", *types):
            continue
        if dtype not in _WIDER:
            raise OpsetError(
                f"{node.op_type} takes no {dtype.name.lower()} at opset {opset_version}",
                node=node.name,
                operator=node.op_type,
                next_step="choose a later opset, or compute this part of the model in float32",
            )
        wrong[variable] = dtype
    outputs = _given(node.op_type, opset_version)
    for index, value in enumerate(node.outputs if outputs else ()):
        made = value.type.dtype if isinstance(value.type, ir.TensorType) else ir.DataType.UNDEFINED
        if made == ir.DataType.UNDEFINED or made in _WIDER:
            continue
        if f"tensor({made.name.lower()})" not in outputs[min(index, len(outputs) - 1)]:
            raise OpsetError(
                f"{node.op_type} gives no {made.name.lower()} at opset {opset_version}",
                node=node.name,
                operator=node.op_type,
                next_step="choose a later opset, or compute this part of the model in float32",
            )
    for variable, dtype in wrong.items():
        _cast_around(node, opset_version, variable, dtype)


def _cast_around(node: ir.Node, opset_version: int, variable: str, dtype: ir.DataType) -> None:
    """Float32 for the inputs of one type variable, and the old dtype again for its outputs."""
    schema = onnx.defs.get_schema(node.op_type, opset_version)
    assert node.graph is not None
    for index, value in enumerate(node.inputs):
        if value is not None and schema.inputs[min(index, len(schema.inputs) - 1)].type_str == variable:
            cast = ir.node("Cast", [value], {"to": _WIDER[dtype].value})
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(_WIDER[dtype]), value.shape
            cast.metadata_props.update(node.metadata_props)
            node.graph.insert_before(node, cast)
            node.replace_input_with(index, cast.outputs[0])
    for index, output in enumerate(node.outputs):
        if schema.outputs[min(index, len(schema.outputs) - 1)].type_str == variable:
            back = ir.node("Cast", [output], {"to": dtype.value})
            back.outputs[0].type, back.outputs[0].shape = ir.TensorType(dtype), output.shape
            back.metadata_props.update(node.metadata_props)
            node.graph.insert_after(node, back)
            if output.is_graph_output():
                output.name, back.outputs[0].name = f"{output.name}_wide", output.name
            ir.convenience.replace_all_uses_with(output, back.outputs[0], replace_graph_outputs=True)
            back.replace_input_with(0, output)
            output.type = ir.TensorType(_WIDER[dtype])
