"""Random operators: files that ONNX Runtime loads at every opset, with numbers of the right kind, new at every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from batch_export.exporter import export

pytestmark = pytest.mark.sampled


@pytest.fixture(autouse=True)
def _one_seed() -> None:
    """The same numbers in every run of these tests, which are held against limits of chance."""
    onnxruntime.set_seed(20)


class Drawing(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


KINDS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float, float, float]] = {
    # what is drawn for x = 0.25, its mean, its variance, its lowest and highest values
    "rand": (lambda x: x * 0 + torch.rand(x.shape), 1 / 2, 1 / 12, 0.0, 1.0),
    "rand_like": (torch.rand_like, 1 / 2, 1 / 12, 0.0, 1.0),
    "randn": (lambda x: x * 0 + torch.randn(x.shape), 0.0, 1.0, -6.0, 6.0),
    "randn_like": (torch.randn_like, 0.0, 1.0, -6.0, 6.0),
    "randint": (lambda x: torch.randint(2, 10, x.shape).float() + 0 * x, 5.5, 63 / 12, 2.0, 9.0),
    "bernoulli": (torch.bernoulli, 0.25, 3 / 16, 0.0, 1.0),
    "dropout": (lambda x: torch.nn.functional.dropout(x, 0.2, training=True), 0.25, 1 / 64, 0.0, 0.3126),
    "dropout between other operators": (
        lambda x: torch.nn.functional.dropout(torch.relu(x), 0.2, training=True) * 2,
        0.5,
        1 / 16,
        0.0,
        0.626,
    ),
    "alpha dropout": (lambda x: torch.nn.functional.alpha_dropout(x, 0.2, True), 0.176, 0.4955, -2.0, 1.0),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.25, 0.0, 20.0),
    "around": (lambda x: torch.normal(x, 2.0), 0.25, 4.0, -12.0, 12.5),
    "uniform": (lambda x: torch.empty_like(x).uniform_(2, 4), 3.0, 1 / 3, 2.0, 4.0),
    "normal": (lambda x: torch.normal(3.0, 2.0, x.shape) + 0 * x, 3.0, 4.0, -9.0, 15.0),
    "multinomial": (
        lambda x: torch.multinomial(torch.stack([x[0] * 0 + 1, x[0] * 0 + 3], 1), 20, replacement=True).float(),
        0.75,
        3 / 16,
        0.0,
        1.0,
    ),
}


def session_of(program: Any) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)


def draw(session: onnxruntime.InferenceSession, rows: int) -> np.ndarray:
    (made,) = session.run(None, {session.get_inputs()[0].name: np.full((rows, 1000), 0.25, np.float32)})
    return np.asarray(made)


@pytest.mark.parametrize("opset", [18, 22, 23, 25])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_the_right_kind_at_every_run(kind: str, opset: int) -> None:
    function, mean, variance, low, high = KINDS[kind]
    program = export(
        Drawing(function), (torch.full((4, 1000), 0.25),), dynamic_shapes=({0: "rows"},), opset_version=opset
    )
    onnx.checker.check_model(program.model_proto, full_check=True)
    session = session_of(program)
    first, second = draw(session, 20), draw(session, 30)
    assert first.dtype == np.float32
    if kind != "multinomial":
        assert first.shape == (20, 1000)
        assert second.shape == (30, 1000)
    for made in (first, second):
        assert abs(made.mean() - mean) < 5 * np.sqrt(variance / made.size)
        assert made.var() == pytest.approx(variance, rel=0.08)
        assert made.min() >= low
        assert made.max() <= high
    count = min(first.size, second.size)
    assert not np.array_equal(first.ravel()[:count], second.ravel()[:count])


@pytest.mark.parametrize(("low", "high"), [(2, 10), (0, 10), (-3, 997), (-(2**40), 2**41)])
def test_the_largest_random_number_gives_no_integer_beyond_the_range(low: int, high: int) -> None:
    program = export(Drawing(lambda x: torch.randint(low, high, x.shape) + x.long()), (torch.zeros(4),))
    model = program.model_proto
    drawn = [node for node in model.graph.node if node.op_type == "RandomUniformLike"]
    assert len(drawn) == (1 if high - low <= 1000 else 2)
    for node in drawn:
        model.graph.node.remove(node)
        name = node.output[0]
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    numbers = np.array([0, 2.0**-24, 0.5, np.nextafter(np.float32(1), np.float32(0))], np.float32)
    feed = {value.name: numbers for value in session.get_inputs()}
    feed[session.get_inputs()[0].name] = np.zeros(4, np.float32)
    (made,) = session.run(None, feed)
    assert made[0] == low
    assert made[2] == pytest.approx((low + high) // 2, abs=2**17 if high > 1000 else 0)
    assert made[3] == high - 1


def with_drawn(program: Any, drawn: list[float], count: int) -> np.ndarray:
    """What a file gives for four elements of 1 if its random numbers are these, each of four elements in turn."""
    model = program.model_proto
    feed = {model.graph.input[0].name: np.ones(4, np.float32)}
    nodes = [node for node in model.graph.node if node.op_type == "RandomUniformLike"]
    assert len(nodes) == count
    for node in nodes:
        model.graph.node.remove(node)
        feed[node.output[0]] = np.array(drawn, np.float32)
        model.graph.input.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, [4]))
    (made,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    return np.asarray(made)


UNIFORM: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "rand": (lambda x: torch.rand(x.shape, dtype=x.dtype), 0.0, 1.0),
    "rand_like": (torch.rand_like, 0.0, 1.0),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(2, 4), 2.0, 4.0),
    "uniform_ around zero": (lambda x: torch.empty_like(x).uniform_(-1, 1), -1.0, 1.0),
    "uniform_ to an uneven number": (lambda x: torch.empty_like(x).uniform_(1, 1.9921875), 1.0, 1.9921875),
}


@pytest.mark.parametrize("opset", [15, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("way", UNIFORM)
def test_no_rounding_gives_the_upper_bound(way: str, dtype: torch.dtype, opset: int) -> None:
    function, low, high = UNIFORM[way]
    program = export(Drawing(lambda x: function(x.to(dtype)).float()), (torch.ones(4),), opset_version=opset)
    one_less, half = np.nextafter(np.float32(high), np.float32(-9)), (low + high) / 2
    largest = high if high != 1 or low else one_less  # what a runtime's product of float32 may be rounded to
    values = with_drawn(program, [low, half, one_less, largest], 1)
    assert values.min() == low
    assert values.max() < high
    assert values[1] == pytest.approx(half, rel=2.0**-8)
    finest = torch.nextafter(torch.tensor(high, dtype=dtype), torch.tensor(low, dtype=dtype))
    assert dtype == torch.float32 or with_drawn(program, [float(finest)] * 4, 1)[0] == finest


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_drawn_in_float32(dtype: torch.dtype) -> None:
    def made(function: Callable[[torch.Tensor], torch.Tensor], *drawn: float) -> list[float]:
        program = export(Drawing(lambda x: function(x.to(dtype)).float()), (torch.ones(4),), opset_version=18)
        return [float(value) for value in with_drawn(program, list(drawn), 1)]

    largest = float(np.nextafter(np.float32(1), np.float32(0)))
    for certain in (torch.bernoulli, lambda x: torch.bernoulli(x, 1.0), lambda x: torch.empty_like(x).bernoulli_(x)):
        assert made(certain, 0.0, 0.5, 0.999, largest) == [1.0] * 4
    assert made(lambda x: torch.empty_like(x).bernoulli_(1e-4), 0.0, 9e-5, 1.1e-4, 0.5) == [1.0, 1.0, 0.0, 0.0]
    waited = made(lambda x: torch.empty_like(x).exponential_(), 0.0, 1e-4, 0.5, largest)
    assert 0 < waited[0] < waited[1]
    assert waited[3] == pytest.approx(24 * np.log(2), rel=0.01)
    tries = made(lambda x: torch.empty_like(x).geometric_(0.01), 0.0, 0.5, 0.9, largest)
    assert tries[0] == 1
    assert tries[3] == pytest.approx(24 * np.log(2) / -np.log(0.99), rel=0.01)
    far = made(lambda x: torch.empty_like(x).cauchy_(1.0, 2.0), 0.5, 0.75, 0.99999, 1e-5)
    assert far == pytest.approx([1.0, 3.0, 63663.0, -63661.0], rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nothing_is_chosen_by_a_number_that_is_infinite(dtype: torch.dtype) -> None:
    chosen = Drawing(lambda x: torch.nn.functional.gumbel_softmax(x.to(dtype), dim=0).float())
    values = with_drawn(export(chosen, (torch.ones(4),), opset_version=18), [0.0, 0.25, 0.5, 0.75], 1)
    assert np.isfinite(values).all()
    assert values.sum() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_dropout_of_nearly_everything(dtype: torch.dtype, opset: int) -> None:
    function = lambda x: torch.nn.functional.dropout(x.to(dtype), 0.9999, training=True).float()  # noqa: E731
    program = export(Drawing(function), (torch.ones(4, 50),), opset_version=opset)
    (made,) = session_of(program).run(None, {program.model_proto.graph.input[0].name: np.ones((4, 50), np.float32)})
    assert np.isfinite(made).all()
    assert (made == 0).sum() > 190


class Pair(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn_like(x), torch.randn_like(x)


def test_numbers_are_independent_of_each_other_at_opset_25() -> None:
    program = export(Pair(), (torch.zeros(2, 1000),), dynamic_shapes=({0: "rows"},), opset_version=25)
    session = session_of(program)
    first, second = session.run(None, {session.get_inputs()[0].name: np.zeros((100, 1000), np.float32)})
    flat = first.ravel()
    limit = 5 / np.sqrt(flat.size)
    assert abs(np.corrcoef(flat, second.ravel())[0, 1]) < limit
    for lag in (1, 2, 3, 1000, 4096):
        assert abs(np.corrcoef(flat[lag:], flat[:-lag])[0, 1]) < limit
    assert abs((flat < -2).mean() - 0.02275) < 5 * np.sqrt(0.02275 / flat.size)
    assert np.unique(flat).size > 0.98 * flat.size


def test_no_random_operator_without_a_kernel_is_left_at_opset_22() -> None:
    program = export(Pair(), (torch.zeros(2, 3),), opset_version=22)
    kinds = {node.op_type for node in program.model.graph.all_nodes()}
    assert "Dropout" in kinds
    assert not kinds & {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli"}


class InBranch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.rand_like(x), lambda x: x - 1.0, (x,))


def test_a_random_operator_in_a_branch_is_written_out_there() -> None:
    program = export(InBranch(), (torch.ones(2, 50),), opset_version=23)
    session = session_of(program)
    (drawn,) = session.run(None, {session.get_inputs()[0].name: np.ones((2, 50), np.float32)})
    assert 0 < drawn.min() < drawn.max() < 1
    (fixed,) = session.run(None, {session.get_inputs()[0].name: -np.ones((2, 50), np.float32)})
    assert np.array_equal(fixed, np.full((2, 50), -2.0, np.float32))


@pytest.mark.parametrize("opset", [20, 23])
def test_draws_without_replacement_differ(opset: int) -> None:
    program = export(Drawing(lambda x: torch.multinomial(x, 30)), (torch.ones(2, 40),), opset_version=opset)
    session = session_of(program)
    (made,) = session.run(None, {session.get_inputs()[0].name: np.ones((2, 40), np.float32)})
    assert made.shape == (2, 30)
    for row in made:
        assert np.unique(row).size == 30


@pytest.mark.parametrize("opset", [20, 23])
def test_a_channel_is_dropped_as_a_whole(opset: int) -> None:
    function = lambda x: torch.nn.functional.dropout2d(x, 0.5, True)  # noqa: E731
    session = session_of(export(Drawing(function), (torch.ones(8, 16, 3, 3),), opset_version=opset))
    (made,) = session.run(None, {session.get_inputs()[0].name: np.ones((8, 16, 3, 3), np.float32)})
    assert (made == made[:, :, :1, :1]).all()
    assert 0.5 < made.mean() < 1.5


@pytest.mark.parametrize("opset", [20, 23])
def test_attention_drops_weights(opset: int) -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    session = session_of(export(Drawing(attend), (torch.ones(1, 64, 8),), opset_version=opset))
    (made,) = session.run(None, {session.get_inputs()[0].name: np.ones((1, 64, 8), np.float32)})
    assert made.std() > 0.05  # every row has weights of its own
    assert made.mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("opset", [13, 20, 23])
def test_everything_is_dropped_at_a_chance_of_one(opset: int) -> None:
    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 4, 2, dropout=1.0)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            attended = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=1.0)
            return torch.nn.functional.dropout(x, 1.0, training=True), attended, self.lstm(x)[0]

    x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    module = Dropping().train()
    for made, expected in zip(export(module, (x,), opset_version=opset)(x), module(x), strict=True):
        torch.testing.assert_close(made, expected.detach())


def test_a_random_permutation_has_every_number_once() -> None:
    session = session_of(
        export(Drawing(lambda x: torch.randperm(9) + 0 * x.long()), (torch.ones(9),), opset_version=25)
    )
    (made,) = session.run(None, {session.get_inputs()[0].name: np.ones(9, np.float32)})
    assert sorted(made) == list(range(9))


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_numbers_in_half_precision(opset: int) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = (torch.rand(x.shape, dtype=x.dtype), torch.randn(x.shape, dtype=x.dtype))
        return *made, torch.rand_like(x), torch.randn_like(x) + 0 * x

    session = session_of(export(Drawing(function), (torch.zeros(4, 500, dtype=torch.float16),), opset_version=opset))
    drawn = session.run(None, {session.get_inputs()[0].name: np.zeros((4, 500), np.float16)})
    for values, mean, deviation in zip(drawn, (0.5, 0.0, 0.5, 0.0), (12**-0.5, 1.0, 12**-0.5, 1.0), strict=True):
        assert values.dtype == np.float16
        assert abs(values.mean(dtype=float) - mean) < 0.1
        assert abs(values.std(dtype=float) - deviation) < 0.1


@pytest.mark.parametrize("opset", [20, 22, 25])
def test_no_numbers_are_drawn_for_a_later_axis_of_none(opset: int) -> None:
    x = torch.zeros(1, 0, 3)
    program = export(Drawing(lambda x: torch.nn.functional.rrelu(x, training=True)), (x,), None, opset_version=opset)
    assert program(x)[0].shape == x.shape


class Thinned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropped = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropped(x)


class SeveralTimes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.thinned = Thinned()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.thinned(x) for _ in range(4)])


@pytest.mark.parametrize("functions", [False, True])
def test_what_is_dropped_of_one_tensor_several_times_differs(functions: bool) -> None:
    program = export(SeveralTimes().train(), (torch.ones(2, 64),), modules_as_functions=functions)
    samples = program(torch.ones(2, 64))[0]
    program.release()
    assert len({tuple(one.flatten().tolist()) for one in samples}) == 4
