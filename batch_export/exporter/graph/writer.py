"""Writes ONNX nodes whose inputs are values already, with results of the dtype that the operator's schema determines.

Arrives: an operator's signature, its inputs and attributes. Leaves: a node in the innermost open scope, between casts
where the inputs' dtypes differ or a kernel takes others, and its results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import values

from batch_export.errors import TranslationError
from batch_export.exporter.graph import kernel_dtypes, kernel_limits, schema_rules
from batch_export.exporter.graph.draft import Draft
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.opsets import TORCHLIB_OPSET
from batch_export.exporter.graph.ranks import rank_of
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.graph.signatures import signature_of

_FIRST_OUTPUT_ONLY = frozenset({"Attention"})
"""Operators whose further outputs cost something, and that no translation reads."""
_SHAPE_KEEPING = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Neg", "Abs", "Not", "Sqrt", "Exp", "Log", "Sigmoid", "Tanh", "Relu", "Erf"),
        *("Floor", "Ceil", "Round", "Sin", "Cos", "Reciprocal", "Softmax", "LogSoftmax", "LayerNormalization", "Clip"),
    )
)


class NodeWriter(Draft):
    """A graph under construction that knows what nodes of ONNX's operators need."""

    def _output_count(self, op: values.Op, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]) -> int:
        if op.domain == "":
            if op.name in _FIRST_OUTPUT_ONLY:
                return 1
            if op.name == "BatchNormalization":
                return 3 if attributes.get("training_mode") else 1
            if op.name == "Split":
                if "num_outputs" in attributes:
                    return int(attributes["num_outputs"])
                sizes = self.known(inputs[1]) if len(inputs) > 1 else None
                pieces = None if sizes is not None or inputs[1] is None else inputs[1].shape
                if pieces is not None and isinstance(pieces[0], int):
                    return pieces[0]
                if sizes is None:
                    raise TranslationError("the number of pieces of a Split is not known", operator="Split")
                return int(sizes.size)
        signature = signature_of(op)
        assert signature is not None
        return len(signature.outputs)

    def _record(
        self,
        signature: ir.schemas.OpSignature,
        inputs: list[ir.Value | None],
        attributes: Mapping[str, Any],
        binding: Mapping[str, ir.DataType],
        count: int,
    ) -> Any:
        if signature.name == "Clip" and not signature.domain:
            inputs = self._with_both_bounds(inputs)
        outputs: list[RecordedValue] = []
        for index in range(count):
            formal = signature.outputs[min(index, len(signature.outputs) - 1)]
            dtype = schema_rules.output_dtype(signature, formal, inputs, attributes, binding)
            outputs.append(self.value(dtype))
        node = ir.Node(
            signature.domain,
            signature.name,
            inputs=inputs,
            attributes=ir.convenience.convert_attributes(schema_rules.typed_attributes(signature, attributes)),
            outputs=outputs,
            version=_later_version(signature),
        )
        self.append(node)
        self._say_length(outputs, signature.name, inputs, attributes)
        if outputs and inputs and inputs[0] is not None and inputs[0].shape is not None:
            shape = inputs[0].shape
            if signature.name in _SHAPE_KEEPING:
                outputs[0].shape = shape
            elif signature.name == "Shape":
                sizes = list(shape)[attributes.get("start", 0) : attributes.get("end", len(shape))]
                outputs[0].shape = ir.Shape([len(sizes)])
        return outputs[0] if count == 1 else tuple(outputs)

    def _without_not(self, condition: ir.Value | None, chosen: ir.Value | None) -> ir.Value | None:
        """A condition that is no Not, where a number of the model is chosen by one.

        onnxruntime turns the branches round, and its Where loses the sign of a zero in the second input.
        """
        negation = None if condition is None else condition.producer()
        if negation is None or negation.op_type != "Not" or negation.domain or chosen is None or chosen.dtype is None:
            return condition
        if not chosen.dtype.is_floating_point() or self.known(chosen) is None:
            return condition
        negated: ir.Value = op.Equal(negation.inputs[0], self.constant(np.array(False)))
        return negated

    def _say_length(
        self,
        outputs: Sequence[ir.Value],
        name: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
    ) -> None:
        """Writes onto a Fourier transform's result that an axis has a length of its own."""
        axis = kernel_limits.axis_of_other_length(name, inputs, attributes, self.known)
        rank = rank_of(inputs[0]) if axis is not None else None
        if axis is not None and rank is not None:
            sizes: list[int | ir.SymbolicDim] = [ir.SymbolicDim(None)] * rank
            sizes[axis] = ir.SymbolicDim(self.unique_name("transformed"))
            sizes[-1] = 1 if attributes.get("onesided") and attributes.get("inverse") else 2
            outputs[0].shape = ir.Shape(sizes)

    def _unify(
        self, signature: ir.schemas.OpSignature, inputs: list[ir.Value | None], binding: dict[str, ir.DataType]
    ) -> tuple[list[ir.Value | None], dict[str, ir.DataType]]:
        """Casts inputs that share a type variable and differ in dtype to the one that torch promotes them to."""
        promoted = kernel_dtypes.common_dtypes(signature, inputs)
        if not promoted:
            return inputs, binding
        names = [kernel_dtypes.formal(signature, index).type_constraint.name for index in range(len(inputs))]
        cast: list[ir.Value | None] = [
            op.Cast(value, to=promoted[name]) if value is not None and name in promoted else value
            for name, value in zip(names, inputs, strict=True)
        ]
        return cast, {**binding, **promoted}

    def _record_between_casts(
        self,
        signature: ir.schemas.OpSignature,
        inputs: list[ir.Value | None],
        attributes: Mapping[str, object],
        binding: Mapping[str, ir.DataType],
        count: int,
        working: Mapping[str, ir.DataType],
    ) -> Any:
        """Records an operator in other dtypes than its inputs', and casts its results back where torch would."""
        cast: list[ir.Value | None] = []
        for index, value in enumerate(inputs):
            dtype = working.get(kernel_dtypes.formal(signature, index).type_constraint.name)
            cast.append(value if value is None or dtype is None else op.Cast(value, to=dtype))
        result = self._record(signature, cast, attributes, {**binding, **working}, count)
        outputs = list(result) if count > 1 else [result]
        for index, output in enumerate(outputs):
            name = signature.outputs[min(index, len(signature.outputs) - 1)].type_constraint.name
            given = binding.get(name)
            if name in working and given is not None and kernel_dtypes.casts_back(signature.name, given, working[name]):
                outputs[index] = op.Cast(output, to=given)
        return tuple(outputs) if count > 1 else outputs[0]

    def _drawn_in_single(
        self,
        signature: ir.schemas.OpSignature,
        inputs: list[ir.Value | None],
        attributes: dict[str, object],
        binding: Mapping[str, ir.DataType],
    ) -> Any:
        """Random numbers drawn in float32 and cast to what was asked for."""
        wanted = kernel_limits.drawn_in_half(signature.name, inputs, attributes)
        single = {**attributes, "dtype": int(ir.DataType.FLOAT)}
        return op.Cast(self._record(signature, inputs, single, binding, 1), to=wanted)

    def _with_both_bounds(self, inputs: list[ir.Value | None]) -> list[ir.Value | None]:
        """Infinite bounds where a Clip of floats has none: onnxruntime then takes the largest finite number."""
        first = inputs[0] if inputs else None
        if first is None or first.dtype is None or not first.dtype.is_floating_point():
            return inputs
        low, high = [*inputs[1:], None, None][:2]
        low = self.constant(-math.inf, first.dtype) if low is None else low
        return [first, low, self.constant(math.inf, first.dtype) if high is None else high]


def _later_version(signature: ir.schemas.OpSignature) -> int | None:
    """The opset that an operator is written for, where it came after the one of all others."""
    since = signature.since_version
    return since if not signature.domain and since is not None and since > TORCHLIB_OPSET else None
