"""numbers/compare.py and numbers/hull.py: the facts must allow the right verdict for every tolerance."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.hull import widen_hull
from batch_export.numbers.values import RawTensor, smallest_normal, widened

INF, NAN = np.inf, np.nan


def holds(hull: Any, atol: float, rtol: float) -> bool:
    return all(error <= atol + rtol * size for size, error in hull)


@settings(max_examples=300, deadline=None)
@given(
    points=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=80),
    pieces=st.integers(1, 5),
    atol=st.integers(0, 60),
    rtol=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 64.0]),
)
def test_hull_decides_as_all_points_do(points: list[tuple[int, int]], pieces: int, atol: int, rtol: float) -> None:
    """Sizes, errors and tolerances are exact in float64 here, so the verdicts have to be equal, not just close."""
    cloud = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    hull: list[tuple[float, float]] = []
    for part in np.array_split(cloud, pieces):
        hull = widen_hull(hull, part[:, 0], part[:, 1])
    assert set(hull) <= {(float(size), float(error)) for size, error in points}
    assert holds(hull, atol, rtol) == holds(points, atol, rtol)


@settings(max_examples=200, deadline=None)
@given(
    cloud=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 60), st.just(2)), elements=st.floats(-(2.0**100), 2.0**100, width=32)
    ),
    rtol=st.floats(0, 10),
)
@example(cloud=np.array([[1e-40, 1.0], [1.0, 1e-40], [0.0, 0.0]], dtype=np.float32), rtol=1.0)
def test_facts_of_floats_decide_as_all_elements_do(cloud: np.ndarray, rtol: float) -> None:
    expected, actual = cloud[:, 0], cloud[:, 1]
    facts = compare("y", expected, actual)
    size = np.abs(expected.astype(np.float64))
    error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    needed = float(np.max(error - rtol * size))
    from_hull = max((y - rtol * x for x, y in facts.hull), default=0.0)
    slack = 1e-9 * float(error.max() + rtol * size.max())
    assert max(from_hull, 0.0) == pytest.approx(max(needed, 0.0), abs=slack)
    assert facts.max_abs == error.max()


def test_hull_of_a_million_elements_is_small_and_right() -> None:
    generator = np.random.default_rng(0)
    expected = generator.standard_normal((1000, 1000)).astype(np.float32)
    actual = expected + 1e-5 * np.abs(expected) * generator.standard_normal(expected.shape).astype(np.float32)
    facts = compare("y", expected, actual)
    error = np.abs(actual.astype(np.float64) - expected)
    assert len(facts.hull) < 50
    assert facts.worst_index is not None
    assert error[facts.worst_index] == error.max() == facts.max_abs
    for rtol in (0.0, 1e-6, 1e-5, 3e-5):
        needed = float((error - rtol * np.abs(expected.astype(np.float64))).max())
        assert max(y - rtol * x for x, y in facts.hull) == pytest.approx(needed, rel=1e-9)


def test_a_curve_whose_points_are_all_vertices_is_kept_whole() -> None:
    size = np.arange(1, 401, dtype=np.float64)
    assert len(widen_hull([], size, np.sqrt(size))) == 400
    assert len(widen_hull([], size, 0.5 * size)) == 2


@pytest.mark.parametrize(
    ("expected", "actual", "mismatches", "unequal"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0, 0),
        ([NAN, 1.0], [1.0, 1.0], 1, 1),
        ([1.0, 1.0], [NAN, NAN], 2, 2),
        ([INF, -INF], [INF, -INF], 0, 0),
        ([INF, -INF], [-INF, -INF], 1, 1),
        ([INF, 2.0], [NAN, 2.0], 1, 1),
        ([INF, 2.0], [3.4e38, 2.5], 1, 2),
    ],
)
def test_nan_and_infinity_are_values(expected: list[float], actual: list[float], mismatches: int, unequal: int) -> None:
    facts = compare("y", np.array(expected, np.float32), np.array(actual, np.float32))
    assert (facts.non_finite_mismatches, facts.unequal, facts.count) == (mismatches, unequal, 2)


def test_worst_index_counts_elements_that_are_not_finite() -> None:
    expected = np.array([[NAN, 1.0], [INF, 1.0]], np.float32)
    facts = compare("y", expected, np.array([[NAN, 1.0], [INF, 1.5]], np.float32))
    assert (facts.worst_index, facts.max_abs, facts.max_rel) == ((1, 1), 0.5, 0.5)


@pytest.mark.parametrize(
    ("dtype", "expected", "actual", "error"),
    [
        (np.uint8, 5, 10, 5.0),
        (np.uint8, 10, 5, 5.0),
        (np.int8, -128, 127, 255.0),
        (np.uint64, 0, 2**64 - 1, float(2**64 - 1)),
        (np.int64, -(2**63), 2**63 - 1, float(2**64 - 1)),
        (np.int64, 2**62, 2**62 + 1, 1.0),
        (np.bool_, True, False, 1.0),
    ],
)
def test_integers_do_not_wrap_round(dtype: Any, expected: int, actual: int, error: float) -> None:
    facts = compare("y", np.array([expected, 1], dtype), np.array([actual, 1], dtype))
    assert (facts.max_abs, facts.unequal, facts.count) == (error, 1, 2)


def test_shapes_are_not_broadcast_and_dtypes_not_reconciled() -> None:
    ones = np.ones((2, 3), np.float32)
    shape = compare("y", ones, ones[0])
    assert (shape.expected_shape, shape.actual_shape, shape.max_abs, shape.count) == ((2, 3), (3,), None, 0)
    dtype = compare("y", ones, ones.astype(np.float64))
    assert (dtype.expected_dtype, dtype.actual_dtype, dtype.max_abs, dtype.hull) == ("float32", "float64", None, ())


@pytest.mark.parametrize("shape", [(0, 4), ()])
def test_empty_and_scalar_tensors(shape: tuple[int, ...]) -> None:
    facts = compare("y", np.ones(shape, np.float32), np.ones(shape, np.float32))
    count = int(np.prod(shape))
    assert (facts.expected_shape, facts.count, facts.unequal) == (shape, count, 0)
    assert facts.max_abs == (0.0 if count else None)


def test_complex_numbers_are_compared_with_pairs() -> None:
    expected = np.array([1 + 2j, 3 - 4j], np.complex64)
    pairs = np.array([[1, 2], [3, -3]], np.float32)
    facts = compare("y", expected, pairs)
    assert (facts.expected_dtype, facts.actual_dtype, facts.expected_shape) == ("float32", "float32", (2, 2))
    assert (facts.max_abs, facts.worst_index) == (1.0, (1, 1))
    assert compare("y", expected, expected).unequal == 0
    assert compare("y", np.array(1j, np.complex64), np.array([0, 1], np.float32)).unequal == 0
    assert compare("y", expected, pairs.astype(np.float64)).max_abs is None


def test_text_is_compared_exactly() -> None:
    facts = compare("y", np.array(["a", "b"], object), np.array(["a", "c"]))
    assert (facts.expected_dtype, facts.unequal, facts.count, facts.max_abs) == ("str", 1, 2, None)


def test_bfloat16_and_float8_are_compared_by_value() -> None:
    one, two = np.uint16(0x3F80), np.uint16(0x4000)
    facts = compare("y", RawTensor("bfloat16", np.array([one, two])), RawTensor("bfloat16", np.array([one, one])))
    assert (facts.actual_dtype, facts.max_abs, facts.max_rel, facts.unequal) == ("bfloat16", 1.0, 0.5, 1)
    nan = np.array([0x7F], np.uint8)
    assert compare("y", RawTensor("float8_e4m3fn", nan), RawTensor("float8_e4m3fn", nan)).unequal == 0
    scalar = RawTensor("bfloat16", np.array(two))
    assert compare("y", scalar, scalar).count == 1


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_raw_dtypes_mean_what_ml_dtypes_says(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    bits = np.arange(2 ** (8 * dtype.itemsize)).astype(f"uint{8 * dtype.itemsize}")
    np.testing.assert_array_equal(widened(RawTensor(name, bits)), bits.view(dtype).astype(np.float32))
    assert smallest_normal(name) == float(ml_dtypes.finfo(dtype).smallest_normal)


def test_facts_survive_json_at_the_ends_of_the_range() -> None:
    most = np.finfo(np.float64).max
    facts = compare("y", np.array([most, 5e-324]), np.array([-most, most]))
    assert msgspec.json.decode(msgspec.json.encode(facts), type=OutputFacts) == facts
    assert facts.max_abs == facts.max_rel == most


def test_the_runtime_room_imports_neither_torch_nor_onnx() -> None:
    rooms = ("latency", "session", "tensor_file", "kinds", "feeds")
    modules = ["numbers.compare", "judge.verdict", *(f"runtime.{name}" for name in rooms)]
    code = "import sys\n" + "\n".join(f"import batch_export.{name}" for name in modules)
    code += "\nassert not {'torch', 'onnx', 'onnxruntime', 'ml_dtypes'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
