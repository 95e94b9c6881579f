"""Whether ties explain where a file differs from eager: eager runs again with the file's choices among equal scores.

A workbench, an ONNX file, the model's tensor file and cases arrive. The file runs as it is, and once more with the
indices of all its selections as further outputs; eager runs with those of them that are as good as its own
(`choices.py`). Facts: `runs`, the comparison with that eager, of each case in which something was chosen otherwise and
every value then agrees within the default tolerances; each says in `ties` what was chosen otherwise. `built` (see
`built.py`), and `other_values`: whether eager without these choices computes something else here than eager's values
are, so that it is another model. Nothing is excused where the outputs still differ: a case that is not among `runs`
stays what it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnx.inliner

from batch_export import axes
from batch_export.contract import Contract
from batch_export.judge.mismatch import worst_mismatch
from batch_export.judge.noise import NOISE_FACTOR
from batch_export.judge.tie_need import SELECTING
from batch_export.numbers.compare import compare
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES
from batch_export.numbers.values import Array, Value
from batch_export.record import RunFacts
from batch_export.runtime.feeds import feeds_for
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import tensors
from batch_export.runtime.tensor_file import TensorFile
from batch_export.stages.choices import FileChoices
from batch_export.stages.external_data import external_files
from batch_export.stages.output import StageOutput
from batch_export.stages.reference import Eager
from batch_export.stages.run import compared
from batch_export.stages.workbench import Workbench


def execute(
    bench: Workbench,
    model_path: Path,
    reference_path: Path,
    cases: Sequence[int],
    requested: Contract,
    provider: ProviderSpec,
    threads: int,
) -> StageOutput:
    """Looks for ties in the listed cases; see the module for the facts."""
    made, eager = bench.built, Eager(bench)
    reference = TensorFile(reference_path)
    folder = bench.scratch / "ties"
    folder.mkdir(exist_ok=True)
    telling, indices = _telling(model_path, folder)
    runs: list[RunFacts] = []
    other_values = False
    for index in cases:
        case = reference.description["cases"][index]
        given = reference.under(f"case{index}/in/")
        names, values = _run(model_path, given, provider, threads)
        told = dict(zip(*_run(telling, given, provider, threads), strict=True))
        choices = FileChoices([_array(told[name]) for name in indices])
        planned = axes.cases(bench.model)[index]
        if not _is_same_eager(eager, planned, reference.under(f"case{index}/out/")):
            if bench.was_lent:
                return StageOutput(is_doubtful=True)
            other_values = True
            continue
        with choices:
            again = eager.run(planned.sizes, planned.variant)
        changed = {
            name: eager.value_after(name, case, again.mutations.get(name))
            for name in reference.under(f"case{index}/mutation/")
        }
        facts = compared(names, values, [value for _, value in again.outputs], changed, case["noise"], requested)
        run = RunFacts(case["sizes"], facts, variant=planned.variant, ties=tuple(choices.taken))
        if run.ties and worst_mismatch([run], DEFAULT_TOLERANCES, NOISE_FACTOR) is None:
            runs.append(run)
    shutil.rmtree(folder, ignore_errors=True)
    return StageOutput(
        facts={"runs": [msgspec.to_builtins(run) for run in runs], "built": made, "other_values": other_values}
    )


def _is_same_eager(eager: Eager, case: axes.Case, values: Mapping[str, Value]) -> bool:
    """Returns whether the model of this process computes eager's values, within the default tolerances."""
    again = eager.run(case.sizes, case.variant).outputs
    facts = [compare(name, value, mine) for (name, mine), value in zip(again, values.values(), strict=False)]
    alike = worst_mismatch([RunFacts(case.sizes, tuple(facts), variant=case.variant)], DEFAULT_TOLERANCES, NOISE_FACTOR)
    return len(again) == len(values) and alike is None


def _telling(path: Path, folder: Path) -> tuple[Path, list[str]]:
    """Writes the file with the indices of its selections among its outputs; returns it and their names, in order.

    Selections inside loops and branches are not told.
    """
    model = onnx.load(path, load_external_data=False)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    own = {value.name for value in model.graph.output}
    found = [
        node.output[-1] for node in model.graph.node if node.op_type in SELECTING and node.domain in ("", "ai.onnx")
    ]
    names = [name for name in found if name]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in names if name not in own
    )
    for name in external_files(model):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.parent / name, folder / name)
    target = folder / "telling.onnx"
    target.write_bytes(model.SerializeToString())
    return target, names


def _run(
    path: Path, given: dict[str, Value], provider: ProviderSpec, threads: int
) -> tuple[tuple[str, ...], list[Value]]:
    session = open_session(path, provider, threads)
    try:
        feeds = feeds_for(session.input_names, given)
        return tuple(session.output_names), list(tensors(session.output_names, session.run(feeds)))
    finally:
        session.close()


def _array(value: Value) -> Array:
    assert isinstance(value, np.ndarray)  # INT64 has a NumPy dtype
    return value
