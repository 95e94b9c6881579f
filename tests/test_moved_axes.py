"""Axes that are split and moved in fewer steps: every element keeps its place at every size."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from exporting import assert_same, eager
from rewriting import assert_equal, run_both
from test_known_sizes import HEAD, SIZES, feeds

from batch_export import export
from batch_export.exporter.optimise import dead_code, moved_axes

GRAPHS = {
    "heads of a batch": """(float[s, b, 6] x) => (float[b, 2, s, 3] y)
        <int64[1] three = {3}, int64[1] two = {2}> {
        s = Shape<start=0, end=1>(x)  b = Shape<start=1, end=2>(x)  n = Mul(b, two)
        flat = Concat<axis=0>(s, n, three)  r = Reshape<allowzero=1>(x, flat)
        t = Transpose<perm=[1, 0, 2]>(r)
        to = Concat<axis=0>(b, two, s, three)  y = Reshape<allowzero=1>(t, to) }""",
    "of fixed sizes": """(float[4, 5, 6] x) => (float[5, 2, 4, 3] y)
        <int64[3] flat = {4, 10, 3}, int64[4] to = {5, 2, 4, 3}> {
        r = Reshape(x, flat)  t = Transpose<perm=[1, 0, 2]>(r)  y = Reshape(t, to) }""",
    "with axes of one": """(float[4, 5, 6] x) => (float[1, 5, 2, 1, 4, 3, 1] y)
        <int64[3] flat = {4, 10, 3}, int64[7] to = {1, 5, 2, 1, 4, 3, 1}> {
        r = Reshape(x, flat)  t = Transpose<perm=[1, 0, 2]>(r)  y = Reshape(t, to) }""",
    "the shape that was there": """(float[4, 5, 6] x) => (float[6, 4, 5] y)
        <int64[2] flat = {20, 6}, int64[3] to = {6, 4, 5}> {
        r = Reshape(x, flat)  t = Transpose<perm=[1, 0]>(r)  y = Reshape(t, to) }""",
    "merged, not split": """(float[4, 5, 6] x) => (float[5, 24] y) <int64[2] to = {5, 24}> {
        t = Transpose<perm=[1, 0, 2]>(x)  y = Reshape(t, to) }""",
    "split across axes": """(float[4, 6] x) => (float[4, 6] y) <int64[2] flat = {8, 3}, int64[2] to = {4, 6}> {
        r = Reshape(x, flat)  t = Transpose<perm=[1, 0]>(r)  y = Reshape(t, to) }""",
    "read elsewhere": """(float[4, 5, 6] x) => (float[5, 2, 4, 3] y, float[10, 4, 3] t)
        <int64[3] flat = {4, 10, 3}, int64[4] to = {5, 2, 4, 3}> {
        r = Reshape(x, flat)  t = Transpose<perm=[1, 0, 2]>(r)  y = Reshape(t, to) }""",
    "queries, keys and values": """(float[s, b, 18] x) =>
        (float[b, 2, s, 3] q, float[b, 2, s, 3] k, float[b, 2, s, 3] v)
        <int64[2] apart = {3, 6}, int64[2] heads = {2, 3}, int64 i = {0}, int64 j = {1}, int64 l = {2}> {
        n = Shape<start=0, end=2>(x)  a = Concat<axis=0>(n, apart)  h = Concat<axis=0>(n, heads)
        r = Reshape<allowzero=1>(x, a)  t = Transpose<perm=[2, 0, 1, 3]>(r)
        g0 = Gather<axis=0>(t, i)  r0 = Reshape<allowzero=1>(g0, h)  q = Transpose<perm=[1, 2, 0, 3]>(r0)
        g1 = Gather<axis=0>(t, j)  r1 = Reshape<allowzero=1>(g1, h)  k = Transpose<perm=[1, 2, 0, 3]>(r1)
        g2 = Gather<axis=0>(t, l)  r2 = Reshape<allowzero=1>(g2, h)  v = Transpose<perm=[1, 2, 0, 3]>(r2) }""",
    "slices that are moved apart": """(float[s, b, 12] x) => (float[b, 2, s, 3] q, float[s, b, 2, 3] k)
        <int64[2] apart = {2, 6}, int64[2] heads = {2, 3}, int64 i = {0}, int64 j = {1}> {
        n = Shape<start=0, end=2>(x)  a = Concat<axis=0>(n, apart)  h = Concat<axis=0>(n, heads)
        r = Reshape<allowzero=1>(x, a)  t = Transpose<perm=[2, 0, 1, 3]>(r)
        g0 = Gather<axis=0>(t, i)  r0 = Reshape<allowzero=1>(g0, h)  q = Transpose<perm=[1, 2, 0, 3]>(r0)
        g1 = Gather<axis=0>(t, j)  r1 = Reshape<allowzero=1>(g1, h)  k = Transpose<perm=[0, 1, 2, 3]>(r1) }""",
    "slices of three that are moved apart": """(float[s, b, 18] x) =>
        (float[b, 2, s, 3] q, float[b, 2, 3, s] k, float[b, 2, s, 3] v)
        <int64[2] apart = {3, 6}, int64[2] heads = {2, 3}, int64 i = {0}, int64 j = {1}, int64 l = {2}> {
        n = Shape<start=0, end=2>(x)  a = Concat<axis=0>(n, apart)  h = Concat<axis=0>(n, heads)
        r = Reshape<allowzero=1>(x, a)  t = Transpose<perm=[2, 0, 1, 3]>(r)
        g0 = Gather<axis=0>(t, i)  r0 = Reshape<allowzero=1>(g0, h)  q = Transpose<perm=[1, 2, 0, 3]>(r0)
        g1 = Gather<axis=0>(t, j)  r1 = Reshape<allowzero=1>(g1, h)  k = Transpose<perm=[1, 2, 3, 0]>(r1)
        g2 = Gather<axis=0>(t, l)  r2 = Reshape<allowzero=1>(g2, h)  v = Transpose<perm=[1, 2, 0, 3]>(r2) }""",
    "moved twice": """(float[4, b, s] x) => (float[s, 4, b] y) {
        t = Transpose<perm=[1, 0, 2]>(x)  y = Transpose<perm=[2, 1, 0]>(t) }""",
    "moved there and back": """(float[4, b, s] x) => (float[4, b, s] y) {
        t = Transpose<perm=[1, 2, 0]>(x)  u = Transpose<perm=[2, 0, 1]>(t)  y = Neg(u) }""",
}
TOLD: dict[str, dict[str, list[int | str]]] = {
    "heads of a batch": {"r": ["s", "2*b", 3], "t": ["2*b", "s", 3]},
    "queries, keys and values": {"r": ["s", "b", 3, 6]},
    "slices of three that are moved apart": {"r": ["s", "b", 3, 6]},
}
FEWER = {
    "heads of a batch": 2,
    "of fixed sizes": 2,
    "with axes of one": 2,
    "the shape that was there": 1,
    "merged, not split": 2,
    "split across axes": 3,
    "read elsewhere": 3,
    "queries, keys and values": 5,
    "slices that are moved apart": 5,
    "slices of three that are moved apart": 6,
    "moved twice": 1,
    "moved there and back": 1,
}


def moved(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    before = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{HEAD} agraph {GRAPHS[name]}"), data_prop=True)
    model = ir.from_proto(before)
    for index, node in enumerate(model.graph):
        node.name = f"node_{index}"
    for value in (output for node in model.graph for output in node.outputs):  # as the exporter's values have them
        if value.name in TOLD.get(name, {}):
            value.shape = ir.Shape(TOLD[name][value.name])
    moved_axes.move(model)
    dead_code.remove_dead_code(model)
    return before, ir.to_proto(model)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_element_keeps_its_place_at_every_size(name: str) -> None:
    before, after = moved(name)
    onnx.checker.check_model(after, full_check=True)
    assert len(after.graph.node) == FEWER[name] <= len(before.graph.node)
    for batch, length in SIZES:
        given = feeds(before, {"b": batch, "s": length})
        actual = run_both(after, given)
        for runtime, expected in run_both(before, given).items():
            for one, other in zip(actual[runtime], expected, strict=True):
                assert_equal(one, other, exact=True, signs=True)


@pytest.mark.parametrize(
    ("size", "factors"),
    [
        (6, (6, ())),
        (0, None),
        ("b", (1, ("b",))),
        ("2*b", (2, ("b",))),
        ("b*(s + 1)", (1, ("b", "s + 1"))),
        ("s + 1", (1, ("s + 1",))),
        ("(s - 1)//2", (1, ("(s - 1)//2",))),
        ("b**2", (1, ("b**2",))),
        (None, None),
    ],
)
def test_sizes_are_taken_apart_where_they_are_products(size: int | str | None, factors: object) -> None:
    (dim,) = ir.Shape([size])
    assert moved_axes._factors(dim) == factors


def test_attention_of_torch_moves_its_heads_once() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    program = export(layer, (torch.randn(2, 3, 8),), dynamic_shapes=({0: "batch", 1: "length"},))
    names = [node.op_type for node in program.model.graph]
    assert names.count("Transpose") <= 9
    for sizes in ((1, 1), (3, 5), (2, 4)):
        x = torch.randn(*sizes, 8)
        assert_same(program(x), eager(layer, (x,)))


def test_axes_are_looked_for_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 18]> g (float[2,6] x) => (float[3,4] y) <int64[2] shape = {3, 4}>
    { a = Transpose<perm = [1, 0]>(x) b = Relu(a) y = Reshape(b, shape) }
    """
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    walks: list[ir.Graph] = []
    walk = ir.Graph.__iter__

    def counted(graph: ir.Graph) -> Iterator[ir.Node]:
        walks.append(graph)
        return walk(graph)

    monkeypatch.setattr(ir.Graph, "__iter__", counted)
    assert moved_axes.move(model) == 0
    assert len(walks) <= 2  # the graphs, and their nodes
