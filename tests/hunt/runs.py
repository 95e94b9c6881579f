"""One program exported, and its file run three ways: onnxruntime with and without its optimiser, and onnx's reference.

A program and its cases arrive; eager's results and the files' leave, in one order: the outputs, then what was written.
"""

from __future__ import annotations

import multiprocessing.sharedctypes
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree as pytree

import batch_export
from batch_export.errors import ExportWarning
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.guards import environment_of
from batch_export.exporter.graph.tensor_values import to_tensor, to_value
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.translate.free_sizes import sizes_put_back
from batch_export.runtime.ort import OrtSession
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.structures import tensors
from hunt.ideal import Ideal
from hunt.programs import Program, Tensors, arguments, dynamic_shapes, module
from hunt.reference import Reference, wide, widened

OPTIMISED, PLAIN = "onnxruntime", "onnxruntime without optimisation"
REFERENCE = "onnx.reference"
IDEAL = "onnx.reference, each node rounded once"
_PROVIDERS = {
    OPTIMISED: ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider"),
    PLAIN: ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", graph_optimization="disabled"),
}
STAGE = multiprocessing.sharedctypes.RawArray("c", 32)
"""What this process does at present, for whoever finds it dead; a worker has its own."""
_SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


@dataclass
class Export:
    """An exported program, what was warned, and where each of eager's results is among the file's outputs."""

    program: ONNXProgram
    proto: onnx.ModelProto
    warned: str
    decomposed: Any = None

    @property
    def restrictions(self) -> list[str]:
        """Conditions on the axes under which the file holds."""
        captured = self.program.captured
        if captured is None:
            return []
        return [guard.condition for guard in (*captured.restrictions, *captured.not_one)]

    @property
    def assumed(self) -> bool:
        """Whether the file takes something about the data for granted; the program allows that."""
        captured = self.program.captured
        return captured is not None and bool(captured.assumptions)


def export(program: Program, example: Tensors, *, optimize: bool = True) -> Export:
    """Exports the program at its opset.

    Raises:
        OnnxExporterError: where the exporter refuses it.
        Exception: anything else is a defect of the exporter.
    """
    STAGE.value = b"export"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = batch_export.export(
            module(program, example),
            arguments(program, example),
            opset_version=program.opset,
            dynamic_shapes=dynamic_shapes(program),
            allow_guards=program.allow_guards,
            optimize=optimize,
        )
    said = [str(one.message) for one in caught if issubclass(one.category, ExportWarning)]
    return Export(made, made.model_proto, "\n".join(said))


def again(exported: Export, opset: int) -> Export:
    """The same capture at another opset: a capture costs ten times what is done with it afterwards.

    Raises:
        OnnxExporterError: where the exporter refuses it.
        Exception: anything else is a defect of the exporter.
    """
    STAGE.value = b"export"
    captured = exported.program.captured
    if captured is None:
        raise ValueError("nothing was captured")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = to_onnx(captured, opset)
        return Export(made, made.model_proto, exported.warned)


def collected(made: torch.nn.Module, given: tuple[Any, ...]) -> list[torch.Tensor]:
    """Runs the module: its outputs, then its buffers and its inputs as they are afterwards."""
    outputs = pytree.tree_leaves(made(*given))
    return [one.clone() for one in (*outputs, *dict(made.named_buffers()).values(), *pytree.tree_leaves(given))]


def eager(program: Program, values: Tensors, *, float64: bool = False) -> list[torch.Tensor]:
    """Eager's results; in float64 on demand.

    Raises:
        Exception: whatever eager raises at these values.
    """
    STAGE.value = b"eager"
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if float64 else torch.float32)
    try:
        with torch.no_grad(), warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
            warnings.simplefilter("ignore")
            return collected(module(program, values, float64=float64), arguments(program, values, float64=float64))
    finally:
        torch.set_default_dtype(default)


def places(program: Program, exported: Export) -> list[int]:
    """For each output of the file the index of eager's result (see `collected`)."""
    kinds = exported.program.output_kinds
    buffers = [leaf.name for leaf in program.buffers]
    inputs = [value.name for value in exported.program.model.graph.inputs]
    users = sum(kind == "USER_OUTPUT" for kind, _ in kinds)
    found, seen = [], 0
    for kind, target in kinds:
        if kind == "USER_OUTPUT":
            found.append(seen)
            seen += 1
        elif kind == "BUFFER_MUTATION":
            found.append(users + buffers.index(target))
        else:
            found.append(users + len(buffers) + inputs.index(target))
    return found


class Files:
    """The file, in the three runtimes; each is opened when it is first asked for."""

    def __init__(self, exported: Export) -> None:
        self._exported = exported
        self._names = [str(value.name) for value in exported.program.model.graph.inputs]
        self._open: dict[str, Any] = {}

    def check(self) -> None:
        """The full check of onnx.

        Raises:
            Exception: the checker's or shape inference's.
        """
        onnx.checker.check_model(self._exported.proto, full_check=True)

    def run(self, runtime: str, program: Program, values: Tensors) -> list[torch.Tensor]:
        """The file's outputs.

        Raises:
            Exception: whatever loading or running raises.
        """
        STAGE.value = runtime.encode()[:31]
        feeds = {name: to_value(values[leaf.name]) for name, leaf in zip(self._names, program.inputs, strict=True)}
        if runtime == REFERENCE:
            return self._reference(feeds)
        if runtime == IDEAL:
            return self.ideal(program, values)
        if runtime not in self._open:
            with tempfile.TemporaryDirectory(dir=_SCRATCH) as folder:
                path = Path(folder) / "model.onnx"
                path.write_bytes(self._exported.proto.SerializeToString())
                self._open[runtime] = OrtSession(path, _PROVIDERS[runtime], 1)
        session = self._open[runtime]
        return [to_tensor(one) for one in tensors(session.output_names, session.run(_as_pairs(feeds)))]

    def _reference(self, feeds: Mapping[str, Any]) -> list[torch.Tensor]:
        if REFERENCE not in self._open:
            self._open[REFERENCE] = Reference(self._exported.proto)
        results: list[torch.Tensor] = self._open[REFERENCE].run(_as_pairs(feeds))
        return results

    def ideal(
        self, program: Program, values: Tensors, *, sign: float | None = None, seed: int = 0, alone: bool = False
    ) -> list[torch.Tensor]:
        """The outputs as `run` gives them of `IDEAL`, and with what else `ideal.py` can be asked for.

        Raises:
            Exception: whatever a node raises.
        """
        feeds = {name: to_value(values[leaf.name]) for name, leaf in zip(self._names, program.inputs, strict=True)}
        return Ideal(self._exported.proto, sign=sign, seed=seed, alone=alone).run(_as_pairs(feeds))

    def widened(self, program: Program, values: Tensors) -> list[torch.Tensor]:
        """The outputs of the same file in float64, by the reference evaluator.

        Raises:
            Exception: whatever the evaluator raises.
        """
        if "widened" not in self._open:
            self._open["widened"] = Reference(widened(self._exported.proto))
        feeds = {name: to_value(values[leaf.name]) for name, leaf in zip(self._names, program.inputs, strict=True)}
        results: list[torch.Tensor] = self._open["widened"].run(
            {name: wide(one) for name, one in _as_pairs(feeds).items()}
        )
        return results


def decomposed(program: Program, exported: Export, values: Tensors) -> list[torch.Tensor]:
    """The outputs of the captured program once torch has decomposed its operators; what was written is not among them.

    oneDNN's convolutions leave out the zeros of their padding, which torch's own multiply by infinite weights.

    Raises:
        Exception: whatever torch raises.
    """
    captured = exported.program.captured
    if captured is None:
        raise ValueError("nothing was captured")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exported.decomposed is None:
            with sizes_put_back(environment_of(captured.program)):  # files at other opsets come of the same capture
                exported.decomposed = captured.program.run_decompositions().module(check_guards=False)
        with torch.backends.mkldnn.flags(enabled=False):
            return [one.clone() for one in pytree.tree_leaves(exported.decomposed(*arguments(program, values)))]


def _as_pairs(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Complex numbers as the file takes them: pairs of floats."""
    return {
        name: np.ascontiguousarray(one).view(np.float32).reshape(*one.shape, 2) if _is_complex(one) else one
        for name, one in feeds.items()
    }


def _is_complex(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.complex64
