"""Keys: every entry changes them and descriptions do not. The walk: which steps follow which results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from sweeping import CORE, CPU, PLUGIN, cells, model

from batch_export.action import Action, ActionResult, ModelArtifact
from batch_export.contract import Contract, TensorContract
from batch_export.errors import ModelError
from batch_export.exact_json import MARKS, from_exact, to_exact
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import Tolerance
from batch_export.plan import keys
from batch_export.plan import walk as plan
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Failure
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import AxisSpec, ExporterSpec, InputSpec, ModelSpec
from batch_export.steps import STEPS

MODEL = replace(model("m"), requires=("lib",))
TOOLS = Toolchain(
    versions={
        name: "1"
        for name in ("python", "torch", "numpy", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "lib", "other")
    },
    own={room: "own" for room in STEPS},
    targets={MODEL.target: "builder", PLUGIN.target: "exporter"},
    host={"name": "h", "machine": "x86_64", "system": "Linux", "cpu": "c", "cores": "2"},
)
FILE = ModelArtifact("onnx", (("weights.bin", "data"),))
ASKED = Contract(18, (TensorContract("x", "float32", ("batch", 4)),), (TensorContract("", "float32", None),))
FACTS: dict[str, Any] = {
    "cases": [{"sizes": {"batch": size}, "example": size == 2, "rejected": ""} for size in (2, 1, 5)],
    "outputs": [{"name": "0", "dtype": "complex64"}, {"name": "1", "dtype": "int64"}],
    "mutations": ["count"],
    "parameters": 3,
}


def planned(model: ModelSpec, exporter: ExporterSpec = CORE) -> PlannedCell:
    return PlannedCell(Cell(model.name, "full", 18, CPU.name, exporter.name), model, CPU, exporter)


MAKERS: dict[str, Callable[[ModelSpec, Toolchain], Action]] = {
    "reference": lambda m, t: keys.reference_action(planned(m), t),
    "capture": lambda m, t: keys.capture_action(planned(m), t),
    "translate": lambda m, t: keys.translate_action(planned(m), "graph", t),
    "plugin": lambda m, t: keys.plugin_action(planned(m, PLUGIN), t),
    "check": lambda m, t: keys.check_action(FILE, ASKED, t),
    "run": lambda m, t: keys.run_action(FILE, "reference", (0, 1), CPU, 1, ASKED, t),
    "oracle": lambda m, t: keys.oracle_action(planned(m), "reference", 0, t),
    "measure": lambda m, t: keys.measure_action(FILE, "reference", CPU, MeasureSpec(), t),
    "eager": lambda m, t: keys.eager_action(planned(m), MeasureSpec(), t),
}
BUILT = {"reference", "capture", "plugin", "oracle", "eager"}
EXPORTED = {"capture", "translate", "plugin"}


def with_version(name: str) -> Toolchain:
    return replace(TOOLS, versions={**TOOLS.versions, name: "2"})


@pytest.mark.parametrize("maker", MAKERS)
def test_entries_are_named_sorted_and_unique_and_every_one_changes_the_key(maker: str) -> None:
    action = MAKERS[maker](MODEL, TOOLS)
    names = [name for name, _ in action.entries]
    assert names == sorted(set(names))
    for index, (name, value) in enumerate(action.entries):
        other = (*action.entries[:index], (name, value + "'"), *action.entries[index + 1 :])
        assert replace(action, entries=other).key != action.key
    assert replace(action, description="other words").key == action.key


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda m: replace(m, target="fake_stages.plugin.execute"), BUILT),
        (lambda m: replace(m, arguments={"width": 3}), BUILT),
        (lambda m: replace(m, seed=1), BUILT),
        (lambda m: replace(m, inputs=(replace(m.inputs[0], low=3.0),)), BUILT),
        (lambda m: replace(m, inputs=(replace(m.inputs[0], shape=("batch", 5)),)), BUILT | EXPORTED),
        (lambda m: replace(m, axes=(AxisSpec("batch", 2, (9,)),)), {"reference", "capture", "plugin"}),
        (lambda m: replace(m, axes=(AxisSpec("batch", 3, (1, 5)),)), BUILT),
        (lambda m: replace(m, output_names=("y",)), {"translate", "plugin"}),
        (lambda m: replace(m, requires=("other",)), BUILT),
        (lambda m: replace(m, tolerances={"float32": Tolerance(1, 1)}, name="n", tags=("t",)), set()),
    ],
)
def test_what_of_a_model_changes_which_keys(change: Callable[[ModelSpec], ModelSpec], changed: set[str]) -> None:
    other = change(MODEL)
    assert {name for name, make in MAKERS.items() if make(MODEL, TOOLS).key != make(other, TOOLS).key} == changed


@pytest.mark.parametrize(
    ("tools", "changed"),
    [
        (replace(TOOLS, targets={**TOOLS.targets, MODEL.target: "edited"}), BUILT),
        (replace(TOOLS, targets={**TOOLS.targets, PLUGIN.target: "edited"}), {"plugin"}),
        (with_version("torch"), BUILT | EXPORTED),
        (with_version("lib"), BUILT),
        (with_version("onnx"), {"translate", "plugin", "check"}),
        (with_version("onnxscript"), {"translate", "plugin"}),
        (with_version("onnxruntime"), {"run", "measure"}),
        (replace(TOOLS, host={**TOOLS.host, "cpu": "d"}), {"measure", "eager"}),
        (replace(TOOLS, own={**TOOLS.own, "Plugin": "edited"}), {"plugin"}),
        (replace(TOOLS, own={**TOOLS.own, "Run": "edited"}), {"run"}),
        (replace(TOOLS, roots=("/elsewhere",)), set()),
    ],
)
def test_what_of_the_toolchain_changes_which_keys(tools: Toolchain, changed: set[str]) -> None:
    assert {name for name, make in MAKERS.items() if make(MODEL, TOOLS).key != make(MODEL, tools).key} == changed


def test_a_file_that_an_exporters_or_a_models_argument_names_is_in_its_keys() -> None:
    model = replace(MODEL, arguments={"checkpoint": "net.pt"})
    exporter = replace(PLUGIN, arguments={"options": {"table": "table.csv"}})
    core = replace(CORE, arguments={"passes": ["mine.Pass"]})
    named = replace(TOOLS, named={"net.pt": "1", "table.csv": "1", "mine.Pass": "1", "unrelated": "1"})

    def all_keys(tools: Toolchain) -> dict[str, str]:
        return {
            "reference": keys.reference_action(planned(model), tools).key,
            "capture": keys.capture_action(planned(model, core), tools).key,
            "translate": keys.translate_action(planned(model, core), "graph", tools).key,
            "plugin": keys.plugin_action(planned(model, exporter), tools).key,
        }

    for text, changed in (
        ("net.pt", {"reference", "capture", "plugin"}),
        ("table.csv", {"plugin"}),
        ("mine.Pass", {"capture", "translate"}),
        ("unrelated", set()),
    ):
        edited = replace(named, named={**named.named, text: "2"})
        before, after = all_keys(named), all_keys(edited)
        assert {name for name in before if before[name] != after[name]} == changed
    entries = dict(keys.plugin_action(planned(model, exporter), named).entries)
    assert entries["exporter.files"] == '{"table.csv":"1"}'


def test_different_files_have_different_keys() -> None:
    others = [replace(FILE, onnx="other"), replace(FILE, external=(("weights.bin", "other"),))]
    for other in others:
        assert keys.check_action(other, ASKED, TOOLS).key != keys.check_action(FILE, ASKED, TOOLS).key
        reference = ProviderSpec("reference", "reference")
        for provider in (CPU, reference):
            found = {keys.run_action(file, "r", (0,), provider, 1, ASKED, TOOLS).key for file in (FILE, other)}
            assert len(found) == 2


@pytest.mark.parametrize(
    "provider",
    [
        replace(CPU, kind="reference"),
        replace(CPU, execution_provider="CUDAExecutionProvider"),
        replace(CPU, options={"a": "b"}),
        replace(CPU, graph_optimization="disabled"),
    ],
)
def test_a_providers_settings_are_in_the_key_of_run(provider: ProviderSpec) -> None:
    found = {keys.run_action(FILE, "r", (0,), item, 1, ASKED, TOOLS).key for item in (CPU, provider)}
    assert len(found) == 2


def test_a_providers_name_and_limits_are_not() -> None:
    other = replace(CPU, name="other", max_parameters=3, opsets=(2, 3), measure=False)
    assert len({keys.run_action(FILE, "r", (0,), item, 1, ASKED, TOOLS).key for item in (CPU, other)}) == 1


@pytest.mark.parametrize(("dynamic", "shape"), [("static", (2, 4)), ("full", ("batch", 4)), ("auto", None)])
def test_the_requested_contract(dynamic: str, shape: tuple[int | str, ...] | None) -> None:
    constant = InputSpec(("flag",), constant=True)
    asked = plan.requested_contract(
        replace(MODEL, inputs=(*MODEL.inputs, constant), output_names=("a", "b")), dynamic, 20, FACTS
    )
    assert asked == Contract(
        20,
        (TensorContract("x", "float32", shape),),
        (TensorContract("a", "float32", None), TensorContract("b", "int64", None)),
        ("count",),
    )


def test_a_wrong_number_of_output_names_says_so() -> None:
    with pytest.raises(ModelError, match=r"model 'm' has 2 output tensor\(s\), but its config names 1: a\. Next step"):
        plan.requested_contract(replace(MODEL, output_names=("a",)), "full", 20, FACTS)


def results(step: plan.Step, **failing: Failure) -> ActionResult:
    """A plausible result of any step."""
    action = step.action
    if action.mnemonic in failing:
        return ActionResult(action.mnemonic, action.key, failure=failing[action.mnemonic])
    artifacts = {"Reference": {"reference": "r"}}.get(action.mnemonic, {})
    facts = {"Reference": FACTS, "Capture": {"graph_digest": "g"}}.get(action.mnemonic, {})
    file = FILE if action.mnemonic == "Translate" else None
    return ActionResult(action.mnemonic, action.key, facts, artifacts, file)


SETTINGS = plan.PlanSettings(1, MeasureSpec())
(CELL,) = cells([MODEL], opsets=(18,))


@pytest.mark.parametrize(
    ("failing", "steps"),
    [
        ("", ["Reference", "Capture", "Translate", "Check", "Run", "Measure", "Eager"]),
        ("Reference", ["Reference"]),
        ("Capture", ["Reference", "Capture"]),
        ("Translate", ["Reference", "Capture", "Translate"]),
        ("Check", ["Reference", "Capture", "Translate", "Check"]),
        ("Run", ["Reference", "Capture", "Translate", "Check", "Run"]),
        ("Measure", ["Reference", "Capture", "Translate", "Check", "Run", "Measure"]),
    ],
)
def test_a_cells_way_ends_with_its_first_failure(failing: str, steps: list[str]) -> None:
    failure = {failing: Failure("run", "Error", "no")} if failing else {}
    chain = plan.resolve(CELL, TOOLS, SETTINGS, lambda step: results(step, **failure))
    assert [action.mnemonic for action, _ in chain.steps] == steps
    assert chain.pending is None


def run_facts(case: int, share: float) -> dict[str, Any]:
    """A comparison that uses `share` of float32's default tolerance at one size."""
    sizes = FACTS["cases"][case]["sizes"]
    error = share * 1.1e-3
    output = OutputFacts("y", "float32", "float32", (1,), (1,), ((1.0, error),), error)
    return {"sizes": sizes, "outputs": [msgspec.to_builtins(output)]}


ORACLE_FACTS = {
    "cases": [{**case, "noise": [0.0]} for case in FACTS["cases"]],
    "outputs": [{"name": "0", "dtype": "float32"}],
    "parameters": 3,
}


def with_float64(step: plan.Step, shares: list[float], **failing: Failure) -> ActionResult:
    result = results(step, **failing)
    if step.kind.name == "Reference":
        return replace(result, facts=ORACLE_FACTS)
    if step.kind.name == "Oracle" and result.failure is None:
        return replace(result, facts={"note": ""}, artifacts={"oracle": f"o{step.given['case']}"})
    if step.kind.name == "Run":
        return replace(result, facts={"runs": [run_facts(case, shares[case]) for case in step.given["cases"]]})
    return result


def walked(mode: str, shares: list[float], settings: plan.PlanSettings = SETTINGS, **failing: Failure) -> list[Any]:
    seen: list[Any] = []

    def get(step: plan.Step) -> ActionResult:
        if step.kind.name == "Oracle":
            seen.append(step.given["case"])
        if step.kind.name == "Run":
            seen.append((step.given["cases"], step.given["oracles"]))
        return with_float64(step, shares, **failing)

    (cell,) = cells([replace(MODEL, oracle=mode)], opsets=(18,), dynamic=("full",))
    assert plan.resolve(cell, TOOLS, settings, get).pending is None
    return seen


ALL = (0, 1, 2)


def test_float64_is_asked_after_a_run_whose_errors_are_near_the_default_tolerances() -> None:
    assert walked("auto", [0.1, 0.6, 1.5]) == [(ALL, ()), 1, 2, ((1, 2), ((1, "o1"), (2, "o2")))]
    assert walked("auto", [0.1, 0.2, 0.3]) == [(ALL, ())]
    assert walked("always", [0.1, 0.6, 1.5]) == [0, (ALL, ((0, "o0"),))]
    assert walked("never", [0.1, 0.6, 1.5]) == [(ALL, ())]


@pytest.mark.parametrize(
    ("operators", "shares", "asked"),
    [
        (["TopK"], [0.1, 1.5, 2.0], [(1, 2)]),
        (["ArgMax"], [0.1, 0.9, 0.9], []),
        (["MatMul"], [0.1, 1.5, 2.0], []),
    ],
)
def test_ties_are_looked_for_where_a_file_that_selects_is_beyond_the_default_tolerances(
    operators: list[str], shares: list[float], asked: list[Any]
) -> None:
    seen: list[Any] = []

    def get(step: plan.Step) -> ActionResult:
        if step.kind.name == "Check":
            return replace(results(step), facts={"operators": dict.fromkeys(operators, 1)})
        if step.kind.name == "Ties":
            seen.append(step.given["cases"])
        return with_float64(step, shares)

    (cell,) = cells([MODEL], opsets=(18,), dynamic=("full",))
    assert plan.resolve(cell, TOOLS, SETTINGS, get).pending is None
    assert seen == asked


@pytest.mark.parametrize("stage", ["crash", "environment"])
def test_a_model_without_float64_goes_on(stage: Any) -> None:
    failure = Failure(stage, "SIGSEGV", "no")
    assert walked("auto", [0.1, 0.6, 0.1], Oracle=failure) == [(ALL, ()), 1]
    assert walked("always", [0.1, 0.6, 0.1], Oracle=failure) == [0, (ALL, ())]


def test_the_way_stops_where_a_result_is_unknown() -> None:
    chain = plan.resolve(CELL, TOOLS, SETTINGS, lambda step: None if step.action.mnemonic == "Check" else results(step))
    assert len(chain.steps) == 3
    assert chain.pending is not None
    assert chain.pending.kind.name == "Check"
    assert chain.pending.given["model"] == FILE


def test_nothing_is_measured_when_measuring_is_off_or_the_provider_is_not_timed() -> None:
    off = plan.PlanSettings(1, MeasureSpec(enabled=False))
    untimed = replace(CELL, provider=replace(CPU, measure=False))
    for cell, settings in ((CELL, off), (untimed, SETTINGS)):
        assert len(plan.resolve(cell, TOOLS, settings, results).steps) == 5


def test_an_exporter_that_wrote_nothing_ends_the_way_with_a_failure() -> None:
    chain = plan.resolve(CELL, TOOLS, SETTINGS, lambda step: replace(results(step), model=None))
    assert chain.ending.failure is not None
    assert chain.ending.failure.message == "exporter 'core' wrote no ONNX file"


SAYINGS = (
    *(None, math.nan, math.inf, -math.inf, 0, 0.0, -0.0, 1, 1.0, True, False, "", "1", "null", "inf", "NaN"),
    *(b"hi", "aGk=", "6869", [], {}, [[]], {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"1": 5}, {1: 5}, {True: 5}, {1.5: 5}),
    *({"a": None}, {"a": math.inf}, {"!float": "inf"}, {"!dict": []}, {"!bytes": "6869"}, [math.inf], [None]),
)


_PLAIN = {repr(one) for one in (*SAYINGS[4:10], *SAYINGS[10:16], *SAYINGS[17:25], None, {"a": None}, [None])}
"""What JSON says as it is."""


def test_arguments_that_a_builder_tells_apart_have_keys_of_their_own() -> None:
    def key(said: object) -> str:
        return keys.reference_action(planned(replace(MODEL, arguments={"said": said})), TOOLS).key

    def key_of_input(said: object) -> str:
        inputs = (InputSpec(("x",), "float32", ("batch", 4)), InputSpec(("said",), constant=said))
        return keys.reference_action(planned(replace(MODEL, inputs=inputs)), TOOLS).key

    assert len({key(one) for one in SAYINGS}) == len(SAYINGS)
    plain = [one for one in SAYINGS if not isinstance(one, dict)]
    assert len({key_of_input(one) for one in plain}) == len(plain)
    swapped = [{"a": {"x": 1}, "b": 2}, {"b": 2, "a": {"x": 1}}]
    assert len({keys.reference_action(planned(replace(MODEL, arguments=one)), TOOLS).key for one in swapped}) == 2


@pytest.mark.parametrize("said", SAYINGS, ids=repr)
def test_json_that_loses_nothing(said: object) -> None:
    text = msgspec.json.encode(to_exact({"said": said}))
    back = from_exact(msgspec.json.decode(text))["said"]

    assert repr(back) == repr(said)
    assert repr(said) in _PLAIN or any(mark in text for mark in MARKS)
