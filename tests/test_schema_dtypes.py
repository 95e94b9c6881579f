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
