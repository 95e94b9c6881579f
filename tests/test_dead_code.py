"""What nothing reads goes, with outputs and inputs that are left out, as onnx-ir's own pass has it."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
import pytest

from batch_export.exporter.optimise.dead_code import remove_identities, remove_unused_nodes

CASES = {
    "a chain that nobody reads": """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x) => (float[4] y) { a = Sin(x) b = Cos(a) y = Tanh(x) }
    """,
    "an output that is left out": """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x, int64[1] k) => (int64[n] i) { v, i = TopK(x, k) d, m = Dropout(x) }
    """,
    "an optional output": """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x) => (float[4] y) { y, mask = Dropout(x) }
    """,
    "a trailing input": """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x, float low) => (float[4] y) { y = Clip(x, low, ) }
    """,
    "in a body, and what only it reads": """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x, bool c) => (float[4] y) {
            a = Sin(x)
            y = If(c) <
                then_branch = one () => (float[4] t) { t = Neg(x) u = Abs(a) },
                else_branch = other () => (float[4] e) { e = Abs(x) }
            >
        }
    """,
    "nothing": """
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x) => (float[4] y) { a = Sin(x) y = Cos(a) }
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_what_nothing_reads_goes(case: str) -> None:
    ours, theirs = (ir.from_onnx_text(CASES[case]) for _ in range(2))
    changed = remove_unused_nodes(ours)
    assert changed == common_passes.RemoveUnusedNodesPass()(theirs).modified
    assert ir.to_proto(ours) == ir.to_proto(theirs)


def test_what_only_the_body_of_an_unread_node_reads_goes_with_it() -> None:
    """onnx-ir (1.1.0) counts the readers in such a body, and what they read stays."""
    model = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x, bool c) => (float[4] y) {
            a = Sin(x)
            b = Cos(a)
            z = If(c) <
                then_branch = one () => (float[4] t) { t = Neg(b) },
                else_branch = other () => (float[4] e) { e = Abs(a) }
            >
            y = Tanh(x)
        }
    """)
    assert remove_unused_nodes(model)
    assert [node.op_type for node in model.graph] == ["Tanh"]


def test_a_bodys_result_is_made_within_the_body() -> None:
    model = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 18]>
        agraph (float[4] x, bool c) => (float[4] y) {
            a = Sin(x)
            b = Identity(a)
            z, w = If(c) <
                then_branch = one () => (float[4] t, float[4] u) { t = Identity(b) k = Cos(b) u = Identity(k) },
                else_branch = other () => (float[4] e, float[4] f) { e = Neg(b) f = Identity(b) }
            >
            y = Add(z, w)
        }
    """)
    assert remove_identities(model)
    (node,) = [one for one in model.graph if one.op_type == "If"]
    bodies = [[one.op_type for one in node.attributes[name].as_graph()] for name in ("then_branch", "else_branch")]
    assert bodies == [["Identity", "Cos"], ["Neg", "Identity"]]
