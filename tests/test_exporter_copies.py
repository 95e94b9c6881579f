"""Copies of models: what onnx-ir's own clone is, on parts of their own."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from batch_export.exporter.graph.copies import model_like, node_like, value_like

FLAT = """
<ir_version: 10, opset_import: ["" : 20], producer_name: "p", model_version: 3>
g (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}, float[n, 4] h> {
    h = Add (x, w)
    s, t = Split <axis = 1, num_outputs = 2> (h)
    y = Concat <axis = 1> (t, s)
}
"""
NESTED = """
<ir_version: 10, opset_import: ["" : 20]>
g (bool c, float[4] x) => (float[4] y) {
    y = If (c) <
        then_branch = yes () => (float[4] a) { a = Neg (x) },
        else_branch = no () => (float[4] b) { b = Abs (x) }
    >
}
"""


def model_of(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    node = model.graph[0]
    node.metadata_props["namespace"], node.doc_string = "a/b", "of a node"
    node.outputs[0].metadata_props["kind"] = "one"
    model.graph.metadata_props["graph"], model.metadata_props["model"] = "g", "m"
    return model


@pytest.mark.parametrize("text", [FLAT, NESTED])
def test_a_copy_is_what_onnx_ir_clones(text: str) -> None:
    model = model_of(text)
    expected = ir.to_proto(model.clone()).SerializeToString(deterministic=True)
    assert ir.to_proto(model_like(model)).SerializeToString(deterministic=True) == expected


@pytest.mark.parametrize("text", [FLAT, NESTED])
def test_a_change_of_the_copy_leaves_the_model(text: str) -> None:
    model = model_of(text)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    copy = model_like(model)
    node = copy.graph[0]
    node.metadata_props["namespace"] = "other"
    node.attributes.pop("axis", None)
    node.outputs[0].shape = ir.Shape([7])
    node.outputs[0].name = "renamed"
    copy.graph.opset_imports[""] = 21
    copy.graph.metadata_props.clear()
    node.replace_input_with(0, None)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_notes_go_along() -> None:
    model = model_of(FLAT)
    model.graph[0].meta["n"] = 1
    model.graph[0].outputs[0].meta["v"] = 2
    model.graph[0].outputs[0].meta.invalidate("v")
    node = model_like(model).graph[0]
    assert node.meta["n"] == 1
    assert node.outputs[0].meta["v"] == 2
    assert not node.outputs[0].meta.is_valid("v")


def test_no_value_gets_an_empty_store_of_notes() -> None:
    model = model_of(FLAT)
    values = [value for node in model_like(model).graph for value in node.outputs]
    assert [value._metadata for value in values] == [None] * len(values)


def test_a_node_of_other_values() -> None:
    node = model_of(FLAT).graph[1]
    given = value_like(node.inputs[0], "given")  # type: ignore[arg-type]
    made = node_like(node, [given], [value_like(one, f"{one.name}_2") for one in node.outputs], "again", {"a": "b"})
    assert (made.op_type, made.name, [one.name for one in made.outputs]) == ("Split", "again", ["s_2", "t_2"])
    assert made.attributes["num_outputs"].as_int() == 2
    assert made.metadata_props == {**node.metadata_props, "a": "b"}
    assert "a" not in node.metadata_props
