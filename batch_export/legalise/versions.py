"""Which IR version belongs to an opset."""

from __future__ import annotations

import onnx

_WITHOUT_WEIGHTS_AS_INPUTS = 4
"""The first IR version whose weights need not be inputs."""

_WITH_NODE_METADATA = 10
"""The first IR version whose nodes have metadata."""

_METADATA_FROM = 18


def ir_version_for(opset: int, *, metadata: bool = True) -> int:
    """The IR version that onnx's version table gives for an opset.

    Args:
        opset: of the file.
        metadata: whether nodes have metadata: from opset 18 on the version is then one that has it. What reads only
            older opsets may read no newer IR version than theirs, and there it stays theirs.

    Returns:
        The version, at least 4.
    """
    version = int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)]))
    if metadata and opset >= _METADATA_FROM:
        version = max(_WITH_NODE_METADATA, version)
    return max(_WITHOUT_WEIGHTS_AS_INPUTS, version)
