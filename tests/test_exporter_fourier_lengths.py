"""Fourier transforms of a given length along a free axis: padded below it, cut beyond it, in one file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import rarer
import torch
from exporting import export_and_compare
from torch import fft

from batch_export import export

pytestmark = pytest.mark.sampled

Function = Callable[[torch.Tensor], torch.Tensor]

REAL: dict[str, Function] = {
    "fft": lambda x: fft.fft(x, n=5),
    "rfft": lambda x: fft.rfft(x, n=5),
    "longer": lambda x: fft.rfft(x, n=8),
    "of its double": lambda x: fft.rfft(x, n=2 * x.shape[0]),
}
COMPLEX: dict[str, Function] = {
    "fft": lambda x: fft.fft(x, n=5),
    "ifft": lambda x: fft.ifft(x, n=5, norm="ortho") * 1,
    "longer": lambda x: fft.fft(x, n=8),
    "irfft": lambda x: fft.irfft(x, n=4),
    "hfft": lambda x: fft.hfft(x, n=8),
    "of its double": lambda x: fft.fft(x, n=2 * x.shape[0]),
    "of images": lambda x: fft.fft2(torch.stack([x, x]), s=(3, 5)),
}


class Transform(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.function(x)
        return torch.view_as_real(result) if result.is_complex() else result


class Several(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.function(x)


@pytest.mark.parametrize(
    ("dtype", "way"), [(torch.float32, way) for way in REAL] + [(torch.complex64, way) for way in COMPLEX]
)
def test_lengths_on_both_sides_of_the_wanted_one(dtype: torch.dtype, way: str) -> None:
    torch.manual_seed(0)
    function = (COMPLEX if dtype.is_complex else REAL)[way]
    first, *more = ((torch.randn(size, dtype=dtype),) for size in (6, 2, 3, 5, 9))
    export_and_compare(Transform(function), first, *more, dynamic_shapes=({0: "n"},))


BESIDE: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "halves of two axes": lambda x: (fft.rfft(x, dim=0).abs(), fft.rfft2(x).abs()),
    "a whole and a half": lambda x: (fft.fft(x, dim=0).abs(), fft.rfft(x, dim=0).abs()),
    "of its double": lambda x: (fft.fft(x, n=2 * x.shape[1]).abs(), fft.fft(x).abs()),
    "from and to halves": lambda x: (fft.hfft(x).abs(), fft.ihfft(x).abs(), fft.rfft(x).abs()),
}


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("way", BESIDE)
def test_transforms_beside_one_another_have_memory_of_their_own_lengths(way: str, opset: int) -> None:
    """onnx infers the length that goes in for the one that comes out, and memory of that size was used again."""
    torch.manual_seed(0)
    first, *more = ((torch.randn(size),) for size in ((4, 6), (5, 8), (3, 7), (9, 5)))
    shapes = ({0: "n", 1: "m"},)
    export_and_compare(Several(BESIDE[way]), first, *more, dynamic_shapes=shapes, opset_version=opset)


def long_convolution(x: torch.Tensor) -> torch.Tensor:
    size = x.shape[-1]
    decay = torch.exp(-torch.arange(size, dtype=x.dtype))
    whole: torch.Tensor = fft.irfft(fft.rfft(x, n=2 * size) * fft.rfft(decay, n=2 * size), n=2 * size)
    return whole[..., :size]


def correlation(x: torch.Tensor) -> torch.Tensor:
    size = 2 * x.shape[-1] - 1
    whole: torch.Tensor = fft.irfft(fft.rfft(x, n=size) * fft.rfft(x.flip(-1), n=size), n=size)
    return whole


ROWS: dict[str, Function] = {
    "long convolution": long_convolution,
    "correlation": correlation,
    "fft": lambda x: fft.fft(x, n=5, dim=1),
    "fftn": lambda x: fft.fftn(x, s=(4,), dim=(1,)),
    "rfftn": lambda x: fft.rfftn(x, s=(4,), dim=(1,)),
    "there and back": lambda x: fft.irfftn(fft.rfftn(x, s=(6, 8), dim=(0, 1)), s=(6, 8), dim=(0, 1)),
}


@pytest.mark.parametrize("way", ROWS)
def test_lengths_along_the_last_of_two_axes(way: str) -> None:
    torch.manual_seed(0)
    first, *more = ((torch.randn(4, size),) for size in (6, 2, 3, 4, 5, 9))
    export_and_compare(Transform(ROWS[way]), first, *more, dynamic_shapes=({1: "n"},))


@pytest.mark.parametrize("opset", [10, 16])
def test_transforms_below_the_opset_that_has_them(opset: int) -> None:
    """What stands around the nodes has no shape written on it; the first sums have an imaginary part of 0.0."""

    def transformed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        windowed = torch.stft(x, 4, 2, center=False, return_complex=True)
        pairs = fft.fft(x), fft.fft2(x), fft.rfft(x, dim=0), fft.ifft(torch.complex(x, -x), norm="ortho"), windowed
        return (*map(torch.view_as_real, pairs), torch.signbit(fft.rfft(x).imag[:, 0]))

    given = [(torch.randn(count, 6),) for count in (3, 1)]
    export_and_compare(Several(transformed), *given, dynamic_shapes=({0: "n"},), opset_version=opset)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("name", ["rfft", "fft of columns", "irfft", "stft"])
def test_lengths_that_are_no_power_of_two_have_all_digits(name: str, free: bool) -> None:
    """onnxruntime computes such a transform of float32 with angles of float32, which are wrong for long ones."""
    windows = torch.hann_window(400)
    function: Function = {
        "rfft": lambda x: torch.view_as_real(fft.rfft(x)),
        "fft of columns": lambda x: torch.view_as_real(fft.fft(x.transpose(0, 1), dim=0)),
        "irfft": lambda x: fft.irfft(fft.rfft(x), n=x.shape[1]) * x.shape[1],
        "stft": lambda x: torch.stft(x, 400, 160, window=windows.to(x), return_complex=True).abs(),
    }[name]
    torch.manual_seed(0)
    x = torch.randn(2, 6000)
    program = export(Transform(function), (x,), dynamic_shapes=({1: "n"},) if free else None)
    expected = function(x.double()).float()
    torch.testing.assert_close(program(x)[0], expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize("free", [True, False])
def test_windows_without_the_optimiser(free: bool) -> None:
    """What a translation decides by the window's length is known, though nothing is folded."""
    window = torch.hann_window(12)
    transform = Transform(lambda x: torch.stft(x, 16, 4, 12, window=window, return_complex=True))
    export_and_compare(transform, (torch.randn(2, 64),), dynamic_shapes=({0: "n"},) if free else None, optimize=False)


def test_lengths_that_are_a_power_of_two_stay_in_their_dtype() -> None:
    program = export(Transform(lambda x: fft.fft2(x)), (torch.randn(8, 16),))
    assert not [node for node in program.model.graph if node.op_type == "Cast"]


def of_short_times(x: torch.Tensor, **options: bool) -> torch.Tensor:
    window = torch.hann_window(10)
    return torch.stft(x, 10, 3, window=window, center=False, return_complex=True, **options).transpose(-1, -2)


OF_REAL: dict[str, Function] = {
    "rfft": lambda x: fft.rfft(x),
    "rfft by a root": lambda x: fft.rfft(x, norm="ortho"),
    "fft": lambda x: fft.fft(x),
    "of the first axis": lambda x: fft.rfft(x.t(), dim=0).t(),
    "of a length": lambda x: fft.rfft(x, n=12),
    "ifft": lambda x: fft.ifft(x),
    "ihfft": lambda x: fft.ihfft(x),
    "stft": lambda x: of_short_times(x),
    "stft, by a root": lambda x: of_short_times(x, normalized=True),
    "whole stft": lambda x: of_short_times(x, onesided=False),
    "stft of one signal": lambda x: of_short_times(x[0]),
}


@pytest.mark.parametrize("opset", [16, 20])
@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize("way", rarer.first(4, OF_REAL))
def test_what_has_to_be_real_is_real_to_the_last_bit(way: str, is_free: bool, opset: int) -> None:
    """Frequency 0, and the middle one of an even length: else an angle of pi turns."""

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = OF_REAL[way](x)
        length = 12 if way == "of a length" else 10 if "stft" in way else x.shape[1]
        real = torch.stack([made[..., 0], made[..., length // 2]], -1)
        return real.angle(), real.imag, torch.signbit(real.imag), torch.view_as_real(made.resolve_conj())

    torch.manual_seed(0)
    given = [(torch.randn(3, size),) for size in ((14, 12, 16, 20, 26, 32, 100) if is_free else (16,))]
    shapes = ({0: "rows", 1: "n"},) if is_free else ({0: "rows"},)
    program = export(Several(parts), given[0], dynamic_shapes=shapes, opset_version=opset)
    for one in given:
        expected = parts(*one)
        assert not expected[1].any()
        angles, *others, whole = program(*one)
        torch.testing.assert_close(whole, expected[-1], rtol=0, atol=1e-4)
        torch.testing.assert_close(angles, expected[0], rtol=0, atol=1e-4)
        assert all(map(torch.equal, others, expected[1:3]))


@pytest.mark.parametrize("way", ["rfft", "fft", "stft"])
def test_frequency_0_of_an_odd_length(way: str) -> None:
    def at_0(x: torch.Tensor) -> torch.Tensor:
        made = torch.stft(x, 7, 2, center=False, return_complex=True)[:, 0] if way == "stft" else OF_REAL[way](x)[:, 0]
        return made.angle()

    torch.manual_seed(0)
    first, *more = ((torch.randn(8, size),) for size in (9, 7, 15, 101))
    export_and_compare(Transform(at_0), first, *more, (torch.full((2, 9), -1.0),), dynamic_shapes=({0: "b", 1: "n"},))


def test_what_has_to_be_real_of_several_axes() -> None:
    """At frequency 0 of all axes but the last one; else eager's sums leave roundings, too."""
    torch.manual_seed(0)
    first, *more = ((torch.randn(2, *size),) for size in ((6, 9), (5, 8), (12, 7)))
    for function in (lambda x: fft.rfft2(x)[:, 0, 0], lambda x: fft.rfftn(x)[0, 0, 0]):
        program = export(Transform(function), first, dynamic_shapes=({0: "b", 1: "n", 2: "m"},))
        for given in (first, *more):
            assert torch.equal(program(*given)[0][..., 1].signbit(), function(*given).imag.signbit())
            assert not program(*given)[0][..., 1].any()


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_the_phase_of_silence_is_zero(opset: int) -> None:
    def phases(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spectrum = torch.stft(x, 20, 7, window=torch.hann_window(20), return_complex=True)
        return fft.rfft(x).angle(), spectrum.angle()

    program = export(phases, (torch.randn(2, 100),), opset_version=opset)
    for part in program(torch.zeros(2, 100)):
        assert torch.equal(part, torch.zeros_like(part))
