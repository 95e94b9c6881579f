"""The plan of a cell: which actions it takes, what their keys are made of, and how one leads to the next.

Specs, a toolchain and the results so far arrive; the next step leaves. Nothing is looked up, executed or imported here:
`resolve` asks its caller for every result, so the parent (which only looks up) and a child (which executes what it
does not find) follow the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from batch_export import axes, keys, oracle_need
from batch_export.action import Action, ActionResult, Mnemonic, ModelArtifact
from batch_export.contract import Contract, TensorContract
from batch_export.digest import Digest
from batch_export.errors import ModelError
from batch_export.matrix import PlannedCell
from batch_export.record import Failure
from batch_export.spec import CORE_EXPORTER_TARGET, MeasureSpec, ModelSpec, ProviderSpec
from batch_export.toolchain import Toolchain

EXCLUSIVE: frozenset[Mnemonic] = frozenset({"Measure", "Eager"})
"""Steps that are executed alone on the machine, after everything else."""

BESIDE: frozenset[Mnemonic] = frozenset({"Oracle", "Eager"})
"""Steps without which a cell lacks an excuse, or a speed-up to show; their failures are none of the cell's."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a plan depends on besides the cell: ONNX Runtime's threads in `Run`, and how latency is measured."""

    threads: int
    measure: MeasureSpec


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """Run the model eagerly at every size that any setting of it is checked at."""

    action: Action


@dataclass(frozen=True, slots=True)
class CaptureStep:
    """Capture the model under the core exporter."""

    action: Action


@dataclass(frozen=True, slots=True)
class TranslateStep:
    """Translate a captured program; `capture` is the action that captured it, should it have to be captured again."""

    action: Action
    opset: int
    weights: Digest | None
    capture: Action
    graph_digest: str


@dataclass(frozen=True, slots=True)
class PluginStep:
    """Export by a plug-in, in one go."""

    action: Action
    opset: int


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Read what an ONNX file promises, and compare it with what was asked for."""

    action: Action
    model: ModelArtifact
    requested: Contract


@dataclass(frozen=True, slots=True)
class OracleStep:
    """Run the model in float64 at one of its cases."""

    action: Action
    reference: Digest
    case: int


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run an ONNX file in a provider and compare it with the reference, and with float64 at the cases of `oracles`."""

    action: Action
    model: ModelArtifact
    reference: Digest
    cases: tuple[int, ...]
    requested: Contract
    provider: ProviderSpec
    threads: int
    oracles: tuple[tuple[int, Digest], ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureStep:
    """Time an ONNX file in a provider."""

    action: Action
    model: ModelArtifact
    reference: Digest
    provider: ProviderSpec
    measure: MeasureSpec


@dataclass(frozen=True, slots=True)
class EagerStep:
    """Time the model itself."""

    action: Action
    measure: MeasureSpec


Step = (
    ReferenceStep
    | CaptureStep
    | TranslateStep
    | PluginStep
    | CheckStep
    | OracleStep
    | RunStep
    | MeasureStep
    | EagerStep
)
Get = Callable[[Step], ActionResult | None]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a cell's way ended besides by its actions: skipped for a reason that only they told, or failed between
    them.
    """

    skip: str = ""
    failure: Failure | None = None


@dataclass(slots=True)
class Chain:
    """A cell's actions in order with their results; `pending` is the first without one, None when the way is
    complete.
    """

    steps: list[tuple[Action, ActionResult]] = field(default_factory=list)
    pending: Step | None = None
    ending: Ending = field(default_factory=Ending)


def resolve(cell: PlannedCell, toolchain: Toolchain, settings: PlanSettings, get: Get) -> Chain:
    """Follows a cell's actions as far as `get` returns their results.

    Args:
        cell: the cell.
        toolchain: versions, sources and host.
        settings: threads and latency.
        get: returns a step's result, by looking it up or by executing it, or None to stop there.
    """
    chain = Chain()
    way = walk(cell, toolchain, settings)
    result: ActionResult | None = None
    try:
        step = next(way)
        while True:
            result = get(step)
            if result is None:
                chain.pending = step
                way.close()
                return chain
            chain.steps.append((step.action, result))
            step = way.send(result)
    except StopIteration as stop:
        chain.ending = stop.value
        return chain


def walk(cell: PlannedCell, toolchain: Toolchain, settings: PlanSettings) -> Generator[Step, ActionResult, Ending]:
    """Yields a cell's steps one by one; each is made from the results of those before, which are sent in."""
    model, dynamic, opset = cell.model, cell.cell.dynamic, cell.cell.opset
    reference = yield ReferenceStep(keys.reference_action(model, toolchain))
    if reference.failure is not None:
        return Ending()
    limit, parameters = cell.provider.max_parameters, reference.facts.get("parameters", 0)
    if limit and parameters > limit:
        return Ending(
            skip=f"provider {cell.provider.name!r} takes at most {limit:,} parameters; the model has {parameters:,}"
        )
    try:
        requested = requested_contract(model, dynamic, opset, reference.facts)
    except ModelError as error:
        return Ending(failure=Failure("model", "OutputNames", str(error)))

    if cell.exporter.target == CORE_EXPORTER_TARGET:
        capture = keys.capture_action(model, dynamic, cell.exporter, toolchain)
        captured = yield CaptureStep(capture)
        if captured.failure is not None:
            return Ending()
        weights, graph_digest = captured.artifacts.get("weights"), str(captured.facts["graph_digest"])
        action = keys.translate_action(model, dynamic, graph_digest, weights, opset, cell.exporter, toolchain)
        translated = yield TranslateStep(action, opset, weights, capture, graph_digest)
    else:
        translated = yield PluginStep(keys.plugin_action(model, dynamic, opset, cell.exporter, toolchain), opset)
    if translated.failure is not None:
        return Ending()
    if translated.model is None:
        return Ending(failure=Failure("translate", "NoModel", f"exporter {cell.exporter.name!r} wrote no ONNX file"))

    checked = yield CheckStep(keys.check_action(translated.model, requested, toolchain), translated.model, requested)
    if checked.failure is not None:
        return Ending()
    cases = tuple(axes.case_indices(model, dynamic))
    evidence = reference.artifacts["reference"]

    def run_step(some: tuple[int, ...], exact: tuple[tuple[int, Digest], ...]) -> RunStep:
        assert translated.model is not None
        file, provider, threads = translated.model, cell.provider, settings.threads
        action = keys.run_action(file, evidence, some, provider, threads, requested, toolchain, exact)
        return RunStep(action, file, evidence, some, requested, provider, threads, exact)

    rough = oracle_need.beforehand(model, reference.facts, cases)
    exact = yield from _in_float64(model, evidence, rough, toolchain)
    ran = yield run_step(cases, exact)
    if ran.failure is not None:
        return Ending()
    others = [case for case in cases if case not in rough]
    unsure = oracle_need.doubtful(model, reference.facts, others, ran.facts)
    exact = yield from _in_float64(model, evidence, unsure, toolchain)
    if exact:
        again = yield run_step(tuple(case for case, _ in exact), exact)
        if again.failure is not None:
            return Ending()
    if not settings.measure.enabled or not cell.provider.measure:
        return Ending()

    measure = keys.measure_action(translated.model, evidence, cell.provider, settings.measure, toolchain)
    measured = yield MeasureStep(measure, translated.model, evidence, cell.provider, settings.measure)
    if measured.failure is None:
        yield EagerStep(keys.eager_action(model, settings.measure, toolchain), settings.measure)
    return Ending()


def _in_float64(
    model: ModelSpec, reference: Digest, cases: Sequence[int], toolchain: Toolchain
) -> Generator[Step, ActionResult, tuple[tuple[int, Digest], ...]]:
    """Yields a step per case; returns those that have values in float64. A model that has none loses an excuse only."""
    found: list[tuple[int, Digest]] = []
    for case in cases:
        result = yield OracleStep(keys.oracle_action(model, reference, case, toolchain), reference, case)
        if result.failure is None and "oracle" in result.artifacts:
            found.append((case, result.artifacts["oracle"]))
    return tuple(found)


def requested_contract(model: ModelSpec, dynamic: str, opset: int, reference_facts: dict[str, Any]) -> Contract:
    """Returns what a file is asked to be.

    Inputs have the config's order, names, dtypes and shapes: an int where the setting fixes the axis, a str where it is
    free; `auto` asks for no shape, since capture may refuse an axis there. Outputs have the number and dtypes of
    eager's (complex ones are pairs of floats in ONNX), and the config's names.

    Raises:
        ModelError: the config names another number of outputs than the model has.
    """
    leaves = [leaf for leaf in model.inputs if leaf.dtype]
    inputs = tuple(
        TensorContract(
            name,
            _onnx_dtype(leaf.dtype),
            None if dynamic == axes.AUTO else tuple(axes.dimension(model, entry, dynamic) for entry in leaf.shape),
        )
        for name, leaf in zip(axes.input_names(model), leaves, strict=True)
    )
    outputs = reference_facts["outputs"]
    names = model.output_names or ("",) * len(outputs)
    if len(names) != len(outputs):
        raise ModelError(
            f"model {model.name!r} has {len(outputs)} output tensor(s), but its config names {len(names)}: "
            f"{', '.join(names)}. Next step: correct 'output_names' in the model's config"
        )
    return Contract(
        opset=opset,
        inputs=inputs,
        outputs=tuple(
            TensorContract(name, _onnx_dtype(fact["dtype"]), None) for name, fact in zip(names, outputs, strict=True)
        ),
        mutations=tuple(reference_facts.get("mutations", ())),
    )


def _onnx_dtype(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
