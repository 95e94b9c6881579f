"""oracle_need.py: which cases need float64, and how much of a tolerance an error uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from batch_export.judge import oracle_need
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, Tolerance
from batch_export.record import RunFacts
from batch_export.spec import AxisSpec, InputSpec, ModelSpec

MODEL = ModelSpec(
    "m",
    "target",
    {},
    (InputSpec(("x",), "float32", ("batch", 4)),),
    (AxisSpec("batch", 2, (1,)),),
    variants=("large",),
    oracle="auto",
)
CASES = (0, 1, 2)


def facts(dtype: str = "float32", **changes: Any) -> dict[str, Any]:
    cases: list[dict[str, Any]] = [
        {"sizes": {"batch": 2}, "example": True, "rejected": "", "noise": [0.0]},
        {"sizes": {"batch": 1}, "example": False, "rejected": "", "noise": [0.0]},
        {"sizes": {"batch": 2}, "example": False, "rejected": "", "noise": [0.0], "variant": "large"},
    ]
    cases[2] |= changes
    return {"cases": cases, "outputs": [{"name": "y", "dtype": dtype}]}


def output(error: float, size: float = 0.0, dtype: str = "float32", **changes: Any) -> OutputFacts:
    return replace(OutputFacts("y", dtype, dtype, (1,), (1,), ((size, error),), error), **changes)


def ran(*outputs: OutputFacts) -> dict[str, Any]:
    """One run per output, at the cases in order."""
    places = [({"batch": 2}, ""), ({"batch": 1}, ""), ({"batch": 2}, "large")]
    runs = [RunFacts(sizes, (one,), variant=variant) for (sizes, variant), one in zip(places, outputs, strict=False)]
    return {"runs": msgspec.to_builtins(runs)}


@pytest.mark.parametrize(
    ("mode", "dtype", "expected"),
    [
        ("auto", "float32", ()),
        ("auto", "float16", CASES),
        ("auto", "bfloat16", CASES),
        ("always", "float32", (0, 2)),
        ("always", "float16", CASES),
        ("never", "float16", ()),
    ],
)
def test_before_a_run_it_is_low_precision_that_needs_float64(mode: str, dtype: str, expected: tuple[int, ...]) -> None:
    assert oracle_need.beforehand(replace(MODEL, oracle=mode), facts(dtype), CASES) == expected


@pytest.mark.parametrize("change", [{"rejected": "ValueError"}, {"noise": [0.1]}])
def test_a_case_without_one_value_of_eagers_is_never_asked(change: dict[str, Any]) -> None:
    always = replace(MODEL, oracle="always")
    assert oracle_need.beforehand(always, facts(**change), CASES) == (0,)
    assert oracle_need.doubtful(MODEL, facts(**change), CASES, ran(output(1), output(1), output(1))) == (0, 1)


def test_after_a_run_it_is_errors_beyond_half_of_their_tolerance() -> None:
    near, far = output(0.6e-4), output(0.4e-4)
    assert oracle_need.doubtful(MODEL, facts(), CASES, ran(near, far)) == (0,)
    assert oracle_need.doubtful(MODEL, facts(), (1, 2), ran(near, far)) == ()
    # A hundred times as much is allowed for large inputs.
    assert oracle_need.doubtful(MODEL, facts(), CASES, ran(far, far, output(0.4e-2))) == ()
    assert oracle_need.doubtful(MODEL, facts(), CASES, ran(far, far, output(0.6e-2))) == (2,)
    # A model's own tolerances change verdicts, never what runs.
    own = replace(MODEL, tolerances={"float32": Tolerance(1.0, 0.0)})
    assert oracle_need.doubtful(own, facts(), CASES, ran(near, far)) == (0,)


@pytest.mark.parametrize(
    "one",
    [
        output(1.0, has_oracle=True),
        output(1.0, actual_shape=(2,), max_abs=None, hull=()),
        output(1.0, expected_dtype="int64", actual_dtype="int64"),
    ],
    ids=["known", "no numbers", "integers"],
)
def test_float64_is_not_asked_where_it_cannot_tell_more(one: OutputFacts) -> None:
    dtype = "int64" if one.expected_dtype == "int64" else "float32"
    assert oracle_need.doubtful(MODEL, facts(dtype), CASES, ran(one)) == ()


def test_a_file_with_sizes_of_its_own_asks_nothing() -> None:
    other = {"runs": [{"sizes": {"other": 1}, "outputs": ran(output(1.0))["runs"][0]["outputs"]}]}
    assert oracle_need.doubtful(MODEL, facts(), CASES, other) == ()
    assert oracle_need.doubtful(MODEL, facts(), CASES, {"runs": "no list"}) == ()


def test_the_share_is_that_of_the_worst_corner() -> None:
    one = output(0.0, hull=((0.0, 5e-5), (10.0, 1.01e-2)), max_abs=1.01e-2)
    shares = oracle_need.shares_used([RunFacts({}, (one, output(0.0, hull=())))], DEFAULT_TOLERANCES)
    assert list(shares) == [pytest.approx(1.0), 0.0]
