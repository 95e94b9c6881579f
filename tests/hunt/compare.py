"""Whether a file's result is eager's: shape, dtype, integers exactly, floats within what rounding explains.

Two tensors arrive, the kind of their worst difference leaves: `shape`, `dtype`, `number`, `nan`, `infinity`,
`sign of zero`, or nothing. `Allowance` holds what eager's own sensitivity and float64 excuse.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

RELATIVE = {torch.float64: 1e-9, torch.float32: 3e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2, torch.complex64: 1e-4}
_OF_LARGEST = 0.1
"""Absolute tolerance as a part of the relative one, times the largest finite number (10 at most) of the result."""
_TIMES = 8.0
"""How much further than eager's own movement a file may be."""
ZERO_SIGN = "sign of zero"
KINDS = ("count", "dtype", "shape", "number", "infinity", "nan", ZERO_SIGN)


@dataclass(frozen=True)
class Difference:
    """The worst kind of difference of one result, and one element that shows it."""

    kind: str
    detail: str


@dataclass(frozen=True)
class Allowance:
    """What is excused: movement per element, loose elements, and float64's values where eager has them.

    `slack` and `loose` are None where the whole result is excused.
    """

    slack: torch.Tensor | None
    loose: torch.Tensor | None
    exact: torch.Tensor | None


def difference(expected: torch.Tensor, actual: torch.Tensor, allowance: Allowance | None = None) -> Difference | None:
    """The worst difference, None when there is none."""
    if allowance is not None and allowance.slack is None:
        return None
    if actual.dtype != _as_real(expected).dtype and actual.dtype != expected.dtype:
        return Difference("dtype", f"{actual.dtype} instead of {expected.dtype}")
    if _as_real(actual).shape != _as_real(expected).shape:
        return Difference("shape", f"{list(actual.shape)} instead of {list(expected.shape)}")
    for kind, where in wrong(expected, actual, allowance).items():
        found = _shown(kind, where, _as_real(expected), _as_real(actual))
        if found is not None:
            return found
    return None


def wrong(expected: torch.Tensor, actual: torch.Tensor, allowance: Allowance | None = None) -> dict[str, torch.Tensor]:
    """Which elements differ, by the kind of difference; of a complex number its parts. Shapes are equal.

    Signs of zeros in complex numbers are not looked at: torch multiplies them by real numbers as by complex ones.
    """
    if expected.is_complex():
        if allowance is not None and allowance.slack is not None and allowance.loose is not None:
            parts = (*expected.shape, 2)
            both = allowance.loose[..., None].expand(parts)
            allowance = Allowance(allowance.slack[..., None].expand(parts), both, None)
        expected, actual = (_not_finite_as_nan(_as_real(one)) + 0.0 for one in (expected, actual))
    loose = torch.zeros(expected.shape, dtype=torch.bool) if allowance is None else allowance.loose
    assert loose is not None
    if not expected.is_floating_point():
        return {"number": (expected != actual) & ~loose}
    return {kind: where & ~loose for kind, where in _floats(expected, actual, allowance).items()}


def _not_finite_as_nan(parts: torch.Tensor) -> torch.Tensor:
    """A complex number with a part that is not finite as NaN: its products may have anything in either part."""
    return torch.where(torch.isfinite(parts).all(-1, keepdim=True), parts, torch.full_like(parts, torch.nan))


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _floats(expected: torch.Tensor, actual: torch.Tensor, allowance: Allowance | None) -> dict[str, torch.Tensor]:
    one, other = expected.double(), actual.double()
    nan = torch.isnan(one) != torch.isnan(other)
    infinite = (torch.isinf(one) | torch.isinf(other)) & (one != other) & ~torch.isnan(one) & ~torch.isnan(other)
    both = torch.isfinite(one) & torch.isfinite(other)
    error = torch.where(both, (one - other).abs(), torch.zeros_like(one))
    finite = one[torch.isfinite(one)].abs()
    relative = RELATIVE[expected.dtype]
    largest = min(float(finite.max()), 10.0) if finite.numel() else 0.0
    allowed = relative * torch.where(both, one.abs(), torch.zeros_like(one)) + relative * _OF_LARGEST * largest + 1e-36
    if allowance is not None and allowance.slack is not None:
        allowed = allowed + _TIMES * allowance.slack
        if allowance.exact is not None and allowance.exact.shape == one.shape:
            own = (allowance.exact.double() - one).abs().nan_to_num(0.0, 0.0, 0.0)
            allowed = allowed + 2 * own
    zeros = (one == 0) & (other == 0) & (torch.signbit(one) != torch.signbit(other))
    found = {"number": error > allowed, "infinity": infinite, "nan": nan, ZERO_SIGN: zeros}
    if allowance is not None and allowance.exact is not None and allowance.exact.shape == one.shape:
        better = _is_exact(allowance.exact.to(expected.dtype).double(), other, relative)
        found |= {kind: found[kind] & ~better for kind in ("number", "infinity", "nan")}
    return found


def _is_exact(exact: torch.Tensor, other: torch.Tensor, relative: float) -> torch.Tensor:
    """Where the file has what float64 gives, however far from it eager is."""
    near = (exact - other).abs() <= relative * exact.abs()
    return torch.where(torch.isfinite(exact), near, exact == other)


def _shown(kind: str, where: torch.Tensor, expected: torch.Tensor, actual: torch.Tensor) -> Difference | None:
    if not bool(where.any()):
        return None
    place = tuple(int(axis) for axis in where.nonzero()[0])
    return Difference(kind, f"{actual[place].item()!r} instead of {expected[place].item()!r} at {list(place)}")


def worst(found: list[Difference | None]) -> tuple[int, Difference] | None:
    """The most serious of several results' differences, with its place."""
    there = [(index, one) for index, one in enumerate(found) if one is not None]
    return min(there, key=lambda pair: KINDS.index(pair[1].kind)) if there else None
