"""Operators that a model names in ONNX's own terms, custom torch operators, and what a model sees during an export."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import onnxscript
import pytest
import torch
from exporting import Called
from onnxscript import opset20 as op
from torch.onnx import is_in_onnx_export

from batch_export import export
from batch_export.errors import MissingOperatorError

pytestmark = pytest.mark.sampled


def node_types(program: Any) -> list[str]:
    return [node.op_type for node in program.model.graph.all_nodes()]


class Symbolic(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.onnx.ops.symbolic(
            "custom.domain::Scale",
            [x, None, x + 1],
            attrs={
                "whole": 4,
                "real": 0.5,
                "text": "abc",
                "flag": True,
                "wholes": [1, 2],
                "reals": [0.5, 1],
                "texts": ["a", "b"],
                "flags": [True, False],
            },
            dtype=torch.float16,
            shape=[*x.shape[:-1], 7],
            version=3,
            metadata_props={"key": "value"},
        )
        return made


def test_symbolic_becomes_the_node_with_every_kind_of_attribute() -> None:
    program = export(Symbolic(), (torch.ones(2, 3),), dynamic_shapes=({0: "batch"},))
    (node,) = [node for node in program.model.graph if node.domain]

    assert (node.domain, node.op_type, node.version) == ("custom.domain", "Scale", 3)
    assert program.model.opset_imports["custom.domain"] == 3
    assert [value is None for value in node.inputs] == [False, True, False]
    values = {name: attribute.value for name, attribute in node.attributes.items()}
    assert values["whole"] == 4
    assert values["real"] == 0.5
    assert values["text"] == "abc"
    assert values["flag"] == 1
    assert list(values["wholes"]) == [1, 2]
    assert list(values["reals"]) == [0.5, 1.0]
    assert list(values["texts"]) == ["a", "b"]
    assert list(values["flags"]) == [1, 0]
    (output,) = node.outputs
    assert output.dtype == ir.DataType.FLOAT16
    assert output.shape == ("batch", 7)
    assert node.metadata_props["key"] == "value"
    assert "onnx_symbolic" in node.metadata_props["pkg.torch.onnx.fx_node"]


class SymbolicPair(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.onnx.ops.symbolic_multi_out(
            "custom.domain::Pair",
            [x],
            attrs={"axis": 1},
            dtypes=[x.dtype, torch.int64],
            shapes=[x.shape, [x.shape[0], 1]],
            version=1,
        )
        return first * second


def test_symbolic_multi_out_gives_each_output_its_type_and_shape() -> None:
    program = export(SymbolicPair(), (torch.ones(2, 3),), dynamic_shapes=({0: "batch"},))
    (node,) = [node for node in program.model.graph if node.domain]

    assert [value.dtype for value in node.outputs] == [ir.DataType.FLOAT, ir.DataType.INT64]
    assert [value.shape for value in node.outputs] == [("batch", 3), ("batch", 1)]


class QuantisedMatMul(torch.nn.Module):
    """The documented use: one operator in the file, another path outside an export."""

    def __init__(self, seen: Callable[[], bool]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 4))
        self.seen = seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seen():
            return torch.onnx.ops.symbolic(
                "com.microsoft::FusedMatMul",
                [x, self.weight],
                attrs={"alpha": 2.0},
                dtype=x.dtype,
                shape=[*x.shape[:-1], 4],
                version=1,
            )
        return 2.0 * (x @ self.weight)


@pytest.mark.parametrize("seen", [torch.onnx.is_in_onnx_export, is_in_onnx_export], ids=["attribute", "imported"])
def test_a_model_sees_that_it_is_exported_and_its_contrib_operator_runs(seen: Callable[[], bool]) -> None:
    model, x = QuantisedMatMul(seen), torch.randn(5, 3)
    program = export(model, (x,), dynamic_shapes=({0: "batch"},))

    assert node_types(program) == ["FusedMatMul"]
    torch.testing.assert_close(program(torch.ones(2, 3))[0], model(torch.ones(2, 3)))
    assert not is_in_onnx_export()


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.onnx.is_in_onnx_export() else x - 1


@pytest.mark.parametrize("strict", [False, True])
def test_is_in_onnx_export_is_true_in_both_kinds_of_capture(strict: bool) -> None:
    from batch_export.exporter.capture import capture

    strategy = capture.STRATEGIES[1 if strict else 0]
    captured = capture.capture(Branching(), (torch.zeros(2),), strategies=[strategy])
    targets = [str(node.target) for node in captured.program.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.add.Tensor"]


def exported_form(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if torch.onnx.is_in_onnx_export() else x.cos()


def by_data(x: torch.Tensor) -> torch.Tensor:
    return exported_form(x) + 1 if x.sum() > 0 else exported_form(x)


def row_by_row(x: torch.Tensor) -> torch.Tensor:
    total = x[0]
    for row in x:
        total = total * 0.5 + row
    return exported_form(total)


def numbers_are_tried(x: torch.Tensor) -> torch.Tensor:
    try:
        number = float(x.numpy().sum())
    except RuntimeError:
        number = 0.0
    assert number == number
    return exported_form(x)


@pytest.mark.parametrize("form", [by_data, row_by_row, numbers_are_tried])
def test_a_program_that_is_tried_is_held_against_the_exported_form(form: Callable[[torch.Tensor], Any]) -> None:
    program = export(Called(form), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},))
    found = {node.op_type for node in program.model.graph.all_nodes()}
    assert "Sin" in found
    assert "Cos" not in found


class ImportedBranching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if is_in_onnx_export() else x - 1


@pytest.mark.parametrize("strict", [False, True])
def test_an_imported_is_in_onnx_export_is_true_in_both_kinds_of_capture(strict: bool) -> None:
    from batch_export.exporter.capture import capture

    strategy = capture.STRATEGIES[1 if strict else 0]
    captured = capture.capture(ImportedBranching(), (torch.zeros(2),), strategies=[strategy])
    targets = [str(node.target) for node in captured.program.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.add.Tensor"]


class Attention(torch.nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor
    ) -> Any:
        output, key, value, _ = torch.onnx.ops.attention(
            q, k, v, None, past_k, past_v, q_num_heads=4, kv_num_heads=2, scale=0.3
        )
        return output, key, value


def attention_inputs(batch: int = 2, length: int = 5, past: int = 3) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return (
        torch.randn(batch, length, 4 * 8),
        torch.randn(batch, length, 2 * 8),
        torch.randn(batch, length, 2 * 8),
        torch.randn(batch, 2, past, 8),
        torch.randn(batch, 2, past, 8),
    )


@pytest.mark.parametrize(("opset", "native"), [(20, False), (23, True)])
def test_attention_is_native_where_the_opset_has_it_and_decomposed_below(opset: int, native: bool) -> None:
    model = Attention()
    axes = ({0: "batch", 1: "seq"},) * 3 + ({0: "batch", 2: "past"},) * 2
    program = export(model, attention_inputs(), dynamic_shapes=axes, opset_version=opset)

    assert ("Attention" in node_types(program)) is native
    for inputs in (attention_inputs(), attention_inputs(3, 4, 6)):
        for one, other in zip(program(*inputs), model(*inputs), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


class Rotary(torch.nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return torch.onnx.ops.rotary_embedding(x, cos, sin, positions)


@pytest.mark.parametrize(("opset", "native"), [(20, False), (23, True)])
def test_rotary_embedding_is_native_where_the_opset_has_it_and_decomposed_below(opset: int, native: bool) -> None:
    def inputs(batch: int, length: int) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        positions = torch.arange(length).expand(batch, length).contiguous()
        return torch.randn(batch, 2, length, 8), torch.randn(50, 4), torch.randn(50, 4), positions

    axes = ({0: "batch", 2: "seq"}, None, None, {0: "batch", 1: "seq"})
    program = export(Rotary(), inputs(2, 5), dynamic_shapes=axes, opset_version=opset)

    assert ("RotaryEmbedding" in node_types(program)) is native
    for given in (inputs(2, 5), inputs(3, 7)):
        torch.testing.assert_close(program(*given)[0], Rotary()(*given), atol=1e-5, rtol=1e-5)


@torch.library.custom_op("batch_export_tests::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.batch_export_tests.double(x) + 1


@torch.library.custom_op("batch_export_tests::summed", mutates_args=())
def summed(x: torch.Tensor, factor: float, axes: list[int], keepdim: bool = False) -> torch.Tensor:
    return (x * factor).sum(axes, keepdim)


@summed.register_fake
def _(x: torch.Tensor, factor: float, axes: list[int], keepdim: bool = False) -> torch.Tensor:
    return x.new_empty(x.sum(axes, keepdim).shape)


SUMMED = torch.ops.batch_export_tests.summed.default


class Summed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.batch_export_tests.summed(x, 2.5, [1], True)


def test_a_custom_operator_uses_its_translation() -> None:
    def by_adding(x: Any) -> Any:
        return op.Add(x, x)

    def by_scaling(x: Any) -> Any:
        return op.Mul(x, 2.0)

    target = torch.ops.batch_export_tests.double.default
    x = torch.randn(2, 3)
    one = export(Custom(), (x,), custom_translation_table={target: by_adding})
    several = export(Custom(), (x,), custom_translation_table={target: [by_scaling, by_adding]})

    assert node_types(one) == ["Add", "Add"]
    assert node_types(several) == ["Mul", "Add"]
    assert one.operators["batch_export_tests::double"] == (1, "custom")
    for program in (one, several):
        torch.testing.assert_close(program(x)[0], x * 2 + 1)


def test_of_several_translations_the_first_that_takes_the_types_is_used() -> None:
    def of_halves(x: onnxscript.FLOAT16) -> onnxscript.FLOAT16:
        return op.Mul(x, op.CastLike(op.Constant(value_float=2.0), x))

    def of_any(x: Any) -> Any:
        return op.Add(x, x)

    table = {torch.ops.batch_export_tests.double.default: [of_halves, of_any]}
    halves, floats = torch.ones(2, 3, dtype=torch.float16), torch.randn(2, 3)
    by_halves = export(Custom(), (halves,), custom_translation_table=table)
    by_any = export(Custom(), (floats,), custom_translation_table=table)

    assert "Mul" in node_types(by_halves)
    assert node_types(by_any) == ["Add", "Add"]
    torch.testing.assert_close(by_any(floats)[0], floats * 2 + 1)
    torch.testing.assert_close(by_halves(halves)[0], halves * 2 + 1)


def test_where_none_of_several_takes_the_types_the_first_is_used() -> None:
    def of_halves(x: onnxscript.FLOAT16) -> onnxscript.FLOAT16:
        return op.Mul(x, op.CastLike(op.Constant(value_float=2.0), x))

    def of_doubles(x: onnxscript.DOUBLE) -> onnxscript.DOUBLE:
        return op.Add(x, x)

    table = {torch.ops.batch_export_tests.double.default: [of_halves, of_doubles]}
    assert node_types(export(Custom(), (torch.randn(2, 3),), custom_translation_table=table)) == ["Mul", "Add"]


def test_a_plain_function_gets_numbers_and_lists_as_they_are() -> None:
    seen: list[object] = []

    def scaled(x: Any, factor: Any, axes: Any, keepdim: Any = False) -> Any:
        seen.extend([factor, axes, keepdim])
        return op.ReduceSum(op.Mul(x, factor * 2 / 2), [len(axes), *axes[1:]], keepdims=int(keepdim))

    program = export(Summed(), (torch.ones(2, 3),), custom_translation_table={SUMMED: scaled})
    assert seen == [2.5, [1], True]
    torch.testing.assert_close(program(torch.ones(2, 3))[0], torch.full((2, 1), 7.5))


@pytest.mark.parametrize(
    "function",
    [
        lambda *args, **kwargs: op.ReduceSum(op.Mul(args[0], args[1]), args[2], keepdims=1),
        lambda x, *rest: op.ReduceSum(op.Mul(x, rest[0]), rest[1], keepdims=1),
        lambda x, factor, axes, **more: op.ReduceSum(op.Mul(x, factor), axes, keepdims=1),
        lambda x, **more: op.ReduceSum(op.Mul(x, 2.5), [1], keepdims=1),
    ],
    ids=["both", "rest", "more", "only the first"],
)
def test_a_plain_function_may_gather_its_arguments(function: Any) -> None:
    program = export(Summed(), (torch.ones(2, 3),), custom_translation_table={SUMMED: function})
    torch.testing.assert_close(program(torch.ones(2, 3))[0], torch.full((2, 1), 7.5))


@pytest.mark.parametrize(
    "function",
    [op.Relu, functools.partial(lambda name, x: getattr(op, name)(x), "Relu")],
    ids=["an operator", "a partial function"],
)
def test_whatever_can_be_called_is_a_translation(function: Any) -> None:
    program = export(
        torch.nn.Tanh(), (torch.ones(2),), custom_translation_table={torch.ops.aten.tanh.default: function}
    )
    assert [node.op_type for node in program.model.graph] == ["Relu"]


def _cast(x: Any, dtype: int, **_: object) -> Any:
    return op.Cast(op.Neg(x), to=dtype)


PARTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], dict[Any, Any]]] = {
    "reshape": (lambda x: x.reshape(-1, 2), {torch.ops.aten.view.default: lambda x, size: op.Reshape(op.Neg(x), size)}),
    "flatten": (lambda x: x.flatten(), {torch.ops.aten.view.default: lambda x, size: op.Reshape(op.Neg(x), size)}),
    "to": (lambda x: x.double(), {torch.ops.aten._to_copy.default: _cast}),
    "T": (lambda x: x.T, {torch.ops.aten.permute.default: lambda x, dims: op.Transpose(op.Neg(x), perm=dims)}),
    "rows": (lambda x: x.T.reshape(-1), {torch.ops.aten.clone.default: lambda x, **_: op.Neg(x)}),
    "expand_as": (
        lambda x: x[:1].expand_as(x),
        {torch.ops.aten.expand.default: lambda x, size, implicit=False: op.Neg(op.Expand(x, size))},
    ),
}


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("name", PARTS)
def test_operators_that_torchs_decomposition_makes_are_asked_for(name: str, free: bool) -> None:
    """`view` stands in for `reshape` too, as in torch.onnx.export; what torch leaves whole stays so."""
    function, table = PARTS[name]
    shapes = ({0: torch.export.Dim("rows", min=2)},) if free else None
    program = export(function, (torch.ones(2, 3 + 1),), custom_translation_table=table, dynamic_shapes=shapes)
    for rows in (2, 5) if free else (2,):
        x = torch.randn(rows, 4)
        assert torch.equal(torch.as_tensor(program(x)[0]), -function(x))


def test_an_operator_of_the_model_itself_comes_before_its_parts() -> None:
    table = {
        torch.ops.aten.reshape.default: lambda x, size: op.Reshape(op.Neg(x), size),
        torch.ops.aten.view.default: lambda x, size: op.Reshape(x, size),
    }
    program = export(lambda x: x.reshape(3, 2), (torch.ones(2, 3),), custom_translation_table=table)
    assert program(torch.ones(2, 3))[0].tolist() == (-torch.ones(3, 2)).tolist()
    table = {torch.ops.aten.mm.default: lambda x, y: op.Neg(op.MatMul(x, y))}
    program = export(lambda x: x @ x, (torch.ones(2, 2),), custom_translation_table=table)
    assert program(torch.ones(2, 2))[0].tolist() == (torch.ones(2, 2) * 2).tolist()


def test_a_custom_operator_without_a_translation_is_named() -> None:
    with pytest.raises(MissingOperatorError, match=r"batch_export_tests\.double.*custom_translation_table"):
        export(Custom(), (torch.ones(2),))
