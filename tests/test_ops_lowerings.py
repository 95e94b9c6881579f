"""Our own translations of operators, in ONNX Runtime, against eager; the whole database is the nox session `ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import op_database
import pytest
import torch
from exporting import export_and_compare
from torch.nn import functional

from batch_export.exporter import export

pytestmark = pytest.mark.sampled


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


INF, NAN = float("inf"), float("nan")


def positive(count: int, batch: int = 2) -> torch.Tensor:
    torch.manual_seed(count)
    base = torch.randn(batch, count, count)
    return base @ base.mT + count * torch.eye(count)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "stable sort": lambda x: torch.sort(x, stable=True, dim=1, descending=True),
    "median": lambda x: x.median(dim=1).values,
    "nanmedian": lambda x: torch.where(x > 1, torch.nan, x).nanmedian(),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1),
    "masked select": lambda x: x[x > 0] if False else torch.masked_select(x, x > 0),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
    "pooling with a divisor": lambda x: torch.nn.functional.avg_pool2d(x[:, None], 3, 2, 1, True, True, 5),
    "adaptive maxima": lambda x: torch.nn.functional.adaptive_max_pool2d(x[:, None], (4, 3), return_indices=True),
    "circular padding": lambda x: torch.nn.functional.pad(x, (2, 3), mode="circular"),
    "scatter mean": lambda x: x.scatter_reduce(1, torch.zeros(2, 10, 10, dtype=torch.int64), x, "mean"),
    "distances": lambda x: torch.cdist(x, x + 1.0, p=1.0),
    "lgamma": lambda x: torch.lgamma(x * 3),
    "digamma": lambda x: torch.digamma(x * 3 + 0.1),
    "erfinv": lambda x: torch.erfinv(torch.tanh(x)),
    "log_ndtr": lambda x: torch.special.log_ndtr(x * 9),
    "truth values": lambda x: torch.where(x > 0, x > 1, x < -1) + (x > 2),
    "integers": lambda x: torch.nn.functional.relu((x * 5).long()) + torch.floor((x * 5).long()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_gives_what_eager_gives(name: str) -> None:
    torch.manual_seed(0)
    export_and_compare(Call(FUNCTIONS[name]), (torch.randn(2, 10, 10),))


@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), ()])
def test_places_of_extremes_keep_all_axes(shape: tuple[int, ...]) -> None:
    call = Call(lambda x: (x.argmin(keepdim=True), x.argmax(keepdim=True), x.argmin(), x.argmax(-1, keepdim=True)))
    export_and_compare(call, (torch.randn(shape),), (torch.ones(shape),))


class Convolved(torch.nn.Module):
    """Convolutions by names that models seldom call themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.wide = (torch.nn.Parameter(torch.randn(shape)) for shape in ((5, 4, 3), (3, 4, 5)))
        self.bias = torch.nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flags = (False, False, True, True)
        steps = torch.conv_tbc(x.permute(2, 0, 1).contiguous(), self.wide, self.bias, 2)
        return torch._convolution(x, self.plain, None, [2], [1], [1], False, [0], 1, *flags), steps


def test_convolutions_by_other_names() -> None:
    export_and_compare(Convolved(), (torch.randn(2, 4, 9),), (torch.randn(2, 4, 9),))


@pytest.mark.parametrize("opset", [11, 20])
def test_one_number_is_for_all_axes_of_a_convolution(opset: int) -> None:
    plain = torch.nn.Conv2d(3, 4, (3, 2), stride=[2], padding=[1], dilation=[2])  # type: ignore[arg-type]
    export_and_compare(plain, (torch.randn(2, 3, 9, 8),), (torch.randn(2, 3, 9, 8),), opset_version=opset)
    turned = torch.nn.ConvTranspose2d(3, 4, (3, 2), stride=2)
    program = export(
        torch.nn.Sequential(plain, torch.nn.Conv2d(4, 3, 1, bias=False), turned).eval(), (torch.randn(2, 3, 9, 8),)
    )
    kernels = [
        list(node.attributes["kernel_shape"].as_ints()) for node in program.model.graph if "Conv" in node.op_type
    ]
    assert kernels == [[3, 2], [1, 1], [3, 2]]


QUOTIENTS: dict[str, Callable[[int, int], torch.Tensor]] = {
    "rounded towards 0": lambda n, m: torch.div(n, m, rounding_mode="trunc"),
    "rounded down": lambda n, m: torch.div(-n, m + 0.5, rounding_mode="floor"),
    "whole": lambda n, m: torch.floor_divide(n, m),
    "not rounded": lambda n, m: torch.div(n, m),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_of_two_numbers_are_tensors(name: str) -> None:
    call = Call(lambda x: x * QUOTIENTS[name](x.shape[0], x.shape[1]))
    export_and_compare(call, (torch.randn(7, 2),), (torch.randn(7, 2),))
    export_and_compare(call, (torch.randn(7, 2),), (torch.randn(9, 4),), dynamic_shapes=({0: "n", 1: "m"},))


class Crossed(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cross(x, y), torch.cross(x, y, dim=-1), torch.linalg.cross(x, y, dim=1), torch.linalg.cross(x, y)


@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_vectors_lie_on_the_first_axis_of_three(dtype: torch.dtype) -> None:
    x, y = ((torch.randn(2, 3, 4, 3) * 4).to(dtype) for _ in range(2))
    export_and_compare(Crossed(), (x, y), (y, -x), tolerance=1e-2)


class Repeated(torch.nn.Module):
    def forward(self, x: torch.Tensor, often: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(often, dim=1)


def test_one_number_repeats_every_slice() -> None:
    x, one, each = torch.randn(2, 3), torch.tensor([2]), torch.tensor([2, 0, 4])
    free = {"dynamic_shapes": ({1: "n"}, {0: "m"})}
    export_and_compare(Repeated(), (x, one), (torch.randn(2, 5), one), (x, each), **free)
    export_and_compare(Repeated(), (x, torch.tensor(3)), (x, torch.tensor(0)))


@pytest.mark.parametrize("count", [0, 1, 6])
def test_greatest_distances_over_any_number_of_columns(count: int) -> None:
    call = Call(lambda x: torch.cdist(x, -x[:2], p=float("inf")))
    export_and_compare(call, (torch.randn(4, 3),), (torch.randn(4, count),), dynamic_shapes=({1: "n"},))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, INF])
def test_distances_of_what_is_no_number(p: float) -> None:
    rows = torch.tensor([[NAN, 1.0, -2.0], [INF, NAN, 0.5], [NAN, NAN, NAN], [INF, -INF, 0.0], [3.0, 0.25, -1.0]])
    call = Call(lambda x: torch.cdist(x, -x[1:], p=p))
    export_and_compare(call, (rows,), (rows.flip(0)[1:],), (-rows,), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("amounts", [(2, -1), (-1, 2), (-1, -1), (2, -1, -1, 1), (0, 0)])
def test_reflection_reaches_what_the_other_end_loses(amounts: tuple[int, ...]) -> None:
    call = Call(lambda x: torch.nn.functional.pad(x, amounts, mode="reflect"))
    x = torch.randn(2, 3, 3) if len(amounts) == 2 else torch.randn(2, 3, 3, 3)
    export_and_compare(call, (x,), (x.repeat_interleave(2, -1),), dynamic_shapes=({x.dim() - 1: "n"},))


@pytest.mark.parametrize(("before", "after"), [(-1, 2), (2, -1), (-1, -1), (-2, 2), (1, 1), (-1, 1)])
def test_what_is_wrapped_round_may_be_more_than_what_is_left(before: int, after: int) -> None:
    call = Call(lambda x: functional.pad(x, (0, 0, before, after), "circular"))
    program = export(call, (torch.randn(2, 2, 6, 3),), dynamic_shapes=({2: "h"},))
    taken, lost = min(before, 0), min(after, 0)
    for size in (2, 3, 4, 9):
        left = size + taken + lost
        if left > 0 and (left >= max(before, after) or taken + lost):  # eager refuses others
            x = torch.randn(2, 2, size, 3)
            places = torch.arange(-max(before, 0), left + max(after, 0)) % left
            assert torch.equal(program(x)[0], x[:, :, places - taken])


def _missing(size: int, multiple: int) -> int:
    return (multiple - size % multiple) % multiple


COMPUTED_PADS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reflected": lambda x: functional.pad(x, (0, _missing(x.shape[2], 4)), "reflect"),
    "reflected or cut": lambda x: functional.pad(x, (x.shape[2] - 1, 6 - x.shape[2]), "reflect"),
    "wrapped": lambda x: functional.pad(x, (_missing(x.shape[2], 3), _missing(x.shape[2], 4)), "circular"),
    "wrapped or cut": lambda x: functional.pad(x, (7 - x.shape[2], 1), "circular"),
    "repeated or cut": lambda x: functional.pad(x, (6 - x.shape[2], 2), "replicate"),
    "zeros or cut": lambda x: functional.pad(x, (1, 6 - x.shape[2])),
}


@pytest.mark.parametrize("name", COMPUTED_PADS)
def test_amounts_of_padding_that_follow_from_a_free_size(name: str) -> None:
    others = [(torch.randn(2, 3, size),) for size in (4, 5, 6, 7, 8, 12)]
    call = Call(COMPUTED_PADS[name])
    export_and_compare(call, (torch.randn(2, 3, 9),), *others, dynamic_shapes=({2: "n"},))


@pytest.mark.parametrize("opset", [13, 18, 25])
def test_a_picture_is_reflected_up_to_a_multiple_of_a_window(opset: int) -> None:
    call = Call(lambda x: functional.pad(x, (0, _missing(x.shape[3], 4), 0, _missing(x.shape[2], 4)), "reflect"))
    others = [(torch.randn(1, 2, *sizes),) for sizes in ((8, 8), (3, 12), (4, 5), (7, 3))]
    options = {"dynamic_shapes": ({2: "h", 3: "w"},), "opset_version": opset}
    program = export_and_compare(call, (torch.randn(1, 2, 9, 6),), *others, **options)
    assert not [node for node in program.model.graph if node.op_type == "Max"]  # nothing can be cut off


LARGE_INTEGERS: dict[str, Callable[..., Any]] = {
    "convolution": lambda x: torch.nn.functional.conv2d(x, x[:, :, :3, :3] % 9, padding=1, stride=2),
    "convolution of int32": lambda x: torch.nn.functional.conv2d((x % 2**26).int(), (x[:, :, :3, :2] % 3).int()),
    "transposed convolution": lambda x: torch.nn.functional.conv_transpose2d(x, x[:, :, :3, :3] % 9, stride=2),
    "volumes": lambda x: torch.nn.functional.conv3d(x[None], x[:, :2, None, :3, :2].repeat(1, 1, 2, 1, 1) % 5),
    "means": lambda x: torch.nn.functional.avg_pool2d(x, (3, 2), padding=1),
    "means at the edges": lambda x: torch.nn.functional.avg_pool2d(x, 3, ceil_mode=True, count_include_pad=False),
    "a divisor": lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3),
}


@pytest.mark.parametrize("name", LARGE_INTEGERS)
def test_sums_of_large_integers_keep_their_digits(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(-(2**44), 2**44, (2, 2, 7, 6))
    export_and_compare(Call(LARGE_INTEGERS[name]), (x,), tolerance=0)


def test_a_convolution_of_volumes_without_a_bias_has_none() -> None:
    volume = torch.nn.Conv3d(2, 3, 2, bias=False)
    program = export_and_compare(volume, (torch.randn(2, 2, 3, 4, 5),))
    assert [len(node.inputs) for node in program.model.graph] == [2]
    export_and_compare(volume.double(), (torch.randn(2, 3, 4, 5, dtype=torch.float64),))


POLYNOMIALS = (
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
)


class Polynomial(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = getattr(torch.special, name)

    def forward(self, x: torch.Tensor, degrees: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.function(x, degrees), self.function(x, 3), self.function(0.5, degrees)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_each_degree(name: str) -> None:
    x = torch.tensor([[-2.0, -1.0, -0.3, 0.0, 0.4, 1.0, 1.5]])
    degrees = torch.tensor([[-1.0], [0.0], [1.0], [2.7], [5.0], [12.0]])
    export_and_compare(Polynomial(name), (x, degrees))


MATRICES: dict[str, Callable[..., Any]] = {
    "inverse": torch.linalg.inv,
    "solve": lambda x: torch.linalg.solve(x, x[..., :2] + 1.0),
    "cholesky": torch.linalg.cholesky,
    "determinant": torch.linalg.slogdet,
    "factors": torch.linalg.lu,
    "orthogonal": torch.linalg.qr,
    "triangular": lambda x: torch.linalg.solve_triangular(x.tril(), x + 1.0, upper=False),
}


@pytest.mark.parametrize("count", [3, 12], ids=["written out", "as a Loop"])
@pytest.mark.parametrize("name", MATRICES)
def test_linear_algebra_over_a_free_batch(name: str, count: int) -> None:
    module = Call(MATRICES[name])
    given = positive(count), positive(count, batch=4)
    program = export_and_compare(module, (given[0],), (given[1],), dynamic_shapes=({0: "batch"},), tolerance=1e-3)
    assert ("Loop" in {node.op_type for node in program.model.graph}) == (count == 12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_logarithm_of_a_determinant_that_is_too_large(dtype: torch.dtype) -> None:
    """It is a sum of logarithms; onnxruntime's Det has no kernel for float64."""
    x = torch.diag(torch.tensor([1e20, 3e25, 2.0], dtype=dtype)) + 0.5
    export_and_compare(Call(torch.logdet), (x,), (-x,))


@pytest.mark.parametrize("sizes", [(2, 8, 6), (1, 5, 9), (3, 1, 2), (1, 2, 1)])
def test_adaptive_maxima_over_free_axes_with_their_places(sizes: tuple[int, int, int]) -> None:
    def both(x: torch.Tensor) -> object:
        first = torch.nn.functional.adaptive_max_pool2d(x, (2, 3), return_indices=True)
        return *first, *torch.nn.functional.adaptive_max_pool1d(x.flatten(2), 4, return_indices=True)

    free = ({0: "batch", 2: "height", 3: "width"},)
    of_ties = torch.randint(-3, 3, (sizes[0], 2, *sizes[1:])).float()
    export_and_compare(Call(both), (torch.randn(2, 2, 7, 5),), (of_ties,), dynamic_shapes=free)


def test_the_database_tells_regressions_from_progress() -> None:
    records = [
        {"op": "add", "dtype": "bool", "class": "mismatch", "why": "off"},
        {"op": "sort", "dtype": "bool", "class": "pass", "why": ""},
        {"op": "svd", "dtype": "float32", "class": "missing", "why": ""},
    ]
    expected = {"sort": {"bool": "mismatch"}, "svd": {"float32": "missing"}}
    found = op_database.differences(records, expected)
    assert found == [
        "add bool was expected to end as pass and ended as mismatch: off",
        "sort bool passes now and was expected to end as mismatch: take it out of the list",
    ]


class Scored(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(scores, target, weight, **self.options)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("by", ["number", "probability"])
def test_cross_entropy_with_weights_and_smoothing(by: str, reduction: str, smoothing: float) -> None:
    torch.manual_seed(0)
    scores, weight = torch.randn(6, 5, 4), torch.rand(5)
    target = torch.randint(0, 5, (6, 4)) if by == "number" else scores.sin().softmax(1)
    if by == "number":
        target[0, 0] = -100  # left out
    export_and_compare(Scored(reduction=reduction, label_smoothing=smoothing), (scores, target, weight))


@pytest.mark.parametrize(("extra", "padding", "stride", "dilation"), [(3, 0, 2, 4), (3, 1, 2, 5), (1, 2, 2, 1)])
def test_a_transposed_convolution_with_any_output_padding(extra: int, padding: int, stride: int, dilation: int) -> None:
    torch.manual_seed(0)
    module = torch.nn.ConvTranspose2d(6, 4, 3, stride, padding, extra, groups=2, dilation=dilation)
    more = (torch.randn(3, 6, 5, 7),)
    export_and_compare(module, (torch.randn(2, 6, 5, 7),), more, dynamic_shapes=({0: "batch"},))


@pytest.mark.parametrize("stride", [2, 3])
def test_a_transposed_convolution_to_the_size_of_another_tensor(stride: int) -> None:
    class Back(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = torch.nn.Conv2d(3, 4, 3, stride, 1)
            self.up = torch.nn.ConvTranspose2d(4, 3, 3, stride, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.up(self.down(x), output_size=x.shape[-2:])

    torch.manual_seed(0)
    others = [(torch.randn(sizes),) for sizes in ((1, 3, 9, 9), (3, 3, 10, 11), (1, 3, 5, 6))]
    free = ({0: "batch", 2: "height", 3: "width"},)
    program = export_and_compare(Back(), (torch.randn(2, 3, 8, 7),), *others, dynamic_shapes=free)
    assert [str(size) for size in program.model.graph.outputs[0].shape] == ["batch", "3", "height", "width"]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_offset_of_a_bag_is_where_eager_takes_it_for(mode: str) -> None:
    weight, indices = torch.arange(30.0).view(10, 3), torch.tensor([1, 2, 3, 4, 5, 6])

    class Bags(torch.nn.Module):
        def forward(self, offsets: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode, include_last_offset=True)

    ends = ([0, 3, 5], [0, 2, 2], [0, 0, 6])
    export_and_compare(Bags(), (torch.tensor([0, 1, 6]),), *((torch.tensor(end),) for end in ends), tolerance=1e-6)


@pytest.mark.parametrize("shapes", [((4, 8), (2, 6, 8)), ((2, 4, 8), (6, 8)), ((1, 4, 8), (2, 6, 8))], ids=str)
def test_unnamed_axes_of_one_factor_are_repeated_to_those_of_another(shapes: tuple[tuple[int, ...], ...]) -> None:
    class Products(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.einsum("...id,...jd->...ij", x, y)

    torch.manual_seed(0)
    export_and_compare(Products(), tuple(torch.randn(shape) for shape in shapes))


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


@pytest.mark.parametrize("reduce", ["amax", "amin", "mean"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("of_zeros", [True, False])
def test_reductions_at_places_keep_nan_and_signs_of_zeros(reduce: str, include_self: bool, of_zeros: bool) -> None:
    inf, nan = float("inf"), float("nan")
    start = torch.tensor([-0.0, nan, 1.0, -inf, inf, -0.0, nan])
    source = torch.tensor([-0.0, -0.0, nan, 5.0, -inf, inf, nan, -3.0])
    places = torch.tensor([0, 0, 2, 2, 3, 4, 4, 1])

    def function(start: torch.Tensor, places: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        start = torch.zeros_like(start) if of_zeros else start
        return start.scatter_reduce(0, places, source, reduce, include_self=include_self)

    program = export(Calls(function), (start, places, source), dynamic_shapes=(({0: "n"}, {0: "m"}, {0: "m"}),))
    for count in (8, 2, 1, 0):
        given = start, places[:count], source[:count]
        found, wanted = program(*given)[0], function(*given)
        torch.testing.assert_close(found, wanted, equal_nan=True)
        told = ~wanted.isnan()  # the sign of NaN says nothing
        assert of_zeros or torch.equal(torch.signbit(found)[told], torch.signbit(wanted)[told])
    if of_zeros and include_self and reduce != "mean":
        assert [node.op_type for node in program.model.graph].count("IsNaN") == 1


def test_runs_of_equal_elements_take_few_nodes() -> None:
    program = export(Calls(torch.unique_consecutive), (torch.tensor([3, 3, 1, 1, 3]),), dynamic_shapes=(({0: "n"},),))
    assert len(program.model.graph) <= 8
    for given in ([3, 3, 1, 1, 3], [2], []):
        of = torch.tensor(given, dtype=torch.int64)
        assert torch.equal(program(of)[0], torch.unique_consecutive(of))


def test_the_largest_element_of_an_image_is_one_node() -> None:
    module = torch.nn.AdaptiveMaxPool2d(1)
    program = export(module, (torch.randn(2, 3, 5, 4),), dynamic_shapes=({0: "n", 2: "h", 3: "w"},))
    assert [node.op_type for node in program.model.graph] == ["ReduceMax"]
    for shape in ((2, 3, 5, 4), (0, 3, 2, 2), (1, 3, 1, 7)):
        given = torch.randn(shape)
        assert torch.equal(program(given)[0], module(given))
