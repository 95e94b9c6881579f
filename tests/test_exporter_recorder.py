"""The recorder and its folding: constants are interned, shape arithmetic disappears, numbers get the right dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from batch_export.errors import TranslationError
from batch_export.exporter.graph import folding
from batch_export.exporter.graph.bodies import body, fresh_value
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, give_name, is_unnamed
from batch_export.exporter.graph.recorder import Recorder

pytestmark = pytest.mark.sampled


def graph_input(dtype: ir.DataType = ir.DataType.FLOAT, shape: tuple[Any, ...] = (2, 3)) -> RecordedValue:
    return RecordedValue(name="x", type=ir.TensorType(dtype), shape=ir.Shape(shape))


def test_equal_constants_are_one_initializer() -> None:
    recorder = Recorder(fold=False)
    assert recorder.constant([1, 2]) is recorder.constant((1, 2) and [1, 2])
    assert recorder.constant(1.0) is not recorder.constant(1)
    assert recorder.constant(0.0) is not recorder.constant(-0.0)
    assert len(recorder.initializers) == 5


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32])
def test_numbers_take_the_dtype_of_the_tensor_beside_them(dtype: ir.DataType) -> None:
    recorder = Recorder(fold=True)
    with recorder.recording():
        result = op.Add(op.Neg(graph_input(dtype)), 2)
    assert result.dtype == dtype
    assert recorder.nodes[-1].inputs[1].dtype == dtype


def test_the_shape_of_a_static_tensor_is_a_constant_and_of_a_dynamic_one_a_node() -> None:
    recorder = Recorder(fold=True)
    with recorder.recording():
        static = op.Concat(op.Shape(graph_input()), [7], axis=0)
        assert recorder.nodes == []
        np.testing.assert_array_equal(recorder.known(static), [2, 3, 7])
        partly = op.Shape(graph_input(shape=("batch", 3)), start=1)
        np.testing.assert_array_equal(recorder.known(partly), [3])
        dynamic = op.Shape(graph_input(shape=("batch", 3)))
    assert recorder.known(dynamic) is None
    assert [node.op_type for node in recorder.nodes] == ["Shape"]


def test_without_folding_everything_is_recorded() -> None:
    recorder = Recorder(fold=False)
    with recorder.recording():
        op.Identity(op.Cast(op.Shape(graph_input()), to=ir.DataType.FLOAT))
    assert [node.op_type for node in recorder.nodes] == ["Shape", "Cast", "Identity"]


def test_lists_that_mix_sizes_and_values_become_one_tensor() -> None:
    recorder = Recorder(fold=True)
    with recorder.recording():
        size = op.Shape(graph_input(shape=("batch", 3)), start=0, end=1)
        op.Reshape(graph_input(), [size, -1])
    assert [node.op_type for node in recorder.nodes] == ["Shape", "Reshape", "Concat", "Reshape"]


def test_the_truth_of_a_tensor_is_refused() -> None:
    with Recorder(fold=True).recording(), pytest.raises(TranslationError, match="known only when the model runs"):
        bool(graph_input())


def test_nodes_of_a_scope_stay_inside_and_names_are_unique() -> None:
    recorder = Recorder(fold=True)
    with recorder.recording():
        op.Neg(graph_input())
        with recorder.scope() as nodes:
            op.Neg(graph_input())
            op.Neg(graph_input())
        assert len(nodes) == 2
    assert len(recorder.nodes) == 1
    names = [node.name for node in [*recorder.nodes, *nodes]]
    assert len(set(names)) == 3


INTS = st.lists(st.integers(-50, 50), min_size=1, max_size=5)


def evaluate_with_onnx(name: str, inputs: list[np.ndarray[Any, Any]], attributes: dict[str, Any]) -> Any:
    names = [f"i{index}" for index in range(len(inputs))]
    node = onnx.helper.make_node(name, names, ["out"], **attributes)
    infos = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for n, array in zip(names, inputs, strict=True)
    ]
    out = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.UNDEFINED, None)
    graph = onnx.helper.make_graph([node], "g", infos, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))[0]


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less", "GreaterOrEqual"])
@given(left=INTS, right=st.integers(-20, 20).filter(bool))
def test_folding_integers_gives_what_onnx_gives(name: str, left: list[int], right: int) -> None:
    inputs = [np.array(left, dtype=np.int64), np.array([right], dtype=np.int64)]
    expected = evaluate_with_onnx(name, inputs, {})
    if name == "Div":
        expected = np.trunc(np.array(left) / right).astype(np.int64)  # ONNX truncates; onnx's evaluator floors
    result = folding.evaluate(name, inputs, {})
    assert result is not None
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes", [None, [], [1], [0, -1]])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("noop", [0, 1])
def test_folding_reductions_gives_what_onnx_gives(name: str, axes: list[int] | None, keepdims: int, noop: int) -> None:
    inputs = [np.array([[1, 2, 3], [4, 5, 7]])] + ([] if axes is None else [np.array(axes, dtype=np.int64)])
    attributes = {"keepdims": keepdims, "noop_with_empty_axes": noop}
    result = folding.evaluate(name, inputs, attributes)
    assert result is not None
    if axes or noop:
        np.testing.assert_array_equal(result, evaluate_with_onnx(name, inputs, attributes))
    else:  # onnx's evaluator does not take no axes for all of them everywhere
        assert result.shape == ((1, 1) if keepdims else ())
        assert result.item() == {"ReduceSum": 22, "ReduceProd": 840, "ReduceMax": 7, "ReduceMin": 1}[name]


def test_a_body_makes_each_of_its_outputs_inside_and_once() -> None:
    recorder = Recorder(fold=False)
    outside = graph_input()
    recorder.metadata, recorder.node_prefix = {"namespace": "outer"}, "node_outer_"
    inner = fresh_value(recorder, "inner", ir.DataType.FLOAT, [2, 3])

    def make() -> list[Any]:
        recorder.metadata, recorder.node_prefix = {"namespace": "inner"}, "node_inner_"
        negative = op.Neg(inner)
        return [negative, negative, outside, 1]

    with recorder.recording():
        graph = body(recorder, "one", [inner], make, [None, None, None, ir.DataType.INT32])
    made = {value for node in graph for value in node.outputs}
    assert len(set(graph.outputs)) == 4
    assert made.issuperset(graph.outputs)
    assert [value.dtype for value in graph.outputs] == [*[ir.DataType.FLOAT] * 3, ir.DataType.INT32]
    assert {node.metadata_props["namespace"] for node in graph} == {"inner"}
    assert (recorder.metadata, recorder.node_prefix) == ({"namespace": "outer"}, "node_outer_")
    assert recorder.nodes == []


def test_a_value_is_unnamed_by_its_flag_and_not_by_how_its_name_begins() -> None:
    recorder = Recorder(fold=False)
    with recorder.recording():
        made = op.Neg(graph_input())
    assert is_unnamed(made)
    give_name(made, "val_of_the_model")
    assert not is_unnamed(made)
    assert not is_unnamed(recorder.value())  # no node makes it
    assert not is_unnamed(ir.Value(name="val_1"))


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_folding_slices_and_gathers(sizes: list[int], data: st.DataObject) -> None:
    array = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    axis = data.draw(st.integers(0, len(sizes) - 1))
    start = data.draw(st.integers(-5, 5))
    end = data.draw(st.integers(-5, 5))
    inputs = [array, np.array([start]), np.array([end]), np.array([axis])]
    np.testing.assert_array_equal(folding.evaluate("Slice", inputs, {}), evaluate_with_onnx("Slice", inputs, {}))
    index = np.array(data.draw(st.integers(0, sizes[axis] - 1)))
    gather = [array, index]
    np.testing.assert_array_equal(
        folding.evaluate("Gather", gather, {"axis": axis}), evaluate_with_onnx("Gather", gather, {"axis": axis})
    )


def test_what_is_not_exact_is_left_to_the_runtime() -> None:
    zero = np.array([0])
    assert folding.evaluate("Div", [np.array([1]), zero], {}) is None
    assert folding.evaluate("Mod", [np.array([1]), zero], {}) is None
    assert folding.evaluate("MatMul", [np.eye(2), np.eye(2)], {}) is None
    assert folding.evaluate("Gather", [np.array([1]), np.array(7)], {}) is None


def test_a_copy_that_is_kept_has_the_dtype_of_its_input() -> None:
    recorder = Recorder(fold=False)
    with recorder.recording():
        assert op.Identity(graph_input(ir.DataType.BFLOAT16)).dtype == ir.DataType.BFLOAT16
