"""No file leaves with a dtype that an operator does not take at the file's opset."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from batch_export.errors import OpsetError
from batch_export.exporter.optimise.opset import set_opset


def model(body: str, inputs: str, outputs: str) -> ir.Model:
    text = f'<ir_version: 10, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{{body}}}'
    return ir.serde.deserialize_model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(("opset", "casts"), [(18, 2), (21, 2), (22, 0)])
def test_half_precision_of_later_opsets_is_computed_in_float32(opset: int, casts: int) -> None:
    made = model("y = HardSwish(a)", "bfloat16[2] a", "bfloat16[2] y")
    set_opset(made, opset)
    assert [node.op_type for node in made.graph].count("Cast") == casts
    assert [(one.name, one.dtype) for one in made.graph.outputs] == [("y", ir.DataType.BFLOAT16)]
    onnx.checker.check_model(ir.serde.serialize_model(made), full_check=True)


def test_a_result_between_two_operators_is_cast_back_too() -> None:
    made = model("b = HardSwish(a)  y = Identity(b)", "bfloat16[2] a", "bfloat16[2] y")
    set_opset(made, 20)
    assert [node.op_type for node in made.graph] == ["Cast", "HardSwish", "Cast", "Identity"]
    onnx.checker.check_model(ir.serde.serialize_model(made), full_check=True)


def test_any_other_dtype_is_an_error_that_names_the_operator() -> None:
    with pytest.raises(OpsetError, match="Exp takes no int64 at opset 20"):
        set_opset(model("y = Exp(a)", "int64[2] a", "int64[2] y"), 20)


@pytest.mark.parametrize("opset", [11, 12])
def test_a_dtype_that_cannot_be_cast_either_is_an_error(opset: int) -> None:
    with pytest.raises(OpsetError, match=rf"Transpose takes no bfloat16 at opset {opset}.*choose opset 13"):
        set_opset(model("y = Transpose(a)", "bfloat16[2, 3] a", "bfloat16[3, 2] y"), opset)


@pytest.mark.parametrize("opset", [13, 15, 16])
def test_bodies_are_handed_the_narrow_values_alone_in_a_wider_dtype(opset: int) -> None:
    step = "(int64 i, bool c, int64 n, bfloat16[2] s) => (bool d, int64 m, bfloat16[2] t, bfloat16[2] u)"
    inner = "d = Identity(c)  m = Add(n, i)  t = Identity(s)  u = Identity(t)"
    made = model(
        f"last, y, ys = Loop <body = body {step} {{{inner}}}> (times, more, start, a)",
        "int64 times, bool more, int64 start, bfloat16[2] a",
        "int64 last, bfloat16[2] y, bfloat16[N, 2] ys",
    )
    set_opset(made, opset)
    onnx.checker.check_model(ir.serde.serialize_model(made), full_check=True)
    (loop,) = (node for node in made.graph if node.op_type == "Loop")
    carried = ir.DataType.BFLOAT16 if opset == 16 else ir.DataType.FLOAT
    assert [one.dtype for one in loop.inputs if one is not None][2:] == [ir.DataType.INT64, carried]
    assert [one.dtype for one in loop.attributes["body"].as_graph().inputs][2:] == [ir.DataType.INT64, carried]
    assert [one.dtype for one in made.graph.outputs] == [ir.DataType.INT64, *[ir.DataType.BFLOAT16] * 2]


def test_names_of_casts_in_bodies_are_no_names_around_them() -> None:
    step = "(int64 i, bool c, uint8[2] s) => (bool d, uint8[2] t)"
    made = model(
        f"y = Loop <body = body {step} {{d = Identity(c)  t = Add(s, s)}}> (times, more, a)  z = Add(y, a)",
        "int64 times, bool more, uint8[2] a",
        "uint8[2] z",
    )
    set_opset(made, 13)
    bodies = [one.as_graph() for node in made.graph for one in node.attributes.values() if node.op_type == "Loop"]
    named = [output.name for graph in (made.graph, *bodies) for node in graph for output in node.outputs]
    assert len(named) == len(set(named))
    onnx.checker.check_model(ir.serde.serialize_model(made), full_check=True)
