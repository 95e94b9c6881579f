"""An ONNX file as a model whose nodes have types, at an opset that the rules know.

Arrives: a path. Leaves: an `onnx_ir.Model` without functions of its own, and the opset that its nodes are written for.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from batch_export.errors import UsageError
from batch_export.legalise import steps
from batch_export.words import one_line


def read(path: Path) -> ir.Model:
    """Reads a file; its weights stay where they are until they are needed.

    Raises:
        UsageError: there is no such file, or it is no ONNX model.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a file. Next step: name an ONNX file")
    try:
        model = ir.load(path)
    except Exception as error:
        raise UsageError(
            f"{path} is not an ONNX model ({one_line(str(error))}). Next step: name an ONNX file"
        ) from error
    if not model.graph.opset_imports or not (len(model.graph) or model.graph.outputs):
        raise UsageError(f"{path} is not an ONNX model: it has neither nodes nor opsets. Next step: name an ONNX file")
    return model


def opset_of(model: ir.Model, path: Path) -> int:
    """The opset of a model's own operators.

    Raises:
        UsageError: it names none.
    """
    opset = model.graph.opset_imports.get("")
    if opset is None:
        raise UsageError(f"{path} has no operators of ONNX's own domain. Next step: name a file that has")
    return opset


def prepared(model: ir.Model) -> ir.Model:
    """The model with its functions written out, names for all nodes and types for all values that have one."""
    common_passes.InlinePass()(model)
    common_passes.NameFixPass()(model)
    result = common_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    return result.model


def within_rules(model: ir.Model, opset: int) -> ir.Model:
    """The model at an opset that the rules know: one below them goes through onnx's own converter.

    Raises:
        Exception: onnx's converter does not know an operator of it.
    """
    return model if opset >= steps.WHOLE else by_onnx(model, steps.WHOLE)


def by_onnx(model: ir.Model, opset: int) -> ir.Model:
    """The model at another opset by onnx's own converter, which is not right for every model: compare afterwards."""
    proto = ir.serde.serialize_model(model)
    return ir.serde.deserialize_model(onnx.version_converter.convert_version(proto, opset))
