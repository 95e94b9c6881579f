"""The boundary of a program: its inputs and weights on the way in, outputs and changed state on the way out.

Arrives: an exported program's signature. Leaves: ONNX inputs and initializers bound to placeholders, and ONNX outputs:
the user's in order, then each buffer and input that the program changed, as a named output of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import torch
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)

from batch_export.errors import TranslationError
from batch_export.exporter.graph import complex_parts, metadata, torch_tensors
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.translate import shared_memory
from batch_export.exporter.translate.walk import Translator


def bind_inputs(translator: Translator) -> dict[torch.fx.Node, object]:
    """Binds every placeholder of the program to an ONNX input, an initializer or a plain value."""
    program = translator.program
    env: dict[torch.fx.Node, object] = {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = list(zip(placeholders, program.graph_signature.input_specs, strict=True))
    # An input keeps the name of its parameter of forward; a weight of that name is the one that gives way.
    names = {node: translator.recorder.unique_name(node.name) for node, spec in specs if _is_given(spec)}
    for node, spec in specs:
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor) and translator._fake_mode is None:
            translator._fake_mode = getattr(fake, "fake_mode", None)
        if spec.kind == InputKind.USER_INPUT:
            env[node] = _user_input(translator, node, spec, fake, names.get(node, node.name))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            assert spec.target is not None
            source = program.state_dict if spec.target in program.state_dict else program.constants
            env[node] = _weight(translator, spec, source[spec.target])
        else:
            env[node] = None  # tokens and scripted objects carry no tensor
    return env


def _is_given(spec: InputSpec) -> bool:
    """Whether the caller passes this input when the program runs."""
    return spec.kind == InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)


def _user_input(translator: Translator, node: torch.fx.Node, spec: InputSpec, fake: object, name: str) -> object:
    if isinstance(spec.arg, ConstantArgument):
        return spec.arg.value
    value = RecordedValue(name=name)
    translator.describe(value, fake)
    if value.type is None:
        if not isinstance(fake, (bool, int, float)):
            raise TranslationError(f"the input {node.name} is a {type(fake).__name__}, which ONNX has no input for")
        return fake
    value.metadata_props[metadata.KIND.format(side="Input")] = spec.kind.name
    value.metadata_props[metadata.ORIGINAL_NAME] = node.name
    translator.inputs.append(value)
    return value


def _weight(translator: Translator, spec: InputSpec, tensor: torch.Tensor) -> ir.Value:
    assert spec.target is not None
    shown = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    value = translator.recorder.initializer(spec.target, torch_tensors.tensor_of(shown, name=spec.target))
    if tensor.is_complex():
        complex_parts.mark(value)
    value.metadata_props[metadata.KIND.format(side="Input")] = spec.kind.name
    value.metadata_props[metadata.PERSISTENT] = str(spec.kind == InputKind.PARAMETER or bool(spec.persistent))
    value.metadata_props[metadata.ORIGINAL_NAME] = spec.target
    return value


MUTATIONS = ("outputs", "error", "drop")
"""What may become of buffers and inputs that the model changes: outputs of the file, an error, nothing."""


def _refused(written: Sequence[tuple[str, str, torch.fx.Node, torch.fx.Node]]) -> TranslationError:
    names = ", ".join(
        f"the {'input' if kind == 'USER_INPUT_MUTATION' else 'buffer'} {target}" for target, kind, _, _ in written
    )
    writer = written[0][3]
    return TranslationError(
        f"the model changes {names}, which mutations='error' refuses",
        node=writer.name,
        operator=metadata.target_name(writer.target),
        source=metadata.source_location(writer),
        next_step="pass mutations='outputs' to get the new contents as outputs, or mutations='drop' to leave them out",
    )


def _without_numbers(writer: torch.fx.Node) -> TranslationError:
    return TranslationError(
        "forward writes to a tensor that it makes itself, of which torch keeps no numbers (as with tensor.data)",
        node=writer.name,
        operator=metadata.target_name(writer.target),
        source=metadata.source_location(writer),
        next_step="write to the tensor itself, or to tensor.detach()",
    )


def _as_default_float(translator: Translator, value: ir.Value) -> ir.Value:
    """A number that the model gives, which it computes in float64, as the tensor that torch makes of Python numbers."""
    if value.dtype != ir.DataType.DOUBLE:
        return value
    name = translator.recorder.unique_name(f"{value.name}_float")
    cast = RecordedValue(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
    translator.recorder.append(
        ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(ir.DataType.FLOAT))], outputs=[cast])
    )
    return cast


def bind_outputs(
    translator: Translator, env: Mapping[torch.fx.Node, object], mutations: str = "outputs"
) -> tuple[list[ir.Value], list[tuple[str, str]]]:
    """User outputs in order, then buffers and inputs that the model changed, each a value of its own.

    Args:
        translator: which has walked the program.
        env: the value of each node.
        mutations: what becomes of changed buffers and inputs, one of `MUTATIONS`.

    Raises:
        TranslationError: if there are some, and they are not wanted.
    """
    program = translator.program
    by_name = {node.name: node for node in env}
    user: list[tuple[ir.Value, str, str]] = []
    written: list[tuple[str, str, torch.fx.Node, torch.fx.Node]] = []
    taken: set[ir.Value] = {*translator.inputs, *translator.recorder.initializers.values()}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}

    def own(given: object, name: str) -> ir.Value:
        value: ir.Value = given if isinstance(given, ir.Value) else translator.recorder.constant(given)
        if value in taken:
            copy = RecordedValue(name=translator.recorder.unique_name(name), type=value.type, shape=value.shape)
            translator.recorder.append(ir.Node("", "Identity", [value], outputs=[copy]))
            value = copy
        taken.add(value)
        return value

    for spec in program.graph_signature.output_specs:
        argument = spec.arg
        if isinstance(argument, ConstantArgument):
            if argument.value is None:
                continue
            user.append((own(argument.value, "output_constant"), spec.kind.name, ""))
            continue
        if not isinstance(argument, (TensorArgument, SymIntArgument, SymFloatArgument, SymBoolArgument)):
            continue
        node = by_name[argument.name]
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            written.append((spec.target or "", spec.kind.name, node, node))
        else:
            given = env[node]
            if isinstance(argument, SymFloatArgument) and isinstance(given, ir.Value):
                given = _as_default_float(translator, given)
            computed = translator.recorder.known(given) is not None  # a constant, whose name is a number
            name = argument.name if computed else f"{argument.name}_output"
            user.append((own(given, name), spec.kind.name, ""))
    for node, writer in translator.writes.mutated.items():
        spec = specs.get(node.name)
        if spec is None:
            continue
        is_input = spec.kind == InputKind.USER_INPUT
        kind = OutputKind.USER_INPUT_MUTATION if is_input else OutputKind.BUFFER_MUTATION
        name = node.name if is_input else str(spec.target)
        if node not in env:
            raise _without_numbers(writer)
        written.append((name, kind.name, node, writer))
    shared_memory.refuse_shared(program, [target for target, _, _, _ in written])
    if written and mutations == "error":
        raise _refused(written)
    changed = [
        (own(env[node], f"{target}_mutated"), kind, target)
        for target, kind, node, _ in (written if mutations == "outputs" else ())
    ]
    listed = [*user, *changed]
    for value, kind_name, target in listed:
        value.metadata_props[metadata.KIND.format(side="Output")] = kind_name
        value.metadata_props[metadata.ORIGINAL_NAME] = target or (value.name or "")
    for value, _, target in changed:
        if value.name != f"{target}_mutated":
            value.name = translator.recorder.unique_name(f"{target}_mutated")
    return [value for value, _, _ in listed], [(kind_name, target) for _, kind_name, target in listed]
