"""What the tests of rewrite rules share: one rule applied to a small graph, and both graphs run on the same values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import onnx_ir as ir
import onnxruntime
from onnxscript.rewriter import RewriteRule
from onnxscript.rewriter.pattern import Constant

from batch_export.exporter.optimise import dead_code, rewrite_rules, rewriting


def named_rules() -> dict[str, RewriteRule]:
    """The rules by a name that does not move when another one comes or goes."""
    found: dict[str, RewriteRule] = {}
    seen: Counter[str] = Counter()
    for rule in rewrite_rules._all_rules():
        name = rule.name or _drawn(rule)
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} {seen[name]}"] = rule
    return found


def _drawn(rule: RewriteRule) -> str:
    """The pattern in words: `Add(x, 0)`, or its operators from the first to the last."""
    nodes = list(rule._target_pattern)
    inputs = nodes[-1].inputs
    if len(nodes) == 1 and any(isinstance(one, Constant) for one in inputs):
        shown = [str(getattr(one, "_value", "x")) if isinstance(one, Constant) else "x" for one in inputs]
        return f"{nodes[0].op}({', '.join(shown)})"
    return " ".join(str(node.op) for node in nodes)


def applied(rule: RewriteRule, text: str) -> tuple[onnx.ModelProto, onnx.ModelProto, int]:
    """The model of the text before and after the rule, and how often the rule was applied."""
    before = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True)
    model = ir.from_proto(before)
    root = rule._target_pattern.outputs[0].producer()
    count = rewriting.apply(model, {str(root.op) if root is not None else "*": (rule,)})
    dead_code.remove_dead_code(model)
    return before, ir.to_proto(model), count


def run_both(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, list[Any]]:
    """The outputs by runtime; onnxruntime does not optimise."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    with np.errstate(all="ignore"):
        by_reference = onnx.reference.ReferenceEvaluator(model).run(None, dict(feeds))
    return {"onnxruntime": session.run(None, dict(feeds)), "onnx.reference": by_reference}


def assert_equal(one: Any, other: Any, *, exact: bool, signs: bool) -> None:
    """Same dtype, shape, NaN, infinities and signs of zeros; the same numbers, or nearly where sums are reordered."""
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    if one.dtype.kind != "f":
        np.testing.assert_array_equal(one, other)
        return
    np.testing.assert_allclose(one, other, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-5, equal_nan=True)
    zeros = (one == 0) & (other == 0)
    if exact and signs:
        np.testing.assert_array_equal(np.signbit(one[zeros]), np.signbit(other[zeros]))
