"""The hunter: one seed is one program; it finds planted faults, none where there is none, and shrinks to a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hunt import runs, values
from hunt.cases import cases
from hunt.compare import Allowance, difference
from hunt.excuses import ZEROS
from hunt.generate import generate
from hunt.ideal import Ideal
from hunt.judge import OURS, Case, allowances_of, judge
from hunt.known import SPECIAL_ON_THE_WAY, declared
from hunt.pool import Pool
from hunt.programs import Leaf, Program, Step, Tensors, source
from hunt.reference import Reference, widened
from hunt.script import literal, script
from hunt.sensitivity import _Moving
from hunt.shrink import shrunk
from hunt.steps import wrong_steps
from hunt.undefined import is_undefined
from hunt.worker import name_of

from batch_export.exporter.graph.tensor_values import to_value

nan, inf = float("nan"), float("inf")
AGREEING = (0, 1, 2, 3, 4, 7)
"""Seeds of programs that are right; what the hunter finds elsewhere is not this test's matter."""


def program(*steps: Step, shape: tuple[int | str, ...] = ("n", 3), dtype: str = "float32") -> Program:
    return Program((Leaf("x", dtype, shape),), steps, (steps[-1].writes or steps[-1].reads)[:1])


def step(code: str, result: str, *reads: str) -> Step:
    return Step(code, code, reads, (result,))


def made(one: Program, *sizes: dict[str, int]) -> list[Case]:
    return [Case(values.case(one, size, mode, 7), size, mode) for size in sizes for mode in ("plain", "special")]


def test_one_seed_is_one_program() -> None:
    for seed in range(20):
        one, again = generate(seed), generate(seed)
        assert source(one.program) == source(again.program)
        assert one.assignments == again.assignments
        pairs = zip(cases(one), cases(again), strict=True)
        for here, there in pairs:
            assert all(
                torch.equal(here.values[name].nan_to_num(), there.values[name].nan_to_num()) for name in here.values
            )


@pytest.mark.parametrize("seed", AGREEING)
def test_programs_that_are_right_are_found_right(seed: int) -> None:
    hunted = generate(seed)
    found = judge(hunted.program, cases(hunted))
    assert found.outcome not in OURS, found


def test_a_planted_fault_is_found_shrunk_and_written_as_a_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = runs.Files.run

    def wrong(self: runs.Files, runtime: str, *given: object) -> list[torch.Tensor]:
        results = real(self, runtime, *given)  # type: ignore[arg-type]
        if any(node.op_type == "Cos" for node in self._exported.proto.graph.node):
            return [one + 0.01 if one.is_floating_point() else one for one in results]
        return results

    monkeypatch.setattr(runs.Files, "run", wrong)
    one = program(step("{0} * 2", "a", "x"), step("{0}.cos()", "b", "a"), step("{0}.sum(1)", "c", "b"))
    given = made(one, {"n": 3}, {"n": 5})
    found = judge(one, given)
    assert (found.outcome, found.kind) == ("silent", "number")
    subject, small = shrunk(one, given, found, lambda *_: False, seconds=60)
    assert subject.program.operators == ("{0}.cos()",)
    assert name_of(subject, small) == "silent | number | {0}.cos()"
    path = tmp_path / "found.py"
    path.write_text(script(subject, small, 7), encoding="utf-8")
    monkeypatch.undo()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ran = subprocess.run([sys.executable, str(path)], cwd=elsewhere, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr  # without the planted fault the file is right
    assert path.with_suffix(".onnx").is_file()
    assert list(elsewhere.iterdir()) == []  # started in a checkout, it leaves nothing there
    assert "onnx.reference" in ran.stdout


def test_numbers_of_a_script_are_expressions() -> None:
    tensor = torch.tensor([complex(1, -np.inf), complex(np.nan, 2)])
    shown = literal(tensor, Leaf("x", "complex64", (2,)))
    again = eval(shown, {"torch": torch, "nan": np.nan, "inf": np.inf})
    assert torch.equal(torch.view_as_real(again).nan_to_num(7), torch.view_as_real(tensor).nan_to_num(7))


def test_rounding_at_an_edge_is_no_difference() -> None:
    one = program(step("{0} / 3 * 3", "a", "x"), step("{0}.floor()", "b", "a"))
    given = [Case({"x": torch.tensor([[1.0, 2.0, 7.0], [5.0, 11.0, 13.0]])}, {"n": 2}, "plain")]
    assert judge(one, given).outcome == "ok"


@pytest.mark.parametrize(
    ("expected", "actual", "kind"),
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([1.0, 2.0], [1.0, 2.001], "number"),
        ([1.0, float("nan")], [1.0, 2.0], "nan"),
        ([1.0, float("inf")], [1.0, float("-inf")], "infinity"),
        ([0.0], [-0.0], "sign of zero"),
        ([1e-9], [0.0], "number"),
        ([100.0, 1e-9], [100.0, 0.0], None),
        ([1.0], [1.0, 1.0], "shape"),
    ],
)
def test_kinds_of_difference(expected: list[float], actual: list[float], kind: str | None) -> None:
    found = difference(torch.tensor(expected), torch.tensor(actual))
    assert (found.kind if found else None) == kind


def test_integers_are_equal_or_different() -> None:
    assert difference(torch.tensor([2**53 + 1]), torch.tensor([2**53])) is not None
    assert difference(torch.tensor([1]), torch.tensor([1], dtype=torch.int32)) is not None


def test_what_moves_in_eager_is_excused() -> None:
    expected, actual = torch.tensor([1.0]), torch.tensor([1.5])
    moved = Allowance(torch.tensor([0.1], dtype=torch.float64), torch.tensor([False]), None)
    assert difference(expected, actual, moved) is None
    assert difference(expected, torch.tensor([2.0]), moved) is not None


def settled(*steps: Step, value: torch.Tensor, opset: int = 20) -> str:
    leaf = Leaf("x", str(value.dtype).removeprefix("torch."), tuple(value.shape))
    one = Program((leaf,), steps, (steps[-1].writes or steps[-1].reads)[:1], opset=opset)
    return judge(one, [Case({"x": value}, {}, "special")]).outcome


def test_a_kernel_that_loses_nan_is_upstream() -> None:
    assert settled(step("F.max_pool1d({0}, 2)", "a", "x"), value=torch.tensor([[[nan, 1.0, 2.0, 3.0]]])) == "upstream"


def test_a_square_that_overflows_on_the_way_is_declared() -> None:
    value = torch.tensor([3e4, -2.5, 0.0, 3e38])
    assert settled(step("{0}.std(0, unbiased=False)", "a", "x"), value=value) == "declared"


def test_where_torch_disagrees_with_its_own_decomposition_is_declared() -> None:
    attention = step("F.scaled_dot_product_attention({0}, {0}, {0}, is_causal=True)", "a", "x")
    x = torch.tensor([1.0, 2.0, nan, 4.0, 5.0, 6.0]).reshape(1, 1, 3, 2)
    assert settled(attention, value=x) in ("declared", "ok")


def test_a_wrong_finite_number_is_never_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runs.Files.run

    def wrong(self: runs.Files, *given: object) -> list[torch.Tensor]:
        return [torch.where(one.abs() < 10, one + 1.0, one) for one in real(self, *given)]  # type: ignore[arg-type]

    monkeypatch.setattr(runs.Files, "run", wrong)
    value = torch.tensor([1.0, inf, nan, 3e38])
    assert settled(step("{0} * 2", "a", "x"), value=value) == "silent"


def test_only_a_step_that_is_wrong_at_its_own_numbers_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = step("{0} * 2", "a", "x"), step("{0}.norm(dim=0)", "b", "a"), step("{0}.floor()", "c", "b")
    x = {"x": torch.tensor([[1.3, 2.0], [3e38, 4.1]])}
    one = program(*steps, shape=(2, 2))
    assert wrong_steps(one, x, x) is None  # nothing differs, nothing is proven
    real = runs.Files.run

    def wrong(self: runs.Files, *given: object) -> list[torch.Tensor]:
        names = [value.name for value in self._exported.proto.graph.output]
        results = zip(names, real(self, *given), strict=True)  # type: ignore[arg-type]
        return [one + 3 if name.startswith("floor") else one for name, one in results]

    monkeypatch.setattr(runs.Files, "run", wrong)
    assert wrong_steps(one, x, x) == ["{0}.floor()"]
    assert declared("output 0" + SPECIAL_ON_THE_WAY, ["{0}.floor()"]) == ""


def test_steps_that_write_are_judged_by_what_they_write(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Step("{0}.mul_(2)", "{0}.mul_(2)", ("a",), ())
    x = {"x": torch.tensor([[1.5, 2.0, 3.0], [2.0, 1.0, 4.0]])}
    one = program(
        step("{0} * 2", "y", "x"), step("{0}[0]", "a", "y"), write, step("{0}.std(1)", "b", "y"), shape=(2, 3)
    )
    assert wrong_steps(one, x, x) is None  # nothing differs
    real = runs.Files.run
    spoilt: list[str] = []

    def wrong(self: runs.Files, runtime: str, program: Program, values: Tensors) -> list[torch.Tensor]:
        found = real(self, runtime, program, values)
        names = [program.outputs[place] for place in runs.places(program, self._exported)[: len(program.outputs)]]
        return [value + 3 if name in spoilt else value for name, value in zip(names, found, strict=True)]

    monkeypatch.setattr(runs.Files, "run", wrong)
    for names, blamed in (
        (["b", "b_after_3"], ["{0}.std(1)"]),
        (["a_after_2", "b_after_3"], None),  # the file's y has not what is written to its first row
        (["y_after_2", "b_after_3"], None),
    ):
        spoilt[:] = names
        assert wrong_steps(one, x, x) == blamed


def test_a_name_excuses_only_the_step_that_is_wrong_and_only_numbers_that_are_not_finite() -> None:
    assert declared("output 0" + SPECIAL_ON_THE_WAY, ["{f}.norm(dim=0)"])
    assert not declared("output 0" + SPECIAL_ON_THE_WAY, ["{f}.norm(dim=0)", "{f}.floor()"])
    assert not declared("output 0", ["{f}.norm(dim=0)"])
    assert not declared("output 0" + SPECIAL_ON_THE_WAY, None)
    assert declared("output 0", [])
    assert declared("output 0: [0, 24, 1, 1] instead of [0, 6, 2, 2]", ["F.pixel_unshuffle({f4}, 2)"])
    assert not declared("output 0: [1, 24, 1, 1] instead of [1, 6, 2, 2]", ["F.pixel_unshuffle({f4}, 2)"])
    sums = ["torch.add({t}, {w}, alpha={si})"]
    assert declared("output 0: -inf instead of -3e+38 at [0]" + SPECIAL_ON_THE_WAY, sums)
    assert not declared("output 0: -3e+38 instead of -inf at [0]" + SPECIAL_ON_THE_WAY, sums)


def test_one_capture_is_judged_at_several_opsets(monkeypatch: pytest.MonkeyPatch) -> None:
    one = program(step("{0} * 2", "a", "x"))
    assert judge(one, made(one, {"n": 3}, {"n": 5}), opsets=(18, 25)).files == 3
    real = runs.Files.run

    def wrong(self: runs.Files, *given: object) -> list[torch.Tensor]:
        at = self._exported.proto.opset_import[0].version
        return [one + 1 if at == 25 else one for one in real(self, *given)]  # type: ignore[arg-type]

    monkeypatch.setattr(runs.Files, "run", wrong)
    found = judge(one, made(one, {"n": 3}, {"n": 5}), opsets=(18, 25))
    assert (found.outcome, found.opset) == ("silent", 25)


def test_a_copy_within_its_own_memory_is_defined_by_nobody() -> None:
    own = Step("copy", "{0}[1:].copy_({0}[:-1])", ("x",), ())
    assert settled(own, value=torch.tensor([1.0, 2.0, 3.0])) in ("ok", "skipped")


def test_a_write_of_overlapping_elements_is_defined_by_nobody() -> None:
    own = Step("twice", "{0}.unfold(0, 2, 1).mul_(-1)", ("x",), ())
    assert settled(own, value=torch.tensor([1.0, 2.0, 3.0])) in ("ok", "skipped")


def test_a_copy_that_shares_memory_as_its_view_is_defined_by_nobody() -> None:
    windows, rows = torch.arange(3.0).unfold(0, 2, 1), torch.zeros(1, 2).expand(2, 2)
    scatter = torch.ops.aten.select_scatter.default
    assert is_undefined(scatter, (windows, torch.ones(2), 1, 0))
    assert not is_undefined(scatter, (rows, torch.ones(2), 0, 0))
    assert not is_undefined(scatter, (torch.zeros(2, 2), torch.ones(2), 0, 0))


def test_what_moves_is_written_to_once() -> None:
    x = torch.full((3,), 1.7, dtype=torch.float64)
    with _Moving(0) as mode:
        moved = torch.logaddexp2(x, x).add_(-0.7)
    assert not mode.undefined
    assert torch.allclose(moved, torch.full_like(x, 2.0))


def test_a_shape_that_follows_from_a_lost_nan_is_upstream() -> None:
    steps = step("{0}.amax(0)", "a", "x"), step("torch.nonzero({0} == {0})", "b", "a")
    assert settled(*steps, value=torch.tensor([[1.0, nan], [nan, 2.0]])) == "upstream"


def test_the_reference_takes_bfloat16_and_negative_axes() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (bfloat16[2, 3] x, int64[2, 1] i) => (bfloat16[2, 1] y)
    {y = GatherElements <axis = -1> (x, i)}"""
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.bfloat16)
    feeds = {"x": to_value(x), "i": np.array([[2], [-3]])}
    assert Reference(onnx.parser.parse_model(text)).run(feeds)[0].tolist() == [[3.0], [4.0]]


def test_integers_that_float32_rounds_are_moved() -> None:
    value = torch.tensor([2**53, 1, -(2**53) + 3])
    assert settled(step("{0}.cumsum(0, dtype=torch.float32)", "a", "x"), value=value) != "silent"


def test_parts_of_complex_products_that_cancel_are_moved() -> None:
    value = torch.tensor([complex(-30000.0, -30000.0), complex(-0.5, 3.0), complex(88.0, 2.5)], dtype=torch.complex64)
    assert settled(step('torch.einsum("i,i->", {0}, {0})', "a", "x"), value=value) == "ok"


def test_a_sum_of_complex_numbers_moves_by_no_more_than_its_last_places() -> None:
    x = torch.tensor([complex(1.7, 0.0)], dtype=torch.complex64)
    with _Moving(0):
        moved = x + complex(0.3, 0.1)
    assert 0 < float((moved - (x + complex(0.3, 0.1))).abs()) < 1e-5


def test_a_process_that_dies_leaves_a_record_and_the_hunt_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    import hunt.worker

    def recorded(seed: int, *_: object, **__: object) -> dict[str, object]:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seed": seed, "outcome": "ok"}

    monkeypatch.setattr(hunt.worker, "record", recorded)
    found = {one["seed"]: one["outcome"] for one in Pool(2, limit=60).run(iter(range(4)), lambda: True)}
    assert found == {0: "ok", 1: "crash", 2: "ok", 3: "ok"}


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> ' + text)


def test_what_single_kernels_lose_is_upstream_and_what_a_formula_loses_is_not() -> None:
    small = torch.tensor([-4e-8, -9e-7])
    assert settled(step("F.elu({0})", "a", "x"), value=small) == "upstream"
    lost = "o = Constant<value = float {1.0}>() e = Exp(x) y = Sub(e, o) }"
    for body, is_right in (("y = Elu(x) }", True), (lost, False)):
        model = parsed("g (float[2] x) => (float[2] y) {" + body)
        found = Ideal(model).run({"x": small.numpy()})[0]
        assert torch.allclose(found, torch.expm1(small), rtol=1e-6, atol=0) == is_right


def test_a_reference_without_a_word_on_the_file_leaves_it_to_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: runs.Files, feeds: object) -> list[torch.Tensor]:
        raise NotImplementedError("another node")

    monkeypatch.setattr(runs.Files, "_reference", silent)
    assert settled(step("{0}.argmax(1)", "a", "x"), value=torch.tensor([[3.0, 4.0, nan]])) == "upstream"


def test_a_node_that_fails_at_what_another_kernel_got_wrong_is_upstream() -> None:
    steps = step("{0}.argmin(1)", "a", "x"), step("torch.div({0} + 6, {0}, rounding_mode='trunc')", "b", "a")
    assert settled(*steps, value=torch.tensor([[3.0, nan, 4.0]])) == "upstream"
    assert settled(*steps, value=torch.tensor([[3.0, 2.0, 4.0]])) == "ok"


def test_the_sign_of_a_sum_of_zeros_is_declared() -> None:
    enlarged = step("F.interpolate({0}, size=(2, 7), mode='bilinear', antialias=True)", "a", "x")
    one = Program((Leaf("x", "float32", (1, 1, 3, 3)),), (enlarged,), ("a",))
    found = judge(one, [Case({"x": torch.full((1, 1, 3, 3), -0.0)}, {}, "zeros")])
    assert found.outcome == "declared"
    assert ZEROS in found.kind


def test_zeros_are_open_only_where_both_are_there() -> None:
    model = parsed("g (float[2] x, float[2] z) => (float[2] y) { y = Max(x, z) }")
    feeds = {"x": np.array([0.0, -0.0], np.float32), "z": np.array([-0.0, -0.0], np.float32)}
    signs = {sign: Ideal(model, sign=sign).run(feeds)[0].signbit().tolist() for sign in (1.0, -1.0)}
    assert signs == {1.0: [False, True], -1.0: [True, True]}


def test_the_mended_average_keeps_nan() -> None:
    model = parsed("g (float[1, 1, 3] x) => (float[1, 1, 2] y) { y = AveragePool<kernel_shape = [2]>(x) }")
    found = Reference(model).run({"x": np.array([[[1.0, 2.0, nan]]], np.float32)})[0]
    assert torch.equal(found.nan_to_num(7.0), torch.tensor([[[1.5, 7.0]]]))


@pytest.mark.parametrize(
    ("code", "number", "is_defined"),
    [
        ("torch.fmod({0}, 0.001)", 3e37, False),
        ("torch.fmod({0}, 0.5)", 7.25, True),
        ("torch.polygamma(1, {0} + 1)", -30001.0, False),
        ("torch.polygamma(1, {0} + 1)", -89.5, True),
        ("{0}.reshape(0, 0).index_fill(0, torch.tensor([1]), 2)", None, False),
        ("torch.linalg.inv({0}.reshape(6, 6) + torch.eye(6))", inf, False),
        ("torch.linalg.inv({0}.reshape(6, 6) + torch.eye(6))", 3.0, True),
    ],
)
def test_what_torch_gives_by_chance_is_not_judged(code: str, number: float | None, is_defined: bool) -> None:
    value = torch.empty(0) if number is None else torch.full((36,), number)
    one = Program((Leaf("x", "float32", tuple(value.shape)),), (step(code, "a", "x"),), ("a",))
    case = Case({"x": value}, {}, "special")
    assert (allowances_of(one, case, runs.eager(one, case.values)) is not None) == is_defined


def test_a_branch_that_hangs_on_the_order_of_a_sum_is_open() -> None:
    branch = step("torch.cond({0}.sum() > 0, lambda a: a * 2, lambda a: a - 1, ({0},))", "a", "x")
    for number, is_open in ((1e20, True), (3.0, False)):
        case = Case({"x": torch.tensor([number, 1.5, -number, 0.25])}, {}, "special")
        one = Program((Leaf("x", "float32", (4,)),), (branch,), ("a",))
        allowances = allowances_of(one, case, runs.eager(one, case.values))
        assert allowances is not None
        assert bool((allowances[0].slack > 0.5).any()) is is_open


def test_the_mended_logarithm_of_a_softmax_is_finite() -> None:
    for axis in (-1, 0):
        model = parsed(f"g (float[2, 2] x) => (float[2, 2] y) {{ y = LogSoftmax<axis = {axis}>(x) }}")
        x = torch.tensor([[0.0, -1000.0], [5.0, 2.0]])
        found = Reference(model).run({"x": x.numpy()})[0]
        torch.testing.assert_close(found, x.log_softmax(axis))


def test_zeros_of_a_shape_are_widened_with_the_rest() -> None:
    model = parsed("g (float[2] x, int64[1] n) => (float[2] y) { z = ConstantOfShape(n)  y = Mul(x, z) }")
    feeds = {"x": np.array([1.0, 2.0]), "n": np.array([2])}
    assert Reference(widened(model)).run(feeds)[0].tolist() == [0.0, 0.0]
