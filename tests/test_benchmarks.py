"""Twin of `benchmarks/`: rows of real exports, rows where a side fails, and what tables and ratios make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
import pytest

from benchmarks import block_equality, export, module_functions, plain_loop, scaling, second_opset, sweep, zoo


@pytest.mark.ops
def test_a_model_is_measured_on_every_side() -> None:
    (spec,) = zoo.models(["mlp_nested"])
    (row,) = export.measure(spec, ["full"], 1, 0.0)
    assert (row.model, row.setting, row.rounds, row.failures) == ("mlp_nested", "full", 1, {})
    assert row.capture_s is not None
    assert row.after_s is not None
    assert row.ours_s == row.capture_s + row.after_s
    assert row.to_torch is not None
    assert 0 < row.to_torch < 1
    assert row.torch_export_s is not None
    assert row.torch_export_s > 0


def test_a_side_that_fails_is_named_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(job: Any, folder: Path) -> tuple[float, ...]:
        raise ValueError("not today\nor ever")

    monkeypatch.setitem(export.SIDES, "torch.onnx", refuse)
    (spec,) = zoo.models(["mlp_nested"])
    (row,) = export.measure(spec, ["static"], 1, 0.0)
    assert row.failures == {"torch.onnx": "ValueError: not today"}
    assert row.ours_s is not None
    assert (row.torch_onnx_s, row.to_torch) == (None, None)
    (line, conclusion) = export.conclusions([row])
    assert line == "failed: mlp_nested/static, torch.onnx: ValueError: not today"
    assert "over 0 (target <= 0.4)" in conclusion
    assert conclusion.endswith("failed: torch.export 0, batch_export 0, torch.onnx 1")


def test_medians_are_of_the_ratios_of_rows() -> None:
    rows = [
        export.Row("a", "static", 3, 1.0, 1.0, 0.5, 3.0),
        export.Row("b", "static", 3, 1.0, 2.0, 2.0, 8.0),
        export.Row("c", "static", 3, 1.0, 1.0, 0.0, 10.0),
    ]
    (text,) = export.conclusions(rows)
    assert text.startswith(
        "static: median ours/torch.onnx 0.50 over 3 (target <= 0.4), median after/capture 0.50 over 3"
    )
    assert (
        export.table(rows[:1]).splitlines()[-1] == "| a | static | 1.00 | 1.00 | 0.50 | 1.50 | 3.00 | 0.50 | 0.50 | 3 |"
    )


def test_the_plain_loop_compares_and_times() -> None:
    (spec,) = zoo.models(["mlp_nested"])
    outcome = plain_loop.cell(spec, "static", 20, plain_loop.Timing(0.02, 0.1))
    assert outcome["cell"] == "mlp_nested/static/opset20"
    assert outcome["agrees"]
    assert outcome["median_ms"] > 0
    assert "error" not in outcome


def test_an_unknown_model_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        export.main(["--models", "mlp_nestd"])
    assert ending.value.code == 2
    assert "Unknown model 'mlp_nestd' (nearest: mlp_nested" in capsys.readouterr().err


def test_ratios_are_the_baselines_time_over_a_rows() -> None:
    baseline = sweep.Row("plain loop", 2, 100.0, 150.0, 50, 1)
    lines = sweep.table([sweep.Row("batch_export, cold", 2, 20.0, 30.0, 50, 0), baseline], baseline).splitlines()
    assert lines[2] == "| batch_export, cold | 2 | 20.0 | 30.0 | 0.40 | 50 | 0 | 5.0x |"
    assert lines[3] == "| plain loop | 2 | 100.0 | 150.0 | 2.00 | 50 | 1 |  |"


def test_an_action_that_cells_share_counts_once(tmp_path: Path) -> None:
    shared = {"key": "1", "mnemonic": "Capture", "origin": "ran", "seconds": 2.0}
    own = {"key": "2", "mnemonic": "Run", "origin": "ran", "seconds": 0.5}
    cached = {"key": "3", "mnemonic": "Run", "origin": "cached", "seconds": 9.0}
    records = tmp_path / "records.jsonl"
    records.write_text(
        "".join(json.dumps({"actions": actions}) + "\n" for actions in ([shared, own], [shared, cached]))
    )
    assert sweep._seconds_by_step(records) == {"Capture": 2.0, "Run": 0.5}


def test_curves_of_a_known_power_have_its_exponent() -> None:
    quadratic = scaling.Curve("chain", "static", "batch_export", {size: 3.0 * size**2 for size in (1, 2, 4, 8)})
    assert quadratic.exponent == pytest.approx(2.0)
    with_start = scaling.Curve("chain", "static", "batch_export", {size: 1.0 for size in (1, 2)} | {4: 4.0, 8: 8.0})
    assert with_start.exponent is not None
    assert with_start.exponent > 1.0
    assert scaling.Curve("chain", "static", "batch_export", {1: 1.0}).exponent is None
    assert "| chain | static | batch_export | 1: 3.00, 2: 12.00" in scaling.table([quadratic])


@pytest.mark.ops
def test_a_curve_ends_after_a_size_that_takes_too_long() -> None:
    assert list(scaling.measure("chain", "free", "batch_export", (3, 5, 9), 1e9).seconds) == [3, 5, 9]
    assert list(scaling.measure("chain", "free", "batch_export", (3, 5, 9), 0.0).seconds) == []


def test_models_with_and_without_shared_blocks_are_compared() -> None:
    (spec,) = zoo.models(["mlp_nested"])
    rows = list(block_equality.compare(spec, ["static", "full"]))
    assert [(row.setting, row.difference) for row in rows] == [("static", ""), ("full", "")]


def test_files_with_and_without_functions_are_compared() -> None:
    (spec,) = zoo.models(["mlp_nested"])
    (row,) = module_functions.compare(spec, ["full"])
    assert row.functions
    assert (row.left, row.difference) == ({}, "")


def test_a_file_that_computes_something_else_is_seen() -> None:
    text = """<ir_version: 10, opset_import: ["": 20, "m": 1]> main (float[2] x) => (float[2] y) { y = m.f(x) }
        <domain: "m", opset_import: ["": 20]> f (a) => (b) { c = Constant<value = float {1.0}>() b = Mul(a, c) }"""
    files = [onnx.parser.parse_model(one) for one in (text, text.replace("1.0", "2.0"))]
    plain = onnx.inliner.inline_local_functions(files[0])
    assert [module_functions.difference(plain, one) for one in files] == ["", "y"]


def test_a_further_opset_that_translates_alike_is_told() -> None:
    (spec,) = zoo.models(["mlp_nested"])
    (row,) = second_opset.measure(spec, ["full"], [20, 21])
    assert row.is_alike
    assert row.ratio > 0
