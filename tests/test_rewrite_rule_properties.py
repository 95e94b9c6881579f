"""Every rewrite rule keeps every value: NaN, infinities, both zeros, no elements and one element included.

A rule has a graph to which it applies, with sizes, dtypes and values drawn by hypothesis. The graph runs before and
after in onnxruntime, unoptimised, and in onnx's reference evaluator; that the rule applied at all is asserted as well.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxscript.rewriter import RewriteRule
from rewriting import applied, assert_equal, named_rules, run_both

Draw = Callable[[st.SearchStrategy[Any]], Any]
NUMPY = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}
FLOATS = [-0.0, 1 + 2**-11 + 2**-30, math.nan, math.inf, -math.inf, 0.0, 1.0, -1.0, 0.5, -2.5, 7.0, 6e4, -6e4, 1e-7]
SUMMED = [0.0, -0.0, 1.0, -2.5, 0.5, math.nan, math.inf]
INTEGERS = [0, 1, -1, 2, -7, 2**31 - 1, -(2**31)]
SIZES = st.sampled_from([0, 1, 2, 3])
WITHOUT_CASE = {
    *("NormalizePadFormatConvInteger", "FuseConvIntegerPad", "RemoveOptionalBiasFromQLinearConv"),
}
"""Rules for operators of quantised models, which the exporter does not write."""
NEVER_APPLIED = {
    "Dropout": "its pattern has the attributes of opset 11 and older",
    "Dropout 2": "its pattern has the attributes of opset 11 and older",
}
"""Rules that do nothing here; once one does, its graph shows whether it keeps the values."""


@dataclass
class Graph:
    """A graph as ONNX text, its inputs' values, and whether results must be equal to the last bit and zero's sign.

    Of zeros of both signs Min, Max and Clip may return either.
    """

    inputs: dict[str, tuple[str, tuple[int, ...]]]
    body: str
    constants: str = ""
    exact: bool = True
    signs: bool = True
    opset: int = 20
    outputs: tuple[str, ...] = ("y",)
    element: str = ""
    shown: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The model; `shown` has the declared shapes of inputs with free axes."""
        given = ", ".join(f"{kind}[{self._shape(name)}] {name}" for name, (kind, _) in self.inputs.items())
        kind = self.element or next(iter(self.inputs.values()))[0]
        results = ", ".join(f"{kind}[] {name}" for name in self.outputs)
        constants = f"<{self.constants}>" if self.constants else ""
        head = f'<ir_version: 10, opset_import: ["" : {self.opset}]>'
        return f"{head} g ({given}) => ({results}) {constants} {{ {self.body} }}"

    def _shape(self, name: str) -> str:
        return self.shown.get(name) or ",".join(map(str, self.inputs[name][1]))


def shape_of(draw: Draw, rank: int | None = None) -> tuple[int, ...]:
    return tuple(draw(SIZES) for _ in range(draw(st.integers(0, 3)) if rank is None else rank))


def one_input(
    draw: Draw, body: str, constants: str = "", kinds: str = "float double float16 int64", **more: Any
) -> Graph:
    kind = draw(st.sampled_from(kinds.split()))
    shape = shape_of(draw, more.pop("rank", None))
    constants = constants.replace("KIND", kind)
    return Graph({"x": (kind, shape)}, body, constants, **more)


def neutral(expression: str, number: int) -> Callable[[Draw], Graph]:
    return lambda draw: one_input(draw, f"y = {expression}", f"KIND c = {{{number}}}")


def bounds(expression: str, kinds: str = "float double int64 int32") -> Callable[[Draw], Graph]:
    def make(draw: Draw) -> Graph:
        low, high = draw(st.integers(-3, 3)), draw(st.integers(-3, 3))
        return one_input(draw, expression, f"KIND low = {{{low}}}, KIND high = {{{high}}}", kinds, signs=False)

    return make


Shape = tuple[int, ...]


def _shapes_of(elements: int, ranks: tuple[int, ...] = (2, 3)) -> list[Shape]:
    sizes = [one for one in range(1, elements + 1) if elements % one == 0]
    return [one for rank in ranks for one in itertools.product(sizes, repeat=rank) if math.prod(one) == elements]


def _product(one: Shape, other: Shape) -> Shape | None:
    """The shape of a MatMul; None where there is none."""
    if one[-1] != other[-2]:
        return None
    try:
        return (*np.broadcast_shapes(one[:-2], other[:-2]), one[-2], other[-1])
    except ValueError:
        return None


@functools.cache
def _products() -> list[tuple[Shape, Shape, Shape, Shape, Shape]]:
    """Two tensors, two others of the same elements, and the shape of either product, which have as many elements."""
    found = []
    for left, right in itertools.product((2, 4, 8), repeat=2):
        wholes = [(a, b, c) for a in _shapes_of(left) for b in _shapes_of(right) if (c := _product(a, b)) is not None]
        found += [
            (a, b, x, y, c)
            for (a, b, c), (x, y, z) in itertools.product(wholes, repeat=2)
            if math.prod(c) == math.prod(z) and (a, b) != (x, y)
        ]
    return found


def reshapes_around_matmul(both: bool) -> Callable[[Draw], Graph]:
    def make(draw: Draw) -> Graph:
        a, b, grouped_a, grouped_b, c = draw(st.sampled_from([one for one in _products() if both or one[1] == one[3]]))
        other = "rb = Reshape(b, sb)" if both else "rb = Identity(b)"
        body = f"ra = Reshape(x, sa) {other} m = MatMul(ra, {'rb' if both else 'b'}) y = Reshape(m, sc)"
        shapes = {"sa": grouped_a, "sb": grouped_b, "sc": c}
        constants = ", ".join(f"int64[{len(s)}] {name} = {{{','.join(map(str, s))}}}" for name, s in shapes.items())
        return Graph({"x": ("float", a), "b": ("float", b)}, body, constants, exact=False)

    return make


def constant_of_shape(draw: Draw) -> Graph:
    shape = ",".join(map(str, shape_of(draw)))
    number = draw(st.sampled_from([0, 1, -3, 7]))
    to = draw(st.sampled_from([1, 7, 9, 10, 11]))
    kind = {1: "float", 7: "int64", 9: "bool", 10: "float16", 11: "double"}[to]
    body = f"c = ConstantOfShape <value = float[1] {{{number}}}> (s) y = Cast <to = {to}> (c) z = Add(x, x)"
    sizes = shape.split(",") if shape else []
    return Graph({"x": ("float", (1,))}, body, f"int64[{len(sizes)}] s = {{{shape}}}", element=kind)


def constant_of_shape_without_value(draw: Draw) -> Graph:
    graph = constant_of_shape(draw)
    start, end = graph.body.index(" <value"), graph.body.index("(s)")
    graph.body = graph.body[:start] + graph.body[end:]
    return graph


def redundant_slice(draw: Draw) -> Graph:
    kind = draw(st.sampled_from(["float", "int64"]))
    shape = shape_of(draw, draw(st.integers(1, 3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    end = draw(st.sampled_from([shape[axis], shape[axis] + 2, 2**63 - 1]))
    constants = f"int64[1] a = {{0}}, int64[1] e = {{{end}}}, int64[1] i = {{{axis}}}, int64[1] s = {{1}}"
    return Graph({"x": (kind, shape)}, "y = Slice(x, a, e, i, s)", constants)


def slice_of_known_shape(draw: Draw) -> Graph:
    shape = shape_of(draw, draw(st.integers(1, 3)))
    axis = draw(st.integers(0, len(shape) - 1))
    start, end = -shape[axis] or 0, shape[axis]
    constants = f"int64[1] a = {{{start}}}, int64[1] e = {{{end}}}, int64[1] i = {{{axis}}}, int64[1] s = {{1}}"
    return Graph({"x": ("float", shape)}, "y = Slice(x, a, e, i, s)", constants)


def computed_reshape(draw: Draw) -> Graph:
    rows, columns = draw(SIZES), draw(st.integers(1, 3))
    body = "s = Shape(x) y0 = Reshape(x, s) y = Identity(y0)"
    shown = {"x": f"n,{columns}"} if draw(st.booleans()) else {}
    return Graph({"x": ("float", (rows, columns))}, body, shown=shown)


def casts(draw: Draw) -> Graph:
    kind = draw(st.sampled_from(["float", "double", "int32", "bool", "float16"]))
    return Graph({"x": (kind, shape_of(draw))}, "m = Cast <to = 1> (x) y = Cast <to = 10> (m)", element="float16")


def cast_to_itself(draw: Draw) -> Graph:
    kind, number = draw(st.sampled_from([("float", 1), ("int64", 7), ("double", 11), ("bool", 9)]))
    return Graph({"x": (kind, shape_of(draw))}, f"y = Cast <to = {number}> (x)")


def expand_to_itself(draw: Draw) -> Graph:
    shape = shape_of(draw)
    return Graph(
        {"x": ("float", shape)}, "y = Expand(x, s)", f"int64[{len(shape)}] s = {{{','.join(map(str, shape))}}}"
    )


def two_reshapes(draw: Draw) -> Graph:
    shape = tuple(draw(st.integers(1, 3)) for _ in range(2)) if draw(st.booleans()) else (draw(SIZES), 2)
    after = draw(st.sampled_from([f"{shape[1]},-1", f"-1,{shape[1]}", f"-1,1,{shape[1]}"]))
    count = after.count(",") + 1
    body = "m = Reshape(x, flat) y = Reshape(m, s)"
    return Graph({"x": ("float", shape)}, body, f"int64[1] flat = {{-1}}, int64[{count}] s = {{{after}}}")


def transposes(first: bool) -> Callable[[Draw], Graph]:
    def make(draw: Draw) -> Graph:
        shape = shape_of(draw, draw(st.integers(1, 3)))
        axes = list(range(len(shape)))
        one = draw(st.permutations(axes)) if first else axes
        other = draw(st.permutations(axes)) if first else axes
        if not first:
            return Graph({"x": ("float", shape)}, f"y = Transpose <perm = {axes}> (x)")
        body = f"m = Transpose <perm = {one}> (x) y = Transpose <perm = {other}> (m)"
        return Graph({"x": ("float", shape)}, body)

    return make


def unsqueezes(draw: Draw) -> Graph:
    shape = shape_of(draw)
    one, other = draw(st.integers(0, len(shape))), draw(st.integers(0, len(shape) + 1))
    body = "m = Unsqueeze(x, a) y = Unsqueeze(m, b)"
    return Graph({"x": ("float", shape)}, body, f"int64[1] a = {{{one}}}, int64[1] b = {{{other}}}")


def scatter_everything(draw: Draw) -> Graph:
    rows, columns = draw(st.integers(1, 3)), draw(SIZES)
    reduction = draw(st.sampled_from(["none", "none", "add", "mul", "max", "min"]))
    constants = f"int64[{rows},1] i = {{{','.join(map(str, range(rows)))}}}"
    body = f'y = ScatterND <reduction = "{reduction}"> (x, i, u)'
    return Graph({"x": ("float", (rows, columns)), "u": ("float", (rows, columns))}, body, constants)


def scatter_whole_axis(draw: Draw) -> Graph:
    shape = (draw(SIZES), draw(SIZES))
    body = """s = Shape <start = 0> (x) d = Gather <axis = 0> (s, axis) r = Range(zero, d, one) i = Unsqueeze(r, last)
        y = ScatterND <reduction = "none"> (x, i, u)"""
    constants = "int64 axis = {0}, int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}"
    return Graph({"x": ("float", shape), "u": ("float", shape)}, body, constants)


def squeeze_then_reshape(draw: Draw) -> Graph:
    return Graph({"x": ("int64", (1,))}, "m = Squeeze(x) y = Reshape(m, s)", "int64[1] s = {-1}")


def padded_convolution(draw: Draw) -> Graph:
    length, channels = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    if before + after + length < 2:
        before = 2
    given = draw(st.booleans())
    constants = f"int64[6] p = {{0,0,{before},0,0,{after}}}, float zero = {{0}}"
    body = f"m = Pad(x, p{', zero' if given else ''}) y = Conv <kernel_shape = [2]> (m, w)"
    inputs = {"x": ("float", (draw(st.integers(1, 2)), channels, length)), "w": ("float", (2, channels, 2))}
    return Graph(inputs, body, constants, exact=False)


def convolution_with_auto_pad(draw: Draw) -> Graph:
    length, how = draw(st.integers(2, 5)), draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    stride = draw(st.integers(1, 2))
    body = f'y = Conv <auto_pad = "{how}", kernel_shape = [2], strides = [{stride}]> (x, w)'
    return Graph({"x": ("float", (1, 1, length)), "w": ("float", (2, 1, 2))}, body, exact=False)


def without_bias(call: str, weight: tuple[int, ...]) -> Callable[[Draw], Graph]:
    def make(draw: Draw) -> Graph:
        shape = (draw(st.integers(1, 2)), 2, draw(st.integers(2, 3))) if len(weight) == 3 else (draw(SIZES), 2)
        return Graph(
            {"x": ("float", shape), "w": ("float", weight)}, f"y = {call}(x, w, b)", "float[2] b = {0, 0}", exact=False
        )

    return make


GRAPHS: dict[str, Callable[[Draw], Graph]] = {
    "Add(x, 0)": neutral("Add(x, c)", 0),
    "Add(0, x)": neutral("Add(c, x)", 0),
    "Sub(x, 0)": neutral("Sub(x, c)", 0),
    "Mul(x, 1)": neutral("Mul(x, c)", 1),
    "Mul(1, x)": neutral("Mul(c, x)", 1),
    "Div(x, 1)": neutral("Div(x, c)", 1),
    "Dropout": lambda draw: one_input(draw, "y = Dropout(x, r)", "float r = {0.0}", "float double"),
    "Dropout 2": lambda draw: one_input(draw, "y = Dropout(x, r, t)", "float r = {0.5}, bool t = {0}", "float double"),
    "Reshape Reshape MatMul Reshape": reshapes_around_matmul(both=True),
    "Reshape MatMul Reshape": reshapes_around_matmul(both=False),
    "ConstantOfShape Cast": constant_of_shape,
    "ConstantOfShape Cast 2": constant_of_shape_without_value,
    "Slice": redundant_slice,
    "Slice 2": slice_of_known_shape,
    "KnownShape": computed_reshape,
    "FuseSuccessiveMin": bounds("m = Min(x, low) y = Min(m, high)"),
    "FuseSuccessiveMax": bounds("m = Max(x, low) y = Max(m, high)"),
    "FuseMinMaxToClip": bounds("m = Min(x, high) y = Max(m, low)"),
    "FuseMaxMinToClip": bounds("m = Max(x, low) y = Min(m, high)"),
    "ReluAfterClip": bounds("m = Clip(x, low, high) y = Relu(m)", "float double"),
    "FuseSuccessiveClipRelu": bounds("m = Relu(x) y = Clip(m, low, high)", "float double"),
    "FuseSuccessiveRelu": lambda draw: one_input(draw, "m = Relu(x) y = Relu(m)", kinds="float double"),
    "CastByFloat": casts,
    "CastIdentity": cast_to_itself,
    "ExpandIdentity": expand_to_itself,
    "ReshapeReshape": two_reshapes,
    "TransposeIdentity": transposes(first=False),
    "TransposeTranspose": transposes(first=True),
    "UnsqueezeUnsqueeze": unsqueezes,
    "SqueezeReshape1d": squeeze_then_reshape,
    "ScatterAllDynamic": scatter_whole_axis,
    "ScatterAll": scatter_everything,
    "NormalizePadFormatConv": convolution_with_auto_pad,
    "FuseConvPad": padded_convolution,
    "RemoveOptionalBiasFromConv": without_bias("Conv", (2, 2, 2)),
    "RemoveOptionalBiasFromConvTranspose": without_bias("ConvTranspose", (2, 2, 2)),
    "RemoveOptionalBiasFromGemm": without_bias("Gemm", (2, 2)),
}
RULES = named_rules()


def values(draw: Draw, kind: str, shape: tuple[int, ...], exact: bool) -> np.ndarray[Any, Any]:
    """Every special value in turn, from one of them on; where sums are reordered, sometimes ordinary numbers."""
    special = [True, False] if kind == "bool" else INTEGERS if kind.startswith("int") else FLOATS if exact else SUMMED
    if not exact and draw(st.booleans()):
        special = [draw(st.floats(-2, 2)) for _ in range(8)]
    start = draw(st.integers(0, len(special) - 1))
    turned = itertools.islice(itertools.cycle([*special[start:], *special[:start]]), math.prod(shape))
    with np.errstate(all="ignore"):
        return np.array(list(turned), dtype=NUMPY[kind]).reshape(shape)


def test_what_two_rules_make_of_one_value_has_two_names() -> None:
    bounds = "float low = {1}, float high = {2}, float lower = {-3}, float higher = {5}"
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[4] x) => (float[4] y, float[4] z) <{bounds}>
    {{ a = Clip(x, low, high) y = Relu(a) b = Clip(x, lower, higher) z = Relu(b) }}"""
    for rule in (one for name, one in RULES.items() if "Clip" in name or "Relu" in name):
        before, after, count = applied(rule, text)
        if count > 1:
            break
    else:
        pytest.fail("no rule puts a Relu into a Clip")
    feeds = {"x": np.array([-7, 0, 1.5, 9], dtype="float32")}
    expected, actual = run_both(before, feeds), run_both(after, feeds)
    for runtime, results in expected.items():
        for one, other in zip(results, actual[runtime], strict=True):
            np.testing.assert_array_equal(one, other)


def test_every_rule_has_a_graph_here() -> None:
    assert set(RULES) - WITHOUT_CASE <= set(GRAPHS), sorted(set(RULES) - WITHOUT_CASE - set(GRAPHS))


@pytest.mark.parametrize("name", [name for name in RULES if name not in WITHOUT_CASE])
def test_a_rule_keeps_every_value(name: str) -> None:
    rule, times = RULES[name], []

    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        times.append(_apply_and_compare(rule, GRAPHS[name](data.draw), data.draw))

    check()
    assert (sum(times) > 0) is (name not in NEVER_APPLIED), f"{name} was applied {sum(times)} times"


def _apply_and_compare(rule: RewriteRule, graph: Graph, draw: Draw) -> int:
    before, after, count = applied(rule, graph.text())
    if not count:
        return 0
    feeds = {name: values(draw, kind, shape, graph.exact) for name, (kind, shape) in graph.inputs.items()}
    expected, actual = run_both(before, feeds), run_both(after, feeds)
    for runtime, results in expected.items():
        for one, other in zip(results, actual[runtime], strict=True):
            assert_equal(np.asarray(one), np.asarray(other), exact=graph.exact, signs=graph.signs)
    return count
