"""The smallest part of an ONNX file that fails in one runtime and is right in another.

A sliced file, the nodes at which a runtime leaves eager, and the file's inputs arrive; a `Part` leaves: a model of few
nodes, with its inputs and the outputs that another runtime gives. Parts are tried from small to large: each node alone,
the nodes together, one node after the other with everything before it.
Nothing is written but in the sliced file's folder.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx.external_data_helper import load_external_data_for_model

from batch_export.exporter.diagnostics.search import differs
from batch_export.exporter.diagnostics.slices import SlicedFile, value_info
from batch_export.numbers.compare import compare
from batch_export.numbers.values import Value
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.words import class_and_line

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", graph_optimization="disabled")
REFERENCE = ProviderSpec("reference", "reference")

_DIFFERS = " differs"
_VARYING = re.compile(r"\d+|\"[^\"]*\"|'[^']*'|\S+\.onnx")
"""What one failure says differently each time: numbers, names and files."""
_ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class Part:
    """A part that fails.

    Attributes:
        model: its nodes, weights inside.
        inputs: values of the model's inputs by name.
        outputs: what the other runtime gives, by name in the model's order.
        problem: what the runtime said, or how its outputs differ.
        trusted: the provider that gave `outputs`.
    """

    model: onnx.ModelProto
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    problem: str
    trusted: str


def others(provider: ProviderSpec) -> tuple[ProviderSpec, ...]:
    """Returns where else a file can be run for comparison: the runtimes of this environment that are not that one."""
    is_own = provider.kind == CPU.kind and provider.execution_provider == CPU.execution_provider and not provider.env
    return tuple(other for other in (CPU, REFERENCE) if other.kind != provider.kind or (other is CPU and not is_own))


def failing_part(
    file: SlicedFile, nodes: Sequence[str], value: str, error: str, feeds: Mapping[str, Value], provider: ProviderSpec
) -> Part | None:
    """Returns the smallest part that fails in the same way; None where no part does that another runtime runs.

    Args:
        file: the file.
        nodes: names of the nodes at which the runtime goes wrong, in order.
        value: the value that comes out wrong; empty: the file's outputs.
        error: what the runtime said, if it refused; empty: its numbers are wrong.
        feeds: values of the file's inputs.
        provider: where it fails.
    """
    for other in others(provider):
        for outputs, inside in _candidates(file, nodes, value):
            part = _tried(file, outputs, inside, feeds, provider, other)
            if part is not None and _is_alike(part.problem, error):
                return part
    return None


def _is_alike(problem: str, error: str) -> bool:
    """Returns whether two failures look the same: both of numbers, or of one class in much the same words."""
    if not error:
        return problem.endswith(_DIFFERS)
    one, other = (_VARYING.sub("", text) for text in (problem, error))
    if one.partition(":")[0] != other.partition(":")[0] and "LoadError" not in (problem + error):
        return False
    return difflib.SequenceMatcher(None, one.partition(":")[2], other.partition(":")[2]).ratio() >= _ALIKE


def _candidates(file: SlicedFile, nodes: Sequence[str], value: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yields what a part gives and which values of the inside it is given."""
    named = {node.name: node for node in file.model.graph.node}
    group = [named[name] for name in nodes if name in named]
    for node in group:
        yield [name for name in node.output if name], _made(file, file.reads(node.output[0]))
    if value:
        own = {name for node in group for name in node.output}
        read = dict.fromkeys(name for node in group for name in file.reads(node.output[0]))
        yield [value], _made(file, [name for name in read if name not in own])
        for node in group:
            yield [name for name in node.output if name], []
        yield [value], []
    yield list(file.outputs), []


def _made(file: SlicedFile, names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if file.producer(name) is not None]


def _tried(
    file: SlicedFile,
    outputs: list[str],
    inside: list[str],
    feeds: Mapping[str, Value],
    provider: ProviderSpec,
    other: ProviderSpec,
) -> Part | None:
    try:
        computed = file.run([*inside, *outputs], feeds, other)
    except MemoryError:
        raise
    except Exception:
        return None
    fed = {name: computed[name] for name in inside}
    expected = {name: computed[name] for name in outputs}
    problem = _problem(file, expected, fed, feeds, provider)
    if not problem:
        return None
    model = file.part(outputs, fed)
    load_external_data_for_model(model, str(file.folder))
    for declared, given in zip(model.graph.output, expected.values(), strict=True):
        declared.CopyFrom(value_info(declared.name, given))
    inputs = {one.name: {**feeds, **fed}[one.name] for one in model.graph.input}
    return Part(model, inputs, expected, problem, other.name)


def _problem(
    file: SlicedFile,
    expected: Mapping[str, Value],
    fed: Mapping[str, Value],
    feeds: Mapping[str, Value],
    provider: ProviderSpec,
) -> str:
    try:
        actual = file.run(list(expected), feeds, provider, fed=fed)
    except MemoryError:
        raise
    except Exception as error:
        return class_and_line(error)
    wrong = [name for name, given in expected.items() if differs(compare(name, given, actual[name]))]
    return f"{', '.join(wrong)}{_DIFFERS}" if wrong else ""
