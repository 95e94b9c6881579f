"""Verification of an exported program: every value as a value, none left out.

Arrives: a program, inputs, and the torch model where it is at hand. Leaves: one `VerificationInfo` (or `OutputFacts`)
per value. `require` turns a difference beyond the tolerances into an error. The comparison itself is
`numbers/compare.py`, the one that sweeps use; nothing is broadcast, cast or skipped to make values comparable.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from batch_export.errors import VerificationError
from batch_export.exporter.capture.guard_sources import line_of
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import run_undone
from batch_export.exporter.capture.other_sizes import other_sizes
from batch_export.exporter.capture.turns import in_turn
from batch_export.exporter.capture.unwritten_memory import where_unwritten
from batch_export.exporter.diagnostics.eager_values import EagerValues
from batch_export.exporter.diagnostics.model_runs import gives_error_codes, model_outputs
from batch_export.exporter.diagnostics.search import Search
from batch_export.exporter.diagnostics.slices import SlicedFile
from batch_export.exporter.graph.agreement import require_one
from batch_export.exporter.graph.metadata import KIND
from batch_export.exporter.graph.tensor_values import to_tensor, to_value
from batch_export.exporter.optimise.edits import RANDOM
from batch_export.exporter.program.program import ONNXProgram
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.values import Value
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.words import class_and_line

_BINS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e6)
"""Edges of the histograms, as PyTorch's documentation of the verification has them."""
_FLOOR = 1e-7
"""Added to `|expected|` before dividing by it."""
_AT_ONCE = 8
"""Intermediate values fetched in one session; more would only need more memory at once."""
_SIZES_TRIED = 6
"""Other sizes that the model itself is tried at before verification makes do with the example's."""
_PLAIN = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", graph_optimization="disabled")


@dataclass
class VerificationInfo:
    """How one value of an ONNX program compares with the exported program's.

    Attributes:
        name: of the value, as in the exported program; an output's name in the ONNX model.
        max_abs_diff: largest `|actual - expected|`; infinite where shapes, NaN or Inf differ, zero for empty values.
        max_rel_diff: largest `|actual - expected| / (|expected| + 1e-7)`, likewise.
        abs_diff_hist: counts and edges of a histogram of absolute differences.
        rel_diff_hist: the same of relative ones.
        expected_dtype: the exported program's.
        actual_dtype: the ONNX program's.
        facts: everything that the comparison found.
    """

    name: str
    max_abs_diff: float
    max_rel_diff: float
    abs_diff_hist: tuple[torch.Tensor, torch.Tensor]
    rel_diff_hist: tuple[torch.Tensor, torch.Tensor]
    expected_dtype: torch.dtype
    actual_dtype: torch.dtype
    facts: OutputFacts | None = None

    @classmethod
    def from_tensors(
        cls, name: str, expected: torch.Tensor | float | int | bool, actual: torch.Tensor | float | int | bool
    ) -> VerificationInfo:
        """Compares two tensors, or numbers; a number has the other one's shape."""
        one, other = torch.as_tensor(expected).detach().cpu(), torch.as_tensor(actual).detach().cpu()
        if isinstance(expected, (int, float)):
            one = one.expand(other.shape)
        elif isinstance(actual, (int, float)):
            other = other.expand(one.shape)
        facts = compare(name, to_value(one), to_value(other))
        absolute, relative = _differences(one, other)
        edges = torch.tensor(_BINS)
        return cls(
            name=name,
            # The facts are exact for integers of 64 bits, which float64 is not.
            max_abs_diff=max(float(absolute.max()) if absolute.numel() else 0.0, facts.max_abs or 0.0),
            max_rel_diff=float(relative.max()) if relative.numel() else 0.0,
            abs_diff_hist=(torch.histogram(absolute.float(), bins=edges).hist, edges),
            rel_diff_hist=(torch.histogram(relative.float(), bins=edges).hist, edges),
            expected_dtype=one.dtype,
            actual_dtype=other.dtype,
            facts=facts,
        )

    def asdict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "abs_diff_hist": [self.abs_diff_hist[0].tolist(), self.abs_diff_hist[1].tolist()],
            "rel_diff_hist": [self.rel_diff_hist[0].tolist(), self.rel_diff_hist[1].tolist()],
            "expected_dtype": str(self.expected_dtype),
            "actual_dtype": str(self.actual_dtype),
        }


def _differences(expected: torch.Tensor, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns absolute and relative differences in float64, element by element.

    NaN beside NaN and an infinity beside the same one are equal; on one side only they differ infinitely, and so do
    values of different shapes.
    """
    if expected.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    if actual.is_complex():
        actual = torch.view_as_real(actual.resolve_conj())
    if expected.shape != actual.shape:
        endless = torch.tensor([math.inf], dtype=torch.float64)
        return endless, endless
    equal = (expected == actual) | ((expected != expected) & (actual != actual))
    wide, other = expected.to(torch.float64), actual.to(torch.float64)
    absolute = torch.where(equal, 0.0, (wide - other).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
    relative = torch.where(equal, 0.0, absolute / (wide.abs() + _FLOOR)).nan_to_num(nan=math.inf, posinf=math.inf)
    return absolute, relative


@in_turn
def verify_onnx_program(
    onnx_program: ONNXProgram,
    args: tuple[object, ...] | None = None,
    kwargs: Mapping[str, object] | None = None,
    compare_intermediates: bool = False,
) -> list[VerificationInfo]:
    """Compares a program with the exported program that it was made from.

    Args:
        onnx_program: the program.
        args: positional inputs; None, with `kwargs` None too: the exported program's example inputs.
        kwargs: keyword inputs.
        compare_intermediates: whether inner values are compared as well, a few at a time, so that memory stays bounded.

    Returns:
        One entry per value, outputs in their order at the end; the values before them are those that the file has by a
        name of the exported program: constants that were computed, then results of nodes in the graph's order.

    Raises:
        ValueError: there is no exported program, or it has no example inputs and none are given.
        VerificationError: the number of outputs differs.
    """
    exported: torch.export.ExportedProgram | None = onnx_program.exported_program
    if exported is None:
        raise ValueError("the ONNX program does not know the exported program that it was made from; export it again")
    if args is None and kwargs is None:
        if exported.example_inputs is None:
            raise ValueError("the exported program has no example inputs; pass args and kwargs")
        args, kwargs = exported.example_inputs
    given, keywords = tuple(args or ()), dict(kwargs or {})
    eager = EagerValues(exported, given, keywords)
    with run_undone(exported.graph_module, list(exported.state_dict.values())), settings_kept():
        infos = list(_intermediates(onnx_program, eager, given, keywords)) if compare_intermediates else []
        return infos + _outputs(onnx_program, eager, given, keywords)


def _outputs(
    program: ONNXProgram, eager: EagerValues, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[VerificationInfo]:
    actual = program(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    values = eager.tensors(eager.output_names)
    expected = [values[name] for name in eager.output_names]
    names = [value.name or "" for value in program.model.graph.outputs]
    if len(actual) != len(expected):
        raise VerificationError(f"the ONNX model has {len(actual)} outputs, and the exported program {len(expected)}")
    return [
        VerificationInfo.from_tensors(name, one, other)
        for name, one, other in zip(names, expected, actual, strict=False)
    ]


def _intermediates(
    program: ONNXProgram, eager: EagerValues, args: tuple[object, ...], kwargs: dict[str, object]
) -> Iterator[VerificationInfo]:
    names = [value.name or "" for value in program.model.graph.inputs]
    tensors = program.adapt_torch_inputs_to_onnx(*args, **kwargs)
    feeds: dict[str, Value] = {name: to_value(tensor) for name, tensor in zip(names, tensors, strict=True)}
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=True)
        parts = Path(folder) / "parts"
        parts.mkdir()
        file = SlicedFile(path, parts)
        found = Search(file, eager, feeds, _PLAIN).fx_names
        weights = {name for name, value in program.model.graph.initializers.items() if _is_weight(value)}
        matched = {name: name for name in file.constants if name in eager.nodes and name not in weights} | found
        inner = [name for name in matched if name not in file.outputs]
        for start in range(0, len(inner), _AT_ONCE):
            some = inner[start : start + _AT_ONCE]
            actual = file.run(some, feeds, _PLAIN)
            expected = eager.compute([matched[name] for name in some])
            for name in some:
                if matched[name] in expected:
                    one, other = to_tensor(expected[matched[name]]), to_tensor(actual[name])
                    yield VerificationInfo.from_tensors(matched[name], one, other)


def _is_weight(value: ir.Value) -> bool:
    """Whether an initializer is a weight of the module, and no value that was computed."""
    return KIND.format(side="Input") in value.metadata_props


def verify_program(
    program: ONNXProgram, model: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> list[OutputFacts]:
    """Compares the program with the model itself on the same inputs.

    Raises:
        VerificationError: if the file does not run, or the number of outputs differs.
    """
    try:
        expected = model_outputs(program, model, args, kwargs)
    except Exception as error:
        raise VerificationError(
            f"eager PyTorch refuses the example inputs, so that there is nothing to compare the file with: "
            f"{class_and_line(error).rstrip('.')}",
            source=line_of(error) or None,
            next_step="call the model with these inputs outside of the export: correct the model at that line, or pass "
            "inputs that it takes",
        ) from error
    return _compared(program, expected, args, kwargs, "the example inputs")


def verify_other_size(
    program: ONNXProgram,
    model: object,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    told: list[str] | None = None,
) -> list[OutputFacts]:
    """The same at the first other size of the free axes that the model itself accepts; nothing where none is free.

    Numbers within the example's range come first, and where the model takes none of these the example's own elements:
    these alone keep what a model asks of its inputs beside their range (`torch.linalg.cholesky`: to be positive
    definite). They come first where the model answers with an error code in place of an error.

    Args:
        program: the exported program.
        model: the torch model.
        args: positional example inputs.
        kwargs: keyword example inputs.
        told: gets a sentence on what was compared.

    Raises:
        VerificationError: if the file does not run there, or differs.
    """
    if program.captured is None:
        return []
    kinds = (True, False) if gives_error_codes(program.captured.traced) else (False, True)
    made = (
        (f"{sizes}, with {'elements of the example' if like else 'random numbers in its range'}", sizes, inputs)
        for like in kinds
        for sizes, inputs in itertools.islice(
            other_sizes(program.captured, args, kwargs, like_example=like), _SIZES_TRIED
        )
    )
    tried = []
    for text, sizes, (others, keywords) in made:
        tried.append(sizes)
        try:
            expected = model_outputs(program, model, others, keywords)
        except Exception:  # whatever the model raises: it is a size that the model does not take
            continue
        facts = _compared(program, expected, others, keywords, sizes)
        try:
            require(facts, program)
        except VerificationError as error:
            if (
                where_unwritten(expected, functools.partial(model_outputs, program, model, others, keywords))
                is not None
            ):
                continue
            raise VerificationError(
                f"at {sizes} {error.problem}",
                next_step="declare the sizes that you need (torch.export.Dim(name, min=..., max=...)), or leave out of "
                "dynamic_shapes what the model fixes",
            ) from error
        if told is not None:
            told.append(text)
        return facts
    if told is not None and tried:
        told.append(f"no other size: the model refused {'; '.join(dict.fromkeys(tried))}")
    return []


_RUNTIMES_OWN = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})


def _after_a_failed_run(program: ONNXProgram) -> str:
    model = program.model
    nodes = itertools.chain(model.graph.all_nodes(), *(one.all_nodes() for one in model.functions.values()))
    unknown = {node.domain for node in nodes if node.op_identifier() not in model.functions}
    strange = sorted(unknown - _RUNTIMES_OWN)
    if strange:
        return (
            f"leave out verify=True, or compare with program.initialize_inference_session(...) that registers the "
            f"operators of {', '.join(strange)}"
        )
    return "export with optimize=False to see whether the optimiser is to blame, and report this model"


def _compared(
    program: ONNXProgram,
    expected: Sequence[torch.Tensor],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    where: str,
) -> list[OutputFacts]:
    try:
        actual = program(*copy.deepcopy(tuple(args)), **copy.deepcopy(dict(kwargs)))
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise VerificationError(
            f"the file does not run at {where}: {type(error).__name__}: {lines[0] if lines else ''}",
            next_step=_after_a_failed_run(program),
        ) from error
    if len(actual) != len(expected):
        raise VerificationError(f"the ONNX model has {len(actual)} outputs, and the torch model {len(expected)}")
    names = [value.name or "" for value in program.model.graph.outputs]
    return [
        compare(name, to_value(one), to_value(other)) for name, one, other in zip(names, expected, actual, strict=False)
    ]


def require(results: Sequence[OutputFacts | VerificationInfo], program: ONNXProgram | None = None) -> None:
    """Raises if a value is not what the model gives.

    Args:
        results: what the comparison found.
        program: what was compared, of which the error says if it draws random numbers.

    Raises:
        VerificationError: naming the value and the size of the error.
    """
    for result in results:
        facts = result.facts if isinstance(result, VerificationInfo) else result
        if facts is None:
            continue
        try:
            require_one(facts)
        except VerificationError as error:
            drawing = None if program is None else _drawing_node(program)
            if drawing is None:
                raise
            raise VerificationError(
                f"{error.problem}; the model draws random numbers, of which a file has others in each run",
                node=drawing.name,
                operator=drawing.op_type,
                next_step="export the model in eval mode, pass the numbers as an input, or leave out verify: a sweep "
                "judges such a model by the spread of its numbers",
            ) from error


def _drawing_node(program: ONNXProgram) -> ir.Node | None:
    return next((node for node in program.model.graph.all_nodes() if node.op_type in RANDOM and not node.domain), None)
