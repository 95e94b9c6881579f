"""Weights are folded in files alone: fewer nodes, the same numbers, and other weights can be applied at any time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from exporting import assert_same, eager
from rewriting import run_both
from torch import nn

from batch_export import export
from batch_export.exporter import ONNXProgram
from batch_export.exporter.capture.fake_mode import enable_fake_mode
from batch_export.exporter.optimise import (
    dead_code,
    merged_norms,
    repeated_entries,
    shorter_forms,
    weight_folding,
    weight_values,
)

pytestmark = pytest.mark.sampled

IMAGES = torch.randn(2, 4, 6, 6)
VECTORS = torch.randn(3, 4)
SEQUENCE = torch.randn(2, 5, 4)


def norm(kind: type[nn.Module], channels: int) -> nn.Module:
    """A normalisation whose statistics are not those of a new one."""
    made: Any = kind(channels)
    with torch.no_grad():
        for tensor in (made.weight, made.bias, made.running_mean):
            tensor.normal_()
        made.running_var.uniform_(0.3, 3.0)
    return made  # type: ignore[no-any-return]


def written(program: ONNXProgram, folder: Path, **options: Any) -> onnx.ModelProto:
    program.save(folder / "model.onnx", **options)
    model: onnx.ModelProto = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    return model


def operators(model: onnx.ModelProto) -> Counter[str]:
    def of(graph: onnx.GraphProto) -> Counter[str]:
        bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
        return sum(map(of, bodies), Counter(node.op_type for node in graph.node))

    return of(model.graph)


def run(model: onnx.ModelProto, *tensors: torch.Tensor) -> list[torch.Tensor]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it merges norms itself
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)})
    return [torch.from_numpy(np.asarray(output)) for output in outputs]


class First(nn.Module):
    """The first of what recurrent layers return."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)[0]
        return result


class Reused(nn.Module):
    """A convolution whose result is normalised and used as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 1)
        self.norm = norm(nn.BatchNorm2d, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.convolution(x)
        result: torch.Tensor = self.norm(made) + made
        return result


class Table(nn.Module):
    """A table of positions that is cut, turned and joined before it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 4))
        self.extra = nn.Parameter(torch.randn(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([self.extra, self.table[:4] * 0.5 + self.table[4:8].flip(0)]).sigmoid()
        return x + rows.to(torch.float32)[None]


CASES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, dict[str, int]]] = {
    "conv": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3), norm(nn.BatchNorm2d, 6)), IMAGES, {"Conv": 1}),
    "conv without bias": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, bias=False, groups=2), norm(nn.BatchNorm2d, 6)),
        IMAGES,
        {"Conv": 1},
    ),
    "transposed conv": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), norm(nn.BatchNorm2d, 6)),
        IMAGES,
        {"ConvTranspose": 1},
    ),
    "linear": (lambda: nn.Sequential(nn.Linear(4, 6), norm(nn.BatchNorm1d, 6)), VECTORS, {"Gemm": 1}),
    "reused": (Reused, IMAGES, {"Conv": 1, "BatchNormalization": 1, "Add": 1}),
    "matrix": (lambda: nn.Linear(4, 6, bias=False), SEQUENCE, {"MatMul": 1}),
    "lstm": (lambda: First(nn.LSTM(4, 3, 2, batch_first=True)), SEQUENCE, {"LSTM": 2, "Squeeze": 2, "Transpose": 2}),
    "gru": (
        lambda: First(nn.GRU(4, 3, batch_first=True, bidirectional=True)),
        SEQUENCE,
        {"GRU": 1, "Transpose": 3, "Reshape": 1},
    ),
    "table": (Table, SEQUENCE, {"Add": 1}),
    "weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(5, 6, 3)),
        SEQUENCE,
        {"Conv": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_has_folded_weights_and_the_program_takes_others(case: str, tmp_path: Path) -> None:
    build, x, expected = CASES[case]
    first, second = build().eval(), build().eval()
    program = export(first, (x,))
    unfolded = written(program, tmp_path, fold_weights=False)
    folded = written(program, tmp_path)
    assert operators(folded) == Counter(expected)
    assert sum(operators(unfolded).values()) >= sum(expected.values())
    assert_same(run(folded, x), eager(first, (x,)))
    assert_same(run(unfolded, x), eager(first, (x,)))

    program.apply_weights(second.state_dict())
    assert_same(run(written(program, tmp_path), x), eager(second, (x,)))
    assert_same(program(x), eager(second, (x,)))
    assert_same(run(written(program, tmp_path, model_state=first.state_dict()), x), eager(first, (x,)))
    program.release()


def convolution(**changes: torch.Tensor) -> nn.Module:
    made = nn.Sequential(nn.Conv2d(4, 2, 1), norm(nn.BatchNorm2d, 2))
    with torch.no_grad():
        for name, tensor in changes.items():
            getattr(made[1], name).copy_(tensor)
    return made.eval()


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": torch.tensor([float("inf"), 1.0])},
        {"weight": torch.tensor([float("nan"), 1.0])},
        {"weight": torch.tensor([3e38, 1.0]), "running_var": torch.tensor([1e-10, 1.0])},
        {"weight": torch.tensor([1e-42, 1e-42]), "bias": torch.zeros(2), "running_mean": torch.zeros(2)},
    ],
    ids=["infinite", "NaN", "beyond the dtype", "too small for the dtype"],
)
def test_a_norm_whose_product_no_weight_can_hold_stays(changes: dict[str, torch.Tensor], tmp_path: Path) -> None:
    module = convolution(**changes)
    program = export(module, (IMAGES,))
    model = written(program, tmp_path)
    assert operators(model) == Counter({"Conv": 1, "BatchNormalization": 1})
    assert_same(run(model, IMAGES), eager(module, (IMAGES,)))


def test_a_gamma_of_zero_and_zeros_of_both_signs_are_merged(tmp_path: Path) -> None:
    module = convolution(weight=torch.tensor([0.0, -0.0]))
    x = torch.tensor([0.0, -0.0, float("nan"), 1.0]).reshape(1, 1, 2, 2).expand(1, 4, 2, 2).contiguous()
    model = written(export(module, (x,)), tmp_path)
    assert operators(model) == Counter({"Conv": 1})
    assert_same(run(model, x), eager(module, (x,)))


class Expanded(nn.Module):
    """A small weight that becomes a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.randn(300, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cat([self.row, self.row * 2], dim=1).repeat(1, 150).sigmoid()


@pytest.mark.parametrize(("growth", "count"), [(0.1, 5), (1000.0, 1)])
def test_what_grows_beyond_the_limit_stays_a_node(growth: float, count: int, tmp_path: Path) -> None:
    x, module = torch.randn(2, 300), Expanded()
    program = export(module, (x,), fold_growth=growth)
    model = written(program, tmp_path)
    assert (sum(operators(model).values()) == 1) == (count == 1)
    assert (model.ByteSize() < 100_000) == (count > 1)
    assert_same(run(model, x), eager(module, (x,)))


class Tables(nn.Module):
    """Two layers with a table each, and a scale."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        super().__init__()
        self.first, self.second = nn.Buffer(first), nn.Buffer(second)
        self.scale, self.other = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        index = x.abs().long() % 3
        return self.first[index] * self.scale, self.second[index] * self.other


TABLE = torch.tensor([[0.0, 1.0, float("nan"), 2.0]] * 3)


@pytest.mark.parametrize(
    ("second", "gathers"),
    [(TABLE, 1), (torch.where(TABLE == 0, -0.0, TABLE), 2), (TABLE + 1, 2)],
    ids=["equal", "another zero", "other numbers"],
)
def test_equal_tables_are_one_in_a_file(second: torch.Tensor, gathers: int, tmp_path: Path) -> None:
    x, module = torch.randn(5) * 9, Tables(TABLE.clone(), second.clone())
    program = export(module, (x,))
    model = written(program, tmp_path)
    assert operators(model)["Gather"] == gathers
    assert {"first", "second"} <= set(program.model.graph.initializers)
    assert {"scale", "other"} <= {one.name for one in model.graph.initializer}
    assert_same(run(model, x), eager(module, (x,)))
    signs = [torch.signbit(one) for one in run(model, x)]
    assert all(torch.equal(one, torch.signbit(other)) for one, other in zip(signs, eager(module, (x,)), strict=True))
    other = Tables(TABLE + 1, second + 2)
    program.apply_weights(other.state_dict())
    assert_same(run(written(program, tmp_path), x), eager(other, (x,)))


class BiasedAttention(nn.Module):
    """A mask of `lowest` beside a table of relative positions."""

    def __init__(self, lowest: float, table: float) -> None:
        super().__init__()
        self.lowest = lowest
        self.table = nn.Parameter(torch.full((2, 6, 6), table))

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        mask = self.table + torch.where(keep[:, None, None, :], 0.0, self.lowest)
        return nn.functional.scaled_dot_product_attention(x, x, x, mask)


@pytest.mark.parametrize(
    ("lowest", "table", "is_checked"),
    [
        (torch.finfo(torch.float32).min, 0.5, False),
        (torch.finfo(torch.float32).min, -1e35, True),
        (torch.finfo(torch.float32).min, float("nan"), True),
        (float("-inf"), 0.5, True),
    ],
)
def test_rows_are_looked_at_where_a_mask_can_exclude_all_of_one(
    lowest: float, table: float, is_checked: bool, tmp_path: Path
) -> None:
    module = BiasedAttention(lowest, table)
    x, keep = torch.randn(2, 2, 6, 4), torch.tensor([[True] * 6, [False] * 6])
    program = export(module, (x, keep))
    assert "ReduceMin" in operators(program.model_proto)
    model = written(program, tmp_path)
    assert ("ReduceMin" in operators(model)) is is_checked
    assert_same(run(model, x, keep), eager(module, (x, keep)))


def test_the_report_says_what_the_limit_kept_from_being_folded(tmp_path: Path) -> None:
    x, module = torch.randn(2, 300), Expanded()
    export(module, (x,), tmp_path / "model.onnx", report=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*.md")
    found = re.search(
        r"fold weights: (\d+) nodes .* grow by (\d+) bytes, and (\d+) are allowed; fold_growth=([\d.]+) ",
        report.read_text(),
    )
    assert found is not None
    nodes, needed, allowed = map(int, found.groups()[:3])
    assert allowed == 1 << 16
    assert needed == pytest.approx(300 * 300 * 4 - module.row.nbytes, abs=64)  # the table; row and numbers go
    assert sum(operators(onnx.load(tmp_path / "model.onnx")).values()) == nodes + 1  # the product itself
    program = export(module, (x,), fold_growth=float(found[4]))
    assert sum(operators(written(program, tmp_path)).values()) == 1
    assert [one.remark for one in program.folding] == [""]


def test_what_follows_from_a_weight_that_stays_is_folded(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Buffer(torch.zeros(64, 1, 1, 24))
            self.bias = nn.Buffer(torch.randn(1, 2, 24, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask + self.bias).neg()

    module, x = Masked(), torch.randn(64, 2, 24, 4)
    model = written(export(module, (x,)), tmp_path)
    assert model.ByteSize() < 60_000  # the mask as a whole has 294,912 bytes
    assert set(operators(model)) == {"Add", "Mul", "Transpose", "MatMul", "Softmax", "Neg"}  # no row is excluded
    assert_same(run(model, x), eager(module, (x,)))


def test_a_table_that_is_also_the_last_weight_is_written_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(900, 64)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.embedding(ids), self.embedding.weight)

    module = Tied()
    model = written(export(module, (torch.tensor([[1, 2]]),)), tmp_path)
    assert model.ByteSize() < 1.1 * 900 * 64 * 4
    assert_same(run(model, torch.tensor([[1, 2]])), eager(module, (torch.tensor([[1, 2]]),)))


def test_weights_that_others_may_replace_are_not_folded(tmp_path: Path) -> None:
    program = export(CASES["conv"][0]().eval(), (IMAGES,))
    for options in ({"keep_initializers_as_inputs": True}, {"include_initializers": False}):
        program.save(tmp_path / "model.onnx", **options)  # type: ignore[arg-type]
        assert operators(onnx.load(tmp_path / "model.onnx"))["BatchNormalization"] == 1


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (14, 5)])
def test_a_table_at_another_size_is_computed_once(
    mode: str, aligned: bool, size: tuple[int, int], tmp_path: Path
) -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(1, 2, 7, 9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + nn.functional.interpolate(self.table, size=size, mode=mode, align_corners=aligned)

    module, x = Positions().eval(), torch.randn(3, 2, *size)
    program = export(module, (x,))
    program.fold_growth = 10.0
    program.save(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert operators(model) == {"Add": 1}
    assert_same(run(model, x), eager(module, (x,)), 1e-5)
    folded = onnxruntime.InferenceSession(ir.to_proto(program.model).SerializeToString()).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(run(model, x)[0].numpy(), folded[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_a_cast_of_weights_of_eight_bits_stays(dtype: torch.dtype) -> None:
    class Small(torch.nn.Module):
        weight: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(4, 4).to(dtype))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.to(x.dtype)

    module, x = Small(), torch.randn(2, 4)
    torch.testing.assert_close(export(module, (x,))(x)[0], module(x))


def test_fake_weights_leave_the_graph_whole_and_given_ones_are_folded(tmp_path: Path) -> None:
    with enable_fake_mode():
        fake, x = CASES["conv"][0]().eval(), torch.randn(2, 4, 6, 6)
    program = export(fake, (x,))
    program.save(tmp_path / "empty.onnx", include_initializers=False)
    assert operators(onnx.load(tmp_path / "empty.onnx")) == Counter({"Conv": 1, "BatchNormalization": 1})
    real = CASES["conv"][0]().eval()
    model = written(program, tmp_path, model_state=real.state_dict())
    assert operators(model) == Counter({"Conv": 1})
    assert_same(run(model, IMAGES), eager(real, (IMAGES,)))


def test_an_export_that_folds_nothing(tmp_path: Path) -> None:
    program = export(CASES["conv"][0]().eval(), (IMAGES,), tmp_path / "model.onnx", fold_weights=False)
    assert operators(onnx.load(tmp_path / "model.onnx"))["BatchNormalization"] == 1
    assert not program.fold_weights


def test_a_weight_turned_inside_a_loop_is_turned_once(tmp_path: Path) -> None:
    module = First(nn.LSTM(4, 6, batch_first=True, proj_size=3)).eval()
    model = written(export(module, (SEQUENCE,)), tmp_path)
    (scan,) = [node for node in model.graph.node if node.op_type == "Scan"]
    body = next(attribute.g for attribute in scan.attribute if attribute.HasField("g"))
    assert "Transpose" not in {node.op_type for node in body.node}
    assert_same(run(model, SEQUENCE), eager(module, (SEQUENCE,)))


# Values ---------------------------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.5, -2.25, float("inf"), -float("inf"), float("nan"), 1e-42]
COMPUTED = [
    "float[2, 4] x) => (float[4, 2] y) { y = Transpose(x) }",
    "float[2, 4] x) => (float[8] y) <int64[1] s = {-1}> { y = Reshape(x, s) }",
    "float[2, 4] x) => (float[2, 1, 4] y) <int64[1] s = {1}> { y = Unsqueeze(x, s) }",
    "float[2, 4] x) => (float[2, 2] y) <int64[1] s = {3}, int64[1] e = {-9}, int64[1] a = {1}, int64[1] t = {-2}>"
    " { y = Slice(x, s, e, a, t) }",
    "float[2, 4] x) => (float[2, 0] y) <int64[1] s = {3}, int64[1] e = {1}, int64[1] a = {1}>"
    " { y = Slice(x, s, e, a) }",
    "float[2, 4] x) => (float[3, 4] y) <int64[3] i = {-1, 0, 1}> { y = Gather <axis = 0> (x, i) }",
    "float[2, 4] x) => (float[2] y) <int64 i = {-1}> { y = Gather <axis = 1> (x, i) }",
    "float[2, 4] x) => (float[4, 4] y) { y = Concat <axis = 0> (x, x) }",
    "float[2, 4] x) => (float[3, 2, 4] y) <int64[3] s = {3, 1, 1}> { y = Expand(x, s) }",
    "float[2, 4] x) => (float[4, 4] y) <int64[2] s = {2, 1}> { y = Tile(x, s) }",
    "float[2, 4] x) => (float[2, 2] y, float[2, 2] z) { y, z = Split <axis = 1, num_outputs = 2> (x) }",
    "float[2, 4] x) => (float16[2, 4] y) { y = Cast <to = 10> (x) }",
    "float[2, 4] x) => (bool[2, 4] y) { y = Cast <to = 9> (x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Add(x, x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Mul(x, x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Div(x, x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Sqrt(x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Reciprocal(x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Sigmoid(x) }",
    "float[2, 4] x) => (float[2, 4] y) { y = Neg(x) }",
    "float[2, 4] x) => (bool[2, 4] y) { y = IsNaN(x) }",
    "float[2, 4] x) => (float[2, 1] y) <int64[1] a = {1}> { y = ReduceL2(x, a) }",
]


@pytest.mark.parametrize(
    "text", COMPUTED, ids=lambda text: text.split("= ")[-1].split("(")[0].split(" <")[0] + text[-9:]
)
def test_a_folded_number_is_the_one_that_the_runtime_computes(text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> g ({text}')
    array = np.array(SPECIAL, dtype=np.float32).reshape(2, 4)
    graph = ir.from_proto(model)
    (node,) = list(graph.graph)
    known = {"x": torch.from_numpy(array)}
    known |= {name: weight_values.as_tensor(value.const_value) for name, value in graph.graph.initializers.items()}
    found = weight_values.compute(node, [known[value.name or ""] for value in node.inputs if value is not None], 20)
    assert found is not None
    by_runtime = run(model, torch.from_numpy(array))
    for one, other in zip(found, by_runtime, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.double().numpy(), other.double().numpy(), rtol=1e-6, equal_nan=True)
        if text.split("= ")[-1].startswith(("Sigmoid", "ReduceL2")):
            continue
        assert torch.equal(torch.signbit(one.double().nan_to_num(7)), torch.signbit(other.double().nan_to_num(7)))


def test_what_is_random_has_a_body_or_does_not_fit_is_not_computed() -> None:
    x = torch.tensor([float("nan"), 300.0])
    for node, inputs in (
        (ir.node("RandomNormalLike", [ir.Value(name="x")]), [x]),
        (ir.node("Cast", [ir.Value(name="x")], {"to": 2}), [x]),
        (ir.node("Add", [ir.Value(name="x")], domain="com.example"), [x]),
        (ir.node("Gather", [ir.Value(name="x"), ir.Value(name="i")]), [x, torch.tensor([5])]),
    ):
        assert weight_values.compute(node, inputs, 20) is None


def test_nothing_is_folded_of_a_model_without_constants() -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    model = ir.from_proto(onnx.parser.parse_model(text))
    copy, report = weight_folding.folded(model)
    assert copy is not model
    assert (report.nodes_before, report.nodes_after, report.changes) == (1, 1, 0)
    assert merged_norms.merge(copy) == 0


# Shorter forms --------------------------------------------------------------------------------------------------------

FORMS = {
    "reshape to the same": (
        "float[2, 4] x) => (float[2, 4] y) <int64[2] s = {2, 4}> { a = Neg(x) b = Reshape(a, s) y = Abs(b) }",
        {"Neg": 1, "Abs": 1},
    ),
    "expand to the same": (
        "float[2, 4] x) => (float[2, 4] y) <int64[2] s = {1, 4}> { a = Neg(x) b = Expand(a, s) y = Neg(b) }",
        {"Neg": 2},
    ),
    "repeated entries": (
        "float[2, 4] x) => (float[4, 4] y) <int64[1] k = {1}, int64[3] e = {2, 2, 4}, int64[2] s = {4, 4}>"
        " { a = Unsqueeze(x, k) b = Expand(a, e) y = Reshape(b, s) }",
        {"Gather": 1},
    ),
    "pieces": (
        "float[2, 4] x) => (float[2, 4] y) <int64[1] o = {0}, int64[1] p = {3}, int64[1] e = {99}, int64[1] k = {1}>"
        " { a = Slice(x, o, p, k) b = Slice(x, p, e, k) c = Neg(b) y = Concat <axis = 1> (c, a) }",
        {"Split": 1, "Neg": 1, "Concat": 1},
    ),
    "pieces that overlap": (
        "float[2, 4] x) => (float[2, 5] y) <int64[1] o = {0}, int64[1] p = {3}, int64[1] q = {2}, int64[1] e = {4},"
        " int64[1] k = {1}> { a = Slice(x, o, p, k) b = Slice(x, q, e, k) y = Concat <axis = 1> (b, a) }",
        {"Slice": 2, "Concat": 1},
    ),
    "quotient": (
        "float[2, 4] x) => (float[2, 4] y) { a = Sqrt(x) b = Reciprocal(a) y = Mul(x, b) }",
        {"Sqrt": 1, "Div": 1},
    ),
    "turned": (
        "float[2, 4] x) => (float[4, 2] y) <int64[1] o = {0}, int64[1] p = {1}>"
        " { a = Unsqueeze(x, o) b = Transpose <perm = [2, 0, 1]> (a) c = Squeeze(b, p) y = Abs(c) }",
        {"Transpose": 1, "Abs": 1},
    ),
    "turned back": (
        "float[2, 4] x) => (float[2, 4] y) <int64[1] o = {0}, int64[1] p = {2}>"
        " { a = Unsqueeze(x, o) b = Transpose <perm = [1, 2, 0]> (a) c = Squeeze(b, p) y = Abs(c) }",
        {"Abs": 1},
    ),
    "another axis of 1": (
        "float[2, 4] x) => (float[1, 8, 1] y) <int64[1] o = {0}, int64[3] s = {1, 8, 1}, int64[1] p = {2}>"
        " { w = Reshape(x, s) a = Unsqueeze(w, o) b = Transpose <perm = [0, 2, 3, 1]> (a) c = Squeeze(b, p)"
        " y = Abs(c) }",
        {"Reshape": 1, "Unsqueeze": 1, "Transpose": 1, "Squeeze": 1, "Abs": 1},
    ),
    "zeros before a softmax": (
        "float[2, 4] x) => (float[2, 4] y) <float[1, 4] z = {0.0, 0.0, 0.0, 0.0}, float t = {2.0}>"
        " { a = Add(x, z) b = Mul(a, t) y = Softmax(b) }",
        {"Mul": 1, "Softmax": 1},
    ),
    "sum of squares": (
        "float[2, 4] x) => (float[2, 1] y) <int64[1] k = {1}> { a = Mul(x, x) y = ReduceSum(a, k) }",
        {"ReduceSumSquare": 1},
    ),
    "sum of second powers": (
        "float[2, 4] x) => (float[2] y) <int64[1] k = {1}, float t = {2.0}>"
        " { a = Pow(x, t) y = ReduceSum <keepdims = 0> (a, k) }",
        {"ReduceSumSquare": 1},
    ),
    "sum of third powers": (
        "float[2, 4] x) => (float[2] y) <int64[1] k = {1}, float t = {3.0}>"
        " { a = Pow(x, t) y = ReduceSum <keepdims = 0> (a, k) }",
        {"Pow": 1, "ReduceSum": 1},
    ),
    "sum of all squares": (
        "float[2, 4] x) => (float y) { a = Mul(x, x) y = ReduceSum <keepdims = 0> (a) }",
        {"ReduceSumSquare": 1},
    ),
    "sum of squares that are read": (
        "float[2, 4] x) => (float[2, 4] y) <int64[1] k = {1}> { a = Mul(x, x) b = ReduceSum(a, k) y = Sub(a, b) }",
        {"Mul": 1, "ReduceSum": 1, "Sub": 1},
    ),
    "sum of products": (
        "float[2, 4] x) => (float y) { n = Neg(x) a = Mul(x, n) y = ReduceSum <keepdims = 0> (a) }",
        {"Neg": 1, "Mul": 1, "ReduceSum": 1},
    ),
    "zeros whose sign shows": (
        "float[2, 4] x) => (float[2, 4] y) <float[1, 4] z = {0.0, 0.0, 0.0, 0.0}> { a = Add(x, z) y = Reciprocal(a) }",
        {"Add": 1, "Reciprocal": 1},
    ),
    "one part": (
        "float[2, 4] x) => (float[2, 4] y) { a = Neg(x) b = Concat <axis = 0> (a) y = Abs(b) }",
        {"Neg": 1, "Abs": 1},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_shorter_form_gives_the_same_elements(form: str) -> None:
    text, expected = FORMS[form]
    source = f'<ir_version: 10, opset_import: ["": 20]> g ({text}'
    before = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(source), data_prop=True)
    model = ir.from_proto(before)
    shorter_forms.shorten(model)
    repeated_entries.merge(model)
    dead_code.remove_dead_code(model)
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    assert operators(after) == Counter(expected)
    x = np.array(SPECIAL, dtype=np.float32).reshape(2, 4)
    one, other = (run_both(of, {"x": x})["onnxruntime"][0] for of in (before, after))
    np.testing.assert_allclose(one, other, rtol=3e-7, equal_nan=True)
    assert np.array_equal(np.signbit(np.nan_to_num(one, nan=7)), np.signbit(np.nan_to_num(other, nan=7)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_first_states_of_zeros_are_left_out_for_any_batch(kind: str, tmp_path: Path) -> None:
    layers: Any = getattr(nn, kind)
    module = First(layers(4, 3, 2, batch_first=True)).eval()
    program = export(module, (SEQUENCE,), dynamic_shapes=({0: "batch", 1: "seq"},), fold_weights=False)
    model = written(program, tmp_path)
    used = [node for node in model.graph.node if node.op_type == kind]
    assert len(used) == 2
    assert all(not name for node in used for name in node.input[5:])
    for size in (1, 3):
        x = torch.randn(size, 4, 4)
        assert_same(run(model, x), eager(module, (x,)))


class Spread(nn.Module):
    """Weights whose axes come and go, which opsets below 13 say in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.row, self.block = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(3, 1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = self.row[:, None] * self.row[None]
        return x * self.row.unsqueeze(0) + self.block.squeeze(1)[:2] + table[:2] + self.block.sum(0) + (x.long() & 6)


@pytest.mark.parametrize("opset", [10, 11, 12, 13])
def test_axes_that_are_attributes(opset: int) -> None:
    module, x = Spread(), torch.arange(8.0).reshape(2, 4)
    program = export(module, (x,), opset_version=opset)
    torch.testing.assert_close(torch.as_tensor(program(x)[0]), module(x))


class Places(nn.Module):
    """Where the largest of a weight are, counted within each plane."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randn(2, 4, 6, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, places = nn.functional.max_pool2d(self.get_buffer("w"), 2, return_indices=True)
        return places + x


def test_places_of_a_weight_are_those_of_the_runtime(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.zeros(1, dtype=torch.int64)
    model = Places()
    assert_same(run(written(export(model, (x,)), tmp_path), x), eager(model, (x,)))


class Summed(nn.Module):
    """A product with a summand of its own shape, normalised per column."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.summand = nn.Parameter(torch.randn(shape))
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.norm = norm(nn.BatchNorm1d, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.addmm(self.summand, x, self.weight))  # type: ignore[no-any-return]


@pytest.mark.parametrize("shape", [(4, 1), (4,), (1, 4), (4, 4), (1, 1), ()])
def test_a_norm_goes_into_a_summand_of_one_number_for_each_column_alone(shape: tuple[int, ...], tmp_path: Path) -> None:
    """There are as many rows as columns, so that a number for each row looks like one for each column."""
    torch.manual_seed(0)
    model, x = Summed(*shape).eval(), torch.randn(4, 3)
    assert_same(run(written(export(model, (x,)), tmp_path), x), eager(model, (x,)))
