"""Which dtypes an ONNX operator, or onnxruntime's CPU kernel of it, lacks, and the dtype to compute in instead.

Arrives: an operator's signature, the values that it is about to get and its attributes. Leaves: for each of the
signature's type variables that needs it a working dtype, and whether results are cast back. It records nothing itself:
the recorder puts the casts around the node. Two causes are told apart: ONNX does not define the operator for the dtype
(`Floor` of int64), or ONNX does and onnxruntime has no kernel (`Where` of bool). Source of the second: one model of one
node for every operator and dtype, loaded in onnxruntime 1.31 on the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from batch_export.exporter.graph import promote

BOOL, INT16, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64
UINT8, INT8, FLOAT, DOUBLE = ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.FLOAT, ir.DataType.DOUBLE
UINT16, UINT32 = ir.DataType.UINT16, ir.DataType.UINT32
FLOAT16, BFLOAT16 = ir.DataType.FLOAT16, ir.DataType.BFLOAT16

_FEWER_KERNELS: Mapping[str, frozenset[ir.DataType]] = {
    "ArgMax": frozenset({INT16}),
    "ArgMin": frozenset({INT16}),
    "Clip": frozenset({INT16}),
    "Col2Im": frozenset({BOOL, INT64, INT32, INT16, INT8, UINT8, DOUBLE}),
    "DepthToSpace": frozenset({BOOL, INT64, INT32, INT16}),
    "Einsum": frozenset({INT16, INT8, UINT8}),
    "EyeLike": frozenset({BOOL, INT16, INT8, UINT8}),
    "Gemm": frozenset({INT64, INT32}),
    "GridSample": frozenset({BOOL, INT64, INT32, INT16, INT8, UINT8, DOUBLE}),
    "Max": frozenset({INT16}),
    "Min": frozenset({INT16}),
    "NonZero": frozenset({INT16, INT8, DOUBLE}),
    "PRelu": frozenset({INT64, INT32}),
    "Pad": frozenset({INT16}),
    "RandomNormalLike": frozenset({BOOL, INT64, INT32, INT16, INT8, UINT8}),
    "RandomUniformLike": frozenset({BOOL, INT64, INT32, INT16, INT8, UINT8}),
    "Relu": frozenset({INT64, INT16}),
    "Resize": frozenset({BOOL, INT64, INT16, DOUBLE}),
    "SpaceToDepth": frozenset({BOOL, INT64, INT32, INT16}),
    "SplitToSequence": frozenset({INT16, INT8, UINT8}),
    "TopK": frozenset({UINT16, UINT32}),
    "Trilu": frozenset({INT16, INT8, UINT8}),
    "Unique": frozenset({BOOL, INT32, INT16, UINT8}),
    "Where": frozenset({BOOL, INT16}),
}
_FOR_BFLOAT16 = frozenset(
    (
        *(
            "BitCast",
            "Cast",
            "CastLike",
            "Compress",
            "Concat",
            "ConstantOfShape",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
        ),
        *("Identity", "If", "IsInf", "Loop", "OneHot", "Reshape", "Scan", "ScatterElements", "ScatterND", "Shape"),
        *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    )
)
"""Operators with a kernel for bfloat16; that they only move elements is no accident."""
_WITHOUT_REDUCTION_KERNEL: Mapping[str, frozenset[ir.DataType]] = {
    "ScatterElements": frozenset({BOOL, FLOAT16, BFLOAT16}),
    "ScatterND": frozenset({BOOL, FLOAT16, BFLOAT16}),
}
_STANDS_IN: Mapping[ir.DataType, tuple[ir.DataType, ...]] = {
    BOOL: (INT32, INT64, FLOAT),
    UINT8: (INT32, INT64, FLOAT),
    INT8: (INT32, INT64, FLOAT),
    INT16: (INT32, INT64, FLOAT),
    UINT16: (INT32, INT64, FLOAT),
    UINT32: (INT64, DOUBLE),
    INT32: (INT64, DOUBLE, FLOAT),
    INT64: (DOUBLE, FLOAT),
    FLOAT16: (FLOAT,),
    BFLOAT16: (FLOAT,),
}
"""dtype -> what to compute in, best first; every value of the dtype has its place there (int64 up to 2^53, or 2^24).

For float64 there is nothing: float32 would be another result, so such operators are written out in `ops/`.
"""

_ROUNDING = frozenset({"Floor", "Ceil", "Round"})
"""On integers these change nothing at all."""

_INTEGRAL = frozenset(
    {
        "AveragePool",
        "Conv",
        "ConvTranspose",
        "Dropout",
        "GlobalMaxPool",
        "GridSample",
        "MaxPool",
        "Relu",
        "Sum",
        "Trilu",
    }
)
"""Operators of floating point whose results torch gives back as integers when the inputs are integers."""

_SUMS = frozenset({"Conv", "ConvTranspose"})
"""Operators that add up products: of integers in float64, which holds them up to 2^53, since float32 loses them."""

_FLOAT_KERNEL_ONLY = frozenset({"AveragePool", "Conv", "ConvTranspose", "Erf", "GlobalMaxPool", "GridSample", "Col2Im"})


def formal(signature: ir.schemas.OpSignature, index: int) -> ir.schemas.Parameter:
    """The formal parameter of an input; the last one may stand for many."""
    listed = signature.inputs
    return listed[min(index, len(listed) - 1)]


@functools.cache
def _allowed(constraint: ir.schemas.TypeConstraintParam) -> frozenset[ir.DataType]:
    return frozenset(kind.dtype for kind in constraint.allowed_types if isinstance(kind, ir.TensorType))


def _has_kernel(name: str, dtype: ir.DataType, attributes: Mapping[str, object]) -> bool:
    if dtype == BFLOAT16 and name not in _FOR_BFLOAT16:
        return False
    if dtype in _FEWER_KERNELS.get(name, ()) or (dtype == DOUBLE and name in _FLOAT_KERNEL_ONLY):
        return False
    return not (attributes.get("reduction", "none") != "none" and dtype in _WITHOUT_REDUCTION_KERNEL.get(name, ()))


def is_written_out(name: str, first: ir.Value | None) -> bool:
    """Whether an operator that has another form for float64 is recorded in that form."""
    dtype = None if first is None else first.dtype
    return dtype is not None and (dtype == DOUBLE or (name in _SUMS and dtype.is_integer()))


def does_nothing(name: str, first: ir.Value | None) -> bool:
    """Whether the operator hands its input on because that is an integer (rounding)."""
    return name in _ROUNDING and first is not None and first.dtype is not None and first.dtype.is_integer()


def working_dtypes(
    signature: ir.schemas.OpSignature, inputs: Sequence[ir.Value | None], attributes: Mapping[str, object]
) -> dict[str, ir.DataType]:
    """Type variable -> the dtype to cast its inputs to, for those variables that need it.

    Args:
        signature: the operator's.
        inputs: the values, None for absent ones.
        attributes: the node's attributes.
    """
    if signature.domain:
        return {}
    found: dict[str, ir.DataType] = {}
    for index, value in enumerate(inputs):
        if value is None or value.dtype is None or isinstance(value.type, ir.SequenceType):
            continue
        constraint = formal(signature, index).type_constraint
        if constraint.name in found:
            continue
        allowed = _allowed(constraint)
        if not allowed or (value.dtype in allowed and _has_kernel(signature.name, value.dtype, attributes)):
            continue
        for candidate in _STANDS_IN.get(value.dtype, ()):
            if candidate in allowed and _has_kernel(signature.name, candidate, attributes):
                found[constraint.name] = candidate
                break
    return found


def common_dtypes(signature: ir.schemas.OpSignature, inputs: Sequence[ir.Value | None]) -> dict[str, ir.DataType]:
    """Type variable -> the dtype to which torch promotes its inputs, for those variables whose inputs differ."""
    listed: dict[str, list[ir.Value]] = {}
    for index, value in enumerate(inputs):
        if value is not None and value.dtype is not None and not isinstance(value.type, ir.SequenceType):
            parameter = formal(signature, index)
            if not parameter.variadic or parameter.homogeneous:
                listed.setdefault(parameter.type_constraint.name, []).append(value)
    found: dict[str, ir.DataType] = {}
    for name, values in listed.items():
        if len({value.dtype for value in values}) > 1:
            common = promote.result_dtype(values)
            if common is not None:
                found[name] = common
    return found


def casts_back(name: str, given: ir.DataType, working: ir.DataType) -> bool:
    """Whether results computed in the working dtype become the inputs' dtype again.

    An integer working dtype always does, and so does one that stands in for half precision. For integers a floating one
    does for operators that torch defines on integers; others, such as Exp, give floating point from integers in torch.
    """
    from_float = given.is_floating_point() or not working.is_floating_point()
    return from_float or name in _INTEGRAL or name in _FEWER_KERNELS
