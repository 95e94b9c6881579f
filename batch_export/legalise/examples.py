"""The text of a rule's example: a model of one operator in ONNX's own text form."""

from __future__ import annotations

from collections.abc import Callable

from batch_export.legalise.versions import ir_version_for


def examples_at(opset: int) -> Callable[..., str]:
    """What writes examples at an opset.

    Args:
        opset: which.

    Returns:
        A function of the nodes, the inputs, the outputs, and the initializers, each as the text form has them.
    """
    ir_version = ir_version_for(opset, metadata=False)

    def example(body: str, inputs: str, outputs: str, constants: str = "") -> str:
        kept = f" <{constants}>" if constants else ""
        header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>'
        return f"{header} g ({inputs}) => ({outputs}){kept} {{ {body} }}"

    return example
