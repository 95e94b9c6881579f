"""Running a file at the sizes of a setting and comparing its outputs with eager's.

An ONNX file, the model's tensor file and a provider arrive; facts leave: `runs` (plain `RunFacts`), `placement` (nodes
by execution provider), `load_s`, and `nodes_after_optimisation` (None: ONNX Runtime reports it only by writing the
optimised file). What refuses to load, or to run at the example sizes, is a failure; other sizes are facts of their
own, and those that a file fixes under the setting `auto` are left out. At cases with values in float64 the file is
compared with those too. No tolerance is known here, no verdict given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from batch_export.contract import Contract
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.values import Value, dtype_name, widened
from batch_export.record import Failure, RunFacts
from batch_export.runtime.failures import LoadError, OptionsRejectedError, ProviderUnavailableError
from batch_export.runtime.feeds import FeedError, feeds_for
from batch_export.runtime.kinds import Session
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import tensors
from batch_export.runtime.tensor_file import TensorFile
from batch_export.runtime.worker.failures import WorkerEndedError, WorkerRefusedError
from batch_export.stages.mutations import mutation_output
from batch_export.stages.output import StageOutput
from batch_export.words import error_line

MISSING = "missing"
"""Stands for the dtype of an output that the file does not have."""


def execute(
    model_path: Path,
    reference_path: Path,
    case_indices: Sequence[int],
    requested: Contract,
    provider: ProviderSpec,
    threads: int,
    oracles: Sequence[tuple[int, Path]] = (),
) -> StageOutput:
    """Runs the listed cases in one session and compares them; see the module for the facts.

    `oracles` are cases with the files that `stages.oracle` made for them.
    """
    reference = TensorFile(reference_path)
    in_float64 = {index: TensorFile(path) for index, path in oracles}
    cases = reference.description["cases"]
    session = opened(model_path, provider, threads)
    if isinstance(session, Failure):
        return StageOutput(failure=session)
    runs: list[RunFacts] = []
    failure = fallen_back(session, provider)
    try:
        for index in case_indices:
            case = cases[index]
            variant = case.get("variant", "")
            if case["rejected"]:
                if not variant:  # eager may refuse special values: they are ours, not the config's
                    runs.append(RunFacts(case["sizes"], rejected=case["rejected"]))
                continue
            try:
                feeds = feeds_for(session.input_names, reference.under(f"case{index}/in/"))
                if not case["example"] and _left_fixed(session, feeds, requested):
                    continue
                outputs = tensors(session.output_names, session.run(feeds))
            except (MemoryError, WorkerEndedError):
                raise
            except Exception as error:
                words = error_line(error)
                runs.append(RunFacts(case["sizes"], error=words, variant=variant))
                if case["example"] or isinstance(error, FeedError):
                    failure = failure or Failure("run", _class(error), words, details=str(error))
                    break
                continue
            expected = list(reference.under(f"case{index}/out/").values())
            changed = reference.under(f"case{index}/mutation/")
            facts = compared(session.output_names, outputs, expected, changed, case["noise"], requested)
            if index in in_float64:
                facts = _beside_oracles(facts, outputs, in_float64[index])
            runs.append(RunFacts(case["sizes"], outputs=facts, variant=variant))
    finally:
        session.close()
    return StageOutput(
        facts={
            "runs": [msgspec.to_builtins(run) for run in runs],
            "placement": session.placement,
            "load_s": session.load_seconds,
            "nodes_after_optimisation": None,
        },
        failure=failure,
    )


def opened(model_path: Path, provider: ProviderSpec, threads: int) -> Session | Failure:
    """Returns a session, or why there is none: `environment` when the provider is missing, else `load`."""
    try:
        return open_session(model_path, provider, threads)
    except (ProviderUnavailableError, OptionsRejectedError) as error:
        return Failure("environment", type(error).__name__, str(error))
    except LoadError as error:
        reason = error.__cause__ or error
        return Failure("load", _class(reason), error_line(error), details=str(error))


def _class(error: BaseException) -> str:
    return error.error_class if isinstance(error, WorkerRefusedError) else type(error).__name__


def fallen_back(session: Session, provider: ProviderSpec) -> Failure | None:
    """Returns a failure if not one node was placed where it was asked for, or more elsewhere than may be."""
    placement, asked = session.placement, provider.execution_provider
    if not runtime(provider.kind).places or not placement:
        return None
    placed = ", ".join(f"{nodes} on {name}" for name, nodes in placement.items())
    if not placement.get(asked):
        return Failure("run", "Placement", f"no node ran on {asked}: {provider.kind} placed {placed} in silence")
    elsewhere = sum(nodes for name, nodes in placement.items() if name not in (asked, *provider.after))
    share = elsewhere / sum(placement.values())
    if share <= provider.fallback_limit:
        return None
    where = " or ".join((asked, *provider.after))
    return Failure(
        "run",
        "Placement",
        f"{share:.0%} of the nodes did not run on {where}, beyond the {provider.fallback_limit:.0%} that"
        f" fallback_limit allows: {provider.kind} placed {placed} in silence",
    )


def _left_fixed(session: Session, feeds: dict[str, Value], requested: Contract) -> bool:
    """Returns whether the file fixes a size that this case changes and the contract did not ask to be free (`auto`)."""
    unasked = {value.name for value in requested.inputs if value.shape is None}
    return any(
        name in unasked and fixed is not None and size != fixed
        for name, shape in zip(session.input_names, session.input_shapes, strict=True)
        for fixed, size in zip(shape or (), feeds[name].shape, strict=False)
    )


def compared(
    names: Sequence[str],
    outputs: Sequence[Value],
    expected: Sequence[Value],
    mutations: Mapping[str, Value],
    noise: Sequence[float],
    requested: Contract,
) -> tuple[OutputFacts, ...]:
    """Compares a file's outputs with eager's, and what comes after them with what eager changed.

    Args:
        names: of the file's outputs.
        outputs: their values.
        expected: eager's outputs.
        mutations: what the model changes, with its values afterwards.
        noise: of each output of eager's.
        requested: the contract, which names what the file lacks.
    """
    facts: list[OutputFacts] = []
    for position, value in enumerate(expected):
        if position < len(outputs):
            facts.append(compare(names[position], value, outputs[position], noise[position]))
        else:
            wanted = requested.outputs[position].name if position < len(requested.outputs) else ""
            facts.append(_missing(wanted or f"output {position}", value))
    by_name = dict(zip(names[len(expected) :], outputs[len(expected) :], strict=True))
    for mutation, value in mutations.items():
        name = mutation_output(mutation, tuple(by_name))
        facts.append(_missing(mutation, value) if name is None else compare(name, value, by_name[name]))
    return tuple(facts)


def _beside_oracles(
    facts: Sequence[OutputFacts], outputs: Sequence[Value], oracle: TensorFile
) -> tuple[OutputFacts, ...]:
    """Adds float64 to the facts of eager's outputs; what the model changes has no values in float64."""
    return tuple(
        _beside_oracle(found, outputs[position], oracle, position) if position < len(outputs) else found
        for position, found in enumerate(facts)
    )


def _beside_oracle(facts: OutputFacts, actual: Value, oracle: TensorFile, position: int) -> OutputFacts:
    """Adds how far eager, and the file, are from eager in float64, where that output has values.

    Where float64 is NaN or infinite and the file is not, it says nothing about that element, and so excuses nothing.
    """
    name = f"out/{position}"
    if name not in oracle or facts.actual_shape != facts.expected_shape:
        return facts
    rounding = tuple((float(size), float(error)) for size, error in oracle.description["rounding"][position])
    against = compare(facts.name, oracle[name], widened(actual).astype(np.float64))
    if against.non_finite_mismatches:
        return facts
    return replace(facts, rounding_hull=rounding, oracle_hull=against.hull, has_oracle=True)


def _missing(name: str, expected: Value) -> OutputFacts:
    return OutputFacts(name, dtype_name(expected), MISSING, tuple(expected.shape), ())


def as_plain_feeds(session: Session, reference: TensorFile) -> dict[str, Value]:
    """Returns the example case's feeds as arrays in memory, so that a timed run never waits for the file."""
    feeds = feeds_for(session.input_names, reference.under("case0/in/"))
    return {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in feeds.items()}
