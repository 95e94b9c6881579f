"""Translation: numbers against eager, in-place writes, control flow, promotion, names, what is refused and how."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import pytest
import torch
from exporting import assert_same, eager, export_and_compare
from torch import nn

from batch_export.errors import MissingOperatorError, TranslationError
from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.ops.marking import marked_function
from batch_export.exporter.translate.program import translate_program
from batch_export.exporter.translate.registry import OnnxRegistry

pytestmark = pytest.mark.sampled


class Fn(nn.Module):
    """A function as a module, with a weight for those that want one."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def ops_of(program: Any) -> list[str]:
    return [node.op_type for node in program.model.graph.all_nodes()]


X = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 7 - 1.5


def write_select(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0] = 2
    return y * 3


def write_slice_then_read_other_view(_: Fn, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.clone()
    first = y[0]
    y[:, 1:3].mul_(5)
    return y, first + 1


def write_through_transpose(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.transpose(1, 2).add_(1)
    return y


def write_through_view(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.view(-1).relu_()
    return y


def write_masked(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.masked_fill_(y > 0, -3.0)
    return y


def write_permuted(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.permute(2, 0, 1)[0].zero_()
    return y


def write_twice(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y.add_(x)
    y[0].copy_(x[1])
    y.sub_(1)
    return y


def write_diagonal(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x[0, :, :3] * 1
    y.diagonal().add_(10)
    return y


def write_piece_of_split(_: Fn, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 1
    left, right = y.split(2, dim=2)
    left.add_(3)
    y.mul_(2)
    return y, right - left


def write_overlapping_reads(_: Fn, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    before = y + 0
    y.mul_(2)
    return before + y


def write_behind_undeclared_views(_: Fn, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x[0, 0] * 1
    rows, (left, right) = torch.atleast_2d(y), torch.meshgrid(y, y, indexing="ij")
    spread, turned = torch.broadcast_tensors(y, x[0]), torch.einsum("ij->ji", y.view(2, 2))
    y[1] = 7
    torch.atleast_3d(y).mul_(2)
    return rows, left + right, spread[0], turned * 1, y


WRITES = [
    write_behind_undeclared_views,
    write_select,
    write_slice_then_read_other_view,
    write_through_transpose,
    write_through_view,
    write_masked,
    write_permuted,
    write_twice,
    write_diagonal,
    write_piece_of_split,
    write_overlapping_reads,
]


@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_writes_through_views_are_seen_by_every_alias(function: Any, dynamic: bool) -> None:
    shapes = ({0: "batch"},) if dynamic else None
    more = [(torch.randn(5, 3, 4),)] if dynamic else []
    export_and_compare(Fn(function), (X,), *more, dynamic_shapes=shapes)


def test_a_write_to_what_an_operator_shares_without_saying_is_refused() -> None:
    def written(_: Fn, x: torch.Tensor) -> torch.Tensor:
        y = x[0] * 1
        torch.einsum("ij->ji", y)[1] = 7
        return y

    with pytest.raises(TranslationError, match=r"shares memory with .* that aten.einsum.default does not declare"):
        export(Fn(written), (X,))


def test_a_write_that_cannot_be_followed_is_made_functional_by_torch() -> None:
    def expanded_write(_: Fn, x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        y.view(x.shape[0], 12).narrow(1, 2, 5).squeeze().t().add_(10)
        return y

    batch = torch.export.Dim("batch", min=2)
    export_and_compare(Fn(expanded_write), (X,), (torch.randn(4, 3, 4),), dynamic_shapes=({0: batch},))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.int64, torch.float32),
        (torch.float32, torch.int64),
        (torch.bool, torch.int64),
        (torch.int32, torch.int64),
        (torch.float32, torch.float64),
        (torch.bool, torch.float32),
    ],
)
@pytest.mark.parametrize("name", ["add", "mul", "sub", "lt", "eq", "maximum"])
def test_mixed_dtypes_are_promoted_as_in_torch(left: torch.dtype, right: torch.dtype, name: str) -> None:
    if name == "sub" and torch.bool in (left, right):
        pytest.skip("torch itself refuses to subtract booleans")

    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return getattr(torch, name)(a, b)

    a = torch.tensor([0, 1, 2, 3]).to(left)
    b = torch.tensor([2, 1, 0, 3]).to(right)
    export_and_compare(Two(), (a, b))


@pytest.mark.parametrize(
    "expression",
    [
        lambda x: x * 0.5,
        lambda x: x + 1.5,
        lambda x: x / 2,
        lambda x: x // 2,
        lambda x: 2**x,
        lambda x: x > 0.5,
        lambda x: torch.where(x > 1, x, 0.5),
        lambda x: torch.cat([x, x.float()]),
    ],
)
def test_integer_tensors_meet_float_numbers(expression: Any) -> None:
    export_and_compare(Fn(lambda _, x: expression(x)), (torch.tensor([0, 1, 2, 3]),))


def test_a_0d_tensor_does_not_widen_a_tensor_of_its_category() -> None:
    def scaled(_: Fn, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float16) * torch.tensor(2.0)

    program = export(Fn(scaled).eval(), (X,))
    assert program.model.graph.outputs[0].dtype == ir.DataType.FLOAT16


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda u: self.one(u) + u.shape[0], lambda u: self.two(u).relu(), (x,))


def test_both_branches_of_a_cond_at_a_free_batch() -> None:
    program = export_and_compare(
        Cond(), (torch.ones(3, 4),), (-torch.ones(3, 4),), (-torch.ones(6, 4),), dynamic_shapes=({0: "batch"},)
    )
    assert "If" in ops_of(program)


def test_scan_carries_state_and_stacks_outputs() -> None:
    from torch._higher_order_ops.scan import scan

    class Cumulative(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.tensor([0.5, 2.0]))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            def step(carry: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                new = carry * self.gain + one
                return new, new * 2

            return scan(step, torch.zeros(2), x)

    program = export_and_compare(
        Cumulative(), (torch.randn(5, 2),), (torch.randn(9, 2),), dynamic_shapes=({0: "steps"},)
    )
    assert "Scan" in ops_of(program)


def test_while_loop_runs_as_often_as_eager() -> None:
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.while_loop(lambda u: u.sum() < 100, lambda u: (u * 2,), (x,))[0]

    program = export_and_compare(Doubling(), (torch.ones(3),), (torch.full((3,), 90.0),))
    assert "Loop" in ops_of(program)


def test_mutated_buffers_and_inputs_are_named_outputs() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps.add_(1)
            x.mul_(2)
            return x + self.steps

    program = export(Counter().eval(), (torch.ones(3),))
    assert program.output_kinds == [
        ("USER_OUTPUT", ""),
        ("BUFFER_MUTATION", "steps"),
        ("USER_INPUT_MUTATION", "x"),
    ]
    assert [value.name for value in program.model.graph.outputs][1:] == ["steps_mutated", "x_mutated"]
    given = program(torch.ones(3))
    assert list(given.mutated) == ["steps", "x"]
    assert_same([*given, *given.mutated.values()], [torch.full((3,), 3.0), torch.ones(1), torch.full((3,), 2.0)])


@pytest.mark.parametrize("empty", [(0, 4, 3), (2, 4, 0)], ids=str)
def test_a_batch_without_elements_leaves_running_statistics_as_they_are(empty: tuple[int, ...]) -> None:
    module = nn.BatchNorm1d(4).train()
    module.running_mean = torch.randn(4)
    others = [(torch.randn(*sizes),) for sizes in (empty, (3, 4, 5))]
    export_and_compare(module, (torch.randn(2, 4, 3),), *others, dynamic_shapes=({0: "b", 2: "t"},))


def test_batch_norm_in_training_mode_moves_its_running_statistics() -> None:
    module = nn.BatchNorm1d(4).train()
    x = torch.randn(6, 4) * 3 + 1
    program = export(module, (x,))
    given = program(x)
    expected = module(x).detach()  # moves the module's own statistics
    assert sorted(given.mutated) == ["num_batches_tracked", "running_mean", "running_var"]
    assert_same(given, [expected])
    assert_same(
        [given.mutated[name] for name, _ in module.named_buffers()], [buffer for _, buffer in module.named_buffers()]
    )


def test_instance_norm_in_training_mode_moves_its_running_statistics() -> None:
    module = nn.InstanceNorm1d(3, affine=True, track_running_stats=True).train()
    program = export(module, (X,), dynamic_shapes=({0: "batch"},))
    x = torch.randn(5, 3, 4) * 2 - 1
    given = program(x)
    expected = module(x).detach()
    assert_same([*given, *given.mutated.values()], [expected, module.running_mean, module.running_var])


def test_outputs_that_are_inputs_weights_or_equal_get_values_of_their_own() -> None:
    module = Fn(lambda self, x: (x, self.weight, x * 2, x * 2, None, 7))
    program = export(module.eval(), (X,))
    names = [value.name for value in program.model.graph.outputs]
    assert len(names) == len(set(names)) == 5
    assert_same(program(X)[:4], [X, module.weight.detach(), X * 2, X * 2])
    assert int(program(X)[4]) == 7


def test_sizes_of_outputs_are_expressions_of_axis_names() -> None:
    class Merge(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, y], 1).flatten(0, 1)

    program = export(
        Merge().eval(),
        (torch.ones(2, 3), torch.ones(2, 5)),
        dynamic_shapes=({0: "batch", 1: "past"}, {0: "batch", 1: "seq"}),
    )
    assert [str(dim) for dim in program.model.graph.inputs[0].shape] == ["batch", "past"]
    assert [str(dim) for dim in program.model.graph.inputs[1].shape] == ["batch", "seq"]
    (size,) = program.model.graph.outputs[0].shape
    assert str(size) in ("batch*(past + seq)", "batch*past + batch*seq")


def test_a_missing_operator_is_named_with_node_source_and_next_step_and_all_are_listed() -> None:
    @torch.library.custom_op("exporter_tests::odd", mutates_args=())
    def odd(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @odd.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.library.custom_op("exporter_tests::even", mutates_args=())
    def even(x: torch.Tensor) -> torch.Tensor:
        return x + 2

    @even.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with pytest.raises(MissingOperatorError, match=r"2 operators have no ONNX translation.*odd.*even") as caught:
        export(Fn(lambda _, x: even(odd(x))).eval(), (X,))
    assert caught.value.operators == ("exporter_tests.odd.default", "exporter_tests.even.default")
    assert caught.value.source is not None
    assert "test_exporter_translate.py" in caught.value.source
    assert "custom_translation_table" in str(caught.value)

    def translation(x: Any) -> Any:
        from batch_export.exporter.graph.operators import op

        return op.Add(x, 1.0)

    table = {torch.ops.exporter_tests.odd.default: translation, torch.ops.exporter_tests.even.default: [translation]}
    program = export(Fn(lambda _, x: even(odd(x))).eval(), (X,), custom_translation_table=table)
    assert_same(program(X), [X + 2])


def test_a_translation_that_fails_names_the_node() -> None:
    def broken(x: Any) -> Any:
        raise RuntimeError("planted")

    with pytest.raises(TranslationError, match=r"planted.*node relu.*aten\.relu\.default"):
        export(
            Fn(lambda _, x: torch.relu(x)).eval(), (X,), custom_translation_table={torch.ops.aten.relu.default: broken}
        )


def test_the_exported_program_is_only_read() -> None:
    captured = capture(Fn(write_twice).eval(), (X,))
    before = str(captured.program)
    for opset in (18, 20):
        translate_program(captured.program, OnnxRegistry(opset), captured.axis_names)
    assert str(captured.program) == before


def test_a_decomposition_that_fixes_a_size_is_refused() -> None:
    from batch_export.errors import DecompositionError
    from batch_export.exporter.translate.decompose import sizes_stay_free

    captured = capture(Fn(lambda _, x: x + 1).eval(), (X,), dynamic_shapes=({0: "batch"},))
    (fake,) = [node.meta["val"] for node in captured.program.graph.nodes if node.name == "x"]
    shape_env = fake.fake_mode.shape_env
    for _ in range(2):  # torch does not decide twice: the second time is a translation at another opset
        refused = pytest.raises(DecompositionError, match="holds for one size only")
        with refused, sizes_stay_free(shape_env, "aten.planted", "x"):
            int(fake.shape[0])
        assert not fake.shape[0].node.expr.is_number


def test_a_decomposition_that_writes_to_views_is_refused_with_what_to_give() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from batch_export.errors import DecompositionError
    from batch_export.exporter.translate.decompose import run_decomposition

    def negated(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].neg_()
        return y

    library = torch.library.Library("written_views", "FRAGMENT")
    library.define("negated(Tensor x) -> Tensor")
    library.impl("negated", negated, "CompositeImplicitAutograd")
    mode = FakeTensorMode()
    with pytest.raises(DecompositionError, match=r"writes to views.*torch\.ops\.written_views\.negated"):
        run_decomposition(
            torch.ops.written_views.negated.default,
            (mode.from_tensor(torch.ones(3)),),
            {},
            fake_mode=mode,
            is_translatable=lambda target, *given: "neg_" not in str(target),
            translate=lambda *given: None,
            rebind=lambda *given: None,
        )


@pytest.mark.parametrize("dynamic", [None, ({0: "a", 1: "b", 2: "c"},)])
def test_axes_that_a_decomposition_changes_in_place_are_changed_for_what_follows(dynamic: Any) -> None:
    def several_quantiles(_: Fn, x: torch.Tensor) -> list[torch.Tensor]:
        shares = torch.tensor([0.1, 0.5, 0.9])
        return [
            torch.quantile(x, shares, dim=1),
            torch.quantile(x, shares, dim=0, keepdim=True),
            torch.nanquantile(x, shares, dim=-1),
            torch.quantile(x, 0.3, dim=2),
        ]

    others = () if dynamic is None else ((torch.randn(4, 1, 5),), (torch.randn(1, 2, 1),))
    export_and_compare(Fn(several_quantiles), (X,), *others, dynamic_shapes=dynamic)


@pytest.mark.parametrize("opset", [13, 15, 16])
def test_running_extremes_run_at_every_opset(opset: int) -> None:
    def extremes(_: Fn, x: torch.Tensor) -> list[torch.Tensor]:
        return [*torch.cummax(x, 1), *torch.cummin(-x, 0), *torch.cummax(x > 0, 2)]

    export_and_compare(Fn(extremes), (X,), opset_version=opset)
    export_and_compare(
        Fn(extremes), (X,), (torch.randn(1, 5, 2),), opset_version=opset, dynamic_shapes=({0: "a", 1: "b", 2: "c"},)
    )


def test_dynamic_sizes_reach_the_graph_as_arithmetic() -> None:
    def uses_sizes(_: Fn, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        return x.reshape(rows * 3, 4)[: rows * 2 - 1] * rows + max(rows, 1)

    export_and_compare(Fn(uses_sizes), (X,), (torch.randn(4, 3, 4),), dynamic_shapes=({0: "batch"},))


def test_eager_helper_restores_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps.add_(1)
            return operator.add(x, self.steps)

    module = Counter()
    assert_same(eager(module, (torch.zeros(1),)), eager(module, (torch.zeros(1),)))


def test_a_lowering_s_tensors_are_those_of_its_type_hints() -> None:
    def lowered(
        self: ir.Value,
        other: ir.Value | None,
        exponent: int | float | ir.Value,
        dims: Sequence[int],
        scale: float | None = None,
        keep: bool = False,
    ) -> Any:
        return self

    signature = marked_function(lowered).op_signature
    assert [one.name for one in signature.inputs] == ["self", "other"]
    assert [one.name for one in signature.attributes] == ["exponent", "dims", "scale", "keep"]
    assert signature.get("scale").type == ir.AttributeType.FLOAT
    assert not signature.get("keep").required
    assert signature.get("other").required
