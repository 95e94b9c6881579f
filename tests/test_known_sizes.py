"""Sizes by name: graphs whose sizes are computed get shorter, and keep every element at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from exporting import assert_same, eager
from rewriting import assert_equal, run_both

from batch_export import export
from batch_export.exporter.optimise import dead_code, equal_parts, known_sizes, shorter_forms

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
GRAPHS = {
    "repeated to what keeps an axis": """(float[b, s, 6] x, float[b, s, 1] w) => (float[b, s, 6] y, float[b, s, 6] v) {
        n = Shape(w)  z = Expand(x, n)  k = Shape(z)  y = Expand(w, k)  v = Neg(z) }""",
    "axes split": """(float[b, s, 6] x) => (float[b, s, 2, 3] y) <int64[2] tail = {2, 3}> {
        n = Shape<start=0, end=2>(x)  to = Concat<axis=0>(n, tail)  y = Reshape<allowzero=1>(x, to) }""",
    "axes merged": """(float[b, s, 2, 3] x) => (float[b, s, 6] y) <int64[1] six = {6}> {
        b = Shape<start=0, end=1>(x)  s = Shape<start=1, end=2>(x)
        to = Concat<axis=0>(b, s, six)  y = Reshape<allowzero=1>(x, to) }""",
    "the only size that is left": """(float[b, s, 6] x) => (float[n, 6] y)
        <int64[1] six = {6}, int64[1] less = {-1}> {
        to = Concat<axis=0>(less, six)  y = Reshape(x, to) }""",
    "a size left beside a copied one": """(float[b, s, 6] x) => (float[b, n] y)
        <int64[1] six = {6}> {
        b = Shape<start=0, end=1>(x)  s = Shape<start=1, end=2>(x)  n = Mul(s, six)
        to = Concat<axis=0>(b, n)  y = Reshape<allowzero=1>(x, to) }""",
    "sizes that change places": """(float[b, s, 6] x) => (float[s, b, 6] y) <int64[1] six = {6}> {
        b = Shape<start=0, end=1>(x)  s = Shape<start=1, end=2>(x)
        to = Concat<axis=0>(s, b, six)  y = Reshape<allowzero=1>(x, to) }""",
    "a reshape of a reshape": """(float[b, s, 6] x) => (float[b, s, 6] y)
        <int64[1] six = {6}, int64[3] tail = {2, 1, 3}> {
        n = Shape<start=0, end=2>(x)  to = Concat<axis=0>(n, tail)  z = Reshape<allowzero=1>(x, to)
        back = Concat<axis=0>(n, six)  w = Reshape<allowzero=1>(z, back)  y = Neg(w) }""",
    "axes added and merged": """(float[b, s, 6] x) => (float[b, s, 2, 3] y)
        <int64[2] tail = {2, 3}, int64[1] one = {1}> {
        z = Unsqueeze(x, one)  n = Shape<start=0, end=2>(x)  to = Concat<axis=0>(n, tail)
        y = Reshape<allowzero=1>(z, to) }""",
    "repeated": """(float[b, s, 1, 6] x) => (float[b, s, 5, 6] y) <int64[2] tail = {5, 6}> {
        n = Shape<start=0, end=2>(x)  to = Concat<axis=0>(n, tail)  y = Expand(x, to) }""",
    "repeated before": """(float[s, 6] x) => (float[4, s, 6] y) <int64[1] four = {4}> {
        n = Shape(x)  to = Concat<axis=0>(four, n)  y = Expand(x, to) }""",
    "not repeated": """(float[b, s, 6] x) => (float[b, s, 6] y) {
        n = Shape(x)  z = Expand(x, n)  y = Neg(z) }""",
    "repeated by another's size": """(float[1, s, 6] x, float[b, s, 6] z) => (float[b, s, 6] y) {
        n = Shape(z)  y = Expand(x, n) }""",
    "sizes picked": """(float[b, s, 6] x) => (float[b, s, 2, 3] y)
        <int64 first = {0}, int64[1] at = {0}, int64[1] second = {1}, int64[2] tail = {2, 3}> {
        z = Neg(x)  n = Shape(z)  i = Gather<axis=0>(n, first)  b = Unsqueeze(i, at)  s = Gather<axis=0>(n, second)
        to = Concat<axis=0>(b, s, tail)  y = Reshape<allowzero=1>(x, to) }""",
    "sizes of equal values": """(float[b, s, 6] x) => (float[b, m] y, float[b, m] w) <int64[1] six = {6}> {
        a = Neg(x)  c = Neg(a)
        b0 = Shape<start=0, end=1>(x)  s0 = Shape<start=1, end=2>(x)  m0 = Mul(s0, six)
        t0 = Concat<axis=0>(b0, m0)  y = Reshape<allowzero=1>(a, t0)
        b1 = Shape<start=0, end=1>(a)  s1 = Shape<start=1, end=2>(c)  m1 = Mul(s1, six)
        t1 = Concat<axis=0>(b1, m1)  w = Reshape<allowzero=1>(c, t1) }""",
    "the largest of one": """(float[b, s, 6] x) => (float[b, s, 6] y) { a = Max(x)  c = Min(a)  y = Neg(c) }""",
    "axes added twice": """(float[b, s, 6] x) => (float[b, 1, s, 1, 6, 1] y)
        <int64[2] first = {-1, 1}, int64[1] second = {3}> { a = Unsqueeze(x, first)  y = Unsqueeze(a, second) }""",
    "picked by one index": """(float[9, 6] x, int64[b, s] i) => (float[b, s, 6] y) <int64[1] last = {-1}> {
        at = Unsqueeze(i, last)  y = GatherND(x, at) }""",
    "as many elements as another": """(float[b, s, 6] x) => (float[b, s, 6] y) {
        a = Neg(x)  c = Abs(a)  n = Size(a)  m = Size(c)  p = CastLike(n, x)  q = CastLike(m, a)
        t = Div(a, p)  u = Div(c, q)  y = Add(t, u) }""",
    "a repeat before a broadcast": """(float[1, s, 6] x, float[b, s, 6] z) => (float[b, s, 6] y, bool[b, s, 6] w) {
        n = Shape(z)  r = Expand(x, n)  y = Add(z, r)  w = Less(r, z) }""",
    "a repeat before a broadcast, by name": """(float[1, s, 6] x, float[b, s, 6] z) => (float[b, s, 6] y) {
        a = Neg(z)  n = Shape(a)  r = Expand(x, n)  c = Abs(z)  d = Greater(c, z)  y = Where(d, r, a) }""",
    "a repeat that others need": """(float[1, s, 6] x, float[b, s, 6] z) => (float[b, s, 6] y, float[b, s, 6] v) {
        n = Shape(z)  r = Expand(x, n)  y = Add(z, r)  v = Neg(r) }""",
    "the last ones, all of them": """(float[b, s, 6] x) => (float[b, s, 6] y)
        <int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64[1] both = {-1}> {
        a = Abs(x)  n = Shape<start=1, end=2>(x)  i = Squeeze(n)  j = Neg(i)  k = Reshape(j, both)
        c = Slice(a, k, end, one, one)  y = Neg(c) }""",
    "the last ones of a longer axis": """(float[b, s, 6] x) => (float[b, m, 6] y)
        <int64[1] one = {1}, int64[1] end = {9223372036854775807}> {
        a = Concat<axis=1>(x, x)  n = Shape<start=1, end=2>(x)  k = Neg(n)  y = Slice(a, k, end, one, one) }""",
    "a condition that is true": """(float[b, s, 6] x) => (float[b, s, 6] y)
        <bool yes = {1}, bool no = {0}, float none = {0}> {
        c = Greater(x, none)  d = And(yes, c)  e = Or(d, no)  y = Where(e, x, none) }""",
}
FEWER = {
    "repeated to what keeps an axis": 2,
    "axes split": 1,
    "axes merged": 1,
    "the only size that is left": 1,
    "a size left beside a copied one": 5,
    "sizes that change places": 4,
    "a reshape of a reshape": 1,
    "axes added and merged": 1,
    "repeated": 1,
    "repeated before": 1,
    "not repeated": 1,
    "repeated by another's size": 2,
    "sizes picked": 1,
    "sizes of equal values": 8,
    "the largest of one": 1,
    "axes added twice": 1,
    "picked by one index": 1,
    "as many elements as another": 7,
    "a repeat before a broadcast": 2,
    "a repeat before a broadcast, by name": 4,
    "a repeat that others need": 4,
    "the last ones, all of them": 2,
    "the last ones of a longer axis": 4,
    "a condition that is true": 2,
}
SIZES = ((0, 2), (2, 0), (0, 0), (1, 1), (1, 5), (3, 1), (2, 4))


def simplified(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    before = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{HEAD} agraph {text}"), data_prop=True)
    model = ir.from_proto(before)
    shorter_forms.shorten(model)
    known_sizes.simplify(model)
    equal_parts.merge_constants(model)
    equal_parts.merge_subexpressions(model)
    dead_code.remove_dead_code(model)
    return before, ir.to_proto(model)


def feeds(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers of every kind, in the shapes of a model's inputs."""
    random = np.random.default_rng(0)
    special = np.asarray([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.5], np.float32)
    made: dict[str, np.ndarray[Any, Any]] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [sizes[one.dim_param] if one.dim_param else one.dim_value for one in kind.shape.dim]
        floats = kind.elem_type == onnx.TensorProto.FLOAT
        made[value.name] = random.choice(special, shape) if floats else random.integers(-9, 9, shape)
    return made


@pytest.mark.parametrize("name", GRAPHS)
def test_every_element_stays_at_every_size(name: str) -> None:
    before, after = simplified(GRAPHS[name])
    onnx.checker.check_model(after, full_check=True)
    assert len(after.graph.node) == FEWER[name] <= len(before.graph.node)
    for batch, length in SIZES:
        given = feeds(before, {"b": batch, "s": length})
        actual = run_both(after, given)
        for runtime, expected in run_both(before, given).items():
            for one, other in zip(actual[runtime], expected, strict=True):
                assert_equal(one, other, exact=True, signs=True)


def test_sizes_of_two_inputs_stay_apart() -> None:
    before, after = simplified(
        """(float[b, 6] x, float[b, 2, 3] z) => (int64[1] y, int64[1] w) {
        i = Shape<start=0, end=1>(x)  j = Shape<start=0, end=1>(z)  y = Neg(i)  w = Neg(j) }"""
    )
    assert len(after.graph.node) == len(before.graph.node) == 4


def test_names_in_a_body_are_its_own() -> None:
    text = """(float[b, 6] x, bool c) => (float[b, 2, 3] y) <int64[2] tail = {2, 3}> {
        y = If(c) <
            then_branch = yes () => (float[b, 2, 3] p) {
                n = Shape<start=0, end=1>(x)  to = Concat<axis=0>(n, tail)  p = Reshape<allowzero=1>(x, to) },
            else_branch = no () => (float[b, 2, 3] q) {
                z = Neg(x)  m = Shape<start=0, end=1>(z)  at = Concat<axis=0>(m, tail)
                q = Reshape<allowzero=1>(z, at) }
        > }"""
    before, after = simplified(text)
    (one,) = after.graph.node
    assert [len(body.g.node) for body in one.attribute] == [1, 2]
    for batch in (0, 1, 3):
        for chosen in (True, False):
            given = {"x": np.full((batch, 6), np.nan, np.float32), "c": np.asarray(chosen)}
            for runtime, expected in run_both(before, given).items():
                assert_equal(run_both(after, given)[runtime][0], expected[0], exact=True, signs=True)


class Broadcast(torch.nn.Module):
    """Two vectors that are added, and the size of the sum."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        both = x + y
        return torch.nn.functional.group_norm(both.unsqueeze(0).unsqueeze(0), 1)


def test_axes_that_broadcast_are_never_taken_for_equally_large() -> None:
    module = Broadcast().eval()
    with pytest.warns(Warning, match="equal"):
        program = export(module, (torch.randn(3, 4), torch.randn(3, 4)), dynamic_shapes=({0: "n"}, {0: "k"}))
    for first, second in ((1, 5), (5, 1), (1, 1), (4, 4)):
        given = (torch.randn(first, 4), torch.randn(second, 4))
        assert_same(program(*given), eager(module, given))
    program.release()


class PickedTogether(torch.nn.Module):
    def forward(self, w: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        row, column = torch.where(which == 0)
        return w[row, column, None]


def test_indices_of_one_length_of_the_data_are_not_repeated_to_each_other() -> None:
    module = PickedTogether().eval()
    program = export(module, (torch.randn(4, 2), torch.tensor([[0, 1], [1, 0], [0, 0], [2, 1]])))
    assert not {node.op_type for node in program.model.graph} & {"Max", "Expand", "Shape"}
    for which in (torch.zeros(4, 2, dtype=torch.int64), torch.ones(4, 2, dtype=torch.int64)):
        given = (torch.randn(4, 2), which)
        assert_same(program(*given), eager(module, given))
    program.release()
