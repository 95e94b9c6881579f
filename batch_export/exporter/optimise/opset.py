"""Reaching exactly the opset asked for.

Arrives: a model at torchlib's opset (18) and the opset wanted. Leaves: the same model at that opset, with operators
whose meaning changed on the way, or that no runtime has at the new version, rewritten, and the IR version that belongs
to it. An opset out of range is an error, never another opset.
"""

from __future__ import annotations

import functools

import onnx
import onnx_ir as ir

from batch_export.errors import OpsetError
from batch_export.exporter.graph.opsets import HIGHEST_OPSET, LOWEST_OPSET
from batch_export.exporter.optimise import random_numbers

# Operators whose inputs or attributes changed between opset 18 and 25; all other changes only add types.
_CHANGED = frozenset({"DFT", "GridSample", "GroupNormalization"})


def check_opset(opset_version: int) -> None:
    """Refuses an opset that the exporter does not produce.

    Raises:
        OpsetError: naming the range.
    """
    if not isinstance(opset_version, int) or not LOWEST_OPSET <= opset_version <= HIGHEST_OPSET:
        raise OpsetError(
            f"opset_version={opset_version!r} is not produced by this exporter",
            next_step=f"choose an opset from {LOWEST_OPSET} to {HIGHEST_OPSET}",
        )


def ir_version_for(opset_version: int) -> int:
    """The IR version that onnx's version table gives for an opset, at least 10 (the first with all metadata)."""
    operator_set = onnx.helper.make_opsetid("", opset_version)
    return max(10, int(onnx.helper.find_min_ir_version_for([operator_set])))


def set_opset(model: ir.Model, opset_version: int) -> None:
    """Converts a model in place.

    Raises:
        OpsetError: if an operator of the model has no form at that opset.
    """
    check_opset(opset_version)
    random_numbers.keep_dropout(model)
    current = model.opset_imports.get("", LOWEST_OPSET)
    if current != opset_version:
        if opset_version >= random_numbers.FIRST_OPSET:
            random_numbers.write_out(model)
        nodes = list(model.graph.all_nodes())
        if any(node.op_type in _CHANGED and node.domain == "" for node in nodes):
            from onnxscript import version_converter  # lazy: most models need no conversion

            version_converter.convert_version(model, opset_version)
        for graph in (model.graph, *model.graph.subgraphs()):
            graph.opset_imports[""] = opset_version
        model.graph.opset_imports[""] = opset_version
        for node in nodes:
            if node.domain == "":
                _check_node(node, opset_version)
    for node in list(model.graph.all_nodes()):
        if node.domain == "":
            _fit_dtypes(node, opset_version)
    model.ir_version = ir_version_for(opset_version)


_WIDER = {ir.DataType.BFLOAT16: ir.DataType.FLOAT, ir.DataType.FLOAT16: ir.DataType.FLOAT}


@functools.cache
def _allowed(operator: str, opset_version: int) -> tuple[tuple[str, frozenset[str]], ...]:
    """For each input its type variable and the types that the operator takes there; the last may stand for many."""
    schema = onnx.defs.get_schema(operator, opset_version)
    return tuple((one.type_str, frozenset(one.types)) for one in schema.inputs)


def _fit_dtypes(node: ir.Node, opset_version: int) -> None:
    """Casts around an operator that takes a half-precision dtype at later opsets only.

    Raises:
        OpsetError: for any other dtype that the operator does not take.
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


def _check_node(node: ir.Node, opset_version: int) -> None:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset_version)
    except onnx.defs.SchemaError as error:
        raise OpsetError(
            f"{node.op_type} does not exist at opset {opset_version}", node=node.name, operator=node.op_type
        ) from error
    if schema.deprecated:
        raise OpsetError(
            f"{node.op_type} is deprecated at opset {opset_version}", node=node.name, operator=node.op_type
        )
