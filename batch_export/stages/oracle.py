"""Eager PyTorch in float64: what distinguishes ordinary rounding from an error of the export.

A workbench, the model's tensor file and one of its cases arrive; a tensor file with the outputs of a float64 copy of
the module leaves (`out/0`, ...), with eager's own rounding errors as its description: a hull for each output. The
module itself is never changed. Not every model allows it: some compute in a dtype of their own choice; then there is no
file.

Facts: `case`, `built` (see `built.py`), `note`: why there are no values, or not of all outputs; empty when there
are. And `other_values`: whether the module of this process computes something else in its own precision than eager's
values are: then it is another model, which float64 says nothing about, though the builder's tensors and attributes may
be alike (a number in a closure, the process's number in forward). That the memory is not there is no fact of the model
but a failure of the environment, so that it is asked again elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils import _pytree as pytree

from batch_export import axes
from batch_export.judge.float64 import is_no_rougher
from batch_export.numbers.compare import compare
from batch_export.numbers.tolerances import default_tolerance
from batch_export.numbers.values import Value, dtype_name, widened
from batch_export.record import Failure
from batch_export.runtime.tensor_file import TensorFile, TensorFileWriter
from batch_export.stages import for_config
from batch_export.stages.output import StageOutput
from batch_export.stages.reference import Eager, to_value
from batch_export.stages.workbench import Workbench
from batch_export.words import class_and_line

_SHARE_OF_FREE_MEMORY = 0.5
_GROWTH = 1e6
"""Rounding grows from operation to operation: from one unit in the last place to this many, of the largest value."""
_LARGEST_SHARE = 0.5
"""Of the largest value, whatever the dtype: an error as large as the values themselves is another result."""
_OTHER_MODEL = "the model of the process that ran in float64 computes other values than eager's are"
_WIDE = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def execute(bench: Workbench, reference_path: Path, case: int) -> StageOutput:
    """Runs the model in float64 at one case; see the module for what leaves."""
    if bench.oracle is None:
        too_large = _too_large(bench.module)
        if too_large:
            return StageOutput(failure=Failure("environment", "OracleMemory", too_large))
        bench.oracle = Oracle(bench.module)
    made, oracle = bench.built, bench.oracle
    planned = axes.cases(bench.model)[case]
    arguments = bench.inputs(planned.sizes, planned.variant) if planned.variant else bench.inputs(planned.sizes)
    wide = oracle.outputs(arguments)
    reference = TensorFile(reference_path).under(f"case{case}/out/")
    other_values = False
    if wide is not None and len(wide) != len(reference):
        oracle.note = f"the model has {len(wide)} outputs in float64 and {len(reference)} in its own precision"
        wide = None
    if wide is None:
        if bench.was_lent and _computes_otherwise(_eager_again(bench, planned), reference):
            return StageOutput(is_doubtful=True)
        return StageOutput(facts={"case": case, "note": oracle.note, "built": made})
    again = _eager_again(bench, planned)
    rounding: list[list[tuple[float, float]]] = []
    path, note = bench.scratch / "oracle.tensors", ""
    with TensorFileWriter(path) as writer:
        for (position, value), tensor in zip(reference.items(), wide, strict=True):
            hull: list[tuple[float, float]] = []
            if tensor is not None and tuple(tensor.shape) == tuple(value.shape) and dtype_name(value) != "float64":
                exact = to_value(tensor)
                hull = list(compare(position, exact, widened(value).astype(np.float64)).hull)
                beyond = _beyond_rounding(hull, exact, dtype_name(value))
                if not _is_same_eager(value, again.get(position), exact, hull):
                    note, hull, other_values = f"output {position}: {_OTHER_MODEL}", [], True
                elif beyond:
                    note, hull = f"output {position}: {beyond}", []
                else:
                    writer.add(f"out/{position}", exact)
            rounding.append(hull)
        writer.description = {"rounding": rounding}
    if other_values and bench.was_lent:
        return StageOutput(is_doubtful=True)
    facts = {"case": case, "note": note, "built": made, "other_values": other_values}
    return StageOutput(facts=facts, files={"oracle": path})


class Oracle:
    """A float64 copy of a module, made on first use.

    Args:
        module: the module; its buffers are those of the moment of the first use.

    Attributes:
        note: why the last run gave nothing; empty when it did.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._copy: torch.nn.Module | None = None
        self._state: dict[str, torch.Tensor] = {}
        self.note = ""

    def outputs(self, arguments: dict[str, Any]) -> list[torch.Tensor | None] | None:
        """Runs the copy; returns one entry per leaf of the output that is not None (None for leaves that are no
        floating-point tensors), or None with a note."""
        self.note = ""
        default = torch.get_default_dtype()
        generator = torch.get_rng_state()
        try:
            module = self._wide_copy()
            # What forward makes without a dtype (torch.zeros, arange of floats) has to be float64 as well.
            torch.set_default_dtype(torch.float64)
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                returned = for_config.called(module, **pytree.tree_map(_wide, arguments))
            module.load_state_dict(self._state, strict=False)
        except Exception as error:  # whatever the model says: it does not allow float64
            self.note = f"the model does not run in float64: {class_and_line(error)}"[:300]
            return None
        finally:
            torch.set_default_dtype(default)
        if not torch.equal(generator, torch.get_rng_state()):
            self.note = "the model draws random numbers, which are others in float64"
            return None
        leaves = [leaf for leaf in pytree.tree_leaves(returned) if leaf is not None]
        return [leaf.detach() if _is_wide(leaf) else None for leaf in leaves]

    def _wide_copy(self) -> torch.nn.Module:
        if self._copy is None:
            # The tensors are handed over in float64, so that the weights are not copied in float32 first.
            tensors = (*self._module.parameters(), *self._module.buffers())
            self._copy = copy.deepcopy(self._module, {id(tensor): _wide_leaf(tensor) for tensor in tensors})
            self._state = {name: value.clone() for name, value in self._copy.named_buffers()}
        return self._copy


def _wide(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(_WIDE.get(value.dtype, value.dtype))
    return value.to(torch.float64) if value.is_floating_point() else value


def _wide_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a float64 copy of a parameter or buffer; integers are copied as they are."""
    wide = _wide(tensor.detach())
    own = wide.clone() if wide.data_ptr() == tensor.data_ptr() else wide
    return torch.nn.Parameter(own, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else own


def _is_wide(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float64


def _eager_again(bench: Workbench, case: axes.Case) -> dict[str, Value]:
    """Returns by position what the module of this process computes in its own precision; nothing where it fails."""
    try:
        outputs = Eager(bench).run(case.sizes, case.variant).outputs
    except Exception:  # eager's values are there, so that a model which refuses is another
        return {}
    return {str(position): value for position, (_, value) in enumerate(outputs)}


def _computes_otherwise(again: Mapping[str, Value], values: Mapping[str, Value]) -> bool:
    return any(name not in again or compare("", value, again[name]).unequal for name, value in values.items())


def _is_same_eager(value: Value, again: Value | None, exact: Value, rounding: Sequence[tuple[float, float]]) -> bool:
    """Returns whether two eager runs of two processes are of the same model: equal, or rounded about as much.

    Args:
        value: eager's, by which the file is judged.
        again: what this process computes.
        exact: the same in float64.
        rounding: hull of `value` beside `exact`.
    """
    if again is None:
        return False
    beside = compare("", value, again)
    if beside.expected_dtype != beside.actual_dtype or beside.expected_shape != beside.actual_shape:
        return False
    if not beside.unequal:
        return True
    own = compare("", exact, widened(again).astype(np.float64))
    return not beside.non_finite_mismatches and is_no_rougher(rounding, own.hull)


def _beyond_rounding(hull: Sequence[tuple[float, float]], exact: Value, dtype: str) -> str:
    """Says that eager is too far from float64 for rounding to be the reason; empty where it may be.

    Then the two are not the same computation (a builder that made another model, a branch taken the other way), and
    float64 says nothing about the file.
    """
    error = hull[-1][1] if hull else 0.0
    numbers = np.abs(widened(exact))
    largest = float(numbers.max(initial=0.0, where=np.isfinite(numbers)))
    kind: Any = getattr(torch, dtype, None)
    has_unit = isinstance(kind, torch.dtype) and (kind.is_floating_point or kind.is_complex)
    share = min(_LARGEST_SHARE, _GROWTH * torch.finfo(kind).eps) if has_unit else 0.0
    if error <= share * largest or error <= default_tolerance(dtype).atol:
        return ""
    return f"eager differs from float64 by {error:.3g} at values up to {largest:.3g}, which is not rounding"


def _too_large(module: torch.nn.Module) -> str:
    elements = sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
    needed, free = 8 * elements, psutil.virtual_memory().available
    if needed <= _SHARE_OF_FREE_MEMORY * free:
        return ""
    return f"float64 needs {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"
