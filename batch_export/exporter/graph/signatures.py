"""Signatures of ONNX's operators, made once per operator and version.

onnxscript makes an operator object, and its signature from the schema, at every call that a translation writes.
"""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir
from onnxscript import values


def signature_of(op: values.Op) -> ir.schemas.OpSignature | None:
    """Returns the operator's signature; None when it has no schema."""
    if op.domain == "" and op.op_schema is not None:
        return _standard(op.name, op.op_schema.since_version)
    signature: ir.schemas.OpSignature | None = op.op_signature
    return signature


@cache
def _standard(name: str, since_version: int) -> ir.schemas.OpSignature:
    return ir.schemas.OpSignature.from_op_schema(onnx.defs.get_schema(name, since_version, ""))
