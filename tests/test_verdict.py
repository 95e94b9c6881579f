"""verdict.py as a decision table: facts, tolerances and expectations in, outcomes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batch_export.judge import verdict
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import Tolerance
from batch_export.record import Cell, Failure, Record, RunFacts
from batch_export.report.next_steps import questions
from batch_export.spec import Expectation, ModelSpec

MODEL = ModelSpec("bert_tiny", "models.bert", {}, ())
CELL = Cell("bert_tiny", "full", 20, "cpu", "core")
TIGHT = {"float32": Tolerance(1e-4, 1e-3)}
STATIC_AXIS = Failure("dynamic", "StaticAxis", "dimension 0 of input 'x' is fixed at 2")


def output(error: float = 0.0, size: float = 1.0, **changes: Any) -> OutputFacts:
    facts = OutputFacts(
        "logits", "float32", "float32", (2, 3), (2, 3), ((size, error),) if error else (), error, error / size,
        unequal=1 if error else 0, count=6,
    )  # fmt: skip
    return replace(facts, **changes)


def run(*outputs: OutputFacts, batch: int = 2, **changes: Any) -> RunFacts:
    return RunFacts({"batch": batch, "seq": 33}, outputs, **changes)


def record(*runs: RunFacts, **changes: Any) -> Record:
    return replace(Record(CELL, "fail", runs=runs), **changes)


def judge(record: Record, *expectations: Expectation, model: ModelSpec = MODEL) -> Record:
    judged = verdict.judge(record, model, TIGHT, expectations)
    assert verdict.judge(judged, model, TIGHT, expectations) == judged
    return judged


GOOD = run(output(1e-5))
BAD = run(output(0.5))


def test_errors_at_large_values_are_shown_where_they_fail_and_nowhere_else() -> None:
    fine = run(output(0.05, size=100.0), variant="large")
    judged = judge(record(GOOD, fine))
    assert (judged.verdict, judged.max_abs) == ("pass", 1e-5)
    too_large = run(output(5.0, size=100.0), variant="large")
    judged = judge(record(GOOD, too_large))
    assert (judged.verdict, judged.max_abs) == ("fail", 5.0)


@pytest.mark.parametrize(
    ("facts", "outcome", "stage", "error_class"),
    [
        (record(GOOD), "pass", "", ""),
        (record(run(output())), "pass", "", ""),
        (record(run(output(1e-4 + 1e-3))), "pass", "", ""),
        (record(run(output(1.2e-3))), "fail", "mismatch", "NumericMismatch"),
        (record(run(output(1.2e-3, size=2.0))), "pass", "", ""),
        (record(GOOD, BAD), "fail", "mismatch", "NumericMismatch"),
        (record(run(output(non_finite_mismatches=1, unequal=1))), "fail", "mismatch", "NonFiniteMismatch"),
        (record(run(output(actual_shape=(3,), max_abs=None, max_rel=None))), "fail", "mismatch", "ShapeMismatch"),
        (record(run(output(actual_dtype="float64", max_abs=None))), "fail", "mismatch", "DtypeMismatch"),
        (record(run(GOOD.outputs[0], output(actual_dtype="missing"))), "fail", "mismatch", "MissingOutput"),
        (record(), "fail", "run", "NothingCompared"),
        (record(run()), "fail", "run", "NothingCompared"),
        (record(GOOD, run(batch=5)), "fail", "run", "NothingCompared"),
        (record(GOOD, run(batch=5, error="invalid dimension")), "fail", "dynamic", "SizeRefused"),
        (record(GOOD, run(batch=1, rejected="ValueError: no")), "fail", "dynamic", "ModelGuard"),
        (record(run(batch=1, rejected="ValueError: no")), "fail", "dynamic", "ModelGuard"),
        (record(GOOD, findings=(STATIC_AXIS,)), "fail", "dynamic", "StaticAxis"),
        (record(BAD, findings=(STATIC_AXIS,)), "fail", "dynamic", "StaticAxis"),
        (record(failure=Failure("capture", "Unsupported", "no")), "fail", "capture", "Unsupported"),
        (record(findings=(STATIC_AXIS,), failure=Failure("load", "Fail", "no")), "fail", "load", "Fail"),
        (record(BAD, failure=Failure("crash", "SIGSEGV", "killed")), "fail", "crash", "SIGSEGV"),
        (record(verdict="skip", message="no CUDA"), "skip", "", ""),
        (record(verdict="missing"), "missing", "", ""),
    ],
)
def test_outcome(facts: Record, outcome: str, stage: str, error_class: str) -> None:
    judged = judge(facts)
    assert (judged.verdict, judged.stage, judged.error_class) == (outcome, stage, error_class)


@pytest.mark.parametrize(
    ("guard", "at_two", "error_class"),
    [
        ("batch != 2", BAD, "BeyondGuard"),
        ("2 + seq <= 34 and batch >= 1", BAD, "BeyondGuard"),
        ("((63 + seq) // 64) == 2 or -batch > 0", BAD, "BeyondGuard"),
        ("batch != 2", GOOD, ""),
        ("batch != 3", BAD, "NumericMismatch"),
        ("Max(batch, seq) < 3", BAD, "NumericMismatch"),
        ("height != 2", BAD, "NumericMismatch"),
        ("of no grammar at all", BAD, "NumericMismatch"),
    ],
)
def test_a_size_beyond_a_guard_of_the_capture_is_told_from_wrong_numbers(
    guard: str, at_two: RunFacts, error_class: str
) -> None:
    facts = record(run(output(1e-5), batch=5), at_two, extra={"guards": [guard]})
    found = judge(facts)
    assert found.error_class == error_class
    assert found.stage == ("dynamic" if error_class == "BeyondGuard" else "mismatch" if error_class else "")
    if "batch != 2" in guard and error_class:
        assert "holds only while `batch != 2`, as its capture says: output 0 (logits)" in found.message
        both = judge(replace(facts, runs=(run(output(0.5), batch=5), at_two)))
        assert both.error_class == "NumericMismatch"


NAN, INF = np.nan, np.inf


def compared(expected: Any, actual: Any = None, variant: str = "", name: str = "y", noise: float = 0.0) -> RunFacts:
    eager = np.asarray(expected)
    file = eager if actual is None else np.asarray(actual, eager.dtype)
    return run(compare(name, eager, file, noise), variant=variant)


def both(*runs: RunFacts) -> RunFacts:
    return run(*(output for one in runs for output in one.outputs))


@pytest.mark.parametrize(
    ("runs", "error_class"),
    [
        ([compared([NAN, NAN])], "NothingFinite"),
        ([compared([INF, -INF])], "NothingFinite"),
        ([compared([NAN]), compared([NAN, INF], variant="large")], "NothingFinite"),
        ([compared(np.full(3, NAN, np.float16))], "NothingFinite"),
        ([compared(np.full(3, NAN + 1j, np.complex64).real)], "NothingFinite"),
        ([both(compared([1.0]), compared([NAN], name="z"))], "NothingFinite"),
        ([both(compared([1.0], name="z"), compared([NAN], name="z"))], "NothingFinite"),
        ([compared(np.zeros((0, 3))), compared([[NAN]])], "NothingFinite"),
        ([compared([NAN, 1.0])], ""),
        ([compared([NAN, 1.0], [NAN, 1.0 + 1e-8])], ""),
        ([compared([1.0]), compared([NAN], variant="zeros")], ""),
        ([compared([NAN]), compared([1.0], variant="seed1")], ""),
        ([compared(np.zeros((0, 3)))], ""),
        ([compared([1.0]), compared(np.zeros((0,)), variant="empty")], ""),
        ([compared([True, False])], ""),
        ([compared([1, 2])], ""),
        ([compared(["a", "b"])], ""),
        ([compared([NAN, NAN], [NAN, 1.0])], "NonFiniteMismatch"),
        ([compared([INF], [-INF])], "NonFiniteMismatch"),
        ([both(compared([1.0], [2.0]), compared([NAN], name="z"))], "NumericMismatch"),
    ],
)
def test_an_output_without_one_finite_value_proves_nothing(runs: list[RunFacts], error_class: str) -> None:
    judged = judge(record(*runs))
    assert (judged.verdict, judged.error_class) == (("fail", error_class) if error_class else ("pass", ""))
    if error_class == "NothingFinite":
        assert judged.stage == "mismatch"
        assert "'allow_nonfinite: true'" in judged.message
        assert questions(judged) == (), "bisect would find nothing"
    meant = judge(record(*runs), model=replace(MODEL, allow_nonfinite=True))
    assert meant.error_class == error_class.replace("NothingFinite", "")


def test_a_nan_that_is_expected_to_fail_is_xfail() -> None:
    assert judge(record(compared([NAN])), Expectation("known", error_class="NothingFinite")).verdict == "xfail"


@pytest.mark.parametrize(
    ("runs", "random"),
    [
        ([GOOD], False),
        ([run(output(1e-5, noise=1e-6))], False),
        ([run(output(0.5, noise=0.4))], True),
        ([GOOD, run(output(1e-5, noise=0.4))], True),
        ([run(output(0.5, noise=0.004), variant="large")], False),
        ([run(output(0.9, noise=1.0, expected_dtype="int64", actual_dtype="int64"))], True),
    ],
)
def test_a_cell_is_marked_when_noise_decided(runs: list[RunFacts], random: bool) -> None:
    assert judge(record(*runs)).by_distribution == random


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        (None, "; 2 of 6 elements beyond;"),
        (Tolerance(1e-4, 1e-3), "; 2 of 6 elements beyond;"),
        (Tolerance(1e-4, 0.0), "; 2 of 6 elements beyond the default 0.0001 + 0.001;"),
    ],
)
def test_elements_are_counted_by_the_limit_that_is_named(tolerance: Tolerance | None, said: str) -> None:
    model = replace(MODEL, tolerances={"float32": tolerance} if tolerance else {})
    wrong = output(0.5, outside=2, worst_index=(0, 0), worst_values=("1", "2"))
    assert said in judge(record(run(wrong)), model=model).message


DECLARED = Expectation("ORT lacks it", stage="mismatch", error_class="Numeric*", link="https://example.org/1")


@pytest.mark.parametrize(
    ("facts", "expectation", "outcome"),
    [
        (record(BAD), DECLARED, "xfail"),
        (record(GOOD), DECLARED, "xpass"),
        (record(failure=Failure("load", "Fail", "no")), DECLARED, "fail"),
        (record(BAD), replace(DECLARED, error_class="ShapeMismatch"), "fail"),
        (record(BAD), replace(DECLARED, model="bert_*", opset="2?", dynamic="full"), "xfail"),
        (record(BAD), replace(DECLARED, model="gpt2"), "fail"),
        (record(GOOD), replace(DECLARED, opset="18"), "pass"),
        (record(BAD), replace(DECLARED, exporter="torch"), "fail"),
        (record(BAD), replace(DECLARED, provider="cuda"), "fail"),
        (record(verdict="skip"), DECLARED, "skip"),
    ],
)
def test_outcome_with_an_expectation(facts: Record, expectation: Expectation, outcome: str) -> None:
    assert judge(facts, expectation).verdict == outcome


def test_an_expected_failure_keeps_its_own_words_and_names_the_reason() -> None:
    judged = judge(record(BAD), replace(DECLARED, stage="load"), DECLARED)
    assert judged.verdict == "xfail"
    assert judged.message.startswith("output 0 (logits): error 0.5")
    assert judged.extra["reason"] == "ORT lacks it"
    assert judged.extra["link"] == "https://example.org/1"


def test_an_unexpected_pass_says_what_to_do() -> None:
    assert judge(record(GOOD), DECLARED).message == (
        "passes, though it was expected to fail (ORT lacks it); remove the expectation"
    )


def test_a_failure_of_another_kind_says_what_was_expected() -> None:
    judged = judge(record(failure=Failure("load", "Fail", "no")), DECLARED)
    assert judged.message == "no (expected to fail otherwise: stage mismatch, class Numeric*: ORT lacks it)"
    assert judged.extra == {}


def test_a_mismatch_is_one_sentence_with_numbers() -> None:
    worst = output(0.0123, size=1.2, unequal=17, count=2000)
    judged = judge(record(GOOD, run(GOOD.outputs[0], worst, batch=5)))
    assert judged.message == (
        "output 1 (logits): error 0.0123 at |ref| 1.2 exceeds atol 0.0001 + rtol 0.001;"
        " 17 of 2000 elements differ at batch=5, seq=33"
    )
    assert judged.max_abs == 0.0123
    assert judged.max_rel == pytest.approx(0.01025)


def test_the_gravest_mismatch_is_reported() -> None:
    wrong_shape = output(actual_shape=(2,), max_abs=None, max_rel=None)
    assert judge(record(run(output(1e9)), run(wrong_shape, batch=5))).error_class == "ShapeMismatch"
    assert "error 9 at" in judge(record(run(output(0.5)), run(output(9.0)), run(output(0.7)))).message


def test_other_messages() -> None:
    assert judge(record(GOOD, run(batch=1, rejected="ValueError: batch of one"))).message == (
        "the model itself rejects batch=1, seq=33: ValueError: batch of one; change axes.*.check"
    )
    assert judge(record(GOOD, run(batch=5, error="bad dim"))).message == "the runtime refuses batch=5, seq=33: bad dim"
    findings = (STATIC_AXIS, STATIC_AXIS, STATIC_AXIS)
    assert (
        judge(record(GOOD, findings=findings)).message == "dimension 0 of input 'x' is fixed at 2 (and 2 more findings)"
    )
    refused = Failure("run", "InvalidArgument", "the runtime refuses it")
    assert (
        judge(record(findings=findings, failure=refused)).message
        == "the runtime refuses it; what was found in the file before: dimension 0 of input 'x' is fixed at 2"
        " (and 2 more findings)"
    )
    assert judge(record(RunFacts({}, (output(1.0),)))).message.endswith("elements differ at the example sizes")


def test_every_point_of_the_hull_counts() -> None:
    facts = output(hull=((0.0, 5e-5), (1.0, 9e-4), (100.0, 0.2)), max_abs=0.2, max_rel=0.1)
    assert judge(record(run(facts))).message.startswith("output 0 (logits): error 0.2 at |ref| 100 exceeds")
    fine = replace(facts, hull=((0.0, 5e-5), (1.0, 9e-4), (100.0, 0.1)))
    assert judge(record(run(fine))).verdict == "pass"


@pytest.mark.parametrize(
    ("dtype", "error", "outcome"),
    [
        ("float16", 0.005, "pass"),
        ("float64", 1e-4, "fail"),
        ("bfloat16", 0.05, "pass"),
        ("int64", 1.0, "fail"),
        ("bool", 1.0, "fail"),
    ],
)
def test_tolerance_goes_by_dtype(dtype: str, error: float, outcome: str) -> None:
    assert judge(record(run(output(error, expected_dtype=dtype, actual_dtype=dtype)))).verdict == outcome


def test_the_model_has_the_last_word_on_tolerances() -> None:
    loose = replace(MODEL, tolerances={"float32": Tolerance(1.0, 0.0), "int8": Tolerance(1.0, 0.0)})
    assert judge(record(BAD), model=loose).verdict == "pass"
    quantised = output(1.0, expected_dtype="int8", actual_dtype="int8")
    assert judge(record(run(quantised)), model=loose).verdict == "pass"
    assert judge(record(run(quantised))).verdict == "fail"


def test_text_that_differs_fails() -> None:
    text = output(expected_dtype="str", actual_dtype="str", max_abs=None, max_rel=None, unequal=2)
    assert judge(record(run(text))).message.startswith("output 0 (logits): 2 of 6 elements differ")


def test_noise_raises_the_tolerance_and_is_told() -> None:
    noisy = judge(record(run(output(0.5, noise=0.3))))
    assert noisy.verdict == "pass"
    assert noisy.message == noisy.extra["nondeterministic"]
    assert noisy.message == "eager is not deterministic (logits by 0.3); judged with atol of at least twice that"
    far = judge(record(run(output(0.9, noise=0.3))))
    assert far.verdict == "fail"
    assert "exceeds atol 0.6 + rtol 0.001" in far.message
    assert "eager differs from itself by 0.3" in far.message
    assert judge(record(run(output(actual_shape=(1,), noise=9.0)))).error_class == "ShapeMismatch"


def test_all_other_facts_are_kept() -> None:
    facts = record(GOOD, extra={"parameters": 12, "reason": "of an earlier judgement"}, eager_ms=1.0, log="logs/a")
    judged = judge(facts)
    extra = {"parameters": 12, "float64": "not asked (verify.oracle=never)"}
    assert (judged.extra, judged.eager_ms, judged.log, judged.runs) == (extra, 1.0, "logs/a", facts.runs)


BESIDE = output(2e-3, has_oracle=True, rounding_hull=((1.0, 1e-3),), oracle_hull=((1.0, 1.5e-3),))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (record(GOOD, run(BESIDE, batch=5)), "asked at 1 of 2 inputs; logits at batch=5, seq=33: onnx vs eager 0.002,"),
        (record(GOOD), "not needed: no error uses more than 0.0091 of its tolerance"),
        (record(run(output(1e-3, noise=1e-4))), "none: eager is not deterministic"),
        (record(BAD, extra={"no_oracle": "the model does not run in float64: no"}), "none: the model does not run in"),
        (record(BAD), "not asked: no error is near its dtype's default tolerance"),
        (record(failure=Failure("capture", "Unsupported", "no")), None),
    ],
)
def test_what_float64_told_is_told(facts: Record, said: str | None) -> None:
    judged = judge(facts, model=replace(MODEL, oracle="auto"))
    assert str(judged.extra.get("float64")).startswith(str(said))
    if facts.runs and facts.runs[0] is BAD:
        assert judged.message.endswith(f"; eager in float64: {judged.extra['float64']}")


def test_wrong_integers_say_nothing_of_float64() -> None:
    wrong = output(1.0, expected_dtype="int64", actual_dtype="int64", unequal=1, max_abs=1.0)
    judged = judge(record(run(wrong)), model=replace(MODEL, oracle="auto"))
    assert judged.verdict == "fail"
    assert "float64" not in judged.message
    assert "float64" not in judged.extra


EAGERS = ((2.2, 0.0013), (63.1, 0.01131), (699.7, 0.03858), (43398.1, 0.07898))
"""Rounding of a sum in float32: the one small value happens to be nearly right."""


@pytest.mark.parametrize(
    ("oracle_hull", "outcome"),
    [
        (((2.2, 0.01956), (1958.2, 0.03311), (131016.6, 0.06779)), "pass"),  # a small value that is not so lucky
        (((2.2, 0.0782), (131016.6, 0.079)), "fail"),  # more than twice the rounding of a hundredth of the largest
        (((699.7, 0.078),), "fail"),
        (((43398.1, 0.159),), "fail"),
    ],
)
def test_a_small_value_may_be_rounded_like_the_terms_that_it_came_from(oracle_hull: Any, outcome: str) -> None:
    found = output(0.0859, 2.0, has_oracle=True, rounding_hull=EAGERS, oracle_hull=oracle_hull)
    assert judge(record(run(found))).verdict == outcome


EXCUSED = output(2e-3, has_oracle=True, rounding_hull=((1.0, 2e-3),), oracle_hull=((1.0, 1e-5),))


@pytest.mark.parametrize(
    ("runs", "unlike", "error_class", "said"),
    [
        ([GOOD], {}, "", ""),
        ([GOOD], {"Capture": ["tensors"]}, "NotReproducible", "the captured program had other weights"),
        ([GOOD], {"Eager": ["tensors", "constants"]}, "NotReproducible", "the model that was timed"),
        ([GOOD], {"Capture": ["constants"]}, "", ""),
        ([BAD], {"Translate": ["constants"]}, "NotReproducible", "the exported file had other attributes"),
        ([run(EXCUSED)], {}, "", ""),
        ([run(EXCUSED)], {"Oracle": ["constants"]}, "NotReproducible", "eager in float64 had other attributes"),
        ([GOOD], {"Oracle": ["values"]}, "", ""),
        ([BAD], {"Oracle": ["values"]}, "NotReproducible", "eager in float64 had other values to compute with"),
        ([run(batch=5, error="bad")], {"Capture": ["tensors"]}, "SizeRefused", ""),
    ],
)
def test_steps_that_built_other_models_prove_nothing(
    runs: list[RunFacts], unlike: dict[str, list[str]], error_class: str, said: str
) -> None:
    judged = judge(record(*runs, extra={"unlike_reference": unlike} if unlike else {}))
    assert judged.error_class == error_class
    assert said in judged.message
    if error_class == "NotReproducible":
        assert judged.stage == "model"
        assert "models.bert" in judged.message
        assert "seed it" in judged.message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weights": ["a", "b", "c", "d"]}, "(weights: a, b, c and 1 more), so that the file may be of another model"),
        ({"modes": ["the model"]}, "changed the model that it was given (training mode: the model), so that"),
        ({"process": ["torch.tanh"]}, "changed functions of its process (torch.tanh), so that"),
    ],
)
def test_a_mismatch_says_what_its_exporter_changed(changed: dict[str, list[str]], said: str) -> None:
    extra = {"changed_by_exporter": changed}
    judged = judge(record(BAD, extra=extra))
    assert judged.error_class == "NumericMismatch"
    assert said in judged.message
    assert f"the exporter '{judged.cell.exporter}' changed" in judged.message
    assert judge(judged).message == judged.message
    assert judge(record(GOOD, extra=extra)).verdict == "pass"


@pytest.mark.parametrize(
    ("runs", "extra", "error_class", "said"),
    [
        ([run(output(0.5, noise=0.4))], {"random_operators": []}, "FrozenRandomness", "forward draws or counts"),
        ([BAD], {"random_operators": [], "changed_attributes": ["w"]}, "FrozenRandomness", "forward changes w,"),
        ([run(output(actual_shape=(1,), noise=0.4))], {"random_operators": []}, "ShapeMismatch", ""),
        ([run(output(3.1, noise=0.4))], {"random_operators": ["RandomUniform"]}, "", "at least 8 times that"),
        ([run(output(3.3, noise=0.4))], {"random_operators": ["RandomUniform"]}, "NumericMismatch", "atol 3.2"),
        ([run(output(0.7, noise=0.4))], {}, "", "at least twice that"),
    ],
)
def test_a_random_model_needs_a_file_that_draws(
    runs: list[RunFacts], extra: dict[str, list[str]], error_class: str, said: str
) -> None:
    judged = judge(record(*runs, extra=extra))
    assert judged.error_class == error_class
    assert said in judged.message
