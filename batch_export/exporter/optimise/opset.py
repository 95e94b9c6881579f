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
from batch_export.exporter.graph import metadata
from batch_export.exporter.graph.opsets import HIGHEST_OPSET, LOWEST_OPSET, TORCHLIB_OPSET
from batch_export.legalise import (
    chain,
    lagging,
    moved_batches,
    newer_forms,
    padded_pools,
    random_numbers,
    scaled_doubles,
    scaled_twice,
    schema_dtypes,
    turned_batches,
    turned_vectors,
)
from batch_export.legalise.nested import has, nodes_of
from batch_export.legalise.versions import ir_version_for


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
    newest = onnx.defs.onnx_opset_version()
    if opset_version > newest:
        raise OpsetError(
            f"the installed onnx {onnx.__version__} has opsets to {newest}, not {opset_version}",
            next_step=f"install a newer onnx, or choose opset {newest} or a lower one",
        )


def set_opset(model: ir.Model, opset_version: int, *, native: bool = True) -> None:
    """Converts a model in place.

    Args:
        model: the model, at torchlib's opset.
        opset_version: the opset wanted.
        native: whether operators that the latest opsets have whole are put in where the graph spells them out.

    Raises:
        OpsetError: if an operator of the model has no form at that opset, or takes a dtype only elsewhere.
    """
    check_opset(opset_version)
    random_numbers.keep_dropout(model)
    if opset_version >= random_numbers.FIRST_OPSET:
        random_numbers.write_out(model)
    chain.legalise(model, model.opset_imports.get("", TORCHLIB_OPSET), opset_version, _source)
    lagging.write_out(model, opset_version)
    if native:
        newer_forms.recognise(model, opset_version)
    for node in nodes_of(model.graph):
        if node.domain == "":
            schema_dtypes.fit(node, opset_version, _source)
    padded_pools.keep_apart(model, opset_version)
    moved_batches.keep_apart(model)
    scaled_twice.keep_apart(model)
    scaled_doubles.keep_apart(model)
    turned_vectors.put_first(model)
    turned_batches.cast_first(model)
    if has(model.graph, "Constant"):
        common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    model.ir_version = ir_version_for(opset_version)


def _source(node: ir.Node) -> str | None:
    trace = node.metadata_props.get(metadata.STACK_TRACE)
    return metadata.innermost_line(trace) if trace else None
