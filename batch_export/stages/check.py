"""The realised contract of a file, compared with the requested one.

An ONNX file and a `Contract` arrive; facts leave: `opset`, `ir_version`, `nodes`, `bytes` (external data included),
`operators` (how many of each), `random_operators` (those that may draw random numbers, each with whether it is known
to), `inputs` and `outputs` (`name`, `dtype`, `shape`), and `findings`: plain `Failure` values, one sentence each. A
finding is not a failure of the stage: the verdict decides. Nothing is run, and no weight is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import onnx

from batch_export.contract import Contract, TensorContract
from batch_export.record import Failure, Stage
from batch_export.stages.external_data import external_data_findings, external_files
from batch_export.stages.mutations import mutation_output
from batch_export.stages.output import StageOutput
from batch_export.stages.random_operators import random_operators
from batch_export.words import error_line

_DEFAULT_DOMAINS = ("", "ai.onnx")
_OVERRIDABLE = 4
"""The IR version from which on an initializer need not be an input."""
_NAMES = 3


def execute(model_path: Path, requested: Contract) -> StageOutput:
    """Checks the file; see the module for the facts."""
    try:
        model = onnx.load(model_path, load_external_data=False)
    except Exception as error:
        message = f"{model_path.name} cannot be read as an ONNX file: {error_line(error)}"
        return StageOutput(failure=Failure("check", type(error).__name__, message))
    opset = next((entry.version for entry in model.opset_import if entry.domain in _DEFAULT_DOMAINS), 0)
    inputs, outputs = _inputs(model), [_described(value) for value in model.graph.output]
    missing = external_data_findings(model, model_path.parent)
    findings = [
        *_version_findings(model, opset, requested.opset),
        *missing,
        *([] if missing else _checker_findings(model_path)),
        *_input_findings(inputs, requested.inputs),
        *_default_findings(model, requested.inputs),
        *_output_findings(outputs, requested),
    ]
    operators = Counter(_operator(node) for node in _nodes(model))
    data = [model_path.parent / name for name in external_files(model)]
    facts = {
        "opset": opset,
        "ir_version": model.ir_version,
        "nodes": sum(operators.values()),
        "bytes": model_path.stat().st_size + sum(path.stat().st_size for path in data if path.is_file()),
        "operators": dict(sorted(operators.items())),
        "random_operators": random_operators(model),
        "inputs": [msgspec.to_builtins(value) for value in inputs],
        "outputs": [msgspec.to_builtins(value) for value in outputs],
        "findings": [msgspec.to_builtins(finding) for finding in findings],
    }
    return StageOutput(facts=facts)


def _version_findings(model: onnx.ModelProto, opset: int, requested: int) -> Iterator[Failure]:
    if opset != requested:
        yield Failure("opset", "OpsetMismatch", f"opset {requested} was asked for, the file has opset {opset}")
    known = [entry for entry in model.opset_import if entry.domain in _DEFAULT_DOMAINS]
    others = sorted({entry.version for entry in known} - {opset})
    if others:
        message = (
            f"the file has opset {opset} and, by another name of the same domain ('' and 'ai.onnx'), {_words(others)}; "
            "which of them holds is the runtime's guess. Next step: write one"
        )
        yield Failure("opset", "OpsetMismatch", message)
    try:
        lowest = onnx.helper.find_min_ir_version_for(known)
    except ValueError:
        yield Failure("opset", "UnknownOpset", f"opset {opset} is not known to onnx {onnx.__version__}")
        return
    if model.ir_version < lowest:
        yield Failure(
            "check",
            "IrVersion",
            f"opset {opset} came with IR version {lowest}, the file says IR version {model.ir_version};"
            f" write ir_version {lowest}",
        )


def _checker_findings(path: Path) -> Iterator[Failure]:
    try:
        # By path, for external data and for files beyond protobuf's 2 GB.
        onnx.checker.check_model(path, full_check=True)
    except Exception as error:
        yield Failure(
            "check", type(error).__name__, f"onnx's full checker: {error_line(error)}", details=str(error)[:20_000]
        )


def _input_findings(realised: Sequence[TensorContract], requested: Sequence[TensorContract]) -> Iterator[Failure]:
    names = [value.name for value in realised]
    wanted = [value.name or (names[index] if index < len(names) else "") for index, value in enumerate(requested)]
    by_name = {value.name: value for value in realised}
    for name in wanted:
        if name not in by_name:
            yield _finding("MissingInput", f"input {name!r} was asked for; the file has {_listed(names)}")
    for name in names:
        if name not in wanted:
            yield _finding("ExtraInput", f"the file has an input {name!r} that was not asked for")
    if set(names) == set(wanted) and names != wanted:
        yield _finding("InputOrder", f"inputs are {_listed(names)}; asked for in the order {_listed(wanted)}")
    for name, request in zip(wanted, requested, strict=True):
        if name in by_name:
            yield from _tensor_findings("input", by_name[name], request)


def _default_findings(model: onnx.ModelProto, requested: Sequence[TensorContract]) -> Iterator[Failure]:
    """A finding where weights are inputs as well, which since IR version 4 says that callers may put others there."""
    if model.ir_version < _OVERRIDABLE:
        return
    weights, wanted = {tensor.name for tensor in model.graph.initializer}, {value.name for value in requested}
    names = [value.name for value in model.graph.input if value.name in weights and value.name not in wanted]
    if names:
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        message = (
            f"the file has inputs with a default value that were not asked for ({_listed(names[:_NAMES])}{more}); "
            "callers may change them, so that runtimes fold nothing of them. Next step: take them off the graph's "
            "inputs (keep_initializers_as_inputs=False); their initializers stay"
        )
        yield _finding("ExtraInput", message)


def _output_findings(realised: Sequence[TensorContract], requested: Contract) -> Iterator[Failure]:
    names = [value.name for value in realised]
    ordinary, extra = names[: len(requested.outputs)], names[len(requested.outputs) :]
    for position, request in enumerate(requested.outputs):
        if position >= len(realised):
            wanted = f"{position} ({request.name})" if request.name else str(position)
            yield _finding("MissingOutput", f"output {wanted} is missing; the file has {_listed(names)}")
            continue
        if request.name and ordinary[position] != request.name:
            yield _finding(
                "NameMismatch", f"output {position} is {ordinary[position]!r}, asked for as {request.name!r}"
            )
        yield from _tensor_findings("output", realised[position], request)
    taken = {mutation: mutation_output(mutation, extra) for mutation in requested.mutations}
    for mutation, name in taken.items():
        if name is None:
            yield _finding(
                "MissingMutation",
                f"the model changes {mutation!r}, and no output of the file holds its new value (the extra outputs:"
                f" {_listed(extra)}); the change would be lost",
            )
    for name in extra:
        if name not in taken.values():
            yield _finding("ExtraOutput", f"the file has an output {name!r} that was not asked for")


def _tensor_findings(kind: str, realised: TensorContract, requested: TensorContract) -> Iterator[Failure]:
    what = f"{kind} {realised.name!r}"
    if realised.dtype != requested.dtype:
        yield _finding("DtypeMismatch", f"{what} is {realised.dtype}, asked for as {requested.dtype}")
    if requested.shape is None:
        return
    if realised.shape is None or len(realised.shape) != len(requested.shape):
        found = "no shape" if realised.shape is None else f"shape {_shape(realised.shape)}"
        yield _finding("RankMismatch", f"{what} has {found}, asked for as {_shape(requested.shape)}")
        return
    for dim, (found_size, wanted_size) in enumerate(zip(realised.shape, requested.shape, strict=True)):
        where = f"dimension {dim} of {what}"
        if isinstance(wanted_size, str) and isinstance(found_size, int):
            message = f"{where} is fixed at {found_size}, asked for as the dynamic axis {wanted_size!r}"
            yield _finding("StaticAxis", message, "dynamic")
        elif isinstance(wanted_size, int) and isinstance(found_size, str):
            message = f"{where} is the symbol {found_size!r}, asked for as the fixed size {wanted_size}"
            yield _finding("UnrequestedDynamicAxis", message, "dynamic")
        elif isinstance(wanted_size, int) and wanted_size != found_size:
            yield _finding("ShapeMismatch", f"{where} is {found_size}, asked for as {wanted_size}")


def _finding(error_class: str, message: str, stage: Stage = "check") -> Failure:
    return Failure(stage, error_class, message)


def _inputs(model: onnx.ModelProto) -> list[TensorContract]:
    # Before IR version 4 initializers were listed among the inputs; such an input need not be fed, then as now.
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [_described(value) for value in model.graph.input if value.name not in initializers]


def _described(value: onnx.ValueInfoProto) -> TensorContract:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return TensorContract(value.name, str(value.type.WhichOneof("value")), None)
    shape: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return TensorContract(value.name, _dtype_name(tensor.elem_type), shape)


def _dtype_name(element_type: int) -> str:
    if element_type == onnx.TensorProto.STRING:
        return "str"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(element_type).name
    except KeyError:
        return f"element type {element_type}"


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            yield node
            for attribute in node.attribute:
                waiting.extend([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs)


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in _DEFAULT_DOMAINS else f"{node.domain}::{node.op_type}"


def _words(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _shape(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"
