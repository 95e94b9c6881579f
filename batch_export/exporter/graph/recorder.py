"""Records ONNX nodes while a torchlib function runs.

Arrives: calls of ONNX operators made by onnxscript functions, with values, Python numbers and lists as arguments.
Leaves: `onnx_ir` nodes in the innermost open scope, constants as initializers, and values that carry a dtype wherever
the operator's schema determines it. It never looks at torch objects and never decides what a torch operator means.

Differences from plain tracing: constants are interned (one initializer per content), and an operator all of whose
inputs are small known constants is computed at once instead of recorded (`folding.py`), so shape arithmetic of static
models never reaches the graph.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnxscript import evaluator, values

from batch_export.errors import TranslationError
from batch_export.exporter.graph import folding, kernel_dtypes, kernel_limits, schema_rules
from batch_export.exporter.graph.draft import Draft, dtype_beside, natural_dtype
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.opsets import TORCHLIB_OPSET
from batch_export.exporter.graph.recorded_value import Array, RecordedValue
from batch_export.exporter.graph.signatures import signature_of

_FOLD_ELEMENTS = 1024
_FIRST_OUTPUT_ONLY = frozenset({"Attention"})
"""Operators whose further outputs cost something, and that no translation reads."""
_SHAPE_KEEPING = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Neg", "Abs", "Not", "Sqrt", "Exp", "Log", "Sigmoid", "Tanh", "Relu", "Erf"),
        *("Floor", "Ceil", "Round", "Sin", "Cos", "Reciprocal", "Softmax", "LogSoftmax", "LayerNormalization", "Clip"),
    )
)


class Recorder(Draft, evaluator.Evaluator):
    """The evaluator under which torchlib functions run; use it through `recording()`.

    Args:
        fold: compute operators on small constants at once, and drop Identity nodes.
        double_forms: operator -> the function of inputs and attributes that stands in for it on float64, or gives None.
    """

    def __init__(
        self, *, fold: bool, double_forms: Mapping[str, Callable[..., object]] = types.MappingProxyType({})
    ) -> None:
        super().__init__()
        self._fold = fold
        self._double_forms = double_forms

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Routes ONNX operator calls of onnxscript functions here."""
        with evaluator.default_as(self):
            yield

    # The evaluator ----------------------------------------------------------------------------------------------------

    def eval_op(self, op: values.Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Records one ONNX operator; called by onnxscript when a function calls `op.Name(...)`."""
        if op.name == "Constant" and op.domain == "":
            return self._constant_node(kwargs)
        if op.name == "Identity" and op.domain == "" and self._fold:
            return args[0]
        if op.name == "CastLike" and isinstance(args[0], (int, float)) and getattr(args[1], "dtype", None) is not None:
            return self.constant(args[0], args[1].dtype)  # not by way of float32
        if op.name in ("Cast", "CastLike") and (given := self.unrounded(args[0])) is not None:
            wanted = args[1].dtype if op.name == "CastLike" else ir.DataType(schema_rules.plain_attribute(kwargs["to"]))
            if wanted == ir.DataType.DOUBLE:
                return self.constant(given, wanted)
        signature = signature_of(op)
        if signature is None:
            raise TranslationError(
                f"operator {op.domain}::{op.name} has no schema at opset {op.opset.version}",
                operator=f"{op.domain}::{op.name}",
                next_step="use torch.onnx.ops.symbolic for operators that onnx does not define",
            )
        formal = signature.inputs
        kwargs = dict(kwargs)
        arguments: list[Any] = list(args)
        if len(arguments) < len(formal):
            for parameter in formal[len(arguments) :]:
                arguments.append(kwargs.pop(parameter.name, None))
        inputs, binding = self._convert_inputs(formal, arguments)
        attributes = {
            name: schema_rules.plain_attribute(value)
            for name, value in kwargs.items()
            if value is not None and name != "_outputs"
        }
        if op.opset.version > 18:  # the opset classes name the defaults at every call
            attributes = schema_rules.other_than_defaults(signature, attributes)
        if op.domain == "":
            if "axis" in attributes:
                axis = kernel_limits.axes_from_the_front(op.name, inputs, attributes["axis"])
                attributes["axis"] = attributes["axis"] if axis is None else axis
            elif len(inputs) > 1:
                axes = kernel_limits.axes_from_the_front(op.name, inputs, self.known(inputs[1]))
                inputs[1] = inputs[1] if axes is None else self.constant(axes)
            if op.name == "Reshape" and len(inputs) > 1 and not kernel_limits.may_copy_a_size(inputs[1], self.known):
                attributes["allowzero"] = 1  # the opset class names the default 0 at every call
            if kernel_limits.drawn_in_half(op.name, inputs, attributes):
                return self._drawn_in_single(signature, inputs, attributes, binding)
        if self._fold:
            folded = self._try_fold(op.name, op.domain, inputs, attributes)
            if folded is not None:
                return folded
        if op.domain == "" and inputs:
            first = inputs[0]
            if op.name in self._double_forms and first is not None and first.dtype == ir.DataType.DOUBLE:
                written_out = self._double_forms[op.name](*inputs, **attributes)
                if written_out is not None:
                    return written_out
            if op.name.startswith("Reduce") and inputs[0] is not None and inputs[0].shape == ():
                inputs = inputs[:1]  # a scalar has no axes, and torch allows axis 0 of it
            if kernel_dtypes.does_nothing(op.name, inputs[0]):
                return inputs[0]
            inputs, binding = self._unify(signature, inputs, binding)
            working = kernel_dtypes.working_dtypes(signature, inputs, attributes)
            if working:
                count = self._output_count(op, inputs, attributes)
                return self._record_between_casts(signature, inputs, attributes, binding, count, working)
        count = self._output_count(op, inputs, attributes)
        return self._record(signature, inputs, attributes, binding, count)

    def eval_function(
        self, function: values.OnnxFunction[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Any:
        """Runs a scripted onnxscript function under this recorder, in place of a call node."""
        return self.call(function, args, kwargs)

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a torchlib function with translated arguments; numbers become constants of the right dtype.

        Raises:
            TranslationError: if a required parameter is missing.
        """
        signature = function.op_signature
        bound: dict[str, Any] = {}
        remaining = list(args)
        for position, parameter in enumerate(signature.params):
            if position < len(remaining):
                bound[parameter.name] = remaining[position]
            elif parameter.name in kwargs:
                bound[parameter.name] = kwargs[parameter.name]
            elif parameter.required:
                raise TranslationError(
                    f"{signature.name} needs the argument {parameter.name!r}, which the node does not give",
                    operator=signature.name,
                )
        binding = {
            parameter.type_constraint.name: value.dtype
            for parameter in signature.inputs
            if isinstance(value := bound.get(parameter.name), ir.Value) and value.dtype is not None
        }
        body: Callable[..., Any] = (
            function.func if isinstance(function, values.TracedOnnxFunction) else function.function
        )
        plain = schema_rules.plain_parameters(body)
        call_arguments: dict[str, Any] = {}
        for parameter in signature.params:
            if parameter.name not in bound:
                continue
            value = bound[parameter.name]
            if parameter.name in plain:
                call_arguments[parameter.name] = value
            elif isinstance(parameter, ir.schemas.Parameter):
                call_arguments[parameter.name] = self._adapt_function_input(parameter, value, binding)
            elif value is not None:
                call_arguments[parameter.name] = value
            elif parameter.required:
                call_arguments[parameter.name] = None
        return body(**call_arguments)

    def _adapt_function_input(
        self, parameter: ir.schemas.Parameter, value: object, binding: Mapping[str, ir.DataType]
    ) -> Any:
        if value is None or isinstance(value, ir.Value) or schema_rules.takes_sequence(parameter):
            return value
        if isinstance(value, (list, tuple)) and any(isinstance(item, ir.Value) or item is None for item in value):
            return list(value)
        bound = binding.get(parameter.type_constraint.name) or schema_rules.only_dtype(parameter)
        dtype = dtype_beside(value, bound) or natural_dtype(value)
        return self.constant(list(value) if isinstance(value, tuple) else value, dtype)

    def _convert_inputs(
        self, formal: Sequence[ir.schemas.Parameter], arguments: list[object]
    ) -> tuple[list[ir.Value | None], dict[str, ir.DataType]]:
        """Turns numbers and lists into values; returns them with the dtypes bound to the schema's type variables."""
        if formal and formal[-1].variadic:
            fixed = len(formal) - 1
            parameters = [*formal[:-1], *[formal[-1]] * (len(arguments) - fixed)]
        else:
            parameters = list(formal)
            if len(arguments) > len(parameters):
                raise TranslationError(f"an operator got {len(arguments)} inputs and takes {len(parameters)}")
        binding: dict[str, ir.DataType] = {}
        for parameter, argument in zip(parameters, arguments, strict=True):
            if isinstance(argument, ir.Value) and argument.dtype is not None:
                binding.setdefault(parameter.type_constraint.name, argument.dtype)
        inputs: list[ir.Value | None] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            if argument is None or isinstance(argument, ir.Value):
                inputs.append(argument)
                continue
            constraint = parameter.type_constraint.name
            if isinstance(argument, (list, tuple)) and schema_rules.takes_sequence(parameter):
                inputs.append(op.SequenceConstruct(*argument))
                continue
            dtype = (
                schema_rules.only_dtype(parameter)
                or dtype_beside(argument, binding.get(constraint))
                or natural_dtype(argument)
            )
            inputs.append(self._one_value(argument, dtype))
            binding.setdefault(constraint, dtype)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs, binding

    def _one_value(self, argument: object, dtype: ir.DataType) -> ir.Value:
        if isinstance(argument, (list, tuple)) and any(isinstance(item, ir.Value) for item in argument):
            items = [item for item in argument if item is not None]
            parts = [
                op.Reshape(item, self.constant([-1], ir.DataType.INT64))
                if isinstance(item, ir.Value)
                else self.constant([item], dtype)
                for item in items
            ]
            merged = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)
            assert isinstance(merged, ir.Value)
            if merged.shape is None and all(item.shape == () for item in items if isinstance(item, ir.Value)):
                merged.shape = ir.Shape([len(items)])
            return merged
        if isinstance(argument, onnx.TensorProto):
            return self.constant(ir.serde.deserialize_tensor(argument))
        return self.constant(list(argument) if isinstance(argument, tuple) else argument, dtype)

    def _constant_node(self, attributes: Mapping[str, object]) -> RecordedValue:
        given = {name: schema_rules.plain_attribute(value) for name, value in attributes.items() if value is not None}
        if len(given) != 1:
            raise TranslationError(f"Constant takes exactly one attribute, not {sorted(given)}")
        ((name, content),) = given.items()
        if name == "value":
            if isinstance(content, onnx.TensorProto):
                content = ir.serde.deserialize_tensor(content)
            return self.constant(content)
        dtype = {
            "value_int": ir.DataType.INT64,
            "value_ints": ir.DataType.INT64,
            "value_float": ir.DataType.FLOAT,
            "value_floats": ir.DataType.FLOAT,
            "value_string": ir.DataType.STRING,
            "value_strings": ir.DataType.STRING,
        }[name]
        return self.constant(list(content) if isinstance(content, tuple) else content, dtype)

    def _try_fold(
        self, name: str, domain: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
    ) -> RecordedValue | None:
        if domain != "":
            return None
        first = inputs[0] if inputs else None
        if name in ("Cast", "CastLike") and first is not None:
            second = inputs[1] if name == "CastLike" else None
            wanted = ir.DataType(attributes["to"]) if second is None else second.dtype
            if wanted is not None and first.dtype == wanted and isinstance(first, RecordedValue):
                return first
            array = self.known(first)
            if wanted is not None and array is not None and array.size <= _FOLD_ELEMENTS:
                return self.constant(array, wanted)
            return None
        if name == "Shape":
            sizes = folding.static_sizes(inputs[0], attributes)
            return None if sizes is None else self.constant(sizes, ir.DataType.INT64)
        arrays: list[Array | None] = []
        for value in inputs:
            array = None if value is None else self.known(value)
            if (value is not None and array is None) or (array is not None and array.size > _FOLD_ELEMENTS):
                return None
            arrays.append(array)
        result = folding.evaluate(name, arrays, attributes)
        if result is None or result.size > _FOLD_ELEMENTS:
            return None
        return self.constant(result)

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
        if outputs and inputs and inputs[0] is not None and inputs[0].shape is not None:
            shape = inputs[0].shape
            if signature.name in _SHAPE_KEEPING:
                outputs[0].shape = shape
            elif signature.name == "Shape":
                sizes = list(shape)[attributes.get("start", 0) : attributes.get("end", len(shape))]
                outputs[0].shape = ir.Shape([len(sizes)])
        return outputs[0] if count == 1 else tuple(outputs)

    def _with_both_bounds(self, inputs: list[ir.Value | None]) -> list[ir.Value | None]:
        """Infinite bounds where a Clip of floats has none: onnxruntime then takes the largest finite number."""
        first = inputs[0] if inputs else None
        if first is None or first.dtype is None or not first.dtype.is_floating_point():
            return inputs
        low, high = [*inputs[1:], None, None][:2]
        low = self.constant(-math.inf, first.dtype) if low is None else low
        return [first, low, self.constant(math.inf, first.dtype) if high is None else high]

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


def _later_version(signature: ir.schemas.OpSignature) -> int | None:
    """The opset that an operator is written for, where it came after the one of all others."""
    since = signature.since_version
    return since if not signature.domain and since is not None and since > TORCHLIB_OPSET else None
