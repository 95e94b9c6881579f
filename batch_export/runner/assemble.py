"""From the results of a cell's actions to its record. Results arrive, facts leave; the verdict is `verdict.judge`'s."""

from __future__ import annotations

from typing import Any

import msgspec

from batch_export.action import ActionResult, ModelArtifact
from batch_export.judge.declared_names import wrongly_named
from batch_export.judge.declared_sizes import wrongly_fixed
from batch_export.judge.needless_draws import needless_draws
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import Chain
from batch_export.record import ActionFacts, Failure, OnnxFacts, Record, RunFacts
from batch_export.runner.evidence_digests import seen_by
from batch_export.runner.results import View
from batch_export.runtime.measuring import LatencyFacts
from batch_export.steps import EXCUSED
from batch_export.store import Store

_CAPTURE_EXTRA = ("strategies", "guards", "changed_attributes", "weights")


def skipped(cell: PlannedCell, reason: str) -> Record:
    """Returns the record of a cell that is not run."""
    return Record(cell.cell, "skip", message=reason)


def assemble(
    cell: PlannedCell, chain: Chain, results: View, store: Store, log: str, failure: Failure | None = None
) -> Record:
    """Returns a cell's facts; its verdict says `fail` until it is judged.

    Args:
        cell: the cell.
        chain: its actions with their results.
        results: where those came from.
        store: where the file lies.
        log: path of the unit's log, relative to the run's folder; empty when no child was started.
        failure: why the cell could not go on, if no action says so.
    """
    actions = tuple(
        ActionFacts(action.mnemonic, action.key, results.origin(action.key), result.seconds)
        for action, result in chain.steps
    )
    if chain.ending.skip:
        return Record(cell.cell, "skip", message=chain.ending.skip, actions=actions, log=log)
    by_step: dict[Any, ActionResult] = {}
    for _, result in chain.steps:
        by_step.setdefault(result.mnemonic, result)  # the second Run has only some of the cases
    failures = [result.failure for _, result in chain.steps if result.failure and result.mnemonic not in EXCUSED]
    facts = {name: result.facts for name, result in by_step.items()}
    run, check, runs = facts.get("Run", {}), facts.get("Check", {}), _runs(chain)
    findings = msgspec.convert(check.get("findings", ()), tuple[Failure, ...])
    guards = facts.get("Capture", {}).get("guards", ())
    return Record(
        cell=cell.cell,
        verdict="fail",
        latency_ms=_latency(by_step.get("Measure")),
        eager_ms=getattr(_latency(by_step.get("Eager")), "median", None),
        onnx=_onnx(by_step.get("Translate"), check, store),
        actions=actions,
        failure=next(iter([*failures, *filter(None, [chain.ending.failure, failure])]), None),
        findings=(
            *findings,
            *wrongly_fixed(check.get("outputs", ()), runs),
            *wrongly_named(check, cell.model, cell.cell.dynamic, runs, guards),
            *needless_draws(facts.get("Reference", {}), check),
        ),
        runs=runs,
        placement=run.get("placement", {}),
        log=log,
        extra=_extra(by_step)
        | _randomness(by_step)
        | _changed_by_exporter(by_step)
        | _unlike_reference(chain)
        | _no_oracle(chain)
        | _measured_on(chain),
        attempts=(
            *(
                failure
                for _, result in chain.steps
                if result.mnemonic not in ("Oracle", "Ties")
                for failure in result.attempts or results.tries(result.key)
            ),
            *results.attempts.get(cell.cell, ()),
        ),
        seen=seen_by(result for _, result in chain.steps),
    )


def _runs(chain: Chain) -> tuple[RunFacts, ...]:
    """Returns the runs of a cell; a case that was run again (float64, ties) has the facts of the later run."""
    found: dict[tuple[Any, ...], RunFacts] = {}
    for _, result in chain.steps:
        if result.mnemonic in ("Run", "Ties"):
            for run in msgspec.convert(result.facts.get("runs", ()), tuple[RunFacts, ...]):
                found[(*sorted(run.sizes.items()), run.variant)] = run
    return tuple(found.values())


def _no_oracle(chain: Chain) -> dict[str, str]:
    """Returns why eager has no values in float64, where they were asked for and are not there."""
    for _, result in chain.steps:
        if result.mnemonic == "Oracle":
            note = result.failure.message if result.failure is not None else str(result.facts.get("note", ""))
            if note:
                return {"no_oracle": note}
    return {}


def _randomness(by_step: dict[Any, ActionResult]) -> dict[str, list[str]]:
    """Returns the operators of the file that draw random numbers, where eager's values are random."""
    reference, check = by_step.get("Reference"), by_step.get("Check")
    if reference is None or check is None or not reference.facts.get("random"):
        return {}
    drawing = check.facts.get("random_operators")
    return {} if drawing is None else {"random_operators": list(drawing)}


def _changed_by_exporter(by_step: dict[Any, ActionResult]) -> dict[str, dict[str, list[str]]]:
    """Returns by kind what a plug-in exporter changed in the model that it was given, but for buffers that the model
    changes when it runs.
    """
    translated, reference = by_step.get("Translate"), by_step.get("Reference")
    if translated is None or "changed" not in translated.facts:
        return {}
    of_model = reference.facts.get("mutations", ()) if reference is not None else ()
    changed = {
        kind: [name for name in names if kind != "buffers" or name not in of_model]
        for kind, names in translated.facts["changed"].items()
    }
    changed = {kind: names for kind, names in changed.items() if names}
    return {"changed_by_exporter": changed} if changed else {}


_AGAIN = "a second model of it"
"""What a sentence calls that which a builder made when it was called once more."""


def _unlike_reference(chain: Chain) -> dict[str, dict[str, list[str]]]:
    """Returns which steps had another model than eager's values are of, and in what: what the builder made (see
    `stages.built`), or the values that it computes (see `stages.oracle`).
    """
    made = [(result.mnemonic, result.facts) for _, result in chain.steps if "built" in result.facts]
    eager = next((facts["built"] for mnemonic, facts in made if mnemonic == "Reference"), None)
    if eager is None:
        return {}
    again = any(mnemonic == "Reference" and "built_again" in facts for mnemonic, facts in made)
    unlike: dict[str, list[str]] = {_AGAIN: ["tensors"]} if again else {}
    for mnemonic, facts in made:  # a step may be taken for several cases, in several processes
        kinds = [kind for kind in eager if facts["built"].get(kind) != eager[kind]]
        kinds += ["values"] if facts.get("other_values") else []
        if kinds:
            unlike[mnemonic] = list(dict.fromkeys([*unlike.get(mnemonic, ()), *kinds]))
    return {"unlike_reference": unlike} if unlike else {}


def _measured_on(chain: Chain) -> dict[str, str]:
    for action, result in chain.steps:
        if action.mnemonic == "Measure" and result.failure is None:
            return {"measured_on": dict(action.entries).get("host.name", "")}
    return {}


def _latency(result: ActionResult | None) -> LatencyFacts | None:
    facts = result.facts.get("latency_ms") if result is not None else None
    return None if facts is None else msgspec.convert(facts, LatencyFacts)


def _onnx(translated: ActionResult | None, check: dict[str, Any], store: Store) -> OnnxFacts | None:
    if translated is None or translated.model is None:
        return None
    model: ModelArtifact = translated.model
    return OnnxFacts(
        path=store.model_path(model).relative_to(store.root).as_posix(),
        sha256=model.onnx,
        bytes=check.get("bytes", 0),
        opset=check.get("opset", 0),
        nodes=check.get("nodes", 0),
    )


def _extra(by_step: dict[Any, ActionResult]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    reference, capture, run, eager = (by_step.get(name) for name in ("Reference", "Capture", "Run", "Eager"))
    if reference is not None:
        extra |= {name: reference.facts[name] for name in ("parameters", "deterministic") if name in reference.facts}
    if capture is not None:
        extra |= {name: capture.facts[name] for name in _CAPTURE_EXTRA if capture.facts.get(name)}
    if run is not None and "load_s" in run.facts:
        extra["load_s"] = run.facts["load_s"]
    if eager is not None and eager.failure is not None:
        extra["eager_failure"] = eager.failure.message
    return extra
