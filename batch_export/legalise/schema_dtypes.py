"""Dtypes that an operator takes at the opset of the file, by ONNX's own schemas.

A node at its final opset arrives. Half precision and small integers that the operator takes at later opsets only are
computed in float32 or int32, between two casts (If, Loop and Scan hand them over in these); any other dtype is an
error. Whatever made the node, no file leaves that the standard does not allow.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from batch_export.errors import NoFormError
from batch_export.legalise import body_dtypes
from batch_export.legalise.rules import Locate, nowhere

_WIDER = {
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
    ir.DataType.FLOAT16: ir.DataType.FLOAT,
    ir.DataType.INT8: ir.DataType.INT32,
    ir.DataType.INT16: ir.DataType.INT32,
    ir.DataType.UINT8: ir.DataType.INT32,
    ir.DataType.UINT16: ir.DataType.INT32,
}
_Formals = tuple[tuple[str, frozenset[str]], ...]


@functools.cache
def _allowed(operator: str, opset_version: int) -> tuple[_Formals, _Formals]:
    """For each input, then for each output, its type variable and the types that the operator takes there; the last
    may stand for many.
    """
    schema = onnx.defs.get_schema(operator, opset_version)
    return (
        tuple((one.type_str, frozenset(one.types)) for one in schema.inputs),
        tuple((one.type_str, frozenset(one.types)) for one in schema.outputs),
    )


def fit(node: ir.Node, opset_version: int, locate: Locate = nowhere) -> None:
    """Casts around an operator that takes a narrow dtype at later opsets only.

    Args:
        node: at the opset of the file.
        opset_version: that opset.
        locate: `file:line` in the user's model that a node came from, for errors.

    Raises:
        NoFormError: for any other dtype that the operator does not take or give.
    """
    if _all_fit(node.op_type, opset_version, _dtypes(node.inputs), _dtypes(node.outputs)):
        return
    inputs, outputs = _allowed(node.op_type, opset_version)
    has_bodies = body_dtypes.has(node)
    wrong: dict[str, ir.DataType] = {}
    carried: dict[ir.DataType, ir.DataType] = {}
    for index, value, formals, verb in (
        *((index, value, inputs, "takes") for index, value in enumerate(node.inputs)),
        *((index, value, outputs, "gives") for index, value in enumerate(node.outputs)),
    ):
        if value is None or not isinstance(value.type, ir.TensorType) or not formals:
            continue
        variable, types = formals[min(index, len(formals) - 1)]
        dtype = value.type.dtype
        if _named(dtype) in ("", *types):
            continue
        wider = _WIDER.get(dtype) if _named(dtype) in _cast_types(opset_version) else None
        if has_bodies and wider is not None and _named(wider) in types:
            carried[dtype] = wider
            continue
        if wider is None or _named(wider) not in types or (verb == "gives" and variable not in wrong):
            raise _no_form(node, opset_version, dtype, verb, locate(node))
        wrong[variable] = dtype
    if carried:
        body_dtypes.widen(node, carried)
    for variable, dtype in wrong.items():
        _cast_around(node, opset_version, variable, dtype)


@functools.cache
def _cast_types(opset_version: int) -> frozenset[str]:
    """The types that a Cast takes: bfloat16 from opset 13 on."""
    return _allowed("Cast", opset_version)[0][0][1]


@functools.cache
def _named(dtype: ir.DataType) -> str:
    """The type of a tensor, as schemas name it; empty where the dtype is not known."""
    return "" if dtype == ir.DataType.UNDEFINED else f"tensor({dtype.name.lower()})"


def _no_form(node: ir.Node, opset_version: int, dtype: ir.DataType, verb: str, source: str | None) -> NoFormError:
    lowest = next((later for later in range(opset_version + 1, _newest() + 1) if _fits(node, later)), None)
    other = "another opset" if lowest is None else f"opset {lowest}, the lowest at which it does, or a later one"
    return NoFormError(
        f"{node.op_type} {verb} no {dtype.name.lower()} at opset {opset_version}",
        lowest=lowest,
        highest=None,
        node=node.name,
        operator=node.op_type,
        source=source,
        next_step=f"choose {other}, or compute this part of the model in float32",
    )


def _newest() -> int:
    return int(onnx.defs.onnx_opset_version())


def _fits(node: ir.Node, opset_version: int) -> bool:
    return _all_fit(node.op_type, opset_version, _dtypes(node.inputs), _dtypes(node.outputs))


_Dtypes = tuple[ir.DataType | None, ...]


def _dtypes(values: Sequence[ir.Value | None]) -> _Dtypes:
    """The dtypes of tensors; None for what is none."""
    kinds = [None if value is None else value.type for value in values]
    return tuple([kind.dtype if isinstance(kind, ir.TensorType) else None for kind in kinds])


@functools.lru_cache(4096)
def _all_fit(operator: str, opset_version: int, inputs: _Dtypes, outputs: _Dtypes) -> bool:
    """Whether an operator takes and gives such dtypes."""
    return all(
        dtype is None or not formals or _named(dtype) in ("", *formals[min(index, len(formals) - 1)][1])
        for dtypes, formals in zip((inputs, outputs), _allowed(operator, opset_version), strict=True)
        for index, dtype in enumerate(dtypes)
    )


def _cast_around(node: ir.Node, opset_version: int, variable: str, dtype: ir.DataType) -> None:
    """The wider dtype for the inputs of one type variable, and the old one again for its outputs.

    Names are made of the node's own: in a body a graph would count them anew, and find those of the graph around it.
    """
    stem = next(output.name for output in node.outputs if output.name)
    schema = onnx.defs.get_schema(node.op_type, opset_version)
    assert node.graph is not None
    for index, value in enumerate(node.inputs):
        if value is not None and schema.inputs[min(index, len(schema.inputs) - 1)].type_str == variable:
            cast = ir.node("Cast", [value], {"to": _WIDER[dtype].value})
            cast.outputs[0].name = f"{stem}_wide_{index}"
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
            else:
                back.outputs[0].name = f"{output.name}_narrow"
            ir.convenience.replace_all_uses_with(output, back.outputs[0], replace_graph_outputs=True)
            back.replace_input_with(0, output)
            output.type = ir.TensorType(_WIDER[dtype])
