"""The rules between opsets, each alone: its example before and after. What has no form is an error with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from batch_export.errors import NoFormError
from batch_export.legalise import lagging, nested, newer_forms, steps
from batch_export.legalise.chain import legalise
from batch_export.legalise.table import COMPOSED, NATIVE, NONE, form, page

pytestmark = pytest.mark.sampled

onnxruntime.set_default_logger_severity(4)

NOT_BELOW: dict[tuple[int, str], int] = {
    (8, "Scan"): 9,
    (8, "ConstantOfShape"): 8,
    (10, "Range"): 9,
    (10, "ScatterElements"): 9,
    (11, "Max"): 9,
    (11, "Min"): 9,
    (11, "Clip"): 9,
    (11, "NegativeLogLikelihoodLoss"): 11,
    (12, "QuantizeLinear"): 10,
    (12, "DequantizeLinear"): 10,
    (12, "Resize"): 11,
}
"""Rules whose result does not go down to opset 13, those below it to opset 7, and how far it goes."""

NEVER = {(8, "Scan")}
"""What has a schema at the next opset, and no form: the step says so."""

ONLY_REFERENCE = {"Bernoulli"}
"""ONNX Runtime 1.31 draws ones with the chance 1 - p."""

RULES = [
    pytest.param(level + 1, level, name, id=f"{level + 1}-to-{level}-{name}")
    for level in sorted(steps.DOWN)
    for name in steps.DOWN[level]
] + [
    pytest.param(level - 1, level, name, id=f"{level - 1}-to-{level}-{name}")
    for level in sorted(steps.UP)
    for name in steps.UP[level]
]


def feeds_for(model: onnx.ModelProto, seed: int = 0, free: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Numbers for the inputs; `positive`, `var` and `scale` have no negative ones, sizes are what fits."""
    random = np.random.default_rng(seed)
    known = {"rows": [9], "columns": [1], "shift": 1}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or (free or {}).get(dim.dim_param, 3) for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if value.name in known:
            drawn: Any = known[value.name]
        elif np.issubdtype(dtype, np.integer):
            drawn = random.integers(-100 if np.issubdtype(dtype, np.signedinteger) else 0, 100, shape)
        elif dtype == np.bool_:
            drawn = random.integers(0, 2, shape)
        else:
            drawn = random.normal(size=shape)
        if value.name in ("positive", "var", "c"):
            drawn = np.abs(drawn)
        feeds[value.name] = np.asarray(drawn).astype(dtype)
    return feeds


def run_both(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, Any], *, plain: bool) -> list[list[Any]]:
    """Both models in ONNX Runtime where it has kernels for both, else in the reference evaluator."""
    results = []
    for model in (before, after):
        try:
            assert not plain
            results.append(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds))
        except Exception:
            results.append(ReferenceEvaluator(model).run(None, feeds))
    return results


def read(text: str) -> tuple[onnx.ModelProto, ir.Model]:
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    return proto, ir.serde.deserialize_model(proto)


def written(model: ir.Model, ir_version: int) -> onnx.ModelProto:
    proto = ir.serde.serialize_model(model)
    proto.ir_version = ir_version
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize(("left", "level", "name"), RULES)
def test_a_rule_says_the_same_at_the_next_opset(left: int, level: int, name: str) -> None:
    rule = (steps.DOWN if level < left else steps.UP)[level][name]
    before, model = read(rule.example)
    assert before.opset_import[0].version == left
    assert name in {node.op_type for node in before.graph.node}
    if (level, name) in NEVER:
        with pytest.raises(NoFormError, match=f"{name} has no form at opset {level}"):
            legalise(model, left, level)
        return
    legalise(model, left, level)
    after = written(model, before.ir_version)
    assert [one.version for one in after.opset_import] == [level]
    old, new = run_both(before, after, feeds_for(before), plain=name in ONLY_REFERENCE)
    for one, other in zip(old, new, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("lowest", "name"), [(level, name) for level in sorted(steps.DOWN) for name in steps.DOWN[level]]
)
def test_what_a_rule_writes_goes_on_down_or_says_why_not(lowest: int, name: str) -> None:
    """From its own opset to 13, or to 7: the same numbers, or one sentence, for those that are known to have none."""
    before, model = read(steps.DOWN[lowest][name].example)
    end = steps.WHOLE if lowest >= steps.WHOLE else steps.LOWEST
    if (lowest, name) in NOT_BELOW:
        with pytest.raises(NoFormError, match="has no form at opset") as caught:
            legalise(model, lowest + 1, end)
        assert caught.value.lowest == NOT_BELOW[lowest, name]
        return
    legalise(model, lowest + 1, end)
    after = written(model, before.ir_version)
    old, new = run_both(before, after, feeds_for(before), plain=name in ONLY_REFERENCE)
    for one, other in zip(old, new, strict=True):
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-4, atol=5e-6)


def of(opset: int, body: str, inputs: str, outputs: str, constants: str = "") -> str:
    kept = f" <{constants}>" if constants else ""
    return f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}){kept} {{ {body} }}'


VARIANTS = {
    "nearest border": (
        16,
        'y = GridSample <mode = "nearest", padding_mode = "border", align_corners = 1> (x, grid)',
        "float[2,3,4,5] x, float[2,3,2,2] grid",
        "float[2,3,3,2] y",
        "",
    ),
    "bicubic reflection": (
        16,
        'y = GridSample <mode = "bicubic", padding_mode = "reflection"> (x, grid)',
        "float[2,3,4,5] x, float[2,3,2,2] grid",
        "float[2,3,3,2] y",
        "",
    ),
    "bilinear reflection, free sizes": (
        16,
        'y = GridSample <padding_mode = "reflection", align_corners = 1> (x, grid)',
        "float[B,3,H,W] x, float[B,3,2,2] grid",
        "float[B,3,3,2] y",
        "",
    ),
    "DFT, longer": (17, "y = DFT <axis = 1> (x, n)", "float[2,6,2] x", "float[2,9,2] y", "int64 n = {9}"),
    "DFT, shorter": (17, "y = DFT <axis = 1> (x, n)", "float[2,6,1] x", "float[2,4,2] y", "int64 n = {4}"),
    "DFT, inverse": (17, "y = DFT <axis = 1, inverse = 1> (x)", "float[2,6,2] x", "float[2,6,2] y", ""),
    "DFT, free size": (17, "y = DFT <axis = 1, onesided = 1> (x)", "float[2,N,1] x", "float[2,M,2] y", ""),
    "STFT, free size": (
        17,
        "y = STFT <onesided = 0> (x, step, w)",
        "float[B,N,1] x, float[2] w",
        "float[B,M,2,2] y",
        "int64 step = {1}",
    ),
    "Trilu of booleans": (14, "y = Trilu (x)", "bool[3,4] x", "bool[3,4] y", ""),
    "Shape from the end": (15, "y = Shape <start = -2> (x)", "float[2,N,4] x", "int64[2] y", ""),
    "Split unevenly": (
        18,
        "a, b = Split <axis = 1, num_outputs = 2> (x)",
        "float[2,5] x",
        "float[2,3] a, float[2,2] b",
        "",
    ),
    "Split of a free size": (
        18,
        "a, b, c = Split <axis = 0, num_outputs = 3> (x)",
        "float[N,5] x",
        "float[A,5] a, float[B,5] b, float[C,5] c",
        "",
    ),
    "Pad along computed axes": (
        18,
        "y = Pad (x, p, , a)",
        "float[2,3] x",
        "float[A,B] y",
        "int64[2] p = {1, 2}, int64[1] a = {-2}",
    ),
    "Resize to sizes": (
        18,
        'y = Resize <axes = [3], mode = "nearest"> (x, , , s)',
        "float[1,2,3,4] x",
        "float[1,2,3,7] y",
        "int64[1] s = {7}",
    ),
    "scatter maxima of integers": (
        18,
        'y = ScatterElements <axis = 0, reduction = "max"> (x, i, u)',
        "int64[4,2] x, int64[3,2] u",
        "int64[4,2] y",
        "int64[3,2] i = {1, -1, 1, 0, 2, 3}",
    ),
    "scatter products": (
        16,
        'y = ScatterND <reduction = "mul"> (x, i, u)',
        "float[4,3] x, float[5] u",
        "float[4,3] y",
        "int64[5,2] i = {1, 0, 1, 0, -1, 2, 3, 1, 1, 0}",
    ),
    "bits of negative numbers": (18, "y = BitwiseXor (x, z)", "int64[5] x, int64[5] z", "int64[5] y", ""),
    "no bits set": (18, "y = BitwiseNot (x)", "uint16[5] x", "uint16[5] y", ""),
    "layer normalisation with statistics": (
        17,
        "y, m, s = LayerNormalization (x, c)",
        "float[2,3,4] x, float[4] c",
        "float[2,3,4] y, float[2,3,1] m, float[2,3,1] s",
        "",
    ),
    "a reduction that skips": (
        18,
        "y = ReduceMean <noop_with_empty_axes = 1> (x)",
        "float[2,3] x",
        "float[2,3] y",
        "",
    ),
    "a reshape that copies": (
        14,
        "s = Shape (x)  y = Reshape <allowzero = 1> (x, s)",
        "float[A,B] x",
        "float[A,B] y",
        "",
    ),
    "Relu in a branch": (
        14,
        "y = If (c) <then_branch = t () => (float[2,2] a) { a = HardSwish (x) }, "
        "else_branch = e () => (float[2,2] b) { b = Trilu (x) }>",
        "bool c, float[2,2] x",
        "float[2,2] y",
        "",
    ),
    "attention over 3 axes with a float mask": (
        25,
        "y = Attention <q_num_heads = 2, kv_num_heads = 2, left_window_size = 1, right_window_size = 1> (q, k, v, m)",
        "float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, float[3,5] m",
        "float[2,3,8] y",
        "",
    ),
    "gated linear attention": (
        27,
        'y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "gated"> (q, k, v, , d)',
        "float[2,3,8] q, float[2,3,8] k, float[2,3,8] v, float[2,3,2] d",
        "float[2,3,8] y, float[2,2,4,4] s",
        "",
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("size", [1, 3, 6])
def test_other_sizes_modes_and_dtypes(name: str, size: int) -> None:
    opset, *texts = VARIANTS[name]
    before, model = read(of(opset, *texts))
    free = {dim.dim_param: size for one in before.graph.input for dim in one.type.tensor_type.shape.dim}
    if "STFT" in name:
        free["N"] = size + 1
    before.ir_version = max(8, onnx.helper.find_min_ir_version_for(list(before.opset_import)))
    legalise(model, opset, steps.WHOLE)
    after = written(model, before.ir_version)
    old, new = run_both(before, after, feeds_for(before, size, free), plain=False)
    for one, other in zip(old, new, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-4, atol=5e-6)


@pytest.mark.parametrize(("rows", "columns"), [(0, 4), (4, 0), (2, 6), (0, 0)])
def test_a_reshape_to_nothing_stays_one(rows: int, columns: int) -> None:
    """A 0 would copy the input's size at opset 13."""
    text = steps.DOWN[13]["Reshape"].example
    before, model = read(text)
    legalise(model, 14, 13)
    after = written(model, before.ir_version)
    count = rows * columns
    feeds = {
        "x": np.arange(count, dtype=np.float32).reshape(count and 3, -1) if count else np.zeros((0, 5), np.float32),
        "rows": np.asarray([rows]),
        "columns": np.asarray([columns]),
    }
    (made,) = onnxruntime.InferenceSession(after.SerializeToString()).run(None, feeds)
    assert made.shape == (rows, columns)
    np.testing.assert_array_equal(made.reshape(-1), feeds["x"].reshape(-1))


def test_up_and_down_again_is_where_it_was() -> None:
    before, model = read(of(13, "m = ReduceMean <axes = [1]> (x)  y = HardSigmoid (m)", "float[2,3] x", "float[2,1] y"))
    legalise(model, 13, 28)
    assert "axes" not in next(iter(model.graph)).attributes
    legalise(model, 28, 13)
    after = written(model, before.ir_version)
    old, new = run_both(before, after, feeds_for(before), plain=False)
    np.testing.assert_array_equal(old[0], new[0])


@pytest.mark.parametrize(
    ("start", "target", "text", "lowest", "what"),
    [
        (20, 13, of(20, "y = StringConcat (x, z)", "string[2] x, string[2] z", "string[2] y"), 20, "StringConcat"),
        (26, 25, of(26, "y = BitCast <to = 6> (x)", "float[2] x", "int32[2] y"), 26, "BitCast"),
        (18, 13, of(18, "y = ReduceMax (x, a)", "float[2,3] x, int64[1] a", "float[A,B] y"), 18, "axes that are compu"),
        (19, 18, of(19, 'y = Pad <mode = "wrap"> (x, p)', "float[2] x, int64[2] p", "float[A] y"), 19, "wraps around"),
    ],
)
def test_what_has_no_form_is_named_with_the_nearest_opset(
    start: int, target: int, text: str, lowest: int, what: str
) -> None:
    _, model = read(text)
    next(iter(model.graph)).name = "here"
    with pytest.raises(NoFormError, match=f"has no form at opset {target} .*node here.*at model.py:7") as caught:
        legalise(model, start, target, lambda node: "model.py:7")
    assert what in str(caught.value)
    assert caught.value.lowest == lowest
    assert f"choose opset {lowest}" in str(caught.value.next_step)


def test_nodes_of_other_domains_are_left_alone() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18, "theirs" : 3]> g (float[2,3] x) => (float[2,3] y) '
        "{ z = Mish (x)  y = theirs.Thing <axes = [1]> (z) }"
    )
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    legalise_types(model)
    legalise(model, 18, 13)
    kept = next(node for node in model.graph if node.domain == "theirs")
    assert list(kept.attributes["axes"].value) == [1]
    assert model.graph.opset_imports == {"": 13, "theirs": 3}


def legalise_types(model: ir.Model) -> None:
    """Types of what lies before a node that type inference does not know."""
    for value in [output for node in model.graph for output in node.outputs]:
        value.type = value.type or ir.TensorType(ir.DataType.FLOAT)


def test_a_node_may_be_written_for_another_opset_than_the_rest() -> None:
    _, model = read(of(20, "y = Gelu (x)", "float[2] x", "float[2] y"))
    next(iter(model.graph)).version = 20
    legalise(model, 18, 13)
    assert "Erf" in {node.op_type for node in model.graph}


@pytest.mark.parametrize(("opset", "kept"), [(24, True), (25, False), (27, False), (28, True)])
def test_swish_is_spelt_out_where_its_kernel_is_missing(opset: int, kept: bool) -> None:
    _, model = read(of(opset, "y = Swish (x)", "float[2] x", "float[2] y"))
    lagging.write_out(model, opset)
    assert ("Swish" in {node.op_type for node in model.graph}) is kept


GATE = "s = Sigmoid (a)  g = Mul (a, s)  y = Mul (g, b)"


@pytest.mark.parametrize(
    ("opset", "body", "inputs", "expected"),
    [
        (28, GATE, "float[N,4] a, float[N,4] b", ["SwiGLU"]),
        (28, GATE, "float[N,4] a, float[4] b", ["Swish", "Mul"]),
        (27, GATE, "float[N,4] a, float[N,4] b", ["Sigmoid", "Mul", "Mul"]),
        (28, "s = Sigmoid (b)  y = Mul (s, b)", "float[N,4] a, float[N,4] b", ["Swish"]),
        (24, "s = Sigmoid (b)  y = Mul (s, b)", "float[N,4] a, float[N,4] b", ["Swish"]),
        (25, "s = Sigmoid (b)  y = Mul (s, b)", "float[N,4] a, float[N,4] b", ["Sigmoid", "Mul"]),
        (28, "s = Sigmoid (b)  y = Mul (s, a)", "float[N,4] a, float[N,4] b", ["Sigmoid", "Mul"]),
    ],
)
def test_gates_are_recognised_where_they_fit(opset: int, body: str, inputs: str, expected: list[str]) -> None:
    before, model = read(of(opset, body, inputs, "float[N,4] y"))
    before.ir_version = 14
    newer_forms.recognise(model, opset)
    assert [node.op_type for node in model.graph] == expected
    after = written(model, 14)
    feeds = feeds_for(before)
    for one, other in zip(
        ReferenceEvaluator(before).run(None, feeds), ReferenceEvaluator(after).run(None, feeds), strict=False
    ):
        np.testing.assert_allclose(other, one, rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Conv <group = 3, pads = [3, 0]> (x, w)", ["CausalConvWithState"]),
        ("z = Conv <group = 3, pads = [3, 3]> (x, w)  y = Slice (z, zero, end, axis)", ["CausalConvWithState"]),
        ("y = Conv <group = 3, pads = [2, 1]> (x, w)", ["Conv"]),
        ("z = Conv <group = 3, pads = [3, 3]> (x, w)  y = Slice (z, end, far, axis)", ["Conv", "Slice"]),
    ],
)
def test_causal_convolutions_are_recognised_where_they_fit(body: str, expected: list[str]) -> None:
    constants = "int64[1] zero = {0}, int64[1] end = {8}, int64[1] axis = {2}, int64[1] far = {11}"
    length = 8 if "far" not in body else 3
    before, model = read(of(27, body, "float[2,3,8] x, float[3,1,4] w", f"float[2,3,{length}] y", constants))
    before.ir_version = 13
    newer_forms.recognise(model, 27)
    assert [node.op_type for node in model.graph] == expected
    after, feeds = written(model, 13), feeds_for(before)
    for one, other in zip(
        ReferenceEvaluator(before).run(None, feeds), ReferenceEvaluator(after).run(None, feeds), strict=False
    ):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


_SUMS = "k1 = Unsqueeze (k, last)  v1 = Unsqueeze (v, third)  o = Mul (k1, v1)  s = CumSum (o, two)  "


@pytest.mark.parametrize(
    ("body", "is_recognised"),
    [
        (_SUMS + "q1 = Unsqueeze (q, third)  m = MatMul (q1, s)  y = Squeeze (m, third)", True),
        (_SUMS + "q1 = Unsqueeze (q, last)  m = Mul (s, q1)  y = ReduceSum <keepdims = 0> (m, third)", True),
        (
            'o = Einsum <equation = "bhtd,bhte->bhtde"> (k, v)  s = CumSum (o, two)  '
            'y = Einsum <equation = "bhtde,bhtd->bhte"> (s, q)',
            True,
        ),
        (_SUMS + "q1 = Unsqueeze (q, last)  m = Mul (s, q1)  y = ReduceSum <keepdims = 0> (m, last)", False),
        (_SUMS.replace("CumSum", "CumSum <reverse = 1>") + "q1 = Unsqueeze (q, third)  m = MatMul (q1, s)  "
         "y = Squeeze (m, third)", False),
        (_SUMS.replace("two", "one") + "q1 = Unsqueeze (q, third)  m = MatMul (q1, s)  y = Squeeze (m, third)", False),
    ],
)  # fmt: skip
def test_linear_attention_is_recognised_where_it_fits(body: str, is_recognised: bool) -> None:
    constants = "int64[1] last = {4}, int64[1] third = {3}, int64 two = {2}, int64 one = {1}"
    inputs = "float[B,3,T,4] q, float[B,3,T,4] k, float[B,3,T,5] v"
    made = "float[B,3,T,4] y" if body.endswith("(m, last)") else "float[B,3,T,5] y"
    before, model = read(of(27, body, inputs, made, constants))
    before.ir_version = 13
    assert newer_forms.recognise(model, 27) == is_recognised
    types = [node.op_type for node in model.graph]
    assert ("LinearAttention" in types) is is_recognised
    assert ("CumSum" in types) is not is_recognised
    after = written(model, 13)
    generator = np.random.default_rng(0)
    for batch, length in ((2, 6), (1, 1)):
        feeds = {
            name: generator.standard_normal((batch, 3, length, size), dtype=np.float32)
            for name, size in (("q", 4), ("k", 4), ("v", 5))
        }
        found, expected = (next(iter(ReferenceEvaluator(one).run(None, feeds))) for one in (after, before))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_page_of_operators_is_what_the_rules_give() -> None:
    kept = (Path(__file__).parents[1] / "docs" / "opsets.md").read_text()
    assert kept.startswith(page()), "python -m batch_export.legalise says something else; write it anew"
    assert form("LayerNormalization", 13) == COMPOSED
    assert form("LayerNormalization", 17) == NATIVE
    assert form("StringConcat", 19) == NONE


def test_nodes_and_graphs_are_those_of_onnx_ir() -> None:
    """Bodies in bodies, an operator of another domain with a body, and one with several."""

    def body(name: str, *nodes: ir.Node) -> ir.Graph:
        return ir.Graph([], [nodes[-1].outputs[0]], nodes=nodes, opset_imports={"": 18}, name=name)

    x = ir.val("x")
    inner = body("inner", ir.node("Neg", [x]))
    then = body(
        "then",
        ir.node("Abs", [x]),
        ir.node("If", [x], {"then_branch": inner, "else_branch": body("e", ir.node("Not", [x]))}),
    )
    other = ir.node(
        "Any", [x], {"graphs": [body("a", ir.node("Sin", [x])), body("b", ir.node("Cos", [x]))]}, domain="d"
    )
    last = ir.node("If", [x], {"then_branch": then, "else_branch": body("f", other, ir.node("Tan", [x]))})
    graph = ir.Graph([x], [last.outputs[0]], nodes=[ir.node("Exp", [x]), last], opset_imports={"": 18})
    assert nested.nodes_of(graph) == list(graph.all_nodes())
    assert nested.graphs_of(graph) == [graph, *graph.subgraphs()]
    assert len(nested.nodes_of(graph)) == 10
    assert len(nested.graphs_of(graph)) == 7


def test_a_graph_in_which_nothing_changes_is_walked_once_for_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }'
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    walks: list[ir.Graph] = []
    walk = ir.Graph.__iter__

    def counted(graph: ir.Graph) -> Iterator[ir.Node]:
        walks.append(graph)
        return walk(graph)

    monkeypatch.setattr(ir.Graph, "__iter__", counted)
    assert legalise(model, 18, 21) == 0
    assert len(walks) <= 2  # the nodes, and the graphs whose opset is written
    assert model.opset_imports[""] == 21
