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
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import onnx_ir as ir
from onnxscript import evaluator, values

from batch_export.errors import TranslationError
from batch_export.exporter.graph import arguments, folding, kernel_dtypes, kernel_limits, schema_rules
from batch_export.exporter.graph.signatures import signature_of
from batch_export.exporter.graph.writer import NodeWriter


class PythonTranslation(values.TracedOnnxFunction):
    """A translation that is a plain Python function: it gets numbers and lists as they are, and tensors as values."""


class Recorder(NodeWriter, evaluator.Evaluator):
    """The evaluator under which torchlib functions run; use it through `recording()`.

    Args:
        fold: compute operators on small constants at once, and drop Identity nodes.
        double_forms: operator -> the function of inputs and attributes that stands in for it on float64, or gives None.

    Attributes:
        records: whether what values are asked is about a model that is being made.
        never_empty: names of sizes that are 1 or more wherever the program runs, by what was declared.
    """

    records = True

    def __init__(
        self, *, fold: bool, double_forms: Mapping[str, Callable[..., object]] = types.MappingProxyType({})
    ) -> None:
        super().__init__()
        self._fold = fold
        self._double_forms = double_forms
        self.never_empty: set[str] = set()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Routes ONNX operator calls of onnxscript functions here."""
        with evaluator.default_as(self):
            yield

    # The evaluator ----------------------------------------------------------------------------------------------------

    def eval_op(self, op: values.Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        """Records one ONNX operator; called by onnxscript when a function calls `op.Name(...)`."""
        if op.name == "Constant" and op.domain == "":
            return arguments.of_constant(self, kwargs)
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
        listed: list[object] = list(args)
        if len(listed) < len(formal):
            for parameter in formal[len(listed) :]:
                listed.append(kwargs.pop(parameter.name, None))
        inputs, binding = arguments.for_operator(self, formal, listed)
        attributes: dict[str, Any] = {
            name: schema_rules.plain_attribute(value)
            for name, value in kwargs.items()
            if value is not None and name != "_outputs"
        }
        attributes = kernel_limits.beyond_the_largest(op.name, inputs, attributes)
        if op.opset.version > 18:  # the opset classes name the defaults at every call
            attributes = schema_rules.other_than_defaults(signature, attributes)
        if op.domain == "":
            if "axis" in attributes:
                axis = kernel_limits.axes_from_the_front(op.name, inputs, cast("int", attributes["axis"]))
                attributes = attributes if axis is None else {**attributes, "axis": axis}
            elif len(inputs) > 1:
                axes = kernel_limits.axes_from_the_front(op.name, inputs, self.known(inputs[1]))
                inputs[1] = inputs[1] if axes is None else self.constant(axes)
            if op.name == "Reshape" and len(inputs) > 1 and not kernel_limits.may_copy_a_size(inputs[1], self.known):
                attributes = {**attributes, "allowzero": 1}  # the opset class names the default 0 at every call
            if kernel_limits.drawn_in_half(op.name, inputs, attributes):
                return self._drawn_in_single(signature, inputs, attributes, binding)
        if self._fold:
            folded = folding.folded(self, op.name, op.domain, inputs, attributes)
            if folded is not None:
                return folded
        if op.domain == "" and inputs:
            if op.name == "Where":
                inputs[0] = self._without_not(inputs[0], inputs[1])
            first = inputs[0]
            if op.name in self._double_forms and kernel_dtypes.is_written_out(op.name, first):
                written_out = self._double_forms[op.name](*inputs, **attributes)
                if written_out is not None:
                    return written_out
            if op.name.startswith("Reduce") and inputs[0] is not None and inputs[0].shape == ():
                inputs = inputs[:1]  # a scalar has no axes, and torch allows axis 0 of it
            if kernel_dtypes.does_nothing(op.name, inputs[0]):
                return inputs[0]
            inputs, binding = self._unify(signature, inputs, binding)
            working = kernel_dtypes.working_dtypes(signature, inputs, attributes)
            if kernel_limits.loses_digits(op.name, inputs, attributes, self.known):
                working = {**working, kernel_dtypes.formal(signature, 0).type_constraint.name: ir.DataType.DOUBLE}
            if working:
                count = self._output_count(op, inputs, attributes)
                return self._record_between_casts(signature, inputs, attributes, binding, count, working)
        count = self._output_count(op, inputs, attributes)
        return self._record(signature, inputs, attributes, binding, count)

    def computed(self, value: ir.Value) -> object:
        """The number that a translation asks for before it goes on; None where only a run of the model knows it.

        Where constants are folded it is known; here they stand as nodes.
        """
        array = folding.computed(self, value)
        return array.item() if array is not None and array.size == 1 else None

    def eval_function(
        self, function: values.OnnxFunction[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Runs a scripted onnxscript function under this recorder, in place of a call node."""
        return self.call(function, args, kwargs)

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        """Calls a torchlib function with translated arguments; numbers become constants of the right dtype.

        A `PythonTranslation` gets numbers as they are.

        Raises:
            TranslationError: if a required parameter is missing.
        """
        if isinstance(function, PythonTranslation) and _gathers(function.func):
            return _called(function.func, args, kwargs)
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
            if parameter.name in plain or (isinstance(function, PythonTranslation) and value is not None):
                call_arguments[parameter.name] = value
            elif isinstance(parameter, ir.schemas.Parameter):
                call_arguments[parameter.name] = arguments.for_function(self, parameter, value, binding)
            elif value is not None:
                call_arguments[parameter.name] = value
            elif parameter.required:
                call_arguments[parameter.name] = None
        return body(**call_arguments)


def _gathers(function: Callable[..., object]) -> bool:
    """Whether a function takes arguments by `*args` or `**kwargs`."""
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    return bool(kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})


def _called(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Calls such a function with what it takes; what it does not name or gather is left out, as of others."""
    parameters = inspect.signature(function).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        args = args[: sum(parameter.kind != inspect.Parameter.VAR_KEYWORD for parameter in parameters)]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        names = {parameter.name for parameter in parameters}
        kwargs = {name: value for name, value in kwargs.items() if name in names}
    return function(*args, **kwargs)
