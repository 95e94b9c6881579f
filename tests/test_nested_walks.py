"""Walks over a model's graphs find nodes in bodies; passes that have nothing to do leave a model alone."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
import pytest

from batch_export.exporter.optimise import dead_code, passes
from batch_export.legalise import schema_dtypes
from batch_export.legalise.nested import has

PLAIN = """
<ir_version: 10, opset_import: ["" : 20, "other" : 1]>
g (float[4] x) => (float[4] y) { a = Neg (x)  y = Abs (a) }
"""
BODY = """
<ir_version: 10, opset_import: ["" : 20, "other" : 1]>
g (bool c, float[4] x) => (float[4] y) {
    y = If (c) <
        then_branch = yes () => (float[4] b) { a = Identity (x)  b = Neg (a) },
        else_branch = no () => (float[4] d) { d = Abs (x) }
    >
}
"""


@pytest.mark.parametrize(("text", "found"), [(PLAIN, False), (BODY, True)])
def test_identities_are_found_in_bodies(text: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    original = common_passes.IdentityEliminationPass.call
    monkeypatch.setattr(
        common_passes.IdentityEliminationPass, "call", lambda self, model: ran.append(1) or original(self, model)
    )
    model = ir.from_onnx_text(text)
    assert has(model.graph, "Identity") == found
    assert dead_code.remove_identities(model) == found
    assert not has(model.graph, "Identity")
    assert len(ran) == found


def test_operator_sets_that_no_node_has_are_left_out() -> None:
    model = ir.from_onnx_text(BODY)
    dead_code.remove_dead_code(model)
    assert model.graph.opset_imports == {"": 20}


def test_nodes_in_bodies_are_counted_also_after_a_pass_that_changes_them() -> None:
    reports = passes.optimise(ir.from_onnx_text(BODY))
    (identity,) = [one for one in reports if one.name == "identity"]
    assert (identity.nodes_before, identity.nodes_after) == (4, 3)


def test_dtypes_that_an_operator_takes_are_looked_up_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    original = schema_dtypes._allowed
    monkeypatch.setattr(schema_dtypes, "_allowed", lambda *key: asked.append(key) or original(*key))
    values = [ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT16)) for name in "abc"]
    node = ir.Node("", "Mod", values[:2], outputs=values[2:])
    schema_dtypes._all_fit.cache_clear()
    for _ in range(3):
        schema_dtypes.fit(node, 20)
    assert len(asked) == 1
