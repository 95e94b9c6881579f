"""Where a wrong ONNX program goes wrong first, and whose fault it is.

A program (or a file and the exported program that it was made from) and inputs arrive; a `Finding` leaves: the ONNX
node, the FX node, the module, the line of the model's source, and the one to blame: ONNX Runtime's optimiser (the same
file agrees without it), the execution provider (the CPU agrees), another runtime than ONNX Runtime as it is installed
(that one agrees), our optimiser (the unoptimised translation agrees), ONNX Runtime's kernel (onnx's reference evaluator
agrees on that node) or the translation. Nothing is changed or written
outside temporary folders.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir
import torch

from batch_export.exporter.diagnostics.eager_values import EagerValues
from batch_export.exporter.diagnostics.search import Search, Suspect, differs
from batch_export.exporter.diagnostics.slices import SlicedFile
from batch_export.exporter.graph.tensor_values import to_value
from batch_export.exporter.program.program import ONNXProgram
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.values import Value
from batch_export.runtime.failures import LoadError
from batch_export.runtime.optimised_file import write_optimised
from batch_export.runtime.provider_spec import ProviderSpec

Blame = Literal[
    "onnxruntime optimiser", "provider", "runtime", "our optimiser", "onnxruntime kernel", "translation", "rounding"
]
CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
_REFERENCE = ProviderSpec("reference", "reference")


@dataclass(frozen=True, slots=True)
class Finding:
    """The first wrong node.

    Attributes:
        value: name of the first wrong ONNX value; its inputs agree with eager's.
        onnx_node: name of the node that makes it.
        onnx_operator: that node's operator, e.g. `Gemm` or `com.microsoft::FusedMatMul`.
        onnx_nodes: all nodes between values that have a counterpart in eager, in order.
        fx_node: name of the FX node.
        fx_operator: its target, e.g. `aten.linear.default`.
        module: path of the module in the model, e.g. `encoder.layers.5`.
        source: `file:line` of the model's source.
        blame: whose fault it is; `rounding` when no node is wrong by itself.
        reason: why that one is to blame.
        error: what the runtime said, if it refused to load or run the node.
        facts: how the value compares with eager's.
        inputs: values that the node was given; they agree.
        sessions: ONNX Runtime sessions that the search took.
        candidates: values that could be compared.
    """

    value: str
    onnx_node: str
    onnx_operator: str
    onnx_nodes: tuple[str, ...]
    fx_node: str
    fx_operator: str
    module: str
    source: str | None
    blame: Blame
    reason: str
    error: str
    facts: OutputFacts | None
    inputs: tuple[str, ...]
    sessions: int
    candidates: int

    def sentence(self) -> str:
        """Returns the finding for people."""
        what = self.error or _difference(self.facts)
        where = f" at {self.source}" if self.source else ""
        module = f" in module {self.module}" if self.module else ""
        return (
            f"first wrong value {self.value!r} from node {self.onnx_node!r} ({self.onnx_operator}), "
            f"FX node {self.fx_node!r} ({self.fx_operator}){module}{where}: {what}. "
            f"To blame: {self.blame}: {self.reason}"
        )


def localise(
    program: ONNXProgram,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    provider: ProviderSpec = CPU,
    unoptimised: Callable[[], ONNXProgram] | None = None,
) -> Finding | None:
    """Finds the first wrong node of a program; None if it agrees with its exported program on these inputs.

    Args:
        program: what was exported.
        args: positional inputs; with no inputs at all, the exported program's example inputs.
        kwargs: keyword inputs.
        provider: where the program is run.
        unoptimised: makes the same program without our optimiser, to tell whether that is to blame.
    """
    if not args and not kwargs:
        args, kwargs = program.exported_program.example_inputs or ((), {})
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=True)
        return _localised(program, path, Path(folder), args, kwargs, provider, unoptimised)


def localise_file(
    path: Path,
    exported: torch.export.ExportedProgram,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    provider: ProviderSpec = CPU,
    unoptimised: Callable[[], ONNXProgram] | None = None,
) -> Finding | None:
    """As `localise`, for a file that was made from `exported`."""
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        program = ONNXProgram(ir.load(path), exported)
        return _localised(program, path, Path(folder), args, kwargs, provider, unoptimised)


def _localised(
    program: ONNXProgram,
    path: Path,
    folder: Path,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    provider: ProviderSpec,
    unoptimised: Callable[[], ONNXProgram] | None,
) -> Finding | None:
    """Searches the file, with `folder` (which may be the file's own) for its parts."""
    eager = EagerValues(program.exported_program, args, kwargs)
    return _Case(path, folder, eager, feeds_of(program, args, kwargs), provider).finding(unoptimised)


def feeds_of(program: ONNXProgram, args: Sequence[object], kwargs: Mapping[str, object] | None) -> dict[str, Value]:
    """Returns the values of a program's inputs by name."""
    names = [value.name or "" for value in program.model.graph.inputs]
    given = program.adapt_torch_inputs_to_onnx(*args, **dict(kwargs or {}))
    return {name: to_value(tensor) for name, tensor in zip(names, given, strict=True)}


class _Case:
    """One file on one set of inputs."""

    def __init__(
        self, path: Path, folder: Path, eager: EagerValues, feeds: dict[str, Value], provider: ProviderSpec
    ) -> None:
        self._path = path
        self._folder = folder
        self._eager = eager
        self._feeds = feeds
        self._provider = provider
        self._plain = replace(provider, graph_optimization="disabled")
        self._expected = eager.compute(eager.output_names)

    def finding(self, unoptimised: Callable[[], ONNXProgram] | None) -> Finding | None:
        file = SlicedFile(self._path, self._folder)
        if not self._wrong(file, self._provider):
            return None
        if self._provider.graph_optimization != "disabled" and not self._wrong(file, self._plain):
            return self._blamed_on_runtime_optimiser(file)
        if self._provider.kind != CPU.kind or self._provider.env:
            return self._in_another_runtime(file, unoptimised)
        on_cpu = replace(self._plain, execution_provider=CPU.execution_provider, options={})
        if self._plain.execution_provider != on_cpu.execution_provider and not self._wrong(file, on_cpu):
            reason = f"the same file agrees on {on_cpu.execution_provider}"
            return self._searched(file, self._plain, "provider", reason)
        return self._translated(file, unoptimised)

    def _in_another_runtime(self, file: SlicedFile, unoptimised: Callable[[], ONNXProgram] | None) -> Finding | None:
        """Blames a runtime that is not ONNX Runtime as it is installed here, if that one agrees."""
        if self._wrong(file, replace(CPU, graph_optimization="disabled")):
            return self._translated(file, unoptimised)
        reason = f"the same file agrees in the ONNX Runtime installed here, {self._provider.name} is alone"
        return self._searched(file, self._plain, "runtime", reason)

    def _translated(self, file: SlicedFile, unoptimised: Callable[[], ONNXProgram] | None) -> Finding | None:
        if unoptimised is not None and not self._wrong(self._written(unoptimised()), self._plain):
            reason = "the same translation without our optimiser agrees"
            return self._searched(file, self._plain, "our optimiser", reason)
        return self._searched(file, self._plain, None, "")

    def _written(self, program: ONNXProgram) -> SlicedFile:
        folder = self._folder / "unoptimised"
        folder.mkdir()
        program.save(folder / "model.onnx", external_data=True)
        return SlicedFile(folder / "model.onnx", folder)

    def _wrong(self, file: SlicedFile, provider: ProviderSpec) -> bool:
        names = file.outputs[: len(self._eager.output_names)]
        feeds = dict(zip(file.inputs, self._feeds.values(), strict=False))
        try:
            actual = file.run(names, feeds, provider)
        except MemoryError:
            raise
        except Exception:
            return True
        return any(
            fx_name in self._expected and differs(compare(name, self._expected[fx_name], actual[name]))
            for name, fx_name in zip(names, self._eager.output_names, strict=False)
        )

    def _blamed_on_runtime_optimiser(self, file: SlicedFile) -> Finding | None:
        reason = "the same file agrees with graph_optimization=disabled"
        # Beside the weights of the parts: what the optimiser leaves alone still points there.
        target = file.folder / "optimised_by_runtime.onnx"
        try:
            write_optimised(self._path, target, self._provider)
        except LoadError:
            return self._unlocated(file, "onnxruntime optimiser", reason)
        optimised = SlicedFile(target, file.folder)
        found = self._searched(optimised, self._plain, "onnxruntime optimiser", reason)
        return found or self._unlocated(file, "onnxruntime optimiser", reason)

    def _unlocated(self, file: SlicedFile, blame: Blame, reason: str) -> Finding:
        return Finding(
            file.outputs[0],
            "",
            "",
            (),
            "",
            "",
            "",
            None,
            blame,
            reason,
            "",
            None,
            (),
            sessions=file.sessions,
            candidates=0,
        )

    def _searched(self, file: SlicedFile, provider: ProviderSpec, blame: Blame | None, reason: str) -> Finding | None:
        search = Search(file, self._eager, self._feeds, provider)
        suspect = search.first_wrong()
        if suspect is None:
            return None
        if blame is None:
            blame, reason = self._blame(file, suspect)
        fx_name = search.fx_names[suspect.value]
        operator, module, source = self._eager.where(fx_name)
        node = self._eager.nodes.get(fx_name)
        producer = file.producer(suspect.value)
        inside = {name: value for name, value in suspect.fed.items() if name not in self._feeds}
        nodes = file.part([suspect.value], inside).graph.node
        return Finding(
            value=suspect.value,
            onnx_node=producer.name if producer is not None else "",
            onnx_operator="::".join(filter(None, (producer.domain, producer.op_type))) if producer is not None else "",
            onnx_nodes=tuple(one.name for one in nodes),
            fx_node=node.name if node is not None else fx_name,
            fx_operator=operator,
            module=module,
            source=source,
            blame=blame,
            reason=reason,
            error=suspect.error,
            facts=suspect.facts,
            inputs=suspect.inputs,
            sessions=file.sessions,
            candidates=len(search.fx_names),
        )

    def _blame(self, file: SlicedFile, suspect: Suspect) -> tuple[Blame, str]:
        if not suspect.isolated:
            return "rounding", "every node agrees when it is given eager's inputs; the error grows from node to node"
        inside = {name: value for name, value in suspect.fed.items() if name not in self._feeds}
        try:
            again = file.run([suspect.value], self._feeds, _REFERENCE, fed=inside)[suspect.value]
        except Exception:  # the reference evaluator lacks the operator, or the graph cannot be evaluated at all
            again = None
        if again is not None and suspect.expected is not None:
            if not differs(compare(suspect.value, suspect.expected, again)):
                return "onnxruntime kernel", "onnx's reference evaluator agrees with eager on these nodes"
            return "translation", "onnx's reference evaluator gives the same wrong value on these nodes"
        return "translation", "the nodes differ from eager on eager's own inputs, unoptimised as well"


def _difference(facts: OutputFacts | None) -> str:
    if facts is None:
        return "differs"
    if facts.actual_dtype != facts.expected_dtype:
        return f"is {facts.actual_dtype}, eager's is {facts.expected_dtype}"
    if facts.actual_shape != facts.expected_shape:
        return f"has shape {list(facts.actual_shape)}, eager's has {list(facts.expected_shape)}"
    if facts.non_finite_mismatches:
        return f"{facts.non_finite_mismatches} of {facts.count} elements are NaN or infinite on one side only"
    return f"largest error {facts.max_abs or 0.0:.3g}, {facts.outside} of {facts.count} elements beyond tolerance"
