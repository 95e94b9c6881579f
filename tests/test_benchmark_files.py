"""The arithmetic of `benchmarks/files.py`: ratios, medians, rows that miss a target, and what is counted as a node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from batch_export import axes
from batch_export.runtime.paired import PairedFacts, interval
from batch_export.stages import model as building
from benchmarks import files, zoo
from benchmarks.files import File, Row


def row(name: str, nodes: tuple[int, int], size: tuple[int, int] = (100, 100), **facts: PairedFacts) -> Row:
    return Row(name, "static", File(nodes[0], size[0]), File(nodes[1], size[1]), **facts)


def test_a_ratio_is_ours_over_torchs() -> None:
    one = row("one", (3, 4), (102, 100), load=PairedFacts(ratio=0.5), latency=PairedFacts(ratio=1.5))
    assert [one.ratio(figure) for figure in ("nodes", "bytes", "load", "latency")] == [0.75, 1.02, 0.5, 1.5]
    assert row("no node", (2, 0)).ratio("nodes") == 2.0


@pytest.mark.parametrize("figure", ["nodes", "bytes", "load", "latency"])
def test_a_side_without_a_figure_has_no_ratio(figure: str) -> None:
    assert Row("failed", "full", ours=File(1, 1), failures={"torch": "why"}).ratio(figure) is None
    assert Row("failed", "full", torch=File(1, 1), failures={"ours": "why"}).ratio(figure) is None


def test_medians_are_over_the_rows_that_have_the_figure() -> None:
    found = [row("a", (1, 2)), row("b", (3, 4)), row("c", (9, 10)), Row("d", "full", failures={"torch": "Error: why"})]
    lines, met = files.conclusions(found)
    assert met
    assert lines[0] == "nodes: median 0.750 over 3 rows (0.50 to 0.90; target 0.9)"
    assert [line for line in lines if line.startswith(("load", "latency"))] == []
    assert lines[-1] == "failed: d/full, torch: Error: why"
    assert not files.conclusions([*found, Row("e", "full", failures={"ours": "Error: why"})])[1]
    assert files.conclusions([*found, Row("e", "full", failures={"ours": "why", "torch": "why"})])[1]


def test_the_median_of_an_even_number_of_rows_is_between_the_middle_two() -> None:
    lines, _ = files.conclusions([row("a", (1, 4)), row("b", (2, 4)), row("c", (3, 4)), row("d", (4, 4))])
    assert "median 0.625 over 4 rows" in lines[0]


MISSES = {
    "more nodes: a/static": [row("a", (11, 10)), row("b", (1, 10)), row("c", (1, 10))],
    "more than 1.02 of the bytes: a/static": [row("a", (1, 10), (103, 100)), *[row("b", (1, 10), (90, 100))] * 2],
    "significantly slower: a/static": [
        row("a", (1, 10), latency=PairedFacts(1.02, 1.001, 1.04, 40)),
        *[row("b", (1, 10), latency=PairedFacts(0.9, 0.8, 1.2, 40))] * 2,
    ],
}


@pytest.mark.parametrize("line", MISSES)
def test_one_row_beyond_a_limit_is_named_and_misses_the_targets(line: str) -> None:
    lines, met = files.conclusions(MISSES[line])
    assert not met
    assert line in lines
    assert sum(one.endswith("no row") for one in lines) == 2


def test_a_row_at_a_limit_keeps_it() -> None:
    slow = PairedFacts(1.0, 1.0, 1.3, 40)
    _, met = files.conclusions([row("a", (10, 10), (102, 100), latency=slow), *[row("b", (1, 10))] * 2])
    assert not met  # the median of the one latency is 1.0
    lines, met = files.conclusions([row("a", (10, 10), (102, 100)), *[row("b", (1, 10))] * 2])
    assert met
    assert sum(one.endswith("no row") for one in lines) == 3


@pytest.mark.parametrize(("figure", "target"), files.TARGETS.items())
def test_a_median_above_its_target_misses(figure: str, target: float) -> None:
    above = round(target + 0.01, 2)
    facts = {figure: PairedFacts(ratio=above)} if figure in ("load", "latency") else {}
    nodes = (round(above * 100), 100) if figure == "nodes" else (1, 100)
    size = (round(above * 100), 100) if figure == "bytes" else (90, 100)
    lines, met = files.conclusions([row("a", nodes, size, **facts)])
    assert not met
    assert any(line.startswith(f"{figure}: median {above:.3f} ") for line in lines)


def test_the_interval_holds_the_median_and_narrows_with_rounds() -> None:
    ratios = [1 + step / 1000 for step in range(-50, 51)]
    few, many = interval(ratios[::10]), interval(ratios)
    for facts in (few, many):
        assert facts.ratio == pytest.approx(1.0)
        assert facts.low < 1.0 < facts.high
    assert many.high - many.low < few.high - few.low
    assert interval([2.0] * 30).slower_than(1.99)
    assert not interval([2.0] * 30).slower_than(2.0)


def test_a_line_of_the_table_has_every_figure() -> None:
    facts = PairedFacts(1.234, 1.1, 1.3, 40)
    assert files.line(row("a", (3, 4), (2_400, 1_600), load=facts, latency=facts)) == (
        "| a | static | 3 | 4 | 0.75 | 2 | 2 | 1.50 | 1.23 | 1.23 | 1.10 to 1.30 |"
    )
    assert files.line(Row("b", "full")) == "| b | full | - | - | - | - | - | - | - | - | - |"
    header, rule, only = files.table([Row("b", "full")]).splitlines()
    assert header.count("|") == rule.count("|") == only.count("|")


def test_nodes_of_bodies_and_functions_and_all_files_count(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> agraph (float[n] x, bool c) => (float[n] y) {
        z = Neg(x)
        y = If(c) < then_branch = yes () => (float[n] p) { a = Neg(z) p = Abs(a) },
                    else_branch = no () => (float[n] q) { q = Abs(z) } > }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    (tmp_path / "model.onnx.data").write_bytes(bytes(1000))
    found = files._file(tmp_path / "model.onnx")
    assert found == File(5, (tmp_path / "model.onnx").stat().st_size + 1000)


def test_a_file_that_is_wrong_has_no_figures(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> agraph (float[n] x) => (float[n] y) { y = Neg(x) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    feeds = [np.asarray([1.0, -2.0], np.float32)]
    files._agree(path, feeds, [torch.tensor([-1.0, 2.0])])
    for wrong in (torch.tensor([-1.0, 2.1]), torch.tensor([-1.0]), torch.tensor([-1.0, float("nan")])):
        with pytest.raises(ValueError, match="output 0 is not eager's"):
            files._agree(path, feeds, [wrong])


MOST_NODES = {
    ("cnn", "static"): 8,
    ("cond_experts", "full"): 12,
    ("graph_net", "static"): 22,
    ("graph_net", "full"): 29,
    ("gru", "static"): 6,
    ("gru", "full"): 13,
    ("inplace_sdpa", "static"): 8,
    ("lstm", "static"): 12,
    ("lstm", "full"): 23,
    ("mobilenet", "static"): 39,
    ("streaming_norm", "static"): 14,
    ("streaming_norm", "full"): 18,
    ("transformer_encoder", "static"): 74,
}
"""Models that are exported in a second or two, and how many nodes their files have; fewer is no failure."""


@pytest.mark.parametrize(("model", "setting"), MOST_NODES)
def test_files_do_not_grow(model: str, setting: str, tmp_path: Path) -> None:
    (spec,) = zoo.models([model])
    module, inputs = building.build(spec), building.example_inputs(spec, axes.example_sizes(spec))
    asked = building.dynamic_shapes(spec, setting)
    files.write_ours(spec, module, inputs, asked, tmp_path / "model.onnx")
    assert files._file(tmp_path / "model.onnx").nodes <= MOST_NODES[model, setting]
