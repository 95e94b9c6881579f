"""Complex tensors in operators: with each other, with real tensors, with numbers; and the models that live of them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from batch_export.errors import MissingOperatorError, TranslationError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

torch.manual_seed(0)
Z, W = torch.randn(2, 3, 2, dtype=torch.complex64), torch.randn(2, 3, 2, dtype=torch.complex64)
R, LAST, MASK = torch.randn(2, 3, 2), torch.randn(2), torch.rand(2, 3, 2) > 0.5

ARITHMETIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "number_added": lambda z, r: z + 1.0,
    "added_to_number": lambda z, r: 1 - z,
    "complex_number": lambda z, r: (z + 2j) * (1 + 2j) / (1 - 1j),
    "divided_by_number": lambda z, r: z / 2,
    "number_divided": lambda z, r: 2 / z,
    "real_added": lambda z, r: z + r,
    "added_to_real": lambda z, r: r - z,
    "real_times": lambda z, r: r * z,
    "over_real": lambda z, r: z / r,
    "real_over": lambda z, r: r / z,
    "other names": lambda z, r: torch.divide(z, r) + torch.multiply(r, z) - torch.subtract(r, z) + torch.divide(r, z),
    "last_axis": lambda z, r: z * LAST + LAST,
    "scalar_tensor": lambda z, r: (z * r.sum() + r.sum()) / r.sum(),
    "alpha": lambda z, r: torch.add(z, W, alpha=2) - torch.sub(z, r, alpha=3),
    "where": lambda z, r: torch.where(MASK, z, W) + torch.where(MASK, z, torch.zeros((), dtype=torch.complex64)),
    "masked_fill": lambda z, r: z.masked_fill(MASK, 1.5),
    "comparisons": lambda z, r: (z == W) | (z != z) | torch.isnan(z),
    "exponential": lambda z, r: torch.exp(z) + torch.sgn(z),
    "complex number beside real": lambda z, r: (r * 1j + 2j) * z + (1 - 1j) / (r + 5) + (3j - r),
    "real made complex": lambda z, r: r.cfloat().sqrt() + r.to(torch.complex64).log() * r.cfloat().angle(),
    "real against complex": lambda z, r: (r == 1j) | (r.double() != 1j),
    "towards another": lambda z, r: torch.lerp(z, W, 0.3) + torch.lerp(z, W, 1 + 2j) + torch.lerp(z, W, z * 0.4),
    "truth": lambda z, r: torch.logical_or(z - z, r) ^ torch.logical_and(z, W * 0) | torch.logical_xor(r, z),
    "no NaN": lambda z, r: torch.nan_to_num(z * torch.tensor([math.nan, 1.0]), 2.0),
    "powers": lambda z, r: z**0.5 + z**-0.5 + z**2 + z**3 + z**-1 + z**-2 + r.cfloat() ** 0.5,
}
STRUCTURE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "unsqueeze": lambda z, r: z.unsqueeze(-1),
    "squeeze_axes": lambda z, r: z[:1, :, None].squeeze(2).squeeze(1).squeeze((0, -1)),
    "squeeze_all": lambda z, r: z[:1, :, None].squeeze(),
    "select": lambda z, r: z.select(-1, 0),
    "index": lambda z, r: z[..., [1, 0]] + z[:, [0, 2, 1]],
    "gather": lambda z, r: z.gather(-1, torch.zeros(2, 3, 1, dtype=torch.int64)),
    "repeat": lambda z, r: z.repeat(1, 1, 2) + z[:, :1].expand(2, 3, 2).repeat_interleave(2, -1),
    "pad": lambda z, r: functional.pad(z, (1, 1)) + functional.pad(z, (1, 1), value=1.5),
    "pieces": lambda z, r: z.chunk(2, -1)[1] + z.split(1, -1)[0],
    "triangle": lambda z, r: torch.diagonal(z, 0, 1, 2).sum() + z.tril(),
    "cumsum": lambda z, r: z.cumsum(-1),
    "sums of no axes": lambda z, r: z.sum(()) + z.mean((), keepdim=True) + z.sum((0, -1), keepdim=True),
    "written": lambda z, r: torch.zeros_like(z).index_put((torch.tensor([0]),), z[:1]),
    "unbound": lambda z, r: z.unbind(1)[2] + z.unbind(0)[1][0] + z.unbind(-1)[0][:, :2],
    "put": lambda z, r: z.put(torch.tensor([0, 3]), W[0, 0]) + z.new_full((2,), 1 + 2j),
    "sums asked for in complex numbers": lambda z, r: r.cumsum(1, dtype=torch.cfloat) + r.sum(dtype=torch.cfloat) + z,
    "made": lambda z, r: torch.ones(2, 3, 2, dtype=torch.complex64) * z + z.new_zeros(2, 3, 2),
    "filled": lambda z, r: torch.full((2, 3, 2), 1 + 2j) * z + torch.full_like(z, 2 - 1j) + torch.ones_like(z),
    "like": lambda z, r: torch.empty_like(z).zero_() + torch.ones_like(r, dtype=torch.complex64) + torch.zeros_like(z),
    "another precision": lambda z, r: z.to(torch.complex128).mul(1 + 1j).to(torch.complex64) + z.to(torch.complex64),
    "real parts": lambda z, r: (
        z.to(torch.float32) + z.to("cpu", torch.complex128).to(torch.float64) + z.to(torch.int64)
    ),
    "joined with real numbers": lambda z, r: torch.cat([z, r.int(), r], 1) + torch.cat([r.double(), z, z], 1),
    "stacked with real numbers": lambda z, r: torch.stack([z, r, W]) + torch.hstack([z, r])[:, :3],
}
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda z, r: z @ W.mT,
    "bmm": lambda z, r: torch.bmm(z, W.mT),
    "convolutions": lambda z, r: (
        functional.conv_transpose2d(z[None, :2], W[:, :2, None], stride=2, dilation=4, output_padding=3).sum()
        + functional.conv1d(z, W[:, :, :1], padding=1)
        + functional.conv2d(z[:, None], W[:1, None, :2, :2], padding=1).sum()
        + functional.conv3d(z[None, None], W[None, None], padding=1).sum()
    ),
    "batches": lambda z, r: torch.baddbmm(z[:, :2, :1], z[:, :2], W[:, :2], beta=2, alpha=1j),
    "sums of batches": lambda z, r: torch.addbmm(z[0, :2, :1], z[:, :2], W[:, :2], beta=0) + z[0, :2, :1],
    "einsum": lambda z, r: torch.einsum("bij,bkj->bik", z, W),
    "linear": lambda z, r: functional.linear(z, W[0], W[0, :, 0]),
    "outer": lambda z, r: torch.outer(z[0, 0], W[0, 0]),
}


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor, r: Tensor) -> Tensor:
        result = self.function(z, r)
        return torch.view_as_real(result) if result.is_complex() else result


@pytest.mark.parametrize("name", [*ARITHMETIC, *STRUCTURE, *PRODUCTS])
def test_operators_on_complex_tensors(name: str) -> None:
    module = Calls((ARITHMETIC | STRUCTURE | PRODUCTS)[name])
    actual = torch.as_tensor(export(module, (Z, R))(Z, R)[0])
    torch.testing.assert_close(actual, module(Z, R), rtol=1e-5, atol=1e-5)


def test_a_slice_that_is_written_and_views_as_real_numbers() -> None:
    def function(z: Tensor, r: Tensor) -> Tensor:
        made = torch.zeros(2, 3, 2, dtype=torch.complex64)
        made[:, :2, :1] = z[:, :2, :1]
        made[:, 2:] = r[:, 2:]
        pairs = torch.view_as_real(made)
        return torch.view_as_complex(pairs * 2) * pairs[..., 0] + pairs[..., 1]

    module = Calls(function)
    torch.testing.assert_close(torch.as_tensor(export(module, (Z, R))(Z, R)[0]), module(Z, R))


def test_what_has_no_translation_is_refused() -> None:
    with pytest.raises(MissingOperatorError, match=r"eigh.* has no ONNX translation"):
        export(Calls(lambda z, r: torch.linalg.eigvalsh(z @ z.mH)), (Z, R))


class SpectralConvolution(nn.Module):
    """A Fourier neural operator's layer: products of the lowest frequencies with complex weights."""

    def __init__(self, channels: int = 4, modes: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, modes, dtype=torch.complex64))
        self.modes = modes

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros(*x.shape[:3], x.shape[3] // 2 + 1, dtype=torch.complex64)
        for rows in (slice(None, self.modes), slice(-self.modes, None)):
            low = spectrum[:, :, rows, : self.modes]
            out[:, :, rows, : self.modes] = torch.einsum("bixy,ioxy->boxy", low, self.weight)
        return torch.fft.irfft2(out, s=x.shape[2:])


class GlobalFilter(nn.Module):
    """A filter over the whole image, learnt as pairs of real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(8, 5, 4, 2))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weight)
        return torch.fft.irfft2(spectrum, s=(8, 8), dim=(1, 2), norm="ortho")


@pytest.mark.parametrize(("module", "shape"), [(SpectralConvolution(), (4, 8, 8)), (GlobalFilter(), (8, 8, 4))])
@pytest.mark.parametrize("opset", [18, 20, 23])
def test_models_of_frequencies_with_a_free_batch(module: nn.Module, shape: tuple[int, ...], opset: int) -> None:
    program = export(module, (torch.randn(2, *shape),), dynamic_shapes=({0: "batch"},), opset_version=opset)
    for batch in (1, 5):
        x = torch.randn(batch, *shape)
        torch.testing.assert_close(torch.as_tensor(program(x)[0]), module(x), rtol=1e-4, atol=1e-5)


def test_rotary_embedding_by_complex_numbers_with_a_free_length() -> None:
    class Rotary(nn.Module):
        def forward(self, x: Tensor, angles: Tensor) -> Tensor:
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    module, axes = Rotary(), ({0: "batch", 1: "length"}, {0: "length"})
    program = export(module, (torch.randn(2, 5, 8), torch.randn(5, 4)), dynamic_shapes=axes)
    for length in (1, 9):
        x, angles = torch.randn(3, length, 8), torch.randn(length, 4)
        torch.testing.assert_close(torch.as_tensor(program(x, angles)[0]), module(x, angles), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(4, 12), (7, 3)])
def test_fourier_transforms_that_pad_and_crop(sizes: tuple[int, int]) -> None:
    module = Calls(lambda z, r: torch.fft.ifft2(torch.fft.fft2(z, s=sizes), s=(3, 5)))
    torch.testing.assert_close(torch.as_tensor(export(module, (Z, R))(Z, R)[0]), module(Z, R), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes_sampled_between_their_elements(mode: str) -> None:
    class Samples(nn.Module):
        def forward(self, x: Tensor, grid: Tensor) -> Tensor:
            return functional.grid_sample(x, grid, mode=mode, padding_mode="border", align_corners=False)

    inputs = (torch.randn(2, 3, 4, 5, 6), torch.rand(2, 3, 3, 3, 3) * 2 - 1)
    actual = torch.as_tensor(export(Samples(), inputs)(*inputs)[0])
    torch.testing.assert_close(actual, Samples()(*inputs), rtol=1e-5, atol=1e-5)
    with pytest.raises(TranslationError, match=r"takes volumes from opset 20 on .*opset_version=20 or higher"):
        export(Samples(), inputs, opset_version=18)


def test_a_single_number_is_its_own_sum_and_mean() -> None:
    def both(z: Tensor) -> tuple[Tensor, ...]:
        return z.sum(), z.mean(), z[0].sum(), z[0, 0].sum(), z[0, 0].mean(), z.sum(dtype=torch.complex64)

    program = export(both, (Z[0],))
    for actual, expected in zip(program(Z[0]), both(Z[0]), strict=True):
        torch.testing.assert_close(actual, torch.view_as_real(expected))


FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    **{name: getattr(torch, name) for name in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "exp2", "expm1")},
    **{name: getattr(torch, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid", "neg")},
    **{name: getattr(torch, name) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "powers": lambda z: (z**2, (z + 5.0) ** -0.5, 2.0 ** (z / 4.0), (z + 4.0) ** (z / 4.0), z ** torch.tensor([3.0])),
    "silu": functional.silu,
    "a number": lambda z: z + torch.scalar_tensor(1 - 2j, dtype=z.dtype),
    "length": lambda z: (
        z.abs(),
        (z * 1e30).abs() / 1e30,
        torch.linalg.vector_norm(z.reshape(2, -1), 1.0, 1, keepdim=True, dtype=z.dtype),
    ),
    "spread": lambda z: (z.var(), z.std(0), *torch.var_mean(z.reshape(2, -1), 1, keepdim=True)),
    "places": lambda z: (z.nonzero(), z.logical_not(), z.to(torch.bool)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_complex_numbers(name: str) -> None:
    grid = torch.tensor([-3.0, -1.0, -0.2, 0.0, 0.4, 1.0, 2.5])
    axis = torch.complex(grid, torch.zeros(7)) if name not in ("rsqrt", "log", "log2", "log10") else torch.ones(0)
    z = torch.cat([torch.complex(*(one.flatten() for one in torch.meshgrid(grid, grid + 0.1, indexing="ij"))), axis])
    z = z[: z.numel() // 2 * 2]
    made = FUNCTIONS[name](z)
    expected = [torch.view_as_real(one) if one.is_complex() else one for one in pytree.tree_leaves(made)]
    actual = export(lambda z: FUNCTIONS[name](z), (z,))(z)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_lengths_are_infinite_where_one_part_is() -> None:
    inf, nan = float("inf"), float("nan")
    parts = torch.tensor([inf, -inf, nan, 0.0, -3.0, 1e30, 1e-30])
    z = torch.complex(parts.repeat(7), parts.repeat_interleave(7))
    program = export(lambda z: z.abs(), (z,), dynamic_shapes=({0: "n"},))
    for given in (z, z[:1], z[:0]):
        torch.testing.assert_close(program(given)[0], given.abs(), rtol=1e-6, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("axes", [None, ({0: "n"},)])
def test_products_of_complex_numbers(axes: Any) -> None:
    def products(z: Tensor) -> tuple[Tensor, ...]:
        return z.prod(), z.prod(0), z.prod(-1, keepdim=True), z.cumprod(0), z.cumprod(1), z[0, 0].prod()

    given = Z.reshape(6, 2)
    program = export(products, (given,), dynamic_shapes=axes)
    for z in (given, *([torch.cat([given, given])[1:], given[:1]] if axes else [])):
        for actual, expected in zip(program(z), products(z), strict=True):
            torch.testing.assert_close(torch.as_tensor(actual), torch.view_as_real(expected), rtol=1e-5, atol=1e-6)
    empty = export(lambda z: (z.prod(), z.prod(0), z.cumprod(0)), (given[:0],))(given[:0])
    assert [one.tolist() for one in empty] == [[1, 0], [[1, 0], [1, 0]], []]


def test_powers_of_zero_are_nan_for_tensors_and_one_for_the_number() -> None:
    def powers(z: Tensor) -> tuple[Tensor, ...]:
        return z**z, z ** torch.zeros(4), 0.0**z, z**0, z ** (z + 0.5), z ** (z - 1)

    z = torch.tensor([0j, 0j, 1 + 2j, complex(float("inf"), 1)])[None].expand(3, 4)
    for actual, expected in zip(export(powers, (z,))(z), powers(z), strict=True):
        parts = torch.view_as_real(expected[:, :3]).nan_to_num(7.0, 7.0)
        torch.testing.assert_close(torch.as_tensor(actual)[:, :3].nan_to_num(7.0, 7.0), parts, rtol=1e-5, atol=1e-5)
    assert torch.equal(torch.as_tensor(export(powers, (z,))(z)[3]), torch.view_as_real(powers(z)[3]))


def test_quotients_of_numbers_whose_squares_do_not_fit() -> None:
    big = torch.tensor([3e25 + 1e25j, 1e-25 - 2e-25j, complex(float("inf"), 1), complex(2, float("-inf")), 5j])
    for z in (torch.tensor([2e25 - 1e25j]), torch.tensor([1e-24 + 3e-25j]), torch.tensor([0j])):
        (actual,) = export(lambda z, w: z / w, (z, big))(z, big)
        torch.testing.assert_close(actual + 0.0, torch.view_as_real(z / big) + 0.0, rtol=1e-5, atol=0.0)


def test_complex_numbers_are_rolled_along_an_axis_that_may_be_empty() -> None:
    def rolled(z: Tensor) -> tuple[Tensor, ...]:
        return z.roll(-2, -2), z.roll((1, 2), (0, 1)), z.roll(3), z.roll(1, -1)

    program = export(rolled, (Z,), dynamic_shapes=({1: "n"},))
    for z in (Z, Z[:, :0], Z[:, :1], torch.cat([Z, Z], 1)):
        for actual, expected in zip(program(z), rolled(z), strict=True):
            torch.testing.assert_close(torch.as_tensor(actual), torch.view_as_real(expected))


def test_parts_of_a_conjugate() -> None:
    actual = export(lambda z: (z.conj().imag, z.conj().real, z.conj().imag.neg()), (Z,))(Z)
    for one, expected in zip(actual, (-Z.imag, Z.real, Z.imag), strict=True):
        torch.testing.assert_close(one, expected.resolve_neg())


def test_statistics_of_no_complex_numbers() -> None:
    def statistics(z: Tensor) -> tuple[Tensor, ...]:
        return (*torch.var_mean(z, 1), z.std(0), *torch.var_mean(z, 1, correction=0, keepdim=True))

    for z in (Z[0], Z[0, :0], Z[0, :, :0]):
        program = export(statistics, (z,))
        for one, other in zip(program(z), statistics(z), strict=True):
            expected = torch.view_as_real(other) if other.is_complex() else other
            torch.testing.assert_close(torch.as_tensor(one), expected, equal_nan=True)


def test_infinities_and_zeros_of_real_numbers_stay_so_as_complex_ones() -> None:
    class Made(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            z = x.to(torch.complex64)
            return torch.view_as_real(z), torch.view_as_real(z.sqrt()), z.angle(), torch.view_as_real(z**0.5)

    x = torch.tensor([1.0, -2.0, 0.0, -0.0, float("inf"), -float("inf")])
    made = export(Made(), (x,))(x)
    for ours, theirs in zip(made, Made()(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["hfft", "irfft", "irfft2"])
@pytest.mark.parametrize("norm", ["backward", "ortho"])
def test_transforms_back_to_real_numbers_of_free_length(name: str, norm: str) -> None:
    class Back(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = getattr(torch.fft, name)(x, norm=norm)
            return found

    program = export(Back(), (torch.randn(3, 5, dtype=torch.complex64),), dynamic_shapes=({0: "rows", 1: "length"},))
    for sizes in ((3, 5), (2, 4), (4, 9), (1, 2)):
        x = torch.randn(sizes, dtype=torch.complex64)
        torch.testing.assert_close(program(x)[0], Back()(x), rtol=1e-4, atol=1e-4)


CONJUGATE_WRITES: dict[str, Callable[[Tensor], Any]] = {
    "an element of each row": lambda z: z.__setitem__((slice(None), 0), 2j),
    "a part": lambda z: z[:, 1:].mul_(3j),
    "a sum in place": lambda z: operator.iadd(z, 1j),
    "its own imaginary part": lambda z: z.imag.mul_(3),
    "a mask": lambda z: z.masked_fill_(z.real > 0, 1j),
}


@pytest.mark.parametrize("name", CONJUGATE_WRITES)
def test_writes_to_a_conjugate_of_free_size(name: str) -> None:
    def written(x: Tensor) -> Tensor:
        y = x.clone()
        CONJUGATE_WRITES[name](y.conj())
        return y

    program = export(written, (torch.randn(3, 4, dtype=torch.complex64),), dynamic_shapes=({0: "b"},))
    for count in (3, 5, 1):
        x = torch.randn(count, 4, dtype=torch.complex64)
        found = torch.as_tensor(program(x)[0])
        expected = written(x)
        torch.testing.assert_close(found, expected if found.is_complex() else torch.view_as_real(expected))


def test_real_numbers_made_complex_between_transposes_run() -> None:
    def signal(x: Tensor) -> Tensor:  # onnxruntime moves the one Transpose to the other, past what makes pairs
        angle = x.transpose(1, 2)
        return torch.fft.irfft((torch.cos(angle) + 1j * torch.sin(angle)).transpose(1, 2), 8, dim=1)

    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(torch.as_tensor(export(signal, (x,))(x)[0]), signal(x), rtol=1e-4, atol=1e-5)


PAIR_WRITES: dict[str, Callable[[Tensor], Any]] = {
    "all of it": lambda z: z.mul_(1j),
    "rows of it": lambda z: z[1:].fill_(2 - 1j),
    "a transpose": lambda z: z.T[1:].mul_(2j),
    "pairs of it": lambda z: torch.view_as_real(z)[..., 0].fill_(3.0),
}


@pytest.mark.parametrize("name", PAIR_WRITES)
def test_writes_to_pairs_seen_as_complex_numbers(name: str) -> None:
    def written(x: Tensor) -> Tensor:
        pairs = x.clone()
        PAIR_WRITES[name](torch.view_as_complex(pairs))
        return pairs

    program = export(written, (torch.randn(3, 4, 2),), dynamic_shapes=({0: "b", 1: "t"},))
    for sizes in ((3, 4), (1, 1), (5, 2)):
        x = torch.randn(*sizes, 2)
        torch.testing.assert_close(torch.as_tensor(program(x)[0]), written(x))


def test_an_exponential_at_infinities_is_that_of_c() -> None:
    inf, nan = float("inf"), float("nan")
    lengths, angles = (-inf, -3e4, 0.0, 1e3, inf, nan), (0.0, -0.0, 1.0, 3.0)
    nowhere = (complex(inf, nan), complex(0, inf), complex(-inf, inf), complex(-inf, -inf), complex(-inf, nan))
    given = torch.tensor([*(complex(a, b) for a in lengths for b in angles), *nowhere])
    found = torch.view_as_complex(export(Calls(lambda z, r: z.exp()), (given, given.real))(given, given.real)[0])
    expected = torch.exp(given)
    torch.testing.assert_close(found, expected, equal_nan=True)
    for one, other in ((found.real, expected.real), (found.imag, expected.imag)):
        known = ~other.isnan() & ((other != 0) | (given.real > -inf))
        assert torch.equal(torch.signbit(one[known]), torch.signbit(other[known]))


def test_memory_of_complex_numbers_is_read_in_its_order() -> None:
    z = torch.randn(4, 3, 3, dtype=torch.complex64)
    strided = Calls(lambda z, r: z.as_strided((2, 3), (1, 3), 2))
    for given in (z, z.transpose(0, 2)):
        assert torch.equal(export(strided, (given, R))(given, R)[0], strided(given, R))
    with pytest.raises(TranslationError, match="as_strided reads memory that is not"):
        export(strided, (z.repeat_interleave(2, -1)[..., ::2], R))


OF_A_SCALAR: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": lambda z: z.flip(0),
    "flip from the end": lambda z: z.flip(-1),
    "transpose": lambda z: z.transpose(0, -1),
    "deviation": lambda z: z.std(0, correction=0),
    "sum": lambda z: z.sum(0),
    "running sum": lambda z: z.cumsum(0),
    "squeeze": lambda z: z.squeeze(-1),
}


@pytest.mark.parametrize("name", OF_A_SCALAR)
def test_the_axis_of_a_complex_scalar_is_none_of_its_two_parts(name: str) -> None:
    class Scalar(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return torch.view_as_real(OF_A_SCALAR[name](z) + 0j)

    z = torch.tensor(1.5 + 4.5j)
    torch.testing.assert_close(torch.as_tensor(export(Scalar(), (z,))(z)[0]), Scalar()(z))


def test_powers_of_all_ends_are_what_eager_makes_of_them() -> None:
    class Power(nn.Module):
        def forward(self, z: Tensor, w: Tensor) -> Tensor:
            return torch.view_as_real(z**w)

    parts = (math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -1.0, 3.0, -2.5)
    ends = [complex(a, b) for a in parts for b in parts]
    for dtype, allowed in ((torch.complex128, 1e-5), (torch.complex64, 1e-2)):  # eager's pi has float32's digits
        z, w = (torch.tensor(one, dtype=dtype) for one in zip(*itertools.product(ends, ends), strict=True))
        expected, actual = Power()(z, w), torch.as_tensor(export(Power(), (z, w))(z, w)[0])
        torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-5, atol=allowed)


AT_ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": Tensor.abs,
    "log": Tensor.log,
    "sqrt": Tensor.sqrt,
    "rsqrt": Tensor.rsqrt,
    "reciprocal": Tensor.reciprocal,
    "sgn": Tensor.sgn,
    "inverse": lambda z: z**-1.0,
    "quotient": lambda z: (2 - 1j) / z,
}
HUGE = (3e160, -4e-170, 2e300, 5.0, 0.0, -1e-300)
ENDS = (3e25, -4e-26, 5.0, 0.0, -0.0, math.inf, -math.inf, math.nan)


CIRCULAR = (
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "log2",
    "log10",
)


@pytest.mark.parametrize(("parts", "dtype"), [(HUGE, torch.complex128), (ENDS, torch.complex64)])
@pytest.mark.parametrize("name", [*AT_ENDS, *CIRCULAR])
def test_numbers_whose_squares_do_not_fit_and_ends_are_as_in_eager(
    name: str, parts: tuple[float, ...], dtype: torch.dtype
) -> None:
    def real(z: Tensor) -> Tensor:
        made = AT_ENDS[name](z) if name in AT_ENDS else getattr(torch, name)(z)
        return torch.view_as_real(made) if made.is_complex() else made

    z = torch.tensor([complex(a, b) for a in parts for b in parts], dtype=dtype)
    allowed = 1e-12 if dtype == torch.complex128 else 1e-5
    actual, expected = torch.as_tensor(export(real, (z,))(z)[0]), real(z)
    beside = 0.0 if name in AT_ENDS else 1e-24  # what C leaves of one part beside the other
    torch.testing.assert_close(actual, expected, rtol=allowed, atol=beside, equal_nan=True)


MIDDLE = (0.0, -0.0, 1e-8, -3e-4, 0.3, -1.0, 1.0, 2.0, -50.0, 1e4, -1e9)


@pytest.mark.parametrize("name", [*CIRCULAR, "log1p", "expm1", "sigmoid", "sqrt", "log"])
def test_no_digit_is_lost_beside_one_and_the_axes_and_far_from_them(name: str) -> None:
    def real(z: Tensor) -> Tensor:
        return torch.view_as_real(getattr(torch, name)(z))

    z = torch.tensor([complex(a, b) for a in MIDDLE for b in MIDDLE], dtype=torch.complex128)
    actual, expected = torch.as_tensor(export(real, (z,))(z)[0]), real(z)
    larger = expected.abs().nan_to_num(1.0, 1.0, 1.0).amax(-1, keepdim=True)
    torch.testing.assert_close(actual / larger, expected / larger, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize(
    ("draw", "mean", "spread"),
    [
        (lambda x: torch.randn(x.shape[0], dtype=torch.complex64), 0.0, 0.5**0.5),
        (lambda x: torch.randn_like(torch.complex(x, x)), 0.0, 0.5**0.5),
        (lambda x: torch.rand(x.shape[0], dtype=torch.complex128), 0.5, 12**-0.5),
        (lambda x: torch.rand_like(torch.complex(x, x)), 0.5, 12**-0.5),
    ],
)
def test_random_complex_numbers_are_spread_as_torchs(
    draw: Callable[[Tensor], Tensor], mean: float, spread: float
) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            parts = torch.view_as_real(draw(x))
            return torch.stack([parts.mean(0), parts.std(0), parts.prod(1).mean().expand(2)])

    program = export(Model(), (torch.zeros(9),), dynamic_shapes=({0: "n"},))
    (found,) = program(torch.zeros(60_000))
    expected = torch.tensor([[mean] * 2, [spread] * 2, [mean * mean] * 2], dtype=found.dtype)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)
