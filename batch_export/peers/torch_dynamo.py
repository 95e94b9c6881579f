"""`torch.onnx.export` with its torch.export-based path, as a plug-in exporter.

A module and keyword arguments arrive; an ONNX file with external data is written to `path`. What torch raises goes
through, under a class whose attribute `stage` distinguishes capture from translation.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch.onnx._internal.exporter._errors import TorchExportError
from torch.utils import _pytree as pytree

from batch_export.plugin import Wanted, options, passing_on
from batch_export.words import class_and_line


class TorchCaptureError(RuntimeError):
    """torch.onnx.export could not capture the model."""

    stage = "capture"


@passing_on(torch.onnx.export)
def export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **wanted: Unpack[Wanted]) -> None:
    """Writes the file; what is given besides goes to `torch.onnx.export` as it is."""
    try:
        torch.onnx.export(
            module,
            args,
            wanted["path"],
            kwargs=kwargs,
            opset_version=wanted["opset_version"],
            dynamic_shapes=with_dims(wanted["dynamic_shapes"]),
            input_names=wanted["input_names"],
            output_names=wanted["output_names"],
            dynamo=True,
            external_data=True,
            verbose=False,
            **options(wanted),
        )
    except TorchExportError as error:
        cause = error.__cause__ or error
        raise TorchCaptureError(class_and_line(cause)) from error


def with_dims(dynamic_shapes: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replaces sums such as `past+seq`, which are no names to torch, by dimensions that torch names itself."""

    def dim(leaf: Any) -> Any:
        return torch.export.Dim.DYNAMIC if isinstance(leaf, str) and not leaf.isidentifier() else leaf

    return None if dynamic_shapes is None else pytree.tree_map(dim, dynamic_shapes)
