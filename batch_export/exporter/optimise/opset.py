"""Reaching exactly the opset asked for.

Arrives: a model at torchlib's opset (18) and the opset wanted. Leaves: the same model at that opset, with operators
whose meaning changed on the way, or that no runtime has at the new version, rewritten, and the IR version that belongs
to it. An opset out of range is an error, never another opset.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from batch_export.errors import OpsetError
from batch_export.exporter.graph.opsets import HIGHEST_OPSET, LOWEST_OPSET
from batch_export.exporter.optimise import random_numbers, schema_dtypes

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
            common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        for graph in (model.graph, *model.graph.subgraphs()):
            graph.opset_imports[""] = opset_version
        model.graph.opset_imports[""] = opset_version
        for node in nodes:
            if node.domain == "":
                _check_node(node, opset_version)
    for node in list(model.graph.all_nodes()):
        if node.domain == "":
            schema_dtypes.fit(node, opset_version)
    model.ir_version = ir_version_for(opset_version)


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
