"""Twin of `batch_export/axes.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from batch_export import axes
from batch_export.errors import UsageError
from batch_export.spec import AxisSpec, InputSpec, ModelSpec


def model(*axis_specs: AxisSpec) -> ModelSpec:
    shape = tuple(axis.name for axis in axis_specs)
    return ModelSpec("sample", "models.nothing.sample", {}, (InputSpec(("x",), "float32", shape),), axis_specs)


BATCH = AxisSpec("batch", 2, (1, 5))
SEQ = AxisSpec("seq", 16, (1, 33, 40))
PAST = AxisSpec("past", 6, (0,))
FIXED = AxisSpec("fixed", 3)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("static", ()),
        ("full", ("batch", "seq")),
        ("auto", ("batch", "seq")),
        ("seq", ("seq",)),
        ("seq+batch", ("batch", "seq")),
    ],
)
def test_free_axes_are_in_the_model_order(setting: str, expected: tuple[str, ...]) -> None:
    assert axes.free_axes(model(BATCH, SEQ), setting) == expected


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("height", "model 'sample' has no axis 'height' (its axes: batch, seq)"),
        ("batch+", "model 'sample' has no axis '' (its axes: batch, seq)"),
        ("batch+static", "model 'sample' has no axis 'static' (its axes: batch, seq)"),
        ("batch+batch", "dynamic-shape setting 'batch+batch' names an axis twice"),
    ],
)
def test_a_setting_that_the_model_lacks_has_a_reason(setting: str, reason: str) -> None:
    assert axes.supports(model(BATCH, SEQ), setting) == reason
    with pytest.raises(UsageError, match="axis"):
        axes.free_axes(model(BATCH, SEQ), setting)


@pytest.mark.parametrize("setting", ["full", "auto", "batch"])
def test_a_model_without_axes_is_static_only(setting: str) -> None:
    reason = axes.supports(model(), setting)
    assert reason == "model 'sample' has no axes, so the only dynamic-shape setting is 'static'"
    assert axes.supports(model(), "static") is None
    assert axes.all_cases(model()) == ({},)


def test_static_has_no_check_sizes() -> None:
    assert axes.check_sizes(model(BATCH, SEQ), "static") == ()
    assert axes.case_indices(model(BATCH, SEQ), "static") == [0]


def test_one_axis_is_checked_alone() -> None:
    assert axes.check_sizes(model(BATCH, SEQ), "batch") == ({"batch": 1, "seq": 16}, {"batch": 5, "seq": 16})


@pytest.mark.parametrize("setting", ["full", "auto", "batch+seq"])
def test_all_axes_move_together_and_shorter_lists_start_again(setting: str) -> None:
    assert axes.check_sizes(model(BATCH, SEQ), setting) == (
        {"batch": 1, "seq": 1},
        {"batch": 5, "seq": 33},
        {"batch": 1, "seq": 40},
    )


def test_some_of_several_axes_move_one_at_a_time() -> None:
    assert axes.check_sizes(model(BATCH, SEQ, PAST), "batch+past") == (
        {"batch": 1, "seq": 16, "past": 6},
        {"batch": 5, "seq": 16, "past": 6},
        {"batch": 2, "seq": 16, "past": 0},
    )


def test_an_axis_without_check_sizes_stays_at_its_example() -> None:
    assert axes.check_sizes(model(BATCH, FIXED), "full") == ({"batch": 1, "fixed": 3}, {"batch": 5, "fixed": 3})
    assert axes.check_sizes(model(FIXED), "full") == ()


@pytest.mark.parametrize("setting", ["static", "full", "auto", "batch", "seq", "past", "seq+past", "batch+seq+past"])
def test_every_case_of_a_setting_is_among_all_cases(setting: str) -> None:
    sample = model(BATCH, SEQ, PAST)
    cases = axes.all_cases(sample)
    assert cases[0] == axes.example_sizes(sample) == {"batch": 2, "seq": 16, "past": 6}
    chosen = [cases[index] for index in axes.case_indices(sample, setting)]
    assert chosen == [cases[0], *axes.check_sizes(sample, setting)]


def test_a_check_size_equal_to_the_example_is_one_case() -> None:
    sample = model(AxisSpec("batch", 2, (2, 3)))
    assert axes.all_cases(sample) == ({"batch": 2}, {"batch": 3})
    assert axes.case_indices(sample, "batch") == [0, 1]


@pytest.mark.parametrize(("expression", "size"), [(4, 4), ("past", 6), ("past+seq", 22), ("past + seq + 1", 23)])
def test_sums_are_added_up(expression: int | str, size: int) -> None:
    assert axes.size_of(expression, {"past": 6, "seq": 16}) == size


def test_a_sum_with_an_unknown_axis_names_it() -> None:
    with pytest.raises(UsageError, match=r"shape entry 'past\+len' names the axis 'len'"):
        axes.size_of("past+len", {"past": 6})


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("static", 23), ("full", "past+seq+1"), ("past", "past+17"), ("seq", "seq+7"), ("batch", 23)],
)
def test_a_dimension_is_symbolic_in_its_free_axes_only(setting: str, expected: int | str) -> None:
    assert axes.dimension(model(BATCH, SEQ, PAST), "past+seq+1", setting) == expected


def test_input_names_join_paths_and_leave_constants_out() -> None:
    leaves = (
        InputSpec(("x",), "float32"),
        InputSpec(("flag",), constant=True),
        InputSpec(("past", 0, "key"), "float32"),
    )
    assert axes.input_names(ModelSpec("sample", "a.b", {}, leaves)) == ("x", "past_0_key")


def test_planning_modules_do_not_import_torch() -> None:
    code = "import sys, batch_export.axes, batch_export.config.model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
