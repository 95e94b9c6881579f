"""Elementwise operators at the ends of their range: tiny and huge numbers, infinities, NaN and both zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from exporting import eager
from torch.nn import functional as F  # noqa: N812
from torch.utils._pytree import tree_leaves

from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Function = Callable[..., Any]
INF, NAN = float("inf"), float("nan")
NUMBERS = [
    *(0.0, -0.0, 1e-30, -1e-30, 1e-9, -1e-7, 1e-6, -1e-4, 0.01, -0.1, 0.25, -0.4, 0.5, -0.5, 0.9, -0.9, 1.0, -1.0),
    *(1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 4.0, -7.0, 8.0, 12.5, -20.0, 50.0, -88.0, 100.0, -300.0, 700.0, 1000.0),
    *(1e10, -1e15, 1e30, -1e30, INF, -INF, NAN),
]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 3e-6, torch.float64: 1e-12}


class Calls(torch.nn.Module):
    """Several functions in one file, which is quicker than a file for each."""

    def __init__(self, functions: dict[str, Function]) -> None:
        super().__init__()
        self.functions = list(functions.values())

    def forward(self, *given: torch.Tensor) -> list[torch.Tensor]:
        return [function(*given) for function in self.functions]


def check(functions: dict[str, Function], given: tuple[torch.Tensor, ...], opset: int = 20) -> None:
    module = Calls(functions).eval()
    program = export(module, given, None, opset_version=opset)
    for name, actual, expected in zip(functions, program(*given), eager(module, given), strict=True):
        assert actual.dtype == expected.dtype, name
        tolerance = TOLERANCE.get(expected.dtype, 0)
        tiny = torch.finfo(expected.dtype).tiny if expected.is_floating_point() else 0
        np.testing.assert_allclose(
            actual.to(torch.float64).numpy(), expected.to(torch.float64).numpy(), tolerance, tiny, err_msg=name
        )
    program.release()


def grid(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    some = torch.tensor([*NUMBERS[::3], INF, -INF, NAN], dtype=torch.float64).to(dtype)
    return some.repeat_interleave(len(some)), some.repeat(len(some))


STABLE: dict[str, Function] = {
    **{name: getattr(torch, name) for name in ("expm1", "log1p", "erfc", "log2", "log10", "logit", "sgn", "trunc")},
    **{name: getattr(torch, name) for name in ("frac", "nan_to_num", "deg2rad", "asinh", "acosh", "atanh", "sinh")},
    **{name: getattr(torch, name) for name in ("cosh", "atan", "asin", "acos", "isfinite", "signbit", "floor", "ceil")},
    "logsigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "remainder": lambda x: x % 2,
    "remainder by a negative number": lambda x: x % -3.0,
    "remainder by infinity": lambda x: x % INF,
    "floor division": lambda x: x // 2,
    "floor division by infinity": lambda x: x // INF,
    "truncated division": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "fmod": lambda x: torch.fmod(x, -3.5),
    "square root as a power": lambda x: torch.where(x == 0, 1.0, x) ** -0.5,
    "logit with eps": lambda x: torch.logit(x, 0.0625),
    "xlogy": lambda x: torch.xlogy(0.0, x),
    "xlog1py": lambda x: torch.special.xlog1py(2.0, x),
    "heaviside": lambda x: torch.heaviside(x, torch.full_like(x, 0.5)),
    "nan_to_num with numbers": lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0),
    "i0e": torch.special.i0e,
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_functions_of_one_argument(dtype: torch.dtype) -> None:
    check(STABLE, (torch.tensor(NUMBERS, dtype=torch.float64).to(dtype),))


@pytest.mark.parametrize("other", [torch.tensor([3, -1, 0]), torch.tensor([0.5, -1.0, NAN])], ids=["int", "float"])
def test_the_larger_of_a_truth_value_and_a_number(other: torch.Tensor) -> None:
    check(
        {"fmax": torch.fmax, "fmin": torch.fmin, "turned": lambda a, b: torch.fmax(b, a)},
        (torch.tensor([True, False, True]), other),
    )


PAIRS: dict[str, Function] = {
    **{name: getattr(torch, name) for name in ("logaddexp", "logaddexp2", "atan2", "copysign", "hypot", "xlogy")},
    **{name: getattr(torch, name) for name in ("maximum", "minimum", "fmax", "fmin", "heaviside", "isclose")},
    "xlog1py": torch.special.xlog1py,
    "largest written": lambda a, b: a.scatter_reduce(0, torch.arange(a.numel()), b, "amax"),
    "smallest written": lambda a, b: a.scatter_reduce(0, torch.arange(a.numel()), b, "amin", include_self=False),
    "logcumsumexp": lambda a, b: torch.stack([a, b, a]).logcumsumexp(0),
    "logsumexp": lambda a, b: torch.stack([a, b]).logsumexp(0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("opset", [18, 23])
def test_functions_of_two_arguments(dtype: torch.dtype, opset: int) -> None:
    check(PAIRS, grid(dtype), opset)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_sums_of_exponentials_with_infinities_and_of_nothing(dtype: torch.dtype) -> None:
    module = Calls(
        {
            "rows": lambda x: x.logsumexp(1),
            "columns": lambda x: x.logsumexp((0,), True),
            "all": lambda x: x.logsumexp((0, 1)),
        }
    )
    least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
    listed = [
        *([-INF, -1000.0, -1001.0], [-INF, -INF, -INF], [INF, 1.0, -INF], [1.0, INF, NAN], [NAN, 1.0, 2.0]),
        *([least, least, -INF], [most, most, least], [300.0, 301.0, -300.0], [-0.0, -0.0, -0.0]),
    ]
    rows = torch.tensor(listed, dtype=torch.float64).to(dtype)
    program = export(module, (rows,), dynamic_shapes=(({0: "rows", 1: "columns"},),))
    for given in (rows, rows[3:4], rows[:3], rows[:, :1], rows[:, :0], rows[:0], rows[:1, 1:]):
        for actual, expected in zip(program(given), module(given), strict=True):
            tolerance = TOLERANCE[dtype]
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    program.release()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_division_is_exact_where_the_quotient_is_rounded(dtype: torch.dtype) -> None:
    a = torch.tensor([5.0, 1.0, -1.0, 7.5, -7.5, INF, -0.0, 3.0], dtype=dtype)
    b = torch.tensor([0.1, 0.1, 0.1, -2.5, 2.5, 2.0, 3.0, INF], dtype=dtype)
    modes = {mode: (lambda a, b, mode=mode: torch.div(a, b, rounding_mode=mode)) for mode in ("floor", "trunc")}
    check({**modes, "remainder": torch.remainder, "fmod": torch.fmod, "by a number": lambda a, b: a // 0.1}, (a, b))


def test_signs_of_zeros_stay() -> None:
    x = torch.tensor([-0.0, 0.0, -0.4, 0.4, 2.0])
    functions: dict[str, Function] = {
        "plus zero": lambda x: x + 0.0,
        "minus zero": lambda x: x - 0.0,
        "trunc": torch.trunc,
        "remainder": lambda x: x % 2,
        "floor division": lambda x: x // 2,
        "expm1": torch.expm1,
        "log1p": torch.log1p,
        "angle": lambda x: torch.atan2(torch.zeros_like(x), x),
        "angle below": lambda x: torch.atan2(x, -torch.ones_like(x)),
        "erfinv": lambda x: torch.erfinv(x / 4),
        "erfinv of float64": lambda x: torch.erfinv(x.double() / 4),
        "atanh of float64": lambda x: torch.atanh(x.double() / 4),
        "asinh of float64": lambda x: torch.asinh(x.double()),
        "sinh of float64": lambda x: torch.sinh(x.double()),
        "atan of float64": lambda x: torch.atan(x.double()),
        "softshrink": lambda x: F.softshrink(x, 1.0),
        "diagonal": torch.diag_embed,
        "mantissa": lambda x: torch.frexp(x)[0],
        "nothing above 0": lambda x: F.relu(x.clamp(-1.5, -0.5)),
    }
    module = Calls(functions).eval()
    program = export(module, (x,), None)
    for name, actual, expected in zip(functions, program(x), eager(module, (x,)), strict=True):
        assert torch.signbit(actual).tolist() == torch.signbit(expected).tolist(), name
    program.release()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_times_zero_is_left_out(dtype: torch.dtype) -> None:
    a, b = torch.full((2, 3), INF, dtype=dtype), torch.ones(3, 2, dtype=dtype)
    functions: dict[str, Function] = {
        "addmm": lambda a, b: torch.addmm(torch.ones(2, dtype=a.dtype), a, b, alpha=0, beta=2),
        "addmm without anything": lambda a, b: torch.addmm(torch.ones(2, dtype=a.dtype), a, b, alpha=0, beta=0),
        "addmv": lambda a, b: torch.addmv(torch.ones(1, dtype=a.dtype), a, b[:, 0], alpha=0),
        "addbmm": lambda a, b: torch.addbmm(torch.ones(2, dtype=a.dtype), a[None], b[None], alpha=0),
    }
    check(functions, (a, b))


def test_float64_never_goes_through_float32() -> None:
    x = torch.linspace(-0.95, 0.95, 20, dtype=torch.float64)
    functions: dict[str, Function] = {
        **{name: getattr(torch, name) for name in ("erf", "erfinv", "tan", "sinc", "angle")},
        **{name: getattr(F, name) for name in ("gelu", "elu", "selu", "celu", "mish", "hardswish", "hardsigmoid")},
        "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
        "prelu": lambda x: F.prelu(x, torch.tensor([0.1], dtype=torch.float64)),
        "nonzero": lambda x: torch.nonzero(x > 0),
    }
    check(functions, (x,))


@pytest.mark.parametrize("mask", ["float", "bool"])
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_a_row_that_a_mask_excludes_gives_zeros_and_nan_stays_nan(mask: str, opset: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 3, 4, 8, dtype=dtype) for _ in range(3))
    query[0, 0, 0, 0], value[1, 0, 3, 0], value[1, 1, 1, 0] = NAN, INF, NAN
    if (mask, opset) != ("bool", 23) or dtype is torch.float64:  # its kernel gives zeros there, whatever the query is
        query[2, 0, 1, 0], query[2, 1, 1, 0] = NAN, INF
    bias = torch.zeros(4, 4, dtype=dtype)
    bias[1], bias[2, 3] = -INF, -INF
    further = [bias.clone().fill_diagonal_(NAN)] if mask == "float" else []
    module = Calls({"attention": F.scaled_dot_product_attention})
    program = export(module, (query, key, value, bias if mask == "float" else bias == 0), None, opset_version=opset)
    for masked in (bias if mask == "float" else bias == 0, *further):
        given = (query, key, value, masked)
        tolerance = (1e-2, 1e-2) if dtype is torch.float16 else (1e-4, 1e-5)
        np.testing.assert_allclose(program(*given)[0].numpy(), eager(module, given)[0].numpy(), *tolerance)
    program.release()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16], ids=str)
def test_beta_of_zero_leaves_the_addend_out(dtype: torch.dtype) -> None:
    a, b, nothing = torch.ones(3, 4).to(dtype), torch.ones(4, 3).to(dtype), torch.full((3, 3), NAN).to(dtype)
    functions: dict[str, Function] = {
        "addmm": lambda n, a, b: torch.addmm(n, a, b, beta=0),
        "baddbmm": lambda n, a, b: torch.baddbmm(n[None], a[None], b[None], beta=0, alpha=2),
        "addbmm": lambda n, a, b: torch.addbmm(n, a[None], b[None], beta=0),
        "addmv": lambda n, a, b: torch.addmv(n[0], a, b[:, 0], beta=0),
        "addr": lambda n, a, b: torch.addr(n, a[:, 0], b[0], beta=0),
        "an empty sum": lambda n, a, b: torch.addmm(a[:, :3], a[:, :0], b[:0], beta=0.5),
    }
    check(functions, (nothing, a, b))


def test_softmax_is_computed_in_the_dtype_asked_for() -> None:
    functions: dict[str, Function] = {
        "softmax": lambda x: x.softmax(0, dtype=torch.float64),
        "log_softmax": lambda x: x.log_softmax(-1, dtype=torch.float64),
        "of one number": lambda x: x[0].softmax(0, dtype=torch.float64),
        "the same dtype": lambda x: x.softmax(0),
    }
    check(functions, (torch.tensor([0.1, -2.3, 7.7]),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_logarithm_of_softmax_is_nan_throughout_a_row_with_nan_or_infinity(dtype: torch.dtype) -> None:
    rows = [[0.0, NAN, 100.0, 2.0], [INF, 1.0, 2.0, 3.0], [-INF, 1.0, 2.0, 3.0], [-INF] * 4, [1e3, -1e3, 0.0, 1.0]]
    functions: dict[str, Function] = {
        "of rows": lambda x: x.log_softmax(-1),
        "of columns": lambda x: F.log_softmax(x[1:], 0),
        "of one number": lambda x: x[0, 0].log_softmax(0),
    }
    check(functions, (torch.tensor(rows, dtype=dtype),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_ldexp_rounds_once(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1e-38, 3.0, -7e30, INF, NAN, 1e-45, 1.5, -1e-300], dtype=torch.float64).to(dtype)
    exponents = torch.tensor([[0], [100], [-100], [250], [-250], [2**24 + 1], [-(2**24)]], dtype=torch.int32)
    check({"ldexp": torch.ldexp}, (x, exponents))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_ldexp_by_a_power_of_few_digits(dtype: torch.dtype) -> None:
    """The power is rounded to bfloat16 before it is multiplied by."""
    x = torch.tensor([1.7, -3.1, 5.3], dtype=dtype)
    check({"ldexp": torch.ldexp}, (x, torch.tensor([0.3, 1.7, -2.3], dtype=torch.bfloat16)))


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.int64])
def test_ldexp_of_whole_numbers(dtype: torch.dtype) -> None:
    check({"ldexp": torch.ldexp}, (torch.tensor([3, 0, 5], dtype=dtype), torch.tensor([2, 7, 1], dtype=dtype)))


def test_logsigmoid_far_above_zero_is_no_negative_zero() -> None:
    program = export(Calls({"logsigmoid": F.logsigmoid}), (torch.tensor([200.0, INF]),), None)
    assert not torch.signbit(program(torch.tensor([200.0, INF]))[0]).any()
    program.release()


def test_the_logarithm_of_a_sigmoid_is_finite_far_below_zero() -> None:
    """onnxruntime's Sigmoid is 0 there."""
    functions: dict[str, Function] = {
        "itself": lambda x: torch.log(torch.sigmoid(x)),
        "of a loss": lambda x: -(0.25 * x.sigmoid().log() + 0.75 * (1 - x.sigmoid()).log()),
    }
    check(functions, (torch.tensor([-80.0, -40.0, -18.5, -17.5, -3.0, 0.0, 4.0]),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_is_kept_where_a_mask_is_false_keeps_the_sign_of_its_zeros(dtype: torch.dtype) -> None:
    """onnxruntime turns a Where by a Not round, and then loses it."""
    functions: dict[str, Function] = {
        "filled": lambda x, mask: x.masked_fill(~mask, -1e9),
        "filled by a comparison": lambda x, mask: x.masked_fill((x > 1).logical_not(), 3.0),
        "chosen": lambda x, mask: torch.where(~mask, 1.0, x),
    }
    x, mask = torch.tensor([-0.0, 0.0, -0.0, 2.0], dtype=dtype), torch.tensor([True, True, False, False])
    program = export(Calls(functions), (x, mask), None)
    for name, actual, function in zip(functions, program(x, mask), functions.values(), strict=True):
        expected = function(x, mask)
        assert actual.tolist() == expected.tolist(), name
        assert torch.signbit(actual).tolist() == torch.signbit(expected).tolist(), name
    program.release()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_one_bound_leaves_infinities_on_the_other_side(dtype: torch.dtype) -> None:
    functions: dict[str, Function] = {"max": lambda x: x.clamp(max=2.0), "min": lambda x: x.clamp(min=-1.0)}
    functions |= {"from 0": lambda x: x.clamp(min=0.0), "to 0": lambda x: x.clamp(max=0.0), "relu6": F.relu6}
    check(functions, (torch.tensor([-INF, -3.0, 0.5, 7.0, INF], dtype=dtype),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_beside_half_precision_are_rounded_where_torch_rounds_them(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 301).to(dtype)
    functions: dict[str, Function] = {
        "floor": lambda x: torch.div(x, 0.1, rounding_mode="floor"),
        "truncated": lambda x: torch.div(x, 0.1, rounding_mode="trunc"),
        "floor of a number": lambda x: 3.1 // x,
        "floor of tensors": lambda x: torch.div(x, x + 1, rounding_mode="floor"),
        "remainder": lambda x: x % 0.1,
        "remainder of a number": lambda x: torch.remainder(3.1, x),
        "fmod": lambda x: torch.fmod(x, 0.1),
        "plus": lambda x: x + 0.1,
        "from a number": lambda x: 0.1 - x,
        "power of a number": lambda x: 0.1**x,
    }
    check(functions, (x,))


def test_sines_of_halves_count_their_turns_by_an_exact_pi() -> None:
    check({"sinc": torch.sinc}, (torch.tensor([0.0, 0.25, -2.5, 341.0, 30000.0], dtype=torch.float16),))


def test_the_smallest_integer_has_a_greatest_common_divisor() -> None:
    for dtype in (torch.int32, torch.int64):
        least = torch.iinfo(dtype).min
        left = torch.tensor([least, least, least, -(least + 1), 6, 0, least, -1, 12], dtype=dtype)
        right = torch.tensor([-1, least, -(least + 1), least, 4, 0, 0, least, -18], dtype=dtype)
        check({"gcd": torch.gcd}, (left, right))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_numbers_at_the_edges_of_a_histogram(dtype: torch.dtype) -> None:
    functions: dict[str, Function] = {
        "named limits": lambda x: torch.histc(x, 4, -2, 2),
        "limits that are rounded": lambda x: torch.histc(x, 7, -0.3, 0.7),
        "limits of the data": lambda x: torch.histc(x.nan_to_num(0.5, 1.0, -1.0).clamp(-5, 5), 5),
        "limits of one number": lambda x: torch.histc(torch.ones_like(x), 5, 3, 3),
    }
    check(functions, (torch.tensor([-4.4e-41, *NUMBERS], dtype=torch.float64).to(dtype),))
    check(functions, (torch.arange(-30, 30).to(dtype) / 10,))


def test_a_histogram_of_a_free_number_of_elements() -> None:
    module = Calls({"data": lambda x: torch.histc(x, 5), "named": lambda x: torch.histc(x, 3, 0, 1)})
    program = export(module, (torch.rand(4, 3),), dynamic_shapes=(({0: "n"},),))
    for x in (torch.zeros(0, 3), torch.rand(1, 3), torch.ones(2, 3), torch.rand(5, 3)):
        for actual, expected in zip(program(x), module(x), strict=True):
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bessel_functions_near_and_far(dtype: torch.dtype) -> None:
    special = torch.special
    either = [special.bessel_j0, special.bessel_j1, special.i0, special.i1, special.spherical_bessel_j0]
    right = [special.bessel_y0, special.bessel_y1, special.modified_bessel_k0, special.modified_bessel_k1]
    scaled = [special.scaled_modified_bessel_k0, special.scaled_modified_bessel_k1]
    x = torch.tensor(
        [-900.0, -91.5, -16.1, -3.0, 0.0, 1e-3, 1.0, 9.99, 10.01, 15.9, 16.1, 64.5, 250.0, 3e3, INF], dtype=dtype
    )
    for functions, given in ((either, x), ([*right, *scaled], x[x > -1])):
        module = Calls({str(place): one for place, one in enumerate(functions)})
        program = export(module, (given,), dynamic_shapes=(({0: "n"},),))
        for sample in (given, given[:1], given[:0]):
            for one, other in zip(program(sample), module(sample), strict=True):
                torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("descending", [False, True])
def test_what_sorts_an_axis_puts_nan_last(dtype: torch.dtype, descending: bool) -> None:
    x = torch.tensor([[1.0, NAN, 3.0, INF], [NAN, INF, INF, -INF], [NAN, NAN, NAN, NAN]], dtype=dtype)
    functions = [lambda x: x.sort(stable=True, dim=1, descending=descending), lambda x: x.kthvalue(3, 1)[0]]
    if dtype is torch.float32:
        functions += [
            lambda x: torch.quantile(x, 0.4, 1, interpolation="lower"),
            lambda x: torch.nanquantile(x, 0.4, 1),
        ]
    for function in functions:
        module = Calls({"": function})
        for one, other in zip(export(module, (x,))(x), tree_leaves(module(x)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=0.0, equal_nan=True)


def test_a_number_is_compared_in_the_precision_of_bfloat16() -> None:
    module = Calls(
        {"eq": lambda x: x == 0.1, "gt": lambda x: x > 0.1, "le": lambda x: x <= 0.1, "ne": lambda x: x != -0.1}
    )
    x = torch.tensor([0.1, -0.1, 0.3], dtype=torch.bfloat16)
    for one, other in zip(export(module, (x,))(x), module(x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_each_nan_is_one_of_its_own_among_what_occurs_once(dtype: torch.dtype) -> None:
    module = Calls({"": lambda x: torch.unique(x, return_inverse=True, return_counts=True)})
    x = torch.tensor([[3.0, NAN, 1.0], [NAN, 3.0, INF]])
    x = x.nan_to_num(7.0, 9.0).to(dtype) if dtype is torch.int64 else x
    program = export(module, (x,), dynamic_shapes=(({0: "n"},),))
    for sample in (x, x[:1], x[:0]):
        for one, other in zip(program(sample), tree_leaves(module(sample)), strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("opset", [20, 26])
def test_products_of_half_precision_are_rounded_at_the_end(opset: int) -> None:
    x = torch.tensor([2.5, 30000.0, 30000.0, 0.0, -1.0, 3.0], dtype=torch.float16)
    check({"cumprod": lambda x: x.cumprod(0), "vander": lambda x: torch.vander(x, 20)}, (x,), opset)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_norms_of_halves_take_their_powers_in_float32(dtype: torch.dtype) -> None:
    x = torch.tensor([[1.0, 10000.0], [100.0, 200.0]], dtype=dtype)
    for power in (3, 0.5, 2.5):
        program = export(Calls({"norm": lambda x, power=power: x.norm(power, dim=1)}), (x,), None)
        torch.testing.assert_close(
            program(x)[0], x.norm(power, dim=1), rtol=1e-3 if dtype == torch.float16 else 8e-3, atol=0
        )
        program.release()


@pytest.mark.parametrize("number", [6e-36, -1e30, NAN, -INF])
def test_the_norm_of_one_number_is_its_absolute_value(number: float) -> None:
    functions: dict[str, Function] = {
        "kept": lambda x: x.norm(dim=0, keepdim=True),
        "third": lambda x: torch.linalg.vector_norm(x, ord=3, dim=(0, 1)),
        "whole": lambda x: torch.linalg.vector_norm(x[0, 0]),
    }
    check(functions, (torch.tensor([[number]]),))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_largest_number_is_sorted_below_infinity(dtype: torch.dtype, descending: bool) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor([NAN, INF, largest, NAN, -largest, -INF, INF], dtype=dtype)
    functions: dict[str, Function] = {
        "values": lambda x: x.sort(descending=descending).values,
        "places": lambda x: x.argsort(descending=descending).to(torch.float32),
    }
    check(functions, (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gamma_functions_of_higher_order(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.5, 1.0, 3.5, 10.0, 50.0, 1e4, -0.5, -1.25, -7.3], dtype=torch.float64)
    q = torch.tensor([0.1, 1.0, 2.5, 30.0, -2.0, -3.5, 1e6, -1.25, 4.0, NAN], dtype=torch.float64)
    functions: dict[str, Function] = {
        **{f"polygamma {n}": (lambda x, q, n=n: torch.special.polygamma(n, x)) for n in (0, 1, 2, 5)},
        "zeta": lambda x, q: torch.special.zeta(x[:7].unsqueeze(1).ceil() + 1.0, q),
        "zeta of two": lambda x, q: torch.special.zeta(2.0, q),
        "airy": lambda x, q: torch.special.airy_ai(q[:6]).float(),
    }
    given = tuple(one.to(dtype) for one in (x, q))
    module = Calls(functions).eval()
    program = export(module, given, None)
    exact = eager(module, tuple(one.double() for one in given))
    for name, actual, expected in zip(functions, program(*given), exact, strict=True):
        tolerance = 5e-6 if actual.dtype == torch.float32 else 1e-9
        torch.testing.assert_close(
            actual, expected.to(actual.dtype), rtol=tolerance, atol=1e-30, equal_nan=True, msg=name
        )


def test_incomplete_gamma_functions() -> None:
    some = [0.0, 0.1, 1.0, 5.0, 30.0, 300.0, 1e4, 2e6, INF, -1.0, NAN]
    a, x = torch.meshgrid(
        torch.tensor(some), torch.tensor([0.01, 0.5, 29.0, 310.0, 1e4, 2.001e6, *some]), indexing="ij"
    )
    functions: dict[str, Function] = {"lower": torch.special.gammainc, "upper": torch.special.gammaincc}
    program = export(Calls(functions), (a, x), None)
    for name, actual, function in zip(functions, program(a, x), functions.values(), strict=True):
        expected = function(a.double(), x.double())
        torch.testing.assert_close(
            actual.double(), expected, rtol=3e-6, atol=1e-38, equal_nan=True, msg=lambda text, n=name: n + text
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_next_number_is_exact(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    ends = [limits.tiny, 1.5 * limits.tiny, 2.0 * limits.tiny, limits.max, -limits.max]
    powers = [2.0**place for place in range(-126, 127, 7)]
    x = torch.tensor([*NUMBERS[:30], *ends, *powers, 0.999, 1.0 + limits.eps, INF, -INF, NAN], dtype=dtype)
    program = export(Calls({"next": torch.nextafter}), (x, x), None)
    for towards in (INF, -INF, 0.0, 1.0):
        other = torch.full_like(x, towards)
        expected = torch.nextafter(x, other)
        assert torch.equal(program(x, other)[0].nan_to_num(3.0), expected.nan_to_num(3.0)), towards
    program.release()


def test_sums_and_means_of_single_zeros_begin_at_zero() -> None:
    """-0.0 comes out of none of them."""
    given = torch.tensor(-0.0), torch.full((1, 2, 4, 6), -0.0)
    functions: dict[str, Function] = {
        "sum": lambda x, image: x.sum(),
        "sum in float64": lambda x, image: x.sum(dtype=torch.float64),
        "mean": lambda x, image: x.mean(),
        "mean beside a variance": lambda x, image: torch.var_mean(x, 0, correction=0)[1],
        "cross entropy": lambda x, image: F.binary_cross_entropy(x + 1, x + 1),
        "pooled to its own size": lambda x, image: F.adaptive_avg_pool2d(image, (None, 6)),
        "pooled": lambda x, image: F.adaptive_avg_pool2d(image, (2, 6)),
    }
    for actual, name in zip(export(Calls(functions), given, None)(*given), functions, strict=True):
        assert not torch.signbit(actual).any(), name


def test_an_infinity_stays_in_its_window_of_an_adaptive_average() -> None:
    image = torch.tensor([[[[INF, 1.0, 2.0, 3.0], [4.0, 5.0, NAN, 7.0]]]])
    functions: dict[str, Function] = {
        "one axis": lambda image: F.adaptive_avg_pool1d(image[0], 2),
        "both": lambda image: F.adaptive_avg_pool2d(image, 2),
        "both, no batch": lambda image: F.adaptive_avg_pool2d(image[0], (1, 2)),
        "three": lambda image: F.adaptive_avg_pool3d(image, (1, 2, 4)),
    }
    check(functions, (image,))


def test_lgamma_of_subnormal_and_of_huge_numbers() -> None:
    ends = [
        5e-324,
        -5e-324,
        1e-310,
        -1e-310,
        1e-300,
        -1e-17,
        2e-9,
        -1e305,
        -1.7976931348623157e308,
        1.7976931348623157e308,
    ]
    check({"lgamma": torch.lgamma}, (torch.tensor(ends, dtype=torch.float64),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_quantile_function_has_its_tails(dtype: torch.dtype) -> None:
    class Quantile(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.ndtri(x)

    low = torch.logspace(-300, -0.4, 200, dtype=torch.float64)
    x = torch.cat([low, 1 - low, torch.tensor([0.0, 1.0, 0.5, -1.0, 2.0, NAN, 0.1, 0.9])]).to(dtype)
    expected = Quantile()(x)
    tolerance = 1e-14 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(export(Quantile(), (x,))(x)[0], expected, rtol=tolerance, atol=1e-7, equal_nan=True)


def test_numbers_beyond_those_of_eight_bits_become_what_eager_makes_of_them() -> None:
    kinds = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)

    class Rounded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x.to(kind).float() for kind in kinds]

    x = torch.tensor([1.0, -300.0, 500.0, 1e5, -1e5, INF, -INF, NAN])
    for ours, theirs in zip(export(Rounded(), (x,))(x), Rounded()(x), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_steps_beyond_a_dtype_are_taken_in_torchs_order() -> None:
    """What is beyond float32 on the way is multiplied or divided back, or it is never there."""
    for dtype, large in ((torch.float32, 3e38), (torch.float16, 6e4)):
        running = torch.tensor([large, large, -2.0, 0.0, 3.0]).to(dtype)
        check({"cumprod": lambda x: x.cumprod(0), "scaled": lambda x: (x / 2).cumprod(0)}, (running,))
        given = tuple(
            torch.tensor(one).to(dtype) for one in ([1.0, 2.0, 0.5], [42.5, 300.0, large], [1e-43, 300.0, 4.0])
        )
        functions = {
            "nothing": lambda *of: torch.addcdiv(*of, value=0.0),
            "divided": lambda *of: torch.addcdiv(*of, value=2),
            "multiplied": lambda *of: torch.addcmul(of[0], of[1], of[2] / of[2], value=0.25),
        }
        check(functions, given)


WHOLE = torch.tensor([3, 7, 200, 193], dtype=torch.uint8), torch.tensor([300, -2, 500, 7], dtype=torch.int32)
HALVES = torch.tensor([1e-3, 2.0, 60000.0, -3.0]).half(), torch.tensor([1e5, 1e-6, 1e-5, 7.0])


@pytest.mark.parametrize("optimize", [True, False])
def test_what_is_written_in_place_is_computed_in_the_wider_dtype(optimize: bool) -> None:
    """A remainder by 300 is no remainder by 44, and 1e5 is no number of float16."""
    of_whole: dict[str, Function] = {
        "floor_divide": lambda x, y: x.clone().floor_divide_(y),
        "div": lambda x, y: x.clone().div_(y, rounding_mode="trunc"),
        "remainder": lambda x, y: x.clone().remainder_(y),
        "fmod": lambda x, y: x.clone().fmod_(y),
        "clamp": lambda x, y: x.clone().clamp_(y - 400, y),
        "clamp_min": lambda x, y: x.clone().clamp_min_(y),
        "pow": lambda x, y: x.clone().pow_(y % 7 - 3),
        "mul": lambda x, y: x.clone().mul_(y),
    }
    of_halves: dict[str, Function] = {
        "mul": lambda x, y: x.clone().mul_(y),
        "addcmul": lambda x, y: x.clone().addcmul_(y, y),
        "of a part": _scaled_part,
    }
    for functions, given in ((of_whole, WHOLE), (of_halves, HALVES)):
        program = export(Calls(functions).eval(), given, None, optimize=optimize)
        run = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), _without_optimisation())
        found = run.run(None, {one.name: value.numpy() for one, value in zip(run.get_inputs(), given, strict=True)})
        for name, actual, expected in zip(functions, found, eager(Calls(functions), given), strict=True):
            np.testing.assert_array_equal(actual, expected.numpy(), err_msg=name)
        program.release()


def _scaled_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:] *= y[1:]
    return x


def _without_optimisation() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def test_numbers_at_equal_distances_are_those_of_eager() -> None:
    spaced = {f"{a} {b} {n}": _spaced(a, b, n) for a, b, n in ((0.1, 0.7, 7), (-3, 11.3, 33), (0, 1, 64), (0, INF, 3))}
    program = export(Calls(spaced).eval(), (torch.zeros(()),), None)
    for name, actual, expected in zip(
        spaced, program(torch.zeros(())), eager(Calls(spaced), (torch.zeros(()),)), strict=True
    ):
        np.testing.assert_array_equal(actual.numpy(), expected.numpy(), err_msg=name)
    program.release()
    of_many = {"zeta": lambda x: torch.special.zeta(x, torch.tensor([[2.0], [0.5], [1.0]]))}
    check(of_many, (torch.tensor([2.0, 1e3, 1e10, 1e15, INF]),))


def _spaced(start: float, end: float, steps: int) -> Function:
    return lambda x: torch.linspace(start, end, steps) + x
