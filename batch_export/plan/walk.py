"""The plan of a cell: which actions it takes, what their keys are made of, and how one leads to the next.

Specs, a toolchain and the results so far arrive; the next step leaves. Nothing is looked up, executed or imported here:
`resolve` asks its caller for every result, so the parent (which only looks up) and a child (which executes what it
does not find) follow the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from batch_export import axes
from batch_export.action import Action, ActionResult
from batch_export.contract import Contract, TensorContract
from batch_export.digest import Digest
from batch_export.errors import ModelError
from batch_export.judge import oracle_need, tie_need
from batch_export.plan import keys
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Failure
from batch_export.runtime.measuring import MeasureSpec
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import CORE_EXPORTER_TARGET, ModelSpec
from batch_export.steps import STEPS, StepKind


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a plan depends on besides the cell: ONNX Runtime's threads in `Run`, and how latency is measured."""

    threads: int
    measure: MeasureSpec


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a cell's way.

    Attributes:
        kind: its row of `steps.STEPS`.
        action: what its result is cached under.
        given: by name what its `execute` takes, in the order in which it takes it; stored content (`kind.reads`) by
            digest.
        stands_on: the step whose live object it works on, which is executed again where its result came from the
            cache, and the facts with which it then has to come out.
    """

    kind: StepKind
    action: Action
    given: Mapping[str, Any] = field(default_factory=dict)
    stands_on: tuple[Step, Mapping[str, Any]] | None = None


def _step(name: str, action: Action, **given: Any) -> Step:
    return Step(STEPS[name], action, given)


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
    toolchain = toolchain.within(cell.environment)
    reference = yield _step("Reference", keys.reference_action(cell, toolchain))
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
        capture = _step("Capture", keys.capture_action(cell, toolchain))
        captured = yield capture
        if captured.failure is not None:
            return Ending()
        graph_digest = str(captured.facts["graph_digest"])
        action = keys.translate_action(cell, graph_digest, toolchain)
        translate = _step("Translate", action, opset=opset)
        translated = yield replace(translate, stands_on=(capture, {"graph_digest": graph_digest}))
    else:
        action = keys.plugin_action(cell, toolchain)
        translated = yield _step("Plugin", action, opset=opset)
    if translated.failure is not None:
        return Ending()
    if translated.model is None:
        return Ending(failure=Failure("translate", "NoModel", f"exporter {cell.exporter.name!r} wrote no ONNX file"))

    check = keys.check_action(translated.model, requested, toolchain)
    checked = yield _step("Check", check, model=translated.model, requested=requested)
    if checked.failure is not None:
        return Ending()
    cases = tuple(axes.case_indices(model, dynamic))
    evidence = reference.artifacts["reference"]

    def run_step(some: tuple[int, ...], exact: tuple[tuple[int, Digest], ...]) -> Step:
        assert translated.model is not None
        file, provider, threads = translated.model, cell.provider, settings.threads
        action = keys.run_action(file, evidence, some, provider, threads, requested, toolchain, exact)
        return _step(
            "Run",
            action,
            model=file,
            reference=evidence,
            cases=some,
            requested=requested,
            provider=provider,
            threads=threads,
            oracles=exact,
        )

    rough = oracle_need.beforehand(model, reference.facts, cases)
    exact = yield from _in_float64(cell, evidence, rough, toolchain)
    ran = yield run_step(cases, exact)
    if ran.failure is not None:
        return Ending()
    others = [case for case in cases if case not in rough]
    unsure = oracle_need.doubtful(model, reference.facts, others, ran.facts)
    exact = yield from _in_float64(cell, evidence, unsure, toolchain)
    if exact:
        again = yield run_step(tuple(case for case, _ in exact), exact)
        if again.failure is not None:
            return Ending()
    ran_facts = [ran.facts, *([again.facts] if exact else [])]
    differing = tie_need.unexplained(model, reference.facts, cases, checked.facts, ran_facts)
    if differing:
        provider, threads = cell.provider, settings.threads
        action = keys.ties_action(cell, translated.model, evidence, differing, threads, requested, toolchain)
        yield _step(
            "Ties",
            action,
            model=translated.model,
            reference=evidence,
            cases=differing,
            requested=requested,
            provider=provider,
            threads=threads,
        )
    if not settings.measure.enabled or not cell.provider.measure:
        return Ending()

    measure = keys.measure_action(translated.model, evidence, cell.provider, settings.measure, toolchain)
    measured = yield _step(
        "Measure",
        measure,
        model=translated.model,
        reference=evidence,
        provider=cell.provider,
        measure=settings.measure,
    )
    if measured.failure is None:
        yield _step("Eager", keys.eager_action(cell, settings.measure, toolchain), measure=settings.measure)
    return Ending()


def _in_float64(
    cell: PlannedCell, reference: Digest, cases: Sequence[int], toolchain: Toolchain
) -> Generator[Step, ActionResult, tuple[tuple[int, Digest], ...]]:
    """Yields a step per case; returns those that have values in float64. A model that has none loses an excuse only."""
    found: list[tuple[int, Digest]] = []
    for case in cases:
        action = keys.oracle_action(cell, reference, case, toolchain)
        result = yield _step("Oracle", action, reference=reference, case=case)
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
