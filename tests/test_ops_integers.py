"""Integers stay integers: division, powers, shifts and products beyond 2^24, in every dtype."""

from __future__ import annotations

import math

import pytest
import torch
from test_ops_special_values import Function, check

from batch_export.exporter import export

pytestmark = pytest.mark.sampled

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    limits = torch.iinfo(dtype)
    negative = -7 if limits.min else 7
    a = torch.tensor([limits.max, limits.min, limits.max - 1, 5, 100, negative, 0, limits.max // 3], dtype=dtype)
    b = torch.tensor([3, 2, 7, -3 if limits.min else 3, 7, 2, 5, 3], dtype=dtype)
    return a, b


FUNCTIONS: dict[str, Function] = {
    "floor division": lambda a, b: a // b,
    "truncated division": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor division by a number": lambda a, b: torch.div(a, 3, rounding_mode="floor"),
    "truncated division by a number": lambda a, b: torch.div(a, 3, rounding_mode="trunc"),
    "floor division by a negative number": lambda a, b: a // -3,
    "remainder": lambda a, b: a % b,
    "remainder by a negative number": lambda a, b: a % -3,
    "divided by -1": lambda a, b: a // -1,
    "truncated by -1": lambda a, b: torch.div(a.clamp(-100), -1, rounding_mode="trunc"),
    "remainder by -1": lambda a, b: a % -1,
    "fmod by -1": lambda a, b: torch.fmod(a, -1),
    "fmod": torch.fmod,
    "square": torch.square,
    "seventh power": lambda a, b: a**7,
    "powers": lambda a, b: torch.pow(a, b.abs()),
    "negative powers": torch.pow,
    "a number's powers": lambda a, b: 3 ** b.abs(),
    "shift left": lambda a, b: a << 2,
    "shift right": lambda a, b: a >> 3,
    "shifts left": lambda a, b: torch.bitwise_left_shift(a, b.abs()),
    "shifts right": lambda a, b: torch.bitwise_right_shift(a, b.abs()),
    "sign": lambda a, b: a.sign(),
    "relu": lambda a, b: torch.relu(a),
    "clamp": lambda a, b: a.clamp(1, 3),
    "square of one argument": lambda a, b: a.square(),
    "sum of products": lambda a, b: torch.dot(a, b),
    "product of matrices": lambda a, b: torch.addmm(a.reshape(4, 2)[:2], a.reshape(2, 4), b.reshape(4, 2), beta=2),
    "linear": lambda a, b: torch.nn.functional.linear(a.reshape(2, 4), b.reshape(2, 4)),
}
FUNCTIONS["square"] = FUNCTIONS.pop("square of one argument")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers_stay_integers(dtype: torch.dtype) -> None:
    check(FUNCTIONS, operands(dtype))


def test_division_beyond_what_float32_holds() -> None:
    a = torch.tensor([25010001, -25010001, 2**53 + 1, -(2**62) - 1])
    modes: dict[str, Function] = {
        "floor": lambda a: torch.div(a, 3, rounding_mode="floor"),
        "trunc": lambda a: torch.div(a, torch.tensor([3, -3, 5, 7]), rounding_mode="trunc"),
    }
    check(modes, (a,))


MOVES: dict[str, Function] = {
    "scatter of part of a source": lambda a: a.scatter(1, torch.tensor([[0, 1], [2, 3]]), a.flip(1)),
    "addition of part of a source": lambda a: a.scatter_add(1, torch.tensor([[0, 0], [2, 3]]), a),
    "addition at places": lambda a: a.index_add(0, torch.tensor([0, 0]), a),
    "accumulation": lambda a: a.index_put((torch.tensor([0, 0]),), a, accumulate=True),
    "every row added to": lambda a: a.index_put((torch.tensor([0, 1]),), a, accumulate=True),
    "padding": lambda a: torch.nn.functional.pad(a, (1, 2)),
    "triangle": lambda a: a.tril(),
    "maxima": lambda a: torch.maximum(a, a.flip(0)),
    "choice": lambda a: torch.where(a > 2, a, a.flip(1)),
    "places": lambda a: a.argmax(1),
    "running sum": lambda a: a.cumsum(1),
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_every_dtype_has_a_kernel(dtype: torch.dtype) -> None:
    check(MOVES, (torch.tensor([[1, 5, 2, 4], [3, 1, 6, 2]]).to(dtype),))


def test_common_divisors_of_two_integer_types() -> None:
    wide, narrow = torch.tensor([2**40, 12, -9]), torch.tensor([[8], [6]], dtype=torch.int32)
    check({"gcd": torch.gcd, "lcm": torch.lcm}, (wide, narrow))


def test_negative_powers_of_what_squares_to_1_by_wrapping_around() -> None:
    base = torch.tensor([32767, -32767, 1, -1, 2], dtype=torch.int16)
    functions: dict[str, Function] = {"tensors": lambda a, b: a**b, "a number": lambda a, b: a ** (b.abs() * 0 - 4)}
    check(functions, (base, torch.tensor([-4, -3, -4, -3, -1], dtype=torch.int16)))


def test_edges_are_compared_in_the_wider_dtype() -> None:
    x, edges = torch.tensor([-1e-152, 0.5 + 1e-12, 2.0], dtype=torch.float64), torch.tensor([-1.0, 0.0, 0.5, 2.0])
    functions: dict[str, Function] = {
        "bucketize": lambda x, edges: torch.bucketize(x, edges, right=True),
        "isin": lambda x, edges: torch.isin(x, edges),
    }
    check(functions, (x, edges))


WIDE = torch.tensor([-(2**62), -(2**31) - 5, -5, 0, 5, 7, 2**31 + 5, 2**33 + 5, 2**33 + 2**31 + 5, 2**62])
BOUNDS = (None, 5, -5, 2**31 + 5, -(2**31) - 5, 2**62, 5.5, math.inf, math.nan)
HELD: dict[str, Function] = {
    **{
        f"clamp between {low} and {high}": lambda a, b, low=low, high=high: a.clamp(low, high)
        for low in BOUNDS
        for high in BOUNDS
        if (low, high) != (None, None)
    },
    "clamp between tensors": lambda a, b: torch.clamp(a, torch.tensor(-5), b),
    "clamp between numbers that are tensors": lambda a, b: torch.clamp(a, torch.tensor(2.5), torch.tensor(math.nan)),
    "clamp_min": lambda a, b: torch.clamp_min(a, 5),
    "clamp_max": lambda a, b: torch.clamp_max(a, b),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "max of two": torch.max,
    "min of two": torch.min,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "relu": lambda a, b: torch.relu(a),
    "relu6": lambda a, b: torch.nn.functional.relu6(a),
    "hardtanh": lambda a, b: torch.nn.functional.hardtanh(a.double(), -2.0, 2.0),
    "bools": lambda a, b: torch.maximum(a > 0, b > 0) + 2 * torch.minimum(a > 0, b > 0),
}


def test_int64_is_held_between_bounds_of_any_size() -> None:
    check(HELD, (WIDE.repeat_interleave(len(WIDE)), WIDE.repeat(len(WIDE))))


def test_positions_are_held_by_one_node() -> None:
    class Positions(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            place = torch.arange(x.shape[0])
            return (place[None, :] - place[:, None]).clamp(-3, 3)

    program = export(Positions(), (torch.ones(4),), None, dynamic_shapes=({0: "n"},))
    kinds = [node.op_type for node in program.model.graph]
    assert "Clip" in kinds
    assert "Where" not in kinds


EXTREMES: dict[str, Function] = {
    "of an axis": lambda a: a.amax(1),
    "of the last axis, which stays": lambda a: a.amin(-1, keepdim=True),
    "of two axes": lambda a: a.amax((0, 2)),
    "of all": lambda a: a.max(),
    "of all, axes stay": lambda a: a.amin((), keepdim=True),
    "beside its place": lambda a: a.max(1)[0],
    "its place": lambda a: a.max(1)[1],
    "beside its place, the axis stays": lambda a: a.min(2, keepdim=True)[0],
    "its place, the axis stays": lambda a: a.min(2, keepdim=True)[1],
    "the smaller of both": lambda a: torch.aminmax(a)[0],
    "the larger of both": lambda a: torch.aminmax(a, dim=1)[1],
}


def test_extremes_of_int64_of_any_size() -> None:
    torch.manual_seed(0)
    numbers = torch.randint(-3, 3, (4, 5, 16)) * 2**32 + torch.randint(0, 2**32, (4, 5, 16))
    check(EXTREMES, (numbers,))


HASHES: dict[str, Function] = {
    "last axis": lambda a, b: (a * b).sum(-1),
    "first axis, kept": lambda a, b: (a * b + 1).sum(0, keepdim=True),
    "two axes": lambda a, b: torch.where(b > 0, a * 1_000_003, a).sum((0, 2)),
    "all": lambda a, b: (a * b).sum() % 509,
}


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("name", HASHES)
def test_sums_of_products_wrap_around(name: str, free: bool) -> None:
    class Hash(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return HASHES[name](a, b)

    axes = {0: "rows", 1: "columns", 2: "letters"}
    program = export(Hash(), operands_of(2, 3, 4), dynamic_shapes=(axes, axes) if free else None)
    for sizes in [(2, 3, 4), (5, 1, 7), (3, 2, 0), (2, 0, 3)] if free else [(2, 3, 4)]:
        given = operands_of(*sizes)
        assert torch.equal(torch.as_tensor(program(*given)[0]), HASHES[name](*given))


def operands_of(*sizes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    a, b = (torch.randint(-(2**62), 2**62, sizes, generator=generator) for _ in range(2))
    return a, b


def test_truth_values_are_added_with_a_factor_of_their_own_kind() -> None:
    truths = torch.tensor([[True, False], [False, True]])
    places = torch.tensor([0, 0])
    check(
        {f"times {factor}": lambda a, factor=factor: a.index_add(0, places, a, alpha=factor) for factor in (-1, 0, 2)},
        (truths,),
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_smallest_integer_is_divided_by_minus_one(dtype: torch.dtype) -> None:
    def divided(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // y, x % y, torch.fmod(x, y), x // torch.tensor([-1, 3, -1], dtype=dtype), x % -1

    x = torch.tensor([torch.iinfo(dtype).min, 7, torch.iinfo(dtype).min], dtype=dtype)
    y = torch.tensor([-1, -1, 3], dtype=dtype)
    for actual, expected in zip(export(divided, (x, y))(x, y), divided(x, y), strict=True):
        assert torch.equal(torch.as_tensor(actual), expected)


def test_shifts_of_two_integer_types_are_in_the_wider_one() -> None:
    some, others = torch.tensor([200, 3, 255, 1], dtype=torch.uint8), torch.tensor([1, 2, 3, 0], dtype=torch.int8)
    functions: dict[str, Function] = {
        "left": torch.bitwise_left_shift,
        "right": torch.bitwise_right_shift,
        "operator": lambda a, b: (a << b) + (b >> a.clamp(max=2)),
    }
    check(functions, (some, others))
    check(functions, (others, some.clamp(max=3)))
    check(functions, (others.to(torch.int64), others.to(torch.int32)))
