"""Small products of one input are one product in a file; what that would change, or not shorten, stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from exporting import assert_same, eager
from torch import Tensor, nn
from torch.nn import functional

from batch_export import export
from batch_export.exporter.optimise import merged_products

Form = Callable[["Layers", Tensor], Any]
NUMBERS = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e-20, float("inf"), float("nan"), 3.0])
pytestmark = pytest.mark.sampled


class Layers(nn.Module):
    """Linear layers of a width of 8, put together as a form says."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.form = form
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.bare_q, self.bare_k, self.bare_v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.few_k, self.few_v = (nn.Linear(8, 4, bias=False) for _ in range(2))
        self.large = nn.ModuleList(nn.Linear(8, merged_products.LARGEST // 64) for _ in range(3))
        self.shared, self.wide = nn.Linear(8, 8), nn.Linear(8, 24)
        self.lookup = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Any:
        """Whatever the form says of `float[batch, time, 8]`."""
        return self.form(self, x)


def heads(y: Tensor, size: int = 2) -> Tensor:
    return y.view(*y.shape[:2], -1, size).transpose(1, 2)


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def written_attention(m: Layers, x: Tensor) -> Tensor:
    q = heads(m.q(x) * 8**-0.5)
    return ((q @ heads(m.k(x)).transpose(2, 3)).softmax(-1) @ heads(m.v(x))).transpose(1, 2).flatten(2)


def turned(m: Layers, x: Tensor) -> Tensor:
    """Rotated before the heads are moved, so that these stay where they are."""
    q, k, v = (layer(x).view(*x.shape[:2], -1, 2) for layer in (m.bare_q, m.few_k, m.few_v))
    q, k = q.roll(1, -1) * 0.5 + q, k.roll(1, -1) * 0.5 + k
    k, v = k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1)
    return attended(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))


def some_without_a_bias(m: Layers, x: Tensor) -> Tensor:
    return attended(heads(m.q(x)), heads(m.bare_k(x)), heads(m.v(x)))


def grouped_queries(m: Layers, x: Tensor) -> Tensor:
    k, v = (heads(layer(x)).repeat_interleave(2, 1) for layer in (m.few_k, m.few_v))
    return attended(heads(m.bare_q(x)), k, v)


def split(m: Layers, x: Tensor) -> Tensor:
    return attended(*(heads(part) for part in m.wide(x).split(8, dim=2)))


def split_rows(m: Layers, x: Tensor) -> Tensor:
    """As GPT-2's layers: rows of all texts below one another."""
    rows = torch.addmm(m.wide.bias, x.reshape(-1, 8), m.wide.weight.t()).view(*x.shape[:2], 24)
    return attended(*(heads(part) for part in rows.split(8, dim=-1)))


def decided(m: Layers, x: Tensor) -> Tensor:
    taken = torch.cond(
        x.sum() > 0,
        lambda y: attended(heads(m.q(y)), heads(m.k(y)), heads(m.v(y))).contiguous(),
        lambda y: y.clone(),
        (x,),
    )
    return taken + x


MERGED: dict[str, tuple[Form, int]] = {
    "attention": (lambda m, x: attended(heads(m.q(x)), heads(m.k(x)), heads(m.v(x))), 1),
    "attention written out": (written_attention, 1),
    "a part without a bias": (some_without_a_bias, 1),
    "fewer keys than queries": (grouped_queries, 1),
    "heads in their places": (turned, 1),
    "rows alone": (lambda m, x: m.q(x).sigmoid() * m.k(x).tanh() + m.v(x), 1),
    "keys and values of another": (lambda m, x: attended(heads(m.q(x.exp())), heads(m.k(x)), heads(m.v(x))), 2),
    "what is returned": (lambda m, x: (m.q(x), m.k(x), m.v(x)), 1),
    "a quotient": (lambda m, x: attended(heads(m.q(x)) / 3.0, heads(m.k(x)), heads(m.v(x))), 1),
    "in a branch": (decided, 1),
}
LEFT: dict[str, tuple[Form, int]] = {
    "two without a bias": (lambda m, x: functional.silu(m.bare_q(x)) * m.bare_k(x), 2),
    "two with a bias": (lambda m, x: functional.silu(m.q(x)) * m.k(x), 2),
    "large ones": (lambda m, x: sum(layer(x).sigmoid() for layer in m.large), 3),
    "a layer that is called twice": (lambda m, x: m.shared(x) + m.shared(x + 1).exp() + m.shared(x.sin()), 3),
    "other inputs": (lambda m, x: m.q(x) + m.k(x + 1) + m.v(x + 2), 3),
}


def written(module: nn.Module, folder: Path, **options: Any) -> onnx.ModelProto:
    """The file for any batch and time."""
    path = folder / "model.onnx"
    axes = ({0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("time", min=1)},)
    options = {"dynamic_shapes": axes, **options}
    export(module, (torch.randn(2, 3, 8),), path, **options).release()
    return onnx.load(path)


def counted(model: onnx.ModelProto) -> Counter[str]:
    """Operators of the graph and of what its nodes hold; of products those with weights."""
    graphs, found = [model.graph], Counter[str]()
    weights = {one.name for one in model.graph.initializer}
    while graphs:
        for node in graphs.pop().node:
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
            if node.op_type != "MatMul" or node.input[1] in weights:
                found[node.op_type] += 1
    return found


def assert_runs(module: nn.Module, model: onnx.ModelProto, *sizes: tuple[int, int]) -> None:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    torch.manual_seed(4)
    given = [torch.randn(*size, 8) for size in sizes]
    given.append(NUMBERS[torch.randint(len(NUMBERS), given[0].shape)])
    for x in given:
        actual = [torch.from_numpy(one) for one in session.run(None, {"x": x.numpy()})]
        assert_same(actual, eager(module, (x,)))


def assert_products(form: Form, products: int, folder: Path) -> None:
    """How many products with weights a file has, and that it gives what eager gives."""
    module = Layers(form).eval()
    model = written(module, folder)
    assert counted(model)["MatMul"] == products
    assert_runs(module, model, (2, 3), (1, 2), (3, 7))


@pytest.mark.parametrize("name", MERGED)
def test_products_of_one_input_are_one(name: str, tmp_path: Path) -> None:
    assert_products(*MERGED[name], tmp_path)


@pytest.mark.parametrize("name", LEFT)
def test_products_that_one_would_not_shorten_stay(name: str, tmp_path: Path) -> None:
    assert_products(*LEFT[name], tmp_path)


@pytest.mark.parametrize("opset", [13, 17, 20, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_at_every_opset_and_dtype(opset: int, dtype: torch.dtype, tmp_path: Path) -> None:
    module = Layers(MERGED["attention written out"][0]).to(dtype).eval()
    path = tmp_path / "model.onnx"
    x = torch.randn(2, 3, 8).to(dtype)
    export(module, (x,), path, opset_version=opset).release()
    model = onnx.load(path)
    assert counted(model)["MatMul"] == 1
    # What half precision rounds in a product would be rounded otherwise in its weights.
    assert counted(model)["Mul"] == (dtype is torch.float16)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    actual = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
    assert_same([actual], eager(module, (x,)), tolerance=2e-3 if dtype is torch.float16 else 1e-5)


def test_fewer_nodes_follow(tmp_path: Path) -> None:
    """Heads are put on an axis and moved once for all, and the scale of the queries is in their weights."""
    module = Layers(MERGED["attention"][0]).eval()
    together, apart = (
        counted(written(module, tmp_path, dynamic_shapes=None, fold_weights=folds)) for folds in (True, False)
    )
    assert apart["MatMul"] == 0  # weights are transposed by nodes there
    assert together - Counter({"Softmax": 1}) == Counter(
        {"MatMul": 1, "Add": 1, "Reshape": 2, "Transpose": 3, "Split": 1}
    )


@pytest.mark.parametrize("form", [split, split_rows], ids=lambda form: form.__name__)
@pytest.mark.parametrize("free", [False, True], ids=["static", "free"])
def test_heads_of_what_is_split_are_moved_at_once(form: Form, free: bool, tmp_path: Path) -> None:
    module = Layers(form).eval()
    model = written(module, tmp_path, **({} if free else {"dynamic_shapes": None}))
    found = counted(model)
    assert found["Split"] == 1
    assert found["Transpose"] == 3  # of all heads, of the keys' rows, and back
    assert_runs(module, model, (2, 3), *([(1, 2), (3, 7)] if free else []))


def test_pieces_that_others_read_stay(tmp_path: Path) -> None:
    def form(m: Layers, x: Tensor) -> Tensor:
        q, k, v = m.wide(x).split(8, dim=2)
        return attended(heads(q), heads(k), heads(v)) + k

    module = Layers(form).eval()
    model = written(module, tmp_path)
    assert counted(model)["Transpose"] == 4
    assert_runs(module, model, (2, 3), (1, 2), (3, 7))


def test_minus_zero_stays(tmp_path: Path) -> None:
    """What has no bias of its own gets one that is nothing: adding 0.0 would make 0.0 of -0.0."""
    module = Layers(lambda m, x: (m.q(x).exp(), m.bare_k(x), m.v(x).exp())).eval()
    with torch.no_grad():
        module.bare_k.weight.copy_(torch.eye(8))
    model = written(module, tmp_path)
    assert counted(model)["MatMul"] == 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = torch.full((1, 2, 8), -0.0)
    expected, actual = eager(module, (x,))[1], torch.from_numpy(session.run(None, {"x": x.numpy()})[1])
    assert torch.equal(torch.signbit(expected), torch.signbit(actual))


def test_other_weights_are_merged_when_they_are_written(tmp_path: Path) -> None:
    module, other = Layers(written_attention).eval(), Layers(written_attention).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
    x = torch.randn(2, 3, 8)
    program = export(module, (x,))
    program.apply_weights(other.state_dict())
    program.save(tmp_path / "other.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "other.onnx", providers=["CPUExecutionProvider"])
    assert_same([torch.from_numpy(session.run(None, {"x": x.numpy()})[0])], eager(other, (x,)))
    program.save(tmp_path / "apart.onnx", fold_weights=False)
    assert "q.bias" in {one.name for one in onnx.load(tmp_path / "apart.onnx").graph.initializer}


def test_names_in_the_graph_are_those_of_the_model(tmp_path: Path) -> None:
    module = Layers(MERGED["rows alone"][0]).eval()
    (split,) = [node for node in written(module, tmp_path).graph.node if node.op_type == "Split"]
    assert list(split.output) == ["linear", "linear_1", "linear_2"]


def test_modules_as_functions_stay_apart(tmp_path: Path) -> None:
    module = Layers(MERGED["attention"][0]).eval()
    model = written(module, tmp_path, modules_as_functions=[nn.Linear])
    assert Counter(node.op_type for node in model.graph.node)["Linear"] == 3


def test_layers_that_share_weights_share_what_is_made_of_them(tmp_path: Path) -> None:
    def form(m: Layers, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + attended(heads(m.q(x)), heads(m.k(x)), heads(m.v(x)))
        return x

    module = Layers(form).eval()
    model = written(module, tmp_path)
    assert counted(model)["MatMul"] == 3
    assert (
        len({node.input[1] for node in model.graph.node if node.op_type == "MatMul" and "matrix" in node.input[1]}) == 1
    )
    assert_runs(module, model, (2, 3), (1, 2), (3, 7))


def test_weights_that_one_layer_uses_otherwise_stay(tmp_path: Path) -> None:
    def form(m: Layers, x: Tensor) -> Tensor:
        x = x + attended(heads(m.q(x)), heads(m.k(x)), heads(m.v(x)))
        return m.q(x.exp()) + m.k(x.sin())

    module = Layers(form).eval()
    model = written(module, tmp_path)
    assert counted(model)["MatMul"] == 5
    assert_runs(module, model, (2, 3), (1, 2), (3, 7))


def test_blocks_stay_apart(tmp_path: Path) -> None:
    """Keys and values that every layer makes of one memory are merged layer by layer: they are read layer by layer."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            return x + attended(heads(self.q(x)), heads(self.k(memory)), heads(self.v(memory)))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            memory = x.tanh()
            for layer in self.layers:
                x = layer(x, memory)
            return x

    module = Decoder().eval()
    model = written(module, tmp_path)
    assert counted(model)["MatMul"] == 6
    assert counted(model)["Split"] == 3
    assert_runs(module, model, (2, 3), (1, 2), (3, 7))
